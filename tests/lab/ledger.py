"""The oracle: which claim each device was prepared for, and whether one device ever served two at once.

Only the simulated nodes and the driver of a real node write here, at the moment the driver prepares or unprepares, so
the ledger knows what no API object can show: a process that still holds a device after its pod and its claim are gone.

Entries are ordered by their number, not by their clock. Two entries of the same instant stand in the order in
which the node made them: a device prepared before its previous holder was unprepared is an overlap, however
short.
"""

import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Self, TextIO


class Deed(StrEnum):
    """What the driver did with a device."""

    PREPARED = "prepared"
    UNPREPARED = "unprepared"


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """A device as the API names it: names are unique within a pool, pools within a driver."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.name}"


@dataclass(frozen=True, slots=True)
class Holder:
    """The claim that a device is prepared for, and the pod that first needed it on this node."""

    claim_uid: str
    claim_namespace: str
    claim_name: str
    pod_uid: str = ""
    pod_name: str = ""
    admin: bool = False  # adminAccess: looks at a device without owning it
    share: str = ""  # shareID: draws on consumable capacity, so other shares of the device are no overlap

    def __str__(self) -> str:
        of_pod = f" (pod {self.pod_name})" if self.pod_name else ""
        return f"claim {self.claim_namespace}/{self.claim_name}{of_pod}"

    def excludes(self, other: "Holder") -> bool:
        """Whether the two may not have one device prepared at the same time."""
        if self.claim_uid == other.claim_uid or self.admin or other.admin:
            return False
        return not (self.share and other.share)


@dataclass(frozen=True, slots=True)
class Entry:
    """One deed of one node's driver."""

    number: int  # position in the ledger; the only order that counts
    deed: Deed
    node: str
    device: Device
    holder: Holder
    monotonic: float  # seconds, by the clock of the machine on which it was written
    wall: datetime
    cause: str = ""  # why a device was unprepared outside a pod's ordinary end, e.g. a reboot

    def as_json(self) -> str:
        """One line of the ledger's file."""
        fields = asdict(self)
        fields["wall"] = self.wall.isoformat()
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Read back what `as_json` wrote; raises ValueError on anything else."""
        try:
            fields = json.loads(line)
            fields["deed"] = Deed(fields["deed"])
            fields["device"] = Device(**fields["device"])
            fields["holder"] = Holder(**fields["holder"])
            fields["wall"] = datetime.fromisoformat(fields["wall"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a ledger entry: {line.strip()!r}") from error


@dataclass(frozen=True, slots=True)
class Overlap:
    """One device prepared for two claims that exclude each other."""

    device: Device
    first: Entry  # prepared, and not yet unprepared when…
    second: Entry  # …this one was prepared
    ended: Entry | None  # what ended it; None while it lasts

    @property
    def seconds(self) -> float | None:
        """How long the overlap lasted; None while it lasts."""
        return None if self.ended is None else self.ended.monotonic - self.second.monotonic

    def __str__(self) -> str:
        lasted = "and it is not over" if self.seconds is None else f"for {self.seconds:.3f} s"
        return (
            f"device {self.device} on node {self.second.node} was prepared for {self.second.holder} "
            f"(entry {self.second.number}) while it was still prepared for {self.first.holder} "
            f"(entry {self.first.number}), {lasted}"
        )


class DevicePreparedTwiceError(AssertionError):
    """The promise of the whole project is broken: a device served two claims at once."""

    def __init__(self, overlaps: Iterable[Overlap]) -> None:
        self.overlaps = tuple(overlaps)
        super().__init__("\n".join(["the ledger shows double use:", *(f"  {one}" for one in self.overlaps)]))


class Ledger:
    """Append-only record of prepared and unprepared devices; shared by all nodes of a simulation."""

    def __init__(self, path: Path | None = None) -> None:
        """With a path, every entry is also written there at once, as a JSON line others can read."""
        self._entries: list[Entry] = []
        self._held: defaultdict[Device, dict[str, Entry]] = defaultdict(dict)
        self._lock = threading.Lock()
        self._file: TextIO | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="utf-8", buffering=1)

    @classmethod
    def load(cls, path: Path) -> "Ledger":
        """The ledger that another process wrote. A last line cut short by a crash is left out."""
        ledger = cls()
        text = path.read_text(encoding="utf-8")
        lines = text.split("\n")[: text.count("\n")]  # what follows the last newline was cut short
        for line in lines:
            if line.strip():
                ledger._append(Entry.from_json(line))
        return ledger

    @classmethod
    def resume(cls, path: Path) -> "Ledger":
        """Go on with the ledger of an earlier life, or begin a new one. A last line cut short is cut off."""
        if not path.exists():
            return cls(path)
        ledger = cls.load(path)
        written = path.read_bytes()
        os.truncate(path, written.rfind(b"\n") + 1)
        ledger._file = path.open("a", encoding="utf-8", buffering=1)
        return ledger

    def prepared(self, node: str, device: Device, holder: Holder) -> Entry:
        """Note that `device` is prepared for `holder`; a repeated prepare returns the first entry."""
        with self._lock:
            if (already := self._held[device].get(holder.claim_uid)) is not None:
                return already
            return self._note(Deed.PREPARED, node, device, holder, cause="")

    def unprepared(self, node: str, device: Device, claim_uid: str, *, cause: str = "") -> Entry:
        """Note that `device` is no longer prepared for the claim; raises LookupError if it was not."""
        with self._lock:
            if (since := self._held[device].get(claim_uid)) is None:
                raise LookupError(f"device {device} is not prepared for the claim with UID {claim_uid}")
            return self._note(Deed.UNPREPARED, node, device, since.holder, cause=cause)

    def entries(self) -> tuple[Entry, ...]:
        """Everything noted so far, in order."""
        return tuple(self._entries)

    def held(self, *, node: str | None = None, claim_uid: str | None = None) -> tuple[Entry, ...]:
        """The prepared entries that nothing has undone yet, oldest first."""
        found = [
            entry
            for holders in self._held.values()
            for entry in holders.values()
            if (node is None or entry.node == node)
            and (claim_uid is None or entry.holder.claim_uid == claim_uid)
        ]
        return tuple(sorted(found, key=lambda entry: entry.number))

    def violations(self) -> tuple[Overlap, ...]:
        """Every pair of claims that had one device prepared at the same time, in the order it began."""
        return tuple(_overlaps(self._entries))

    def assert_clean(self) -> None:
        """Raise DevicePreparedTwiceError, with a sentence for each overlap, if there ever was one."""
        if overlaps := self.violations():
            raise DevicePreparedTwiceError(overlaps)

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note(self, deed: Deed, node: str, device: Device, holder: Holder, *, cause: str) -> Entry:
        entry = Entry(
            number=len(self._entries),
            deed=deed,
            node=node,
            device=device,
            holder=holder,
            monotonic=time.monotonic(),
            wall=datetime.now(UTC),
            cause=cause,
        )
        self._append(entry)
        return entry

    def _append(self, entry: Entry) -> None:
        self._entries.append(entry)
        if entry.deed is Deed.PREPARED:
            self._held[entry.device][entry.holder.claim_uid] = entry
        else:
            self._held[entry.device].pop(entry.holder.claim_uid, None)
        if self._file is not None:
            self._file.write(entry.as_json() + "\n")


def _overlaps(entries: Iterable[Entry]) -> Iterator[Overlap]:
    """Walk the entries once, keeping who holds each device; an overlap begins with the later prepare."""
    held: defaultdict[Device, dict[str, Entry]] = defaultdict(dict)
    begun: list[tuple[Entry, Entry]] = []
    ends: dict[tuple[Device, str, int], Entry] = {}  # by device, claim and the number of the prepare it ends
    for entry in entries:
        holders = held[entry.device]
        uid = entry.holder.claim_uid
        if entry.deed is Deed.PREPARED:
            begun.extend((other, entry) for other in holders.values() if other.holder.excludes(entry.holder))
            holders[uid] = entry
        elif (since := holders.pop(uid, None)) is not None:
            ends[entry.device, uid, since.number] = entry
    for first, second in begun:
        either = [
            ends[one.device, one.holder.claim_uid, one.number]
            for one in (first, second)
            if (one.device, one.holder.claim_uid, one.number) in ends
        ]
        yield Overlap(
            device=second.device,
            first=first,
            second=second,
            ended=min(either, key=lambda entry: entry.number, default=None),
        )
