"""Measures a rollout from what was recorded: the way of each pod that left and of the pod that came for it.

Order is that of resourceVersions. Seconds are those of arrival here, a few milliseconds late and all alike.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from lab.client import EventType
from lab.demo.acts import Rolled
from lab.demo.facts import ClaimFacts, PodFacts, State, claim_facts, pod_facts
from lab.recorder import Recorded, Timeline

STAGES: Final = ("drain", "free", "gate", "sched.", "start")


@dataclass(frozen=True, slots=True)
class Journey:
    """One replacement, mark by mark. None: that was never seen."""

    old: PodFacts
    new: PodFacts | None
    device: str  # that the old pod held
    proof: str  # of the release, as the status gave it; empty without us
    told: Recorded  # to leave: the deletionTimestamp
    ended: Recorded | None  # its kubelet wrote a terminal phase, after unprepare
    freed: Recorded | None  # its claim was no longer allocated
    opened: Recorded | None  # the gate of its successor
    bound: Recorded | None
    serving: Recorded | None
    new_device: str

    def seconds(self) -> tuple[float | None, ...]:
        """How long each of STAGES took; None where there was no such stage or it did not end."""
        begin_scheduling = self.opened or self.freed
        return (
            _between(self.told, self.ended),
            _between(self.ended, self.freed),
            _between(self.freed, self.opened),
            _between(begin_scheduling, self.bound),
            _between(self.bound, self.serving),
        )

    @property
    def handover(self) -> float | None:
        """From the device's freedom until the successor is bound."""
        return _between(self.freed, self.bound)

    @property
    def total(self) -> float | None:
        """From the word to leave until the successor serves."""
        return _between(self.told, self.serving)


@dataclass(frozen=True, slots=True)
class Extremes:
    """The worst moments of a rollout."""

    device_sets: int  # the most that were held or could be taken at once
    serving: int  # the fewest pods that served


def journeys(timeline: Timeline, rolled: Rolled) -> list[Journey]:
    """The replacements of a rollout, in the order in which the old pods left."""
    after = rolled.first.version
    pods = _by_uid(timeline.events(kind="Pod", namespace=rolled.namespace))
    claims = _by_uid(timeline.events(kind="ResourceClaim", namespace=rolled.namespace))
    # The end of the act deletes the updated pods as well; those are nobody's predecessors.
    left = [
        (told, states)
        for states in pods.values()
        if states[0].version < after
        and (told := _first(states, lambda one: one.deleting and one.version > after)) is not None
    ]
    left.sort(key=lambda pair: pair[0].version)
    came = sorted(
        (states for states in pods.values() if states[0].version > after), key=lambda s: s[0].version
    )
    told_by_status = _status_entries(timeline, rolled.namespace)
    found = []
    for number, (told, states) in enumerate(left):
        entry = told_by_status.get(told.uid, {})
        # Without a status one pod leaves and one comes at a time: the order says who came for whom.
        by_order = came[number] if number < len(came) else None
        new = pods.get(entry.get("replacementPodUID", "")) or by_order
        found.append(_journey(told, states, new or [], claims.values(), entry.get("proof", "")))
    return found


def extremes(timeline: Timeline, rolled: Rolled) -> Extremes:
    """Walk the recording from the change of the template to its end."""
    pods: dict[str, PodFacts] = {}
    claims: dict[str, ClaimFacts] = {}
    most, fewest = 0, None
    for one in timeline.events(namespace=rolled.namespace):
        if one.version > rolled.last.version:
            break
        match one.kind, one.type:
            case "Pod", EventType.DELETED:
                pods.pop(one.uid, None)
            case "Pod", _:
                pods[one.uid] = pod_facts(one.object)
            case "ResourceClaim", EventType.DELETED:
                claims.pop(one.uid, None)
            case "ResourceClaim", _:
                claims[one.uid] = claim_facts(one.object)
            case _:
                continue
        if one.version <= rolled.first.version:
            continue
        holders = {pod.uid for pod in pods.values() if pod.open}
        holders |= {claim.pod_uid for claim in claims.values() if claim.devices}
        serving = sum(pod.state is State.SERVING for pod in pods.values())
        most = max(most, len(holders))
        fewest = serving if fewest is None else min(fewest, serving)
    return Extremes(most, fewest or 0)


def _journey(
    told: Recorded,
    old: list[Recorded],
    new: list[Recorded],
    claims: Iterable[list[Recorded]],
    proof: str,
) -> Journey:
    own = _claim_of(told.uid, claims)
    allocated = _first(own, lambda one: bool(claim_facts(one.object).devices))
    freed = _first(
        own,
        lambda one: (
            one.version > told.version
            and (one.type is EventType.DELETED or not claim_facts(one.object).devices)
        ),
    )
    born_gated = bool(new) and pod_facts(new[0].object).state is State.GATED
    opened = _first(new, lambda one: _state(one) is not State.GATED) if born_gated else None
    taken = _first(
        _claim_of(new[0].uid, claims) if new else [], lambda one: bool(claim_facts(one.object).devices)
    )
    return Journey(
        old=pod_facts(told.object),
        new=pod_facts(new[0].object) if new else None,
        device=_devices(allocated),
        proof=proof,
        told=told,
        ended=_first(old, lambda one: _state(one) is State.ENDED),
        freed=freed,
        opened=opened,
        bound=_first(new, lambda one: bool(one.object["spec"].get("nodeName"))),
        serving=_first(new, lambda one: _state(one) is State.SERVING),
        new_device=_devices(taken),
    )


def _status_entries(timeline: Timeline, namespace: str) -> dict[str, dict[str, str]]:
    """What the status said of each replacement, by the UID of the pod that left: the fullest word of any time."""
    found: dict[str, dict[str, str]] = {}
    for one in timeline.events(kind="AcceleratorRollout", namespace=namespace):
        for entry in one.status.get("replacements") or ():
            known = found.setdefault(entry.get("podUID", ""), {})
            known |= {key: entry[key] for key in ("proof", "replacementPodUID") if entry.get(key)}
    return found


def _by_uid(events: Iterable[Recorded]) -> dict[str, list[Recorded]]:
    found: dict[str, list[Recorded]] = {}
    for one in events:
        found.setdefault(one.uid, []).append(one)
    return found


def _claim_of(pod_uid: str, claims: Iterable[list[Recorded]]) -> list[Recorded]:
    return next((states for states in claims if claim_facts(states[0].object).pod_uid == pod_uid), [])


def _first(states: Iterable[Recorded], wanted: Callable[[Recorded], bool]) -> Recorded | None:
    return next((one for one in states if wanted(one)), None)


def _state(one: Recorded) -> State:
    return pod_facts(one.object).state


def _devices(one: Recorded | None) -> str:
    return ", ".join(claim_facts(one.object).devices) if one is not None else ""


def _between(begin: Recorded | None, end: Recorded | None) -> float | None:
    return None if begin is None or end is None else end.monotonic - begin.monotonic
