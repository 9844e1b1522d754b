"""What the driver does wrong, and how slowly: a file that it reads anew at each call.

Whoever writes the file gives an order. Counts run from the order, not from the driver's start: a driver that crashed
as it was told does not crash again when it is back, and the third of three failures stays the last one.
"""

import json
import os
import secrets
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

FOREVER: Final = 1_000_000_000  # as a count


class FaultError(ValueError):
    """The file means nothing: a fault that silently did nothing would make a test lie."""


class Crash(StrEnum):
    """Where in a call the process dies at once. It does so once for each order."""

    BEFORE_PREPARE = "before-prepare"
    WHILE_PREPARING = "while-preparing"  # the device is taken, and the claim not yet prepared
    AFTER_PREPARE = "after-prepare"  # everything is done, and the kubelet has no answer
    BEFORE_UNPREPARE = "before-unprepare"
    AFTER_UNPREPARE = "after-unprepare"


@dataclass(frozen=True, slots=True)
class Faults:
    """One order; the defaults are a driver with no faults."""

    prepare_seconds: float = 0.0  # from taking the device to the answer
    unprepare_seconds: float = 0.0  # from the call to letting go of the device
    fail_prepares: int = 0  # so many from the order on, counted by claims
    fail_unprepares: int = 0
    crash: Crash | None = None
    registered: bool = True  # whether the kubelet finds it
    order: str = field(default_factory=lambda: secrets.token_hex(4))  # names the order; never given twice

    def write(self, path: Path) -> None:
        """Give the order: the driver heeds it from its next call on."""
        partial = path.with_name(f"{path.name}.partial")
        partial.write_text(json.dumps(asdict(self)))
        partial.rename(path)

    @classmethod
    def read(cls, path: Path) -> "Faults":
        """The order that stands; without a file none. Raises FaultError."""
        try:
            told = json.loads(path.read_text())
        except FileNotFoundError:
            return cls(order="")
        except ValueError as error:
            raise FaultError(f"{path} is no JSON: {error}") from error
        return cls.parse(told)

    @classmethod
    def parse(cls, told: Any) -> "Faults":
        """An order out of its JSON. Raises FaultError."""
        known = {one.name for one in fields(cls)}
        if not isinstance(told, dict) or (strange := set(told) - known):
            what = "no object" if not isinstance(told, dict) else f"unknown: {', '.join(sorted(strange))}"
            raise FaultError(f"no faults of the driver ({what}); known are {', '.join(sorted(known))}")
        for name, value in told.items():
            if not _fits(name, value):
                raise FaultError(f"{name} of the driver's faults cannot be {value!r}")
        crash = told.get("crash")
        return cls(**{"order": "", **told, "crash": crash and Crash(crash)})


def _fits(name: str, value: Any) -> bool:
    match name:
        case "registered":
            return isinstance(value, bool)
        case "order":
            return isinstance(value, str)
        case "crash":
            return value is None or value in set(Crash)
        case "fail_prepares" | "fail_unprepares":
            return isinstance(value, int) and not isinstance(value, bool) and value >= 0
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def die() -> None:
    """End this process as a crash does: nothing is closed, nothing is said."""
    os._exit(CRASHED)


CRASHED: Final = 70
"""The exit code of a driver that crashed as it was told."""
