"""What the driver must not forget when it ends: which claims it has prepared, and how far it is with its faults.

Written before the kubelet is answered, whole and under a name of its own first: after a crash there is the old state or
the new one. It need not survive a crash of the machine, which ends the containers as well.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from lab.realnode.driver.kubelet_api import ClaimRef, PreparedDevice


class CheckpointError(Exception):
    """The file is there and cannot be read: going on would mean to forget what is prepared."""


@dataclass(slots=True)
class Checkpoint:
    """Change it, then `save`."""

    path: Path
    claims: dict[str, tuple[ClaimRef, tuple[PreparedDevice, ...]]] = field(default_factory=dict)  # by UID
    order: str = ""  # the order of faults that `spent` is about
    spent: dict[str, int] = field(default_factory=dict)  # by name of the fault, how often it has struck

    @classmethod
    def load(cls, path: Path) -> Self:
        """What an earlier life saved; empty if there was none. Raises CheckpointError."""
        if not path.exists():
            return cls(path)
        try:
            saved = json.loads(path.read_text())
            claims = {
                uid: (ClaimRef(**one["claim"]), tuple(_device(device) for device in one["devices"]))
                for uid, one in saved["claims"].items()
            }
            return cls(path, claims, saved["order"], saved["spent"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} is no checkpoint of this driver: {error!r}") from error

    def save(self) -> None:
        """Write all of it."""
        claims = {
            uid: {"claim": asdict(claim), "devices": [asdict(one) for one in devices]}
            for uid, (claim, devices) in self.claims.items()
        }
        partial = self.path.with_name(f"{self.path.name}.partial")
        partial.write_text(json.dumps({"claims": claims, "order": self.order, "spent": self.spent}))
        partial.rename(self.path)

    def strikes(self, order: str, fault: str, times: int) -> bool:
        """Whether a fault that strikes so many times in this order strikes now; saved before it does."""
        if order != self.order:
            self.order, self.spent = order, {}
        if self.spent.get(fault, 0) >= times:
            return False
        self.spent[fault] = self.spent.get(fault, 0) + 1
        self.save()
        return True


def _device(saved: dict[str, object]) -> PreparedDevice:
    return PreparedDevice(**{name: tuple(v) if isinstance(v, list) else v for name, v in saved.items()})  # type: ignore[arg-type]
