"""Which gates may open now, and what keeps the others closed."""

from collections.abc import Iterable
from dataclasses import dataclass

from accelerator_rollout.api.models import Placement, Replacement
from accelerator_rollout.decide.actions import OpenGate
from accelerator_rollout.decide.appraisal import Appraisal
from accelerator_rollout.decide.budget import Room
from accelerator_rollout.decide.departures import gated
from accelerator_rollout.decide.guards import guarding
from accelerator_rollout.decide.reasons import Waiting
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.decide.stranded import by_node
from accelerator_rollout.names import HOSTNAME_LABEL
from accelerator_rollout.records import PodRecord
from accelerator_rollout.workloads.base import Driver, NotNow


@dataclass(frozen=True, slots=True)
class Openings:
    """The gates to open, and per gated pod (by UID) why it has to wait although its own predecessor is released."""

    actions: tuple[OpenGate, ...]
    blocked: dict[str, NotNow]


def openings(
    snapshot: Snapshot, driver: Driver, appraisals: Iterable[Appraisal], doomed: frozenset[str]
) -> Openings:
    """Return the openings that S1 to S3 allow, oldest pod first. `doomed` are the UIDs of pods about to be replaced."""
    all_of_them = tuple(appraisals)
    by_successor = {a.entry.replacement_pod_uid: a for a in all_of_them if a.entry.replacement_pod_uid}
    exposed = [a for a in all_of_them if a.verdict is not None and a.verdict.exposed]
    room = Room(snapshot, (a.entry for a in all_of_them if a.unreleased))
    actions: list[OpenGate] = []
    blocked: dict[str, NotNow] = {}
    for pod in sorted((p for p in snapshot.pods if p.live and gated(p)), key=lambda p: (p.created, p.name)):
        own = by_successor.get(pod.uid)
        if pod.uid in doomed or (own is not None and own.unreleased):
            continue
        pin = _pin(own, snapshot)
        near = [a for a in exposed if not _out_of_reach(a.entry, pod, snapshot)]
        why = _exposed(near) or driver.open_blocked(pod) or _no_room(room.used(pod), room.limit)
        why = why or (pin if isinstance(pin, NotNow) else None)
        if why is not None:
            blocked[pod.uid] = why
            continue
        actions.append(
            OpenGate(pod.name, pod.uid, own.entry.pod_uid if own else "", str(pin), guarding(snapshot))
        )
        room.take(pod)
    return Openings(tuple(actions), blocked)


def _exposed(exposed: list[Appraisal]) -> NotNow | None:
    """Any pod that opens now could get the device that looks free and is not proven so."""
    if not exposed:
        return None
    entry = exposed[0].entry
    whose = f"pod {entry.pod_name}" if entry.pod_name else "an unknown pod"
    if exposed[0].verdict is not None and exposed[0].verdict.proof is not None:
        return NotNow(
            Waiting.OTHER_SETTLING,
            f"the devices of {whose} are to be left alone for a while: a pod that opens now could get them",
        )
    return NotNow(
        Waiting.OTHER_RELEASE_UNPROVEN,
        f"the devices of {whose} look free, but nothing proves that its node let go of them: "
        "a pod that opens now could get them",
    )


def _out_of_reach(entry: Replacement, pod: PodRecord, snapshot: Snapshot) -> bool:
    """Whether the scheduler cannot give the pod any device of the departed one: it is for another node than they are.

    What is not published now is given to nobody, and what is published for one node to no pod of another.
    """
    if not by_node(snapshot) or not entry.node_name or not pod.place or entry.node_name == pod.place:
        return False
    pools = {(d.driver, d.pool) for c in entry.claims for d in c.devices}
    if not pools:  # nobody saw it: its devices are of the kind that its siblings have
        return all(s.node for s in snapshot.slices)
    return all(s.node not in ("", pod.place) for s in snapshot.slices if (s.driver, s.pool) in pools)


def _pin(own: Appraisal | None, snapshot: Snapshot) -> str | NotNow:
    """Return the hostname that the pod is pinned to, "" for none, or why it cannot be."""
    if snapshot.rollout.spec.release.placement is Placement.ANY or own is None or not own.entry.node_name:
        return ""
    name = own.entry.node_name
    node = snapshot.nodes.get(name)
    hostname = node.labels.get(HOSTNAME_LABEL) if node is not None else None
    if hostname:
        return hostname
    what = f"has no label {HOSTNAME_LABEL}" if node is not None else "does not exist any more"
    return NotNow(
        Waiting.NODE_NOT_AVAILABLE,
        f"spec.release.placement is SameNode, and node {name} {what}. Set it to Any to let the pod go elsewhere",
    )


def _no_room(used: int, most: int) -> NotNow | None:
    if used < most:
        return None
    return NotNow(
        Waiting.DEVICE_BUDGET,
        f"{used} device sets are held, may be taken or are not proven free, and the workload may use {most}",
    )


def waiting_pods(pods: Iterable[PodRecord]) -> int:
    """Return how many live pods wait at our gate."""
    return sum(p.live and gated(p) for p in pods)
