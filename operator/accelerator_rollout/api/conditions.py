"""Conditions of our object, after `metav1.Condition`: pure functions from one tuple to the next."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from accelerator_rollout.api.base import Generation, Part, Time, shorten

MAX_CONDITION_MESSAGE: Final = 32768  # metav1.Condition
MAX_CONDITION_REASON: Final = 1024


class ConditionType(StrEnum):
    """The conditions we write. `Reconciling` and `Stalled` are there only while true, as kstatus wants it."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    PROGRESSING = "Progressing"
    DEVICES_RELEASED = "DevicesReleased"
    GUARDRAILS_MET = "GuardrailsMet"
    HOLD_IN_FORCE = "HoldInForce"
    RESERVATION_IN_FORCE = "ReservationInForce"
    PAUSED = "Paused"


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Part):
    """One aspect of where the rollout stands."""

    # Not ConditionType: a condition that somebody else added must not make the object unreadable.
    type: Annotated[str, Field(min_length=1, max_length=316)]
    """Which aspect: Ready, Reconciling, Stalled, Progressing, DevicesReleased, GuardrailsMet or Paused."""

    status: ConditionStatus
    """Whether it holds."""

    observed_generation: Generation = 0
    """The generation of this object that was looked at. Behind metadata.generation, the condition is old."""

    last_transition_time: Time
    """When the status last changed; a new reason or message does not count."""

    reason: Annotated[
        str,
        Field(
            min_length=1, max_length=MAX_CONDITION_REASON, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
        ),
    ]
    """The cause in one word, for programs."""

    message: Annotated[str, Field(max_length=MAX_CONDITION_MESSAGE)]
    """The cause for people: which object, since when, what to do."""


def find_condition(conditions: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """Return the condition of that type, or None."""
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: Iterable[Condition], kind: ConditionType) -> bool:
    """Return whether the condition is there and true."""
    found = find_condition(conditions, kind)
    return found is not None and found.status is ConditionStatus.TRUE


def set_condition(
    conditions: Iterable[Condition],
    kind: ConditionType,
    status: ConditionStatus,
    *,
    reason: str,
    message: str,
    now: datetime,
    observed_generation: int,
) -> tuple[Condition, ...]:
    """Return the conditions with this one in place of its predecessor, or at the end.

    `lastTransitionTime` moves to `now` only if the status changes. A message that is too long is cut.
    Raises pydantic's ValidationError for a reason that is not one CamelCase word.
    """
    known = tuple(conditions)
    before = find_condition(known, kind)
    kept = before is not None and before.status is status
    after = Condition(
        type=kind.value,
        status=status,
        observed_generation=observed_generation,
        last_transition_time=before.last_transition_time if before is not None and kept else now,
        reason=reason,
        message=shorten(message, MAX_CONDITION_MESSAGE),
    )
    if before is None:
        return (*known, after)
    return tuple(after if condition is before else condition for condition in known)


def remove_condition(conditions: Iterable[Condition], kind: ConditionType) -> tuple[Condition, ...]:
    """Return the conditions without this one."""
    return tuple(condition for condition in conditions if condition.type != kind)
