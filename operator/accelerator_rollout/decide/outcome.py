"""What a decision returns."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from accelerator_rollout.api.models import RolloutStatus
from accelerator_rollout.decide.actions import Action


class EventType(StrEnum):
    """Event types as the API names them."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod that an Event is about."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Notice:
    """An Event to record on our object, or on the pod that it is about."""

    type: EventType
    reason: str
    message: str
    action: str  # what was done or refused, UpperCamelCase, as events.k8s.io/v1 wants it
    pod: PodRef | None = None


@dataclass(frozen=True, slots=True)
class StageTime:
    """A stage that ended in this decision, for the histogram. Seconds, from our own clock."""

    stage: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ReleaseTime:
    """A release that was proven in this decision. Seconds from the pod's deletion to the proof."""

    driver: str
    seconds: float
    proof: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions to take now, the status to store, and when to decide again even if nothing happens.

    `record_first`: the status holds a replacement that is not stored yet, and must be stored before the first action,
    so that whoever decides after a crash knows what was in flight. Otherwise actions come first: an opening must
    not wait for bookkeeping.
    `acknowledged` are UIDs of vanished pods that the store may forget once the status is stored.
    """

    actions: tuple[Action, ...]
    status: RolloutStatus
    record_first: bool
    next_due: datetime | None
    notices: tuple[Notice, ...] = ()
    stage_times: tuple[StageTime, ...] = ()
    release_times: tuple[ReleaseTime, ...] = ()
    acknowledged: tuple[str, ...] = ()
