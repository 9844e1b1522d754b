"""Whether a rollout moves, since when, and when to look at it again."""

from datetime import datetime, timedelta
from typing import Final

from accelerator_rollout.api.models import Replacement, RolloutStatus
from accelerator_rollout.decide import restart, windows
from accelerator_rollout.decide.deadlines import Course
from accelerator_rollout.decide.deadlines import due as deadlines
from accelerator_rollout.decide.disruption import Blocked
from accelerator_rollout.decide.judgement import Judgement
from accelerator_rollout.decide.outcome import StageTime
from accelerator_rollout.decide.reasons import Refusal, Waiting

_REFUSALS: Final = frozenset(str(r) for r in Refusal)
_STILL: Final = frozenset(
    (
        Waiting.PAUSED,
        Waiting.PAUSED_BY_USER,
        Waiting.OUTSIDE_WINDOW,
        Waiting.HALTED,
        Waiting.SHARED_BUDGET_USED_UP,
        Waiting.STEP_PAUSE,
        Waiting.PARTITION_REACHED,
        Waiting.PARTITION_EXCEEDED,
    )
)  # time spent so counts towards no deadline


def stands_still(j: Judgement) -> bool:
    """Whether a person, a window or others' turn has stopped us, so that no deadline counts."""
    if j.refused is not None:
        return True
    flying = any(a.in_flight for a in j.appraisals)
    return isinstance(j.step, Blocked) and j.step.why.reason in _STILL and not flying


def last_progress(j: Judgement, before: RolloutStatus, after: RolloutStatus) -> datetime:
    """Return when something moved last; time in which we were stopped on purpose does not pass."""
    if before.last_progress_time is None or stands_still(j):
        return before.last_progress_time or j.now
    if _movement(before) == _movement(after) and not _stood_still(before):
        return before.last_progress_time
    return j.now


def course(j: Judgement, status: RolloutStatus) -> Course:
    """Return what the deadlines are judged by."""
    return Course(
        j.snapshot,
        j.appraisals,
        j.step,
        status.last_progress_time,
        stands_still(j),
        _waits_for(j),
    )


def _waits_for(j: Judgement) -> str:
    for a in j.appraisals:
        if a.in_flight:
            standing = j.standing(a)
            return f"{standing.stage}: {standing.message}" if standing.message else str(standing.stage)
    idle = j.idle()
    if idle is not None:
        return idle.message
    waits = j.waits()
    return waits.message or str(waits.stage) if waits is not None else "no pod is due"


def next_due(j: Judgement, status: RolloutStatus) -> datetime | None:
    """Return when to decide again even if nothing happens; None if never."""
    due = [a.standing.due for a in j.appraisals if a.standing.due is not None]
    if isinstance(j.step, Blocked) and j.step.due is not None:
        due.append(j.step.due)
    if j.step is not None:
        change = windows.next_change(j.snapshot.rollout.spec.windows, j.now)
        due += [change] if change is not None else []
    if any(c.type in ("Reconciling", "Stalled") for c in status.conditions):
        due += deadlines(course(j, status), j.now)
    to_come = restart.to_come(j.snapshot, j.now)
    due += [to_come] if to_come is not None else []
    if j.min_ready:
        soaking = (p.ready_since for p in j.snapshot.pods if p.live and p.ready_since is not None)
        due += [since + timedelta(seconds=j.min_ready) for since in soaking]
    return min((d for d in due if d > j.now), default=None)


def stage_times(
    j: Judgement, kept: tuple[Replacement, ...], finished: tuple[Replacement, ...]
) -> tuple[StageTime, ...]:
    """Return the stages that ended with this decision, and how long they took."""
    before = {e.id: e for e in j.snapshot.rollout.status.replacements}
    moved = [(before[e.id], e) for e in (*kept, *finished) if e.id in before]
    return tuple(
        StageTime(old.stage, (j.now - old.stage_started_at).total_seconds())
        for old, new in moved
        if old.stage is not new.stage
    )


def _movement(status: RolloutStatus) -> object:
    """Return what changes whenever something moves."""
    return (
        status.update_revision,
        status.halt is None,
        status.undo is None,
        status.replicas,
        status.updated_replicas,
        status.available_replicas,
        status.gated_replicas,
        tuple(sorted((e.id, e.stage, e.replacement_pod_uid) for e in status.replacements)),
    )


def _stood_still(status: RolloutStatus) -> bool:
    """Whether the stored status tells of a stop by a person, whose end is itself a movement."""
    return any(
        c.type == "Progressing" and (c.reason in _REFUSALS or c.reason in _STILL) for c in status.conditions
    )
