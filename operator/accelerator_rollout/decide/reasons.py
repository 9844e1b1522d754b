"""Every reason a condition or a replacement can carry: one word per cause, so that programs can tell causes apart."""

from enum import StrEnum
from typing import Final


class NotFree(StrEnum):
    """Why the devices of a departed pod are not free."""

    POD_TERMINATING = "PodTerminating"  # its containers may still run
    DRIVER_UNAVAILABLE = "DriverUnavailable"  # terminating, and its driver publishes nothing
    TERMINATION_STUCK = "TerminationStuck"  # terminating for more than twice its grace period
    DEALLOCATION_STALLED = "DeallocationStalled"  # nobody reserves the claim, and it stays allocated
    ORPHANED_CLAIM = "OrphanedClaim"  # reserved for pods that do not exist any more, and allocated for long
    CLAIM_ALLOCATED = "ClaimAllocated"  # status.allocation stands
    DEVICE_TAKEN = "DeviceTaken"  # another claim's allocation names the device
    POOL_MISSING = "PoolMissing"  # no ResourceSlice of the pool
    POOL_INCOMPLETE = "PoolIncomplete"  # fewer slices of the newest generation than it announces
    POOL_CONTRADICTORY = "PoolContradictory"  # slices of one generation disagree
    DEVICE_MISSING = "DeviceMissing"  # not in its pool's newest generation
    DEVICE_TAINTED = "DeviceTainted"  # a taint keeps the scheduler off
    DEVICE_UNREACHABLE = "DeviceUnreachable"  # no node that exists may use it
    DOUBLE_ALLOCATION = "DoubleAllocation"  # several allocations name the device whole
    PARTITION_HELD = "PartitionHeld"  # held siblings draw the counters that the device needs
    CAPACITY_HELD = "CapacityHeld"  # others draw too much of a shared device's capacity
    RELEASE_UNPROVEN = "ReleaseUnproven"  # nothing says that the node let go
    STATE_UNKNOWN = "StateUnknown"  # an object it hangs on cannot be read
    HOLD_ENDING = "HoldEnding"  # released by the node; our hold goes with the next write
    CHECKS_RUNNING = "ChecksRunning"  # released, and spec.release.checks are being asked
    CHECK_FAILED = "CheckFailed"
    SETTLING = "DevicesSettling"  # free, and to be left alone for spec.release.settleSeconds


# What may become of a device that was let go: a matter for whoever wants it next, and for nobody else.
SINCE_RELEASED: Final = frozenset(
    (
        NotFree.DEVICE_TAKEN,
        NotFree.POOL_MISSING,
        NotFree.POOL_INCOMPLETE,
        NotFree.POOL_CONTRADICTORY,
        NotFree.DEVICE_MISSING,
        NotFree.DEVICE_TAINTED,
        NotFree.DEVICE_UNREACHABLE,
        NotFree.DOUBLE_ALLOCATION,
        NotFree.PARTITION_HELD,
        NotFree.CAPACITY_HELD,
    )
)


class Refusal(StrEnum):
    """Why we do not drive a workload; each asks for a change by its owner."""

    WORKLOAD_NOT_FOUND = "WorkloadNotFound"
    WORKLOAD_CONFLICT = "WorkloadConflict"  # an older AcceleratorRollout names the same workload
    STRATEGY_NOT_SUPPORTED = "StrategyNotSupported"
    SURGE_NOT_ALLOWED = "SurgeNotAllowed"
    MAX_UNAVAILABLE_TOO_HIGH = "MaxUnavailableTooHigh"
    PODS_NOT_GATED = "PodsNotGated"
    NAMED_CLAIMS = "NamedClaimsNotSupported"
    NO_DEVICE_CLAIMS = "NoDeviceClaims"
    CHECK_INVALID = "CheckInvalid"  # spec.release.checks has an expression that cannot be evaluated
    WINDOW_INVALID = "WindowInvalid"  # spec.windows has a schedule or a time zone that means nothing
    GUARDRAIL_NOT_MET = "GuardrailNotMet"  # spec.guardrails.mode is Enforce
    HOLD_NOT_POSSIBLE = "HoldNotPossible"  # spec.release.hold is Always, and cannot be had


class Waiting(StrEnum):
    """Why nothing moves although nothing is refused."""

    STATE_UNKNOWN = "StateUnknown"
    PAUSED = "Paused"  # spec.paused
    OUTSIDE_WINDOW = "OutsideWindow"  # spec.windows
    HALTED = "Halted"  # see class Halted for why
    UNDOING = "RestoringTemplate"  # the workload's former pod template is being restored
    STEP_PAUSE = "StepPause"  # spec.strategy.steps: waits for a promotion, or for time
    STEP_NOT_HEALTHY = "StepNotHealthy"  # the step has its pods, and not all of them are healthy
    PARTITION_REACHED = "PartitionReached"  # all that spec.strategy.partition does not keep are updated
    PARTITION_EXCEEDED = "PartitionExceeded"  # pods that it keeps left by themselves, and came back updated
    PAUSED_BY_USER = "WorkloadPausedByUser"
    WORKLOAD_GOING = "WorkloadGoingAway"
    CONTROLLER_BEHIND = "WaitingForController"  # the workload's controller has not seen the newest spec
    GATE_UNKNOWN = "GateUnknown"  # whether new pods are gated is being found out
    BLOCKED_BY_PDB = "BlockedByPDB"
    DOUBLE_ALLOCATION = "DoubleAllocation"  # a device of the workload is allocated to two claims
    NODE_UNSCHEDULABLE = "NodeUnschedulable"  # only pods on cordoned nodes are left
    DRIVER_UNAVAILABLE = "DriverUnavailable"  # the pool of the pod's devices is not published
    PODS_UNAVAILABLE = "PodsUnavailable"  # maxUnavailable is used up by pods that are down already
    EVICTION_UNANSWERED = "EvictionUnanswered"  # a chosen pod may be leaving, and does not show it
    NEXT_IN_LINE = "NextInLine"  # recorded ahead of time, to be replaced once the last replacement is healthy
    SHARED_BUDGET_USED_UP = "SharedBudgetUsedUp"  # by other AcceleratorRollouts of the group
    STEP_NOT_SAFE = "StepNotSafe"  # unpausing would replace more, or fewer, than one pod
    DEVICE_BUDGET = "DevicesInUse"  # S3: holders have reached the limit
    OTHER_RELEASE_UNPROVEN = "OtherReleaseUnproven"  # another departed device looks free and is not proven
    OTHER_SETTLING = "OtherDevicesSettling"
    NODE_NOT_AVAILABLE = "NodeNotAvailable"  # spec.release.placement is SameNode, and the node is gone
    STEP_NOT_LOCKED = "StepNotLocked"  # the Deployment could move on as soon as the gate opens
    AWAITING_REPLACEMENT = "AwaitingReplacement"  # its controller has not made the successor
    WAITING_FOR_ADMISSION = "WaitingForAdmission"  # only gates of others are left
    AWAITING_SCHEDULER = "AwaitingScheduler"
    AWAITING_BINDING = (
        "AwaitingBindingConditions"  # allocated, and not bound before its devices say that they are there
    )
    AWAITING_NODE = "AwaitingNode"  # bound, containers not started
    PREPARE_FAILED = "PrepareFailed"  # bound for long, and the node has not begun to start containers
    AWAITING_READINESS = "AwaitingReadiness"
    AWAITING_MIN_READY = "AwaitingMinReadySeconds"
    AWAITING_SOAK = "AwaitingSoak"  # available, and watched for health.soakSeconds
    HEALTH_CHECK_FAILING = "HealthCheckFailing"  # not yet failureThreshold times in a row
    GOING_AWAY = "GoingAway"  # our object is being deleted


class Trouble(StrEnum):
    """What keeps the containers of a pod from running, told apart early; no deadline has passed for that."""

    IMAGE_ERROR = "ImageError"
    CREATE_CONTAINER_ERROR = "CreateContainerError"
    CRASH_LOOP = "CrashLoop"
    DEVICE_MEMORY_ERROR = "DeviceMemoryError"  # the program says that the device has too little memory left
    OUT_OF_MEMORY_KILLED = "OutOfMemoryKilled"  # the kernel, at its memory limit


class Overdue(StrEnum):
    """Deadlines that make an object Stalled; each clears by itself when the world moves."""

    EVICTION = "EvictionTimeout"  # a PodDisruptionBudget keeps the next pod
    RELEASE = "ReleaseTimeout"
    SCHEDULE = "ScheduleTimeout"
    PREPARE = "PrepareTimeout"
    READY = "ReadyTimeout"
    HEALTH = "HealthFailed"  # checks were not true, or the pod became unready, health.failureThreshold times
    PROGRESS = "ProgressDeadlineExceeded"


class Halted(StrEnum):
    """Why no further replacement is started until somebody asks for it; each makes an object Stalled."""

    ABORTED = "Aborted"  # spec.action
    UNDO_FAILED = "UndoNotPossible"  # the former template was gone before it could be restored


class Settled(StrEnum):
    """Reasons of good news."""

    COMPLETE = "Complete"
    ALL_RELEASED = "AllReleased"
    GUARDRAILS_MET = "GuardrailsMet"
    GUARDRAILS_OFF = "GuardrailsOff"


class Holding(StrEnum):
    """Reasons of condition HoldInForce."""

    IN_FORCE = "HoldPossible"
    NOT_PERMITTED = "HoldNotPermitted"
    NOT_SUPPORTED = "HoldNotSupported"
    DISPUTED = "HoldDisputed"  # somebody else keeps taking our entry away


class Reserving(StrEnum):
    """Reasons of condition ReservationInForce."""

    IN_FORCE = "ReservationPossible"
    NOT_PERMITTED = "ReservationNotPermitted"
    NOT_SUPPORTED = "ReservationNotSupported"
    NOT_TOLERATED = "ReservationNotTolerated"  # by the workload's own claim template


class Announcement(StrEnum):
    """Reasons of Events that are not also a condition's."""

    REPLACING = "Replacing"
    DEVICES_RELEASED = "DevicesReleased"
    REPLACED = "Replaced"
    KILLED_AFTER_GRACE = "KilledAfterGrace"
    ACTION_FAILED = "ActionFailed"
    OPENED_WITHOUT_PROOF = "OpenedWithoutProof"
    GATE_OPENED = "GateOpened"
    PROMOTED = "Promoted"
    RETRIED = "Retried"
    UNDOING = "Undoing"
    UNDONE = "TemplateRestored"
    NO_EFFECT = "ActionWithoutEffect"
