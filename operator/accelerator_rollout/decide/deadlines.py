"""What is late: each stage of a replacement has a deadline of its own, and all else the progress deadline.

Deadlines undo nothing by themselves and clear when the world moves. Stage times stand in the status, so a restart
prolongs none. While a person has stopped us and nothing is in flight, none counts; a deadline that has passed sets no timer.
A late eviction, release or schedule is the cluster's doing; only `failure` is the revision's, and so failurePolicy's.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from accelerator_rollout.api.models import Health, Replacement, Stage
from accelerator_rollout.decide.advice import RELEASING, TROUBLE, advice
from accelerator_rollout.decide.appraisal import Appraisal
from accelerator_rollout.decide.conditions import Late
from accelerator_rollout.decide.disruption import Blocked, Step
from accelerator_rollout.decide.health import unhealthy
from accelerator_rollout.decide.reasons import SINCE_RELEASED, NotFree, Overdue, Trouble, Waiting
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.decide.stages import Standing
from accelerator_rollout.records import PodRecord
from accelerator_rollout.workloads.base import Driver

_FAULTS: Final = frozenset(
    (Overdue.PREPARE, Overdue.READY, Overdue.HEALTH)
)  # the revision's, not the cluster's
_OF_STAGE: Final = {
    Stage.SCHEDULING: Overdue.SCHEDULE,
    Stage.PREPARING: Overdue.PREPARE,
    Stage.WARMING_UP: Overdue.READY,
}
_ADVICE: Final = {
    Overdue.SCHEDULE: "Its Events (kubectl describe pod) have the scheduler's reasons",
    Overdue.PREPARE: "See the pod's Events, and the logs of the kubelet and the driver on that node",
    Overdue.READY: "See its log and its probes. A model that loads for longer needs a greater health.readyTimeoutSeconds",
}
# What is in the way, where the message on it says no next step by itself.
_WITHOUT_ADVICE: Final = SINCE_RELEASED | {
    NotFree.CLAIM_ALLOCATED,
    NotFree.DRIVER_UNAVAILABLE,
    NotFree.CHECK_FAILED,
    Trouble.IMAGE_ERROR,
    Trouble.CREATE_CONTAINER_ERROR,
}


@dataclass(frozen=True, slots=True)
class Course:
    """How the rollout goes at one moment. `moved` is when anything last did; None before the first look."""

    snapshot: Snapshot
    appraisals: tuple[Appraisal, ...]
    step: Step | Blocked | None
    moved: datetime | None
    stopped: bool  # by a person, with nothing in flight
    waits_for: str


def failure(
    snapshot: Snapshot, appraisals: tuple[Appraisal, ...], driver: Driver, now: datetime
) -> Late | None:
    """Return the first replacement that has failed by its new revision's doing: what spec.failurePolicy answers."""
    for a in appraisals:
        late = _of_successor(a, snapshot, now)
        if late is not None and late.reason in _FAULTS and a.successor and driver.updated(a.successor):
            return late
    return None


def late(course: Course, now: datetime) -> Late | None:
    """Return the deadline that has passed, if one has; the earliest stage of the oldest replacement first."""
    snapshot = course.snapshot
    overdue = late_release(snapshot, course.appraisals, now)
    if overdue is not None:
        return overdue
    for a in course.appraisals:
        found = _of_successor(a, snapshot, now)
        if found is not None:
            return found
    return _of_eviction(course, now) or _of_progress(course, now)


def late_release(snapshot: Snapshot, appraisals: tuple[Appraisal, ...], now: datetime) -> Late | None:
    """Return the first release that takes longer than spec.release.timeoutSeconds."""
    timeout = snapshot.rollout.spec.release.timeout_seconds
    for a in appraisals:
        if a.unreleased and now >= release_due(a.entry, snapshot):
            who = a.entry.pod_name or "an unknown predecessor"
            text = f"the devices of pod {who} are not free {timeout} s after it began to leave: {a.standing.message}"
            return Late(Overdue.RELEASE, _with_next_step(text, a.standing.reason))
    return None


def _with_next_step(text: str, reason: str, otherwise: str = "") -> str:
    known = advice(reason, RELEASING, TROUBLE) if reason in _WITHOUT_ADVICE else None
    step = known.todo if known is not None else otherwise
    return f"{text}. {step}" if step else text


def due(course: Course, now: datetime) -> tuple[datetime, ...]:
    """Return when deadlines pass; some may have passed already."""
    spec = course.snapshot.rollout.spec
    found = [release_due(a.entry, course.snapshot) for a in course.appraisals if a.unreleased]
    for a in course.appraisals:
        reason = _OF_STAGE.get(a.standing.stage)
        if reason is not None and a.in_flight:
            since = a.entry.stage_started_at if a.entry.stage is a.standing.stage else now
            found.append(_anew(since, course.snapshot) + timedelta(seconds=_timeout(reason, spec.health)))
    blocked_since = _blocked_since(course)
    if blocked_since is not None:
        found.append(blocked_since + timedelta(seconds=spec.disruption.timeout_seconds))
    if course.moved is not None and not course.stopped and not _has_its_own(course):
        found.append(course.moved + timedelta(seconds=spec.progress_deadline_seconds))
    return tuple(found)


def release_due(entry: Replacement, snapshot: Snapshot) -> datetime:
    """Return when the devices of a departed pod are to be free."""
    began = next((t.at for t in entry.stage_times if t.stage is Stage.TERMINATING), entry.started_at)
    return _anew(began, snapshot) + timedelta(seconds=snapshot.rollout.spec.release.timeout_seconds)


def _anew(since: datetime, snapshot: Snapshot) -> datetime:
    """Return from when a deadline counts: a Retry gives all of them their time again."""
    retried = snapshot.rollout.status.retried_at
    return since if retried is None else max(since, retried)


def _of_successor(a: Appraisal, snapshot: Snapshot, now: datetime) -> Late | None:
    pod = a.successor
    if pod is None or not a.in_flight:
        return None
    sick = unhealthy(a, snapshot)
    if sick:
        text = (
            f"pod {pod.name} on node {pod.node}, with {_devices(pod, snapshot)}, has failed: {sick}. No other healthy pod is "
            "replaced until it recovers, or the pod template changes"
        )
        return Late(Overdue.HEALTH, text)
    reason = _OF_STAGE.get(a.standing.stage)
    if reason is None or a.entry.stage is not a.standing.stage:
        return None
    seconds = _timeout(reason, snapshot.rollout.spec.health)
    if now < _anew(a.entry.stage_started_at, snapshot) + timedelta(seconds=seconds):
        return None
    return Late(reason, _told(reason, seconds, pod, a.standing, snapshot))


def _told(reason: Overdue, seconds: int, pod: PodRecord, standing: Standing, snapshot: Snapshot) -> str:
    match reason:
        case Overdue.SCHEDULE:
            what = f"pod {pod.name} has no node {seconds} s after its gate opened"
        case Overdue.PREPARE:
            what = f"pod {pod.name} does not run {seconds} s after it came to node {pod.node}"
        case _:
            what = f"pod {pod.name} is not ready {seconds} s after it began to run on node {pod.node}"
    with_devices = f" with {_devices(pod, snapshot)}" if pod.bound else ""
    return _with_next_step(f"{what}{with_devices}: {standing.message}", standing.reason, _ADVICE[reason])


def _devices(pod: PodRecord, snapshot: Snapshot) -> str:
    return ", ".join(f"device {device}" for device in snapshot.devices_of(pod)) or "no device"


def _timeout(reason: Overdue, health: Health) -> int:
    match reason:
        case Overdue.SCHEDULE:
            return health.schedule_timeout_seconds
        case Overdue.PREPARE:
            return health.prepare_timeout_seconds
        case _:
            return health.ready_timeout_seconds


def _blocked_since(course: Course) -> datetime | None:
    """Return since when a PodDisruptionBudget keeps the next pod, or None if none does."""
    step = course.step
    if not isinstance(step, Blocked) or step.victim is None or step.why.reason is not Waiting.BLOCKED_BY_PDB:
        return None
    stored = (a.entry for a in course.appraisals if a.entry.pod_uid == step.victim.uid)
    noted = next((e.stage_started_at for e in stored if e.stage is Stage.EVICTING), None)
    return noted or course.moved


def _of_eviction(course: Course, now: datetime) -> Late | None:
    seconds = course.snapshot.rollout.spec.disruption.timeout_seconds
    since = _blocked_since(course)
    step = course.step
    if since is None or now < since + timedelta(seconds=seconds):
        return None
    assert isinstance(step, Blocked)
    assert step.victim is not None
    return Late(
        Overdue.EVICTION,
        f"pod {step.victim.name} on node {step.victim.node} is due to be replaced, and kept for more than {seconds} s: "
        f"{step.why.message}. Budgets are not overridden: get the pods that it counts healthy, or change it",
    )


def _has_its_own(course: Course) -> bool:
    """Whether what is awaited has a deadline of its own, or an end: the soak."""
    stages = {a.standing.stage for a in course.appraisals if a.in_flight}
    return bool(stages & {*_OF_STAGE, Stage.SOAKING}) or _blocked_since(course) is not None


def _of_progress(course: Course, now: datetime) -> Late | None:
    seconds = course.snapshot.rollout.spec.progress_deadline_seconds
    if course.moved is None or course.stopped or _has_its_own(course):
        return None
    if now < course.moved + timedelta(seconds=seconds):
        return None
    return Late(
        Overdue.PROGRESS,
        f"nothing has moved since {course.moved:%Y-%m-%d %H:%M:%S} UTC ({seconds} s allowed): {course.waits_for}",
    )
