"""What is shown of a rollout: frozen values made from a snapshot, which know nothing of terminals."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from accelerator_rollout.api.models import Replacement, RolloutObject, RolloutStatus, Stage
from accelerator_rollout.decide.departures import gated
from accelerator_rollout.decide.explain import Verdict, called, explain, judge
from accelerator_rollout.decide.holds import is_hold
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.records import ClaimRecord, PodRecord
from accelerator_rollout.workloads import driver_for

_RELEASED = (Stage.SETTLING, Stage.GATED)


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A claim and the devices that it is allocated, if any; `state` in a word."""

    name: str
    state: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod. `since` belongs to `state`; `note` says what its replacement waits for."""

    name: str
    state: str
    since: datetime | None
    node: str
    note: str
    claims: tuple[ClaimView, ...]
    at_rest: bool  # ready, and part of no replacement
    count: int = 1  # how many pods it stands for, where there is no room for each


@dataclass(frozen=True, slots=True)
class RevisionView:
    """The pods of one revision. `target`: the one that pods are brought to."""

    name: str
    target: bool
    pods: tuple[PodView, ...]


@dataclass(frozen=True, slots=True)
class GoneView:
    """A pod that is gone, and whose devices or successor are waited for."""

    name: str
    stage: str
    since: datetime
    node: str
    note: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Headline:
    """A rollout in one row."""

    namespace: str
    name: str
    workload: str
    verdict: str
    reason: str
    since: datetime | None
    message: str
    desired: int
    updated: int
    ready: int
    available: int
    gated: int
    revision: str
    paused: bool
    created: datetime


@dataclass(frozen=True, slots=True)
class RolloutView:
    """A rollout with all that belongs to it."""

    headline: Headline
    revisions: tuple[RevisionView, ...]
    gone: tuple[GoneView, ...]


def headline(rollout: RolloutObject, status: RolloutStatus | None = None) -> Headline:
    """Return the row of a rollout; of a status made just now, if one is given."""
    told = rollout.status if status is None else status
    explained = explain(rollout, told)
    ref = rollout.spec.workload_ref
    return Headline(
        namespace=rollout.namespace,
        name=rollout.name,
        workload=f"{ref.kind}/{ref.name}",
        verdict=str(explained.verdict),
        reason=explained.reason,
        since=explained.since,
        message=explained.message,
        desired=told.replicas,
        updated=told.updated_replicas,
        ready=told.ready_replicas,
        available=told.available_replicas,
        gated=told.gated_replicas,
        revision=told.update_revision,
        paused=rollout.spec.paused,
        created=rollout.created,
    )


def finished(rollout: RolloutObject) -> Verdict | None:
    """Return the verdict, if nothing will change it before somebody does something."""
    verdict, _ = judge(rollout, rollout.status)
    return verdict if verdict in (Verdict.COMPLETE, Verdict.STALLED) else None


def picture(snapshot: Snapshot) -> RolloutView:
    """Return the rollout with its pods, grouped by revision: the target first, then by name."""
    driver = driver_for(snapshot)
    entries = _entries(snapshot.rollout.status)
    groups: dict[tuple[bool, str], list[PodView]] = {}
    for pod in sorted(snapshot.pods, key=lambda p: (_place(p), p.name)):
        target = driver is not None and driver.updated(pod)
        groups.setdefault((not target, pod.revision), []).append(_pod(pod, snapshot, entries))
    revisions = tuple(
        RevisionView(name or "(none)", target=not old, pods=tuple(pods))
        for (old, name), pods in sorted(groups.items())
    )
    return RolloutView(headline(snapshot.rollout), revisions, tuple(_gone(snapshot)))


def _place(pod: PodRecord) -> int:
    return pod.ordinal if pod.owner is not None and pod.owner.kind == "StatefulSet" else 0


def _entries(status: RolloutStatus) -> Mapping[str, Replacement]:
    """Return who is in a replacement, by UID of the pod that leaves and of the one that comes."""
    found = {e.replacement_pod_uid: e for e in status.replacements if e.replacement_pod_uid}
    return found | {e.pod_uid: e for e in status.replacements if e.pod_uid}


def _pod(pod: PodRecord, snapshot: Snapshot, entries: Mapping[str, Replacement]) -> PodView:
    state, since = _state(pod)
    entry = entries.get(pod.uid)
    claims = (snapshot.claims.get(name) for name in pod.claim_names)
    return PodView(
        name=pod.name,
        state=state,
        since=since,
        node=pod.node,
        note=_note(pod, entry) if entry is not None else "",
        claims=tuple(_claim(claim) for claim in claims if claim is not None),
        at_rest=entry is None and state == "Ready",
    )


def _state(pod: PodRecord) -> tuple[str, datetime | None]:
    if pod.terminal:
        return str(pod.phase), None
    if pod.terminating:
        return "Terminating", None
    if gated(pod):
        return "Gated", pod.created
    if pod.waiting_reason and not pod.ready:
        return pod.waiting_reason, pod.created
    if pod.ready:
        return "Ready", pod.ready_since
    if not pod.bound:
        return "Unscheduled", pod.created
    return ("NotReady" if pod.phase == "Running" else "Starting"), pod.created


def _note(pod: PodRecord, entry: Replacement) -> str:
    why = f"{entry.stage}: {entry.reason}" if entry.reason else str(entry.stage)
    if pod.uid != entry.replacement_pod_uid or not entry.pod_name or entry.pod_name == pod.name:
        return why
    return f"{why}, after {entry.pod_name}"


def _claim(claim: ClaimRecord) -> ClaimView:
    devices = tuple(sorted(str(use.device) for use in claim.uses or ()))
    held = any(is_hold(entry) for entry in claim.reserved_for)
    state = ("Held" if held else "Allocated") if claim.uses is not None else "Unallocated"
    return ClaimView(claim.name, state, devices)


def _gone(snapshot: Snapshot) -> Iterator[GoneView]:
    there = {pod.uid for pod in snapshot.pods}
    for entry in snapshot.rollout.status.replacements:
        if entry.pod_uid in there:
            continue
        devices = tuple(f"{d.driver}/{d.pool}/{d.device}" for claim in entry.claims for d in claim.devices)
        note = entry.reason or ("released" if entry.stage in _RELEASED else "")
        yield GoneView(
            called(entry), str(entry.stage), entry.stage_started_at, entry.node_name, note, devices
        )
