"""What a rollout waits for, in words: from an object and a status to a verdict and what stands in the way of what.

The status may be the stored one, or that of a plan made just now: the words are the same. `advice` adds to each reason its
cause and the next step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from accelerator_rollout.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    find_condition,
    is_true,
)
from accelerator_rollout.api.models import Replacement, RolloutObject, RolloutStatus, Stage
from accelerator_rollout.decide.advice import (
    GUARDRAILS,
    HOLDING,
    RELEASING,
    RESERVING,
    STALLED,
    TROUBLE,
    WAITING,
    Table,
    advice,
)
from accelerator_rollout.decide.reasons import Holding, Reserving, Settled, Waiting

_BEFORE_RELEASE = (Stage.TERMINATING, Stage.RELEASING, Stage.SETTLING)
_SEEN = "NotObserved"  # no reason of a status: nobody has written one


class Verdict(StrEnum):
    """Where a rollout stands, in one word."""

    COMPLETE = "Complete"
    PROGRESSING = "Progressing"
    WAITING = "Waiting"  # nothing moves, and nothing is wrong so far
    STALLED = "Stalled"  # nothing moves before somebody does something
    UNKNOWN = "Unknown"  # no operator has looked at it, or none can see
    DELETING = "Deleting"


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that is waited for. `message` names the object; `cause` and `todo` are what is true of every such wait."""

    who: str
    what: str  # the stage, or the condition
    reason: str
    since: datetime | None
    message: str
    cause: str
    todo: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """`waits` come in the order in which to look at them; `remarks` keep nothing waiting."""

    verdict: Verdict
    reason: str
    since: datetime | None
    message: str
    waits: tuple[Wait, ...]
    remarks: tuple[Wait, ...]


def explain(rollout: RolloutObject, status: RolloutStatus) -> Explanation:
    """Return what the rollout waits for, as `status` tells it. What the object's own status lacks is told, too."""
    verdict, told = judge(rollout, status)
    waits = tuple(_waits(rollout, status, verdict))
    if told is None:
        return Explanation(verdict, _SEEN, rollout.created, waits[0].message, waits, ())
    since = (
        status.replacements[0].stage_started_at
        if _speaks_of_flight(told, status)
        else told.last_transition_time
    )
    return Explanation(verdict, told.reason, since, told.message, waits, tuple(_remarks(status)))


def judge(rollout: RolloutObject, status: RolloutStatus) -> tuple[Verdict, Condition | None]:
    """Return the verdict and the condition that tells it best; None where no status was ever written.

    A status of an older spec tells neither success nor failure: the change may have been the remedy.
    """
    progressing = find_condition(status.conditions, ConditionType.PROGRESSING)
    stalled = find_condition(status.conditions, ConditionType.STALLED)
    if progressing is None:
        return Verdict.UNKNOWN if rollout.deletion is None else Verdict.DELETING, None
    if rollout.deletion is not None:
        return Verdict.DELETING, progressing
    if progressing.status is ConditionStatus.UNKNOWN:
        return Verdict.UNKNOWN, progressing
    if _unseen(rollout, status):
        return Verdict.WAITING, progressing
    if stalled is not None and stalled.status is ConditionStatus.TRUE:
        return Verdict.STALLED, stalled
    if is_true(status.conditions, ConditionType.READY):
        return Verdict.COMPLETE, progressing
    moving = progressing.status is ConditionStatus.TRUE
    return Verdict.PROGRESSING if moving else Verdict.WAITING, progressing


def _unseen(rollout: RolloutObject, status: RolloutStatus) -> bool:
    """Whether the newest spec was not looked at."""
    return status.observed_generation < rollout.generation


def _speaks_of_flight(told: Condition, status: RolloutStatus) -> bool:
    return bool(status.replacements) and told.type == ConditionType.PROGRESSING and told.reason in list(Stage)


def _waits(rollout: RolloutObject, status: RolloutStatus, verdict: Verdict) -> Iterator[Wait]:
    name = f"AcceleratorRollout {rollout.name}"
    if _unseen(rollout, status) or not status.conditions:
        seen = status.observed_generation
        text = f"generation {rollout.generation} of {name} was not looked at" + (
            f"; the status speaks of {seen}" if seen else ""
        )
        yield Wait(
            name,
            "the operator",
            _SEEN,
            None,
            text,
            "no operator runs, it does not handle this namespace, or it is busy",
            "See whether its Deployment runs and what its log says; `accelerator-rollout doctor` looks at both",
        )
    if verdict is Verdict.UNKNOWN and status.conditions:
        yield from _of_condition(name, status, ConditionType.PROGRESSING, WAITING)
        return
    yield from _of_condition(name, status, ConditionType.STALLED, STALLED, RELEASING, WAITING)
    for entry in status.replacements:
        yield of_replacement(entry)
    if (
        status.replacements
        or verdict is Verdict.COMPLETE
        or is_true(status.conditions, ConditionType.STALLED)
    ):
        return
    yield from _of_condition(name, status, ConditionType.PROGRESSING, WAITING, TROUBLE, STALLED)


def of_replacement(entry: Replacement) -> Wait:
    """Return what this replacement waits for."""
    tables = (
        (RELEASING, WAITING, TROUBLE) if entry.stage in _BEFORE_RELEASE else (WAITING, TROUBLE, RELEASING)
    )
    reason = entry.reason or str(entry.stage)
    known = advice(reason, *tables)
    return Wait(
        who=called(entry),
        what=str(entry.stage),
        reason=reason,
        since=entry.stage_started_at,
        message=entry.message,
        cause=known.cause if known else "",
        todo=known.todo if known else "",
    )


def called(entry: Replacement) -> str:
    """Return what to call a replacement: whom it is about, and who succeeds whom."""
    old, new = entry.pod_name, entry.replacement_pod_name
    if old and new and old != new:
        return f"pod {old}, succeeded by {new}"
    if old:
        return f"pod {old}"
    return f"pod {new}, whose predecessor nobody saw" if new else "a pod that nobody saw"


def _of_condition(name: str, status: RolloutStatus, kind: ConditionType, *tables: Table) -> Iterator[Wait]:
    found = find_condition(status.conditions, kind)
    if found is None or (kind is ConditionType.STALLED and found.status is not ConditionStatus.TRUE):
        return
    known = advice(found.reason, *tables)
    yield Wait(
        name,
        str(kind),
        found.reason,
        found.last_transition_time,
        found.message,
        known.cause if known else "",
        known.todo if known else "",
    )


_REMARKS = (
    (ConditionType.HOLD_IN_FORCE, HOLDING, (Holding.IN_FORCE,)),
    (ConditionType.RESERVATION_IN_FORCE, RESERVING, (Reserving.IN_FORCE,)),
    (ConditionType.GUARDRAILS_MET, GUARDRAILS, (Settled.GUARDRAILS_MET, Settled.GUARDRAILS_OFF)),
    (ConditionType.DEVICES_RELEASED, RELEASING, (Settled.ALL_RELEASED,)),
)


def _remarks(status: RolloutStatus) -> Iterator[Wait]:
    """Yield what is not as it should be and keeps nobody waiting, as far as nothing else says it."""
    said = {entry.reason for entry in status.replacements}
    said |= {
        c.reason for c in status.conditions if c.type in (ConditionType.STALLED, ConditionType.PROGRESSING)
    }
    for kind, table, fine in _REMARKS:
        found = find_condition(status.conditions, kind)
        if (
            found is None
            or found.reason in fine
            or found.reason in said
            or found.reason == Waiting.STATE_UNKNOWN
        ):
            continue
        yield from _of_condition("remark", status, kind, table)
