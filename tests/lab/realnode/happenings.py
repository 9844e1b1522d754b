"""What happened to a workload's pods and devices, from the API server's watches and the driver's ledger, in one list.

The same for simulated nodes and for a real one: pods and devices are numbered in the order in which they appear, so two
recordings of one scenario can be laid side by side.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from accelerator_rollout.names import GROUP
from lab.client import EventType
from lab.ledger import Deed, Ledger
from lab.recorder import Recorded, Timeline
from lab.world import gated, pod_is_ready


class What(StrEnum):
    """What may happen, in the words of the timelines."""

    CREATED = "is created"
    GATED = "is created behind its gate"
    OPENED = "gate opens"
    BOUND = "is bound to a node"
    RUNNING = "runs"
    READY = "is Ready"
    DELETED = "is told to go"
    TERMINAL = "has ended, says the kubelet"
    GONE = "object is gone"
    ALLOCATED = "claim is allocated"
    HELD = "claim is held"
    FREE = "claim is free"
    PREPARED = "device is prepared"
    UNPREPARED = "device is unprepared"


@dataclass(frozen=True, slots=True, order=True)
class Happening:
    """One thing that happened to one pod."""

    wall: datetime
    pod: int
    """Its number, from 1, in the order of creation."""
    what: What
    device: str = ""
    pod_name: str = ""

    def __str__(self) -> str:
        return f"pod {self.pod} {self.what}" + (f" ({self.device})" if self.device else "")


def happenings(recorded: Timeline, ledger: Ledger, app: str) -> list[Happening]:
    """Everything that happened to the pods with this `app` label, in the order of the clock."""
    pods: dict[str, tuple[int, str]] = {}
    for one in recorded.events(kind="Pod"):
        if (one.object["metadata"].get("labels") or {}).get("app") == app and one.uid not in pods:
            pods[one.uid] = (len(pods) + 1, one.name)
    claims = {
        one.uid: owner
        for one in recorded.events(kind="ResourceClaim")
        for owner in (_owner(one),)
        if owner in pods
    }
    found: list[Happening] = []
    for uid, (number, name) in pods.items():
        events = recorded.events(kind="Pod", predicate=lambda one, uid=uid: one.uid == uid)  # type: ignore[misc]
        found += [Happening(when, number, what, pod_name=name) for when, what in _of_pod(events)]
    for uid, owner in claims.items():
        number, name = pods[owner]
        events = recorded.events(kind="ResourceClaim", predicate=lambda one, uid=uid: one.uid == uid)  # type: ignore[misc]
        found += [Happening(when, number, what, pod_name=name) for when, what in _of_claim(events)]
    for entry in ledger.entries():
        if (holder := claims.get(entry.holder.claim_uid)) is not None:
            number, name = pods[holder]
            what = What.PREPARED if entry.deed is Deed.PREPARED else What.UNPREPARED
            found.append(Happening(entry.wall, number, what, entry.device.name, name))
    return sorted(found, key=lambda one: one.wall)


def rendered(found: Iterable[Happening], *, since: What = What.DELETED) -> list[str]:
    """A line for each, with seconds that count from the first `since`."""
    listed = list(found)
    start = next((one.wall for one in listed if one.what is since), listed[0].wall if listed else None)
    return [] if start is None else [f"{(one.wall - start).total_seconds():+8.3f} s  {one}" for one in listed]


def _of_pod(events: Iterable[Recorded]) -> Iterator[tuple[datetime, What]]:
    first: dict[What, datetime] = {}

    def note(one: Recorded, what: What) -> None:
        first.setdefault(what, one.wall)

    behind = False
    for one in events:
        closed = gated(one.object)
        if not first:
            note(one, What.GATED if closed else What.CREATED)
        if behind and not closed:
            note(one, What.OPENED)
        behind = closed
        if one.object["spec"].get("nodeName"):
            note(one, What.BOUND)
        phase = one.status.get("phase")
        if phase == "Running":
            note(one, What.RUNNING)
        if pod_is_ready(one.object) and not one.deleting:
            note(one, What.READY)
        if one.deleting or one.type is EventType.DELETED:
            note(one, What.DELETED)
        if phase in ("Succeeded", "Failed"):
            note(one, What.TERMINAL)
        if one.type is EventType.DELETED:
            note(one, What.GONE)
    yield from ((when, what) for what, when in first.items())


def _of_claim(events: Iterable[Recorded]) -> Iterator[tuple[datetime, What]]:
    allocated = held = False
    for one in events:
        now = one.type is not EventType.DELETED and one.status.get("allocation") is not None
        if now != allocated:
            yield one.wall, What.ALLOCATED if now else What.FREE
        allocated = now
        ours = any(entry.get("apiGroup") == GROUP for entry in one.status.get("reservedFor") or [])
        if ours and not held:
            yield one.wall, What.HELD
        held = held or ours


def _owner(one: Recorded) -> str:
    return next((str(owner["uid"]) for owner in one.object["metadata"].get("ownerReferences") or []), "")
