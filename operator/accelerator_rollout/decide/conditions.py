"""What the conditions say: one reason per cause, what and since when, what to do.

kstatus reads `Reconciling` and `Stalled`, which are there only while true; `Ready` and `Progressing` are always there.
Messages hold no running clocks, so that nothing is written while nothing changes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from accelerator_rollout.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    remove_condition,
    set_condition,
)
from accelerator_rollout.api.models import GuardrailMode, Guardrails, Halt
from accelerator_rollout.decide.appraisal import Appraisal
from accelerator_rollout.decide.reasons import Holding, Overdue, Reserving, Settled, Waiting
from accelerator_rollout.decide.stages import Standing
from accelerator_rollout.guardrails.rules import Finding, settled
from accelerator_rollout.workloads.base import NotNow, Refused


@dataclass(frozen=True, slots=True)
class Late:
    """A deadline that has passed."""

    reason: Overdue
    message: str


@dataclass(frozen=True, slots=True)
class Picture:
    """All that the conditions are told from."""

    generation: int
    complete: bool
    settled: NotNow | None  # all is done that the partition leaves to be done
    paused: bool
    summary: str  # e.g. "2 of 4 pods at revision abc, 4 available"
    refused: Refused | None
    halted: Halt | None
    late: Late | None
    idle: NotNow | None  # why no next pod is replaced
    waits: Standing | None  # what the first pod that is not available waits for
    appraisals: tuple[Appraisal, ...]
    stranded: tuple[Appraisal, ...]  # departures on nodes that are gone
    findings: tuple[Finding, ...]
    guardrails: Guardrails
    hold: (
        tuple[Holding, str] | None
    )  # whether holds are in force, and the sentence for people; None if not asked for
    reservation: tuple[Reserving, str] | None  # the same of reservations


def conditions(before: Iterable[Condition], picture: Picture, now: datetime) -> tuple[Condition, ...]:
    """Return the conditions that tell `picture`."""
    board = _Board(tuple(before), picture.generation, now)
    reason, message, moving = _progress(picture)
    (board.hold if moving else board.deny)(ConditionType.PROGRESSING, reason, message)
    stalled: Refused | Halt | Late | None = picture.refused or picture.halted or picture.late
    if stalled is not None:
        board.deny(ConditionType.READY, stalled.reason, stalled.message)
        board.hold(ConditionType.STALLED, stalled.reason, stalled.message)
        board.drop(ConditionType.RECONCILING)
    elif picture.complete:
        board.hold(ConditionType.READY, Settled.COMPLETE, picture.summary)
        board.drop(ConditionType.STALLED)
        board.drop(ConditionType.RECONCILING)
    elif picture.settled is not None:
        board.hold(ConditionType.READY, reason, message)
        board.drop(ConditionType.STALLED)
        board.drop(ConditionType.RECONCILING)
    else:
        board.deny(ConditionType.READY, reason, message)
        board.hold(ConditionType.RECONCILING, reason, message)
        board.drop(ConditionType.STALLED)
    _released(board, (*picture.appraisals, *picture.stranded))
    if picture.paused:
        text = "spec.paused is true: the pod in flight is finished, no further one is started"
        board.hold(ConditionType.PAUSED, Waiting.PAUSED, text)
    else:
        board.drop(ConditionType.PAUSED)
    _in_force(board, ConditionType.HOLD_IN_FORCE, picture.hold)
    _in_force(board, ConditionType.RESERVATION_IN_FORCE, picture.reservation)
    if picture.findings:
        said = "; ".join(f.message for f in picture.findings)
        board.deny(ConditionType.GUARDRAILS_MET, picture.findings[0].rule, said)
    elif picture.refused is None:
        off = picture.guardrails.mode is GuardrailMode.OFF
        reason = Settled.GUARDRAILS_OFF if off else Settled.GUARDRAILS_MET
        status = ConditionStatus.UNKNOWN if off else ConditionStatus.TRUE
        board.put(ConditionType.GUARDRAILS_MET, status, reason, settled(picture.guardrails))
    else:
        board.deny(ConditionType.GUARDRAILS_MET, picture.refused.reason, picture.refused.message)
    return board.conditions


def unknown(before: Iterable[Condition], generation: int, why: str, now: datetime) -> tuple[Condition, ...]:
    """Return the conditions while the state of the world is unknown: nothing is claimed, nothing is done."""
    board = _Board(tuple(before), generation, now)
    text = f"nothing is disrupted or opened until the cluster can be read again: {why}"
    board.put(ConditionType.READY, ConditionStatus.UNKNOWN, Waiting.STATE_UNKNOWN, text)
    board.put(ConditionType.PROGRESSING, ConditionStatus.UNKNOWN, Waiting.STATE_UNKNOWN, text)
    board.hold(ConditionType.RECONCILING, Waiting.STATE_UNKNOWN, text)
    board.drop(
        ConditionType.STALLED
    )  # not known either; beside Reconciling, tools would believe the first of the two
    return board.conditions


def leaving(
    before: Iterable[Condition], generation: int, message: str, now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions while our object is being deleted."""
    board = _Board(tuple(before), generation, now)
    board.hold(ConditionType.PROGRESSING, Waiting.GOING_AWAY, message)
    board.deny(ConditionType.READY, Waiting.GOING_AWAY, message)
    board.hold(ConditionType.RECONCILING, Waiting.GOING_AWAY, message)
    board.drop(ConditionType.STALLED)
    return board.conditions


def _progress(picture: Picture) -> tuple[str, str, bool]:
    """Return reason and message of Progressing, and whether anything moves."""
    if picture.refused is not None:
        return picture.refused.reason, picture.refused.message, False
    if picture.complete:
        return Settled.COMPLETE, picture.summary, False
    if picture.settled is not None and picture.halted is None:
        return picture.settled.reason, f"{picture.settled.message}; {picture.summary}", False
    flying = [a for a in picture.appraisals if not a.done]
    if flying:
        first = flying[0]
        entry, standing = first.entry, first.standing
        who = entry.pod_name or entry.replacement_pod_name or "an unknown pod"
        what = f"replacement of pod {who}: {standing.stage}"
        why = f" ({standing.message})" if standing.message else ""
        return standing.stage, f"{what}{why}; {picture.summary}", picture.late is None
    if picture.halted is not None:
        return picture.halted.reason, f"{picture.halted.message}; {picture.summary}", False
    if picture.idle is not None:
        return picture.idle.reason, f"{picture.idle.message}; {picture.summary}", False
    if picture.waits is not None:
        said = f"{picture.waits.message}; {picture.summary}" if picture.waits.message else picture.summary
        return picture.waits.reason or picture.waits.stage, said, picture.late is None
    return Waiting.AWAITING_REPLACEMENT, picture.summary, picture.late is None


def _released(board: "_Board", appraisals: tuple[Appraisal, ...]) -> None:
    for a in appraisals:
        obstacle = a.lost or (a.verdict.obstacle if a.verdict is not None else None)
        if obstacle is not None:
            who = a.entry.pod_name or "an unknown predecessor"
            message = f"devices of {who}: {obstacle.message}"
            board.deny(ConditionType.DEVICES_RELEASED, obstacle.reason, message)
            return
    text = "no departed pod holds a device"
    board.hold(ConditionType.DEVICES_RELEASED, Settled.ALL_RELEASED, text)


def _in_force(board: "_Board", kind: ConditionType, told: tuple[Holding | Reserving, str] | None) -> None:
    if told is None:
        board.drop(kind)
        return
    reason, text = told
    tell = board.hold if reason in (Holding.IN_FORCE, Reserving.IN_FORCE) else board.deny
    tell(kind, reason, text)


class _Board:
    """The conditions being written, all at one generation and time."""

    def __init__(self, before: tuple[Condition, ...], generation: int, now: datetime) -> None:
        self.conditions = before
        self._generation = generation
        self._now = now

    def hold(self, kind: ConditionType, reason: str, message: str) -> None:
        self.put(kind, ConditionStatus.TRUE, reason, message)

    def deny(self, kind: ConditionType, reason: str, message: str) -> None:
        self.put(kind, ConditionStatus.FALSE, reason, message)

    def put(self, kind: ConditionType, status: ConditionStatus, reason: str, message: str) -> None:
        self.conditions = set_condition(
            self.conditions,
            kind,
            status,
            reason=str(reason),
            message=message,
            now=self._now,
            observed_generation=self._generation,
        )

    def drop(self, kind: ConditionType) -> None:
        self.conditions = remove_condition(self.conditions, kind)
