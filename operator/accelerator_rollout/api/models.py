"""The AcceleratorRollout object: what a user asks for, and all that a restarted operator cannot see again.

The CustomResourceDefinition is generated from these models (`crd.py`), so descriptions, defaults and bounds
here are what `kubectl explain` shows and what the API server enforces. A field comes into `spec` only with
the behaviour that obeys it.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    WithJsonSchema,
    model_validator,
)

from accelerator_rollout.api import rules
from accelerator_rollout.api.base import (
    Count,
    Flag,
    Generation,
    Message,
    ObjectName,
    Part,
    Reason,
    Time,
    Uid,
    WholePart,
)
from accelerator_rollout.api.conditions import Condition

MAX_CHECKS: Final = 8
MAX_WINDOWS: Final = 16
MAX_STEPS: Final = 20
MAX_REPLACEMENTS: Final = 100  # in flight at once
MAX_CLAIMS: Final = 64  # of one pod
MAX_DEVICES: Final = 32  # of one claim, as resource.k8s.io bounds an allocation
MAX_STAGE_TIMES: Final = 12  # one for each stage
MAX_HISTORY: Final = 5
MAX_HISTORY_REPLACEMENTS: Final = 50
MAX_CONDITIONS: Final = 16


class WorkloadKind(StrEnum):
    """Workload kinds this version can drive."""

    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"
    DAEMON_SET = "DaemonSet"


class Stage(StrEnum):
    """Where one replacement stands, in order. In flight from Terminating on."""

    SELECTED = "Selected"
    EVICTING = "Evicting"
    TERMINATING = "Terminating"
    RELEASING = "Releasing"
    SETTLING = "Settling"
    GATED = "Gated"
    SCHEDULING = "Scheduling"
    PREPARING = "Preparing"
    WARMING_UP = "WarmingUp"
    SOAKING = "Soaking"
    DONE = "Done"


class Cause(StrEnum):
    """Why a pod left."""

    ROLLOUT = "Rollout"  # we replaced it
    DEPARTURE = "Departure"  # anything else: a crash, a drain, a deletion, a scale-down


class Proof(StrEnum):
    """What says that the node let go of a departed pod's devices. Absent: nothing says so yet."""

    KUBELET_TERMINAL_PHASE = "KubeletTerminalPhase"  # written after unprepare succeeded
    NEVER_BOUND = "NeverBound"  # no node ever had it
    NODE_REBOOTED = "NodeRebooted"  # no process outlives a boot
    WAIT_ELAPSED = "WaitElapsed"  # no proof, only the wait for unproven releases


class OnTimeout(StrEnum):
    """What becomes of a rollout whose release takes too long."""

    PAUSE = "Pause"
    ABORT = "Abort"


class FailurePolicy(StrEnum):
    """What becomes of a rollout whose new pods fail."""

    PAUSE = "Pause"
    ABORT = "Abort"
    UNDO = "Undo"


class Outcome(StrEnum):
    """How a rollout ended, if it has."""

    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    SUPERSEDED = "Superseded"  # the template changed again before all pods were replaced
    ABORTED = "Aborted"  # halted before all pods were replaced


class ActionType(StrEnum):
    """What can be asked for once."""

    ABORT = "Abort"
    RETRY = "Retry"
    PROMOTE = "Promote"
    PROMOTE_ALL = "PromoteAll"
    UNDO = "Undo"


class PauseType(StrEnum):
    """What ends the wait at a step."""

    MANUAL = "Manual"
    DURATION = "Duration"


class OrderPolicy(StrEnum):
    """Which pod goes first."""

    NATIVE = "Native"
    OLDEST_FIRST = "OldestFirst"
    NEWEST_FIRST = "NewestFirst"
    REVERSE_ORDINAL = "ReverseOrdinal"


class UnprovenPolicy(StrEnum):
    """What ends the doubt about a release that nothing proves."""

    WAIT = "Wait"  # time, on a Ready node
    PAUSE = "Pause"  # a person


class Placement(StrEnum):
    """Where a replacement may go."""

    ANY = "Any"
    SAME_NODE = "SameNode"


class ReservationKind(StrEnum):
    """What keeps strangers off a freed device."""

    NONE = "None"
    DEVICE_TAINT = "DeviceTaint"


class Guard(StrEnum):
    """What keeps a pod object until its kubelet has reported the end."""

    NONE = "None"
    FINALIZER = "Finalizer"


class Hold(StrEnum):
    """When to keep a departed pod's claim allocated until its release is proven."""

    AUTO = "Auto"  # where the cluster and our rights allow it
    ALWAYS = "Always"  # and replace nothing where they do not
    NEVER = "Never"


class WindowType(StrEnum):
    """What a window is for."""

    ALLOW = "Allow"
    DENY = "Deny"


class _SpecPart(Part):
    """A part of the spec. Unknown fields are refused: they may forbid what we would do."""

    model_config = ConfigDict(extra="forbid")


class WorkloadRef(_SpecPart):
    """The workload whose pods are replaced, in the namespace of this object. It cannot be changed later."""

    model_config = ConfigDict(json_schema_extra=rules.validated_by(rules.SAME_WORKLOAD))

    api_version: Annotated[
        str,
        AfterValidator(rules.check_version),
        Field(max_length=63, json_schema_extra=rules.validated_by(rules.SUPPORTED_VERSION)),
    ]
    """API version of the workload: apps/v1."""

    kind: Annotated[
        WorkloadKind,
        BeforeValidator(rules.check_kind),
        WithJsonSchema({"type": "string", "maxLength": 63} | rules.validated_by(rules.SUPPORTED_KIND)),
    ]
    """Kind of the workload: Deployment, StatefulSet or DaemonSet."""

    name: Annotated[
        str,
        AfterValidator(rules.check_name),
        Field(max_length=253, json_schema_extra=rules.validated_by(rules.POSSIBLE_NAME)),
    ]
    """Name of the workload."""


class Unproven(_SpecPart):
    """What to do about a pod that vanished without word from its kubelet."""

    policy: UnprovenPolicy = UnprovenPolicy.WAIT
    """Wait: its devices count as free after its grace period and extraSeconds, on a Ready node. Pause: never by time
    alone; make sure that the node let go, then set Wait. A reboot of the node is proof in either case."""

    extra_seconds: Annotated[int, Strict(), Field(ge=0, le=86400, json_schema_extra={"format": "int32"})] = 60
    """Seconds added to the pod's grace period before its devices count as free, counted on a Ready node only.

    After a forced deletion the kubelet still gives the containers their grace period, and looks for leftovers
    every 60 seconds. Less than that is for tests.
    """


class PrometheusCheck(_SpecPart):
    """A query about each device, and what its answer has to be."""

    address: Annotated[str, Field(max_length=253, pattern=r"^https?://[^\s]+$")]
    """URL of the Prometheus server, as the operator reaches it."""

    query: Annotated[str, Field(min_length=1, max_length=1024)]
    """PromQL of an instant query, with $(driver), $(pool), $(device) and $(node) for those of the device."""

    condition: Annotated[str, Field(min_length=1, max_length=1024)]
    """A CEL expression over `value`, which must be true of each sample; an answer without samples is not true."""


class Check(_SpecPart):
    """A condition that devices have to meet, beyond being free, before a successor may have them: one of its kinds."""

    model_config = ConfigDict(json_schema_extra=rules.validated_by(rules.ONE_KIND_OF_CHECK))

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """What to call it in messages; each check of an object has a name of its own."""

    cel: Annotated[str, Field(max_length=1024)] = ""
    """A CEL expression that must be true of each device.

    `device` has driver, pool, name, node, attributes (by name), capacity (by name, as numbers) and taints (key, value,
    effect) as its ResourceSlice publishes them; `conditions` are those of the departed pod's claim for the device, in
    a list (type, status, reason, message), empty once the claim is gone.
    """

    prometheus: PrometheusCheck | None = None
    """A query to a Prometheus server, such as the device memory in use that an exporter tells."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        rules.check_kind_of_check(has_cel=bool(self.cel), has_prometheus=self.prometheus is not None)
        return self


class Release(_SpecPart):
    """When the devices of a departed pod count as free, and how long that may take."""

    model_config = ConfigDict(json_schema_extra=rules.validated_by(rules.SETTLES_IN_TIME))

    timeout_seconds: Annotated[
        int, Strict(), Field(ge=1, le=86400, json_schema_extra={"format": "int32"})
    ] = 600
    """Seconds from a pod's termination until its devices are proven free.

    When they have passed, the object is Stalled and says what keeps the devices; the gate stays closed. The
    condition clears when the devices are free.
    """

    on_timeout: OnTimeout = OnTimeout.PAUSE
    """Pause: when timeoutSeconds have passed, wait on, and go on once the devices are free. Abort: start no further
    replacement of this revision."""

    hold: Hold = Hold.AUTO
    """Whether the devices of the workload's pods stay allocated after a pod is gone, until its release is proven.

    A held device is given to nobody, however its pod went: a forced deletion, or a lost node. Auto holds where the
    cluster (1.36 or newer) and the operator's optional role allow it, Always replaces no pod where they do not.
    Condition HoldInForce tells. Departed devices stay allocated while no operator runs.
    """

    guard: Guard = Guard.NONE
    """Finalizer: a finalizer of ours keeps each pod of the workload until its kubelet has reported the end.

    A forced deletion then ends in order and gives its proof. While no operator runs, pods that have ended stay as
    objects, and a StatefulSet makes no successor; deleting this object takes the finalizers away.
    """

    unproven: Unproven = Unproven()
    """What to do about a pod that vanished without word from its kubelet."""

    reservation: ReservationKind = ReservationKind.NONE
    """DeviceTaint: a departed pod's devices carry a taint of ours until its successor was allocated its own.

    The taint is accelerator-rollout.dev/reserved with the name of this object as its value and effect NoSchedule. The
    workload's ResourceClaimTemplate has to tolerate it. Needs the operator's optional role and a cluster that serves
    DeviceTaintRules; condition ReservationInForce tells.
    """

    placement: Placement = Placement.ANY
    """SameNode: a replacement is pinned to the node of the pod that it replaces, in the write that opens its gate.

    It then waits for that node, whatever becomes of it. A pod that replaces nobody goes anywhere.
    """

    settle_seconds: Annotated[int, Strict(), Field(ge=0, le=3600, json_schema_extra={"format": "int32"})] = 0
    """Seconds to leave devices alone after their release is proven, for drivers that finish late.

    They count from the moment at which the devices are free and allocatable, and anew if that is interrupted. No
    gate of the workload opens meanwhile.
    """

    checks: Annotated[
        tuple[Check, ...],
        Field(
            max_length=MAX_CHECKS,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
    """What else has to be true of the devices before a successor may have them, e.g. the driver's own word on health.

    Asked after the proof (and settleSeconds), and again every 10 seconds while one fails; the hold stays meanwhile. What
    cannot be evaluated is not true.
    """

    @model_validator(mode="after")
    def _settles_in_time(self) -> Self:
        rules.check_settle(self.settle_seconds, self.timeout_seconds)
        return self


class Window(_SpecPart):
    """Times at which replacements may, or may not, start."""

    type: WindowType
    """Allow: start replacements only in such windows. Deny: start none in them; stronger than Allow."""

    schedule: Annotated[str, Field(max_length=128, pattern=r"^[^ ]+( [^ ]+){4}$")]
    """When the window opens, in cron's five fields: minute, hour, day of month, month, day of week."""

    duration_seconds: Annotated[
        int, Strict(), Field(ge=60, le=31622400, json_schema_extra={"format": "int32"})
    ]
    """For how many seconds it stays open. Longer than the time between two openings means that it does not close."""

    time_zone: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$")] = "UTC"
    """Name of the IANA time zone whose clocks the schedule is about, e.g. Europe/Berlin.

    A time that its clocks skip counts as the moment of the change, one that comes twice counts the first time.
    """


class Disruption(_SpecPart):
    """How long a pod may be kept from leaving."""

    timeout_seconds: Annotated[
        int, Strict(), Field(ge=1, le=86400, json_schema_extra={"format": "int32"})
    ] = 600
    """Seconds for which a PodDisruptionBudget may keep the next pod from being replaced before the object is Stalled
    (EvictionTimeout). No budget is ever overridden; the condition clears when the budget allows."""


class HealthCheck(_SpecPart):
    """A condition that a successor has to meet while it soaks."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """What to call it in messages; each check of an object has a name of its own."""

    prometheus: PrometheusCheck
    """A query to a Prometheus server, with $(pod), $(namespace) and $(node) of the successor.

    With $(driver), $(pool) or $(device) in it, it is asked for each of the successor's devices.
    """


class Health(_SpecPart):
    """When a successor counts as healthy, and how long each stage on its way there may take."""

    model_config = ConfigDict(json_schema_extra=rules.validated_by(rules.CHECKS_NEED_A_SOAK))

    min_ready_seconds: Annotated[
        int, Strict(), Field(ge=0, le=86400, json_schema_extra={"format": "int32"})
    ] = 0
    """Seconds for which a pod must be ready before it counts as available; the workload's own minReadySeconds, if
    that is more."""

    schedule_timeout_seconds: Annotated[
        int, Strict(), Field(ge=1, le=86400, json_schema_extra={"format": "int32"})
    ] = 300
    """Seconds from the opening of a successor's gate until it has a node (ScheduleTimeout). The cluster's matter:
    failurePolicy does not apply."""

    prepare_timeout_seconds: Annotated[
        int, Strict(), Field(ge=1, le=86400, json_schema_extra={"format": "int32"})
    ] = 900
    """Seconds from then until its containers run: devices are prepared, images pulled (PrepareTimeout)."""

    ready_timeout_seconds: Annotated[
        int, Strict(), Field(ge=1, le=86400, json_schema_extra={"format": "int32"})
    ] = 1800
    """Seconds from then until it is ready (ReadyTimeout). Large models load for a quarter of an hour."""

    soak_seconds: Annotated[int, Strict(), Field(ge=0, le=86400, json_schema_extra={"format": "int32"})] = 0
    """Seconds for which an available successor is watched before the next pod is replaced."""

    failure_threshold: Annotated[int, Strict(), Field(ge=1, le=60, json_schema_extra={"format": "int32"})] = 3
    """How many failures in a row make a successor fail (HealthFailed).

    Failures are checks that are not true, counted from the start of the operator's process, and each time that
    the pod becomes unready again while it soaks.
    """

    checks: Annotated[
        tuple[HealthCheck, ...],
        Field(
            max_length=MAX_CHECKS,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
    """What has to be true of a successor while it soaks, asked every 10 seconds and once more at the end.

    What cannot be evaluated is not true.
    """

    @model_validator(mode="after")
    def _checks_need_a_soak(self) -> Self:
        rules.check_soak(len(self.checks), self.soak_seconds)
        return self


class StepPause(_SpecPart):
    """How long to wait at a step. Time spent so counts towards no deadline."""

    model_config = ConfigDict(json_schema_extra=rules.validated_by(rules.DURATION_FITS_PAUSE))

    type: PauseType = PauseType.MANUAL
    """Manual: until spec.action promotes the rollout. Duration: for durationSeconds."""

    duration_seconds: Annotated[
        int, Strict(), Field(ge=0, le=2592000, json_schema_extra={"format": "int32"})
    ] = 0
    """Seconds to wait, of type Duration, from the moment at which the step is reached and its pods are healthy."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        rules.check_pause(self.duration_seconds, timed=self.type is PauseType.DURATION)
        return self


class CanaryStep(_SpecPart):
    """A part of the rollout: so many pods at the new revision, and a wait."""

    replicas: Annotated[
        int | str,
        AfterValidator(rules.check_replicas),
        WithJsonSchema(
            {"x-kubernetes-int-or-string": True, "maxLength": 11}
            | rules.validated_by(rules.POSSIBLE_REPLICAS)
        ),
    ]
    """How many pods are to be of the new revision: a number, or a percentage of the replicas as they are (rounded up)."""

    pause: StepPause | None = None
    """What to wait for then; without it, the next step follows as soon as these pods are healthy."""


class Order(_SpecPart):
    """Which of the pods that are due goes first. Pods that are down go before all others, whatever stands here."""

    policy: OrderPolicy = OrderPolicy.NATIVE
    """Native: as the workload's own controller would (a StatefulSet from its highest ordinal, the others the oldest first).

    OldestFirst, NewestFirst: by age. ReverseOrdinal: by the number at the end of the pods' names, of a StatefulSet."""

    topology_key: Annotated[str, Field(max_length=317)] = ""
    """A node label, e.g. topology.kubernetes.io/zone: all pods of one of its values are replaced before those of the next."""


class Strategy(_SpecPart):
    """How far to go, and in which order."""

    model_config = ConfigDict(json_schema_extra=rules.validated_by(rules.STEPS_OR_PARTITION))

    max_unavailable: Annotated[
        int | str,
        AfterValidator(rules.check_max_unavailable),
        WithJsonSchema(
            {"x-kubernetes-int-or-string": True, "maxLength": 11}
            | rules.validated_by(rules.POSSIBLE_MAX_UNAVAILABLE)
        ),
    ] = 1
    """How many pods may be down by our doing: a number, or a percentage of the replicas (rounded down, at least 1).

    Pods that are down already count. A Deployment's own maxUnavailable must not be more, and its pods are replaced in groups
    of that size; a PodDisruptionBudget must allow as many.
    """

    partition: Annotated[int, Strict(), Field(ge=0, le=100000, json_schema_extra={"format": "int32"})] = 0
    """Pods that stay at the old revision: of a StatefulSet those with a lower ordinal, of the others so many.

    The object is Ready once all others are updated (PartitionReached). A StatefulSet's or DaemonSet's pod that leaves by
    itself comes back at the new revision all the same.
    """

    steps: Annotated[
        tuple[CanaryStep, ...],
        Field(max_length=MAX_STEPS, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """A canary: parts of the rollout with a wait after each. After the last, all pods follow. Not with a partition."""

    order: Order = Order()
    """Which of the pods that are due goes first."""

    @model_validator(mode="after")
    def _steps_or_partition(self) -> Self:
        rules.check_strategy(len(self.steps), self.partition)
        return self


class RequestedAction(_SpecPart):
    """Something to do once. Whoever asks for it again gives it another id."""

    type: ActionType
    """Abort: start no further replacement of this revision. Retry: go on after that. Undo: restore the workload's former
    pod template from its revision history. Promote, PromoteAll: end the wait at a step, or at all of them."""

    id: Annotated[str, Field(min_length=1, max_length=128)]
    """Tells this request from earlier ones: once it stands in status.observedActionID, it has been done.

    An object that is new counts the action it comes with as done.
    """


class GuardrailMode(StrEnum):
    """What a guardrail that is not met does."""

    ENFORCE = "Enforce"
    WARN = "Warn"
    OFF = "Off"


class Guardrail(StrEnum):
    """A rule of the published guideline; the value is the reason in the condition."""

    PRE_STOP_MISSING = "PreStopMissing"
    GRACE_TOO_SHORT = "GracePeriodTooShort"
    BUDGET_MISSING = "PodDisruptionBudgetMissing"
    BUDGET_BLOCKS_BROKEN = "PodDisruptionBudgetBlocksBrokenPods"
    UNGATED_REVISION = "UngatedRevision"
    NOT_PARKED = "ParkingPolicyMissing"
    PAUSE_IN_MANIFEST = "PauseInManifest"


class Exemption(_SpecPart):
    """A guardrail that does not apply to this workload."""

    rule: Guardrail
    """Which one."""

    reason: Annotated[str, Field(min_length=1, max_length=256)]
    """Why not, for whoever reads the condition."""


class Guardrails(_SpecPart):
    """What to make of a workload that does not follow the guideline."""

    mode: GuardrailMode = GuardrailMode.WARN
    """Warn: GuardrailsMet tells. Enforce: no replacement starts, either (GuardrailNotMet), but for UngatedRevision, which the
    first rollout itself ends. Off: nothing is said."""

    exempt: Annotated[
        tuple[Exemption, ...],
        Field(
            max_length=len(Guardrail),
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["rule"]},
        ),
    ] = ()
    """Guardrails that do not apply here, each with the reason."""


class RolloutSpec(_SpecPart):
    """What to replace, and how carefully."""

    model_config = ConfigDict(json_schema_extra=rules.validated_by(rules.DEADLINES_IN_ORDER))

    workload_ref: WorkloadRef
    """The workload whose pods are replaced, in the namespace of this object. It cannot be changed later."""

    paused: Flag = False
    """Start no further replacement. The pod in flight is finished: its successor's gate still opens."""

    action: RequestedAction | None = None
    """Something to do once: Abort, Retry, Promote, PromoteAll or Undo, with an id of its own."""

    restarted_at: Time | None = None
    """Replace every pod that was created before this time, at the revision it has. A time to come is waited for."""

    strategy: Strategy = Strategy()
    """How far to go, and in which order."""

    release: Release = Release()
    """When the devices of a departed pod count as free, and how long that may take."""

    windows: Annotated[
        tuple[Window, ...],
        Field(max_length=MAX_WINDOWS, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """When replacements may start; at any time without windows.

    What is in flight is finished, and gates open at any time. Broken pods wait too, but for those that took the place of
    a pod in flight.
    """

    disruption: Disruption = Disruption()
    """How long a pod may be kept from leaving."""

    health: Health = Health()
    """When a successor counts as healthy, and how long each stage on its way there may take."""

    failure_policy: FailurePolicy = FailurePolicy.PAUSE
    """What to do when a successor is not prepared or ready in time, or fails its health checks.

    Pause: replace no further healthy pod, and go on once it recovers or the template changes. Abort: start no further
    replacement of this revision. Undo: bring the pods back to the revision before.
    """

    progress_deadline_seconds: Annotated[
        int, Strict(), Field(ge=30, le=604800, json_schema_extra={"format": "int32"})
    ] = 1800
    """Seconds without any movement after which an unfinished rollout is Stalled (ProgressDeadlineExceeded).

    It covers what has no deadline of its own (in disruption, release and health). It goes on by itself as soon as
    something moves. Must be at least release.timeoutSeconds.
    """

    guardrails: Guardrails = Guardrails()
    """What to make of a workload that does not follow the guideline."""

    @model_validator(mode="after")
    def _deadlines_in_order(self) -> Self:
        rules.check_deadlines(self.progress_deadline_seconds, self.release.timeout_seconds)
        return self


class HeldDevice(Part):
    """A device as an allocation names it."""

    driver: Annotated[str, Field(max_length=63)]
    """Name of the DRA driver."""

    pool: Annotated[str, Field(max_length=253)]
    """Name of the pool, unique within the driver."""

    device: Annotated[str, Field(max_length=63)]
    """Name of the device, unique within the pool."""

    share_id: Uid = ""
    """Set if the claim holds only a share of the device's capacity."""

    request: Annotated[str, Field(max_length=127)] = ""
    """Name of the claim's request that the device was allocated for."""


class HeldClaim(Part):
    """A claim of a departed pod and the devices it held, noted before the pod was touched."""

    name: ObjectName
    """Name of the ResourceClaim."""

    uid: Annotated[Uid, Field(min_length=1)]
    """UID of the ResourceClaim: a later claim of the same name is another one."""

    devices: Annotated[
        tuple[HeldDevice, ...],
        Field(max_length=MAX_DEVICES, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """The devices it held."""


class StageEntry(WholePart):
    """When a replacement entered a stage."""

    stage: Stage
    """The stage."""

    at: Time
    """When it began."""


class Replacement(Part):
    """One departed pod and its successor, from the choice until the successor is healthy."""

    id: Annotated[Uid, Field(min_length=1)]
    """Identifies this replacement in the list."""

    # Empty where a gated pod was found whose predecessor nobody saw: then the release counts as unproven.
    pod_uid: Uid = ""
    """UID of the departed pod. Empty if nobody saw it."""

    pod_name: ObjectName = ""
    """Name of the departed pod."""

    node_name: ObjectName = ""
    """The node it ran on. Empty if it was never bound."""

    node_uid: Uid = ""
    """UID of that Node object: a node that was deleted and registered again is another one."""

    boot_id: Uid = ""
    """Boot ID of that node when the pod was last seen there. Once it changes, its processes are gone."""

    grace_seconds: Count | None = None
    """The pod's own grace period: how long its containers may outlive a forced deletion."""

    stage: Stage
    """Where it stands."""

    cause: Cause
    """Rollout if we replaced the pod, Departure if it left for any other reason."""

    stage_started_at: Time
    """When this stage began."""

    started_at: Time
    """When the pod was chosen, or first seen leaving."""

    released_at: Time | None = None
    """When the devices were proven free."""

    vanished_at: Time | None = None
    """When the pod object was first seen to be gone. The wait for an unproven release counts from here."""

    reason: Reason = ""
    """What it waits for, in one word."""

    message: Message = ""
    """What it waits for: which object, since when, what to do."""

    claims: Annotated[
        tuple[HeldClaim, ...],
        Field(
            max_length=MAX_CLAIMS,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"]},
        ),
    ] = ()
    """The departed pod's claims and the devices they held."""

    proof: Proof | None = None
    """What says that the node let go of the devices. Absent until something does."""

    replacement_pod_uid: Uid = ""
    """UID of the successor."""

    replacement_pod_name: ObjectName = ""
    """Name of the successor."""

    killed_after_grace: Flag | None = None
    """True if the departed pod's grace period ended before its containers did, so that they were killed."""

    relapses: Count | None = None
    """How often the successor was ready and became unready again before it was done."""

    stage_times: Annotated[
        tuple[StageEntry, ...],
        Field(max_length=MAX_STAGE_TIMES, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """When each stage so far began."""


class StageDuration(WholePart):
    """How long a replacement spent in a stage."""

    stage: Stage
    """The stage."""

    seconds: Count
    """Whole seconds spent in it."""


class PastReplacement(Part):
    """A replacement that ended."""

    pod_name: ObjectName
    """Name of the pod that was replaced."""

    replaced_by: ObjectName = ""
    """Name of its successor."""

    started_at: Time | None = None
    """When the first of its stages began."""

    proof: Proof | None = None
    """What said that the node had let go of the devices."""

    killed_after_grace: Flag | None = None
    """True if its grace period ended before its containers did, so that they were killed."""

    stages: Annotated[
        tuple[StageDuration, ...],
        Field(max_length=MAX_STAGE_TIMES, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """How long each stage took."""


class PastRollout(Part):
    """A rollout that ended."""

    revision: ObjectName
    """The revision that was rolled out."""

    outcome: Outcome
    """InProgress, Completed, Aborted, or Superseded by a later change."""

    restarted_at: Time | None = None
    """The spec.restartedAt that it replaced pods for."""

    started_at: Time
    """When the revision was first seen."""

    finished_at: Time | None = None
    """When the last pod was healthy, or the target changed."""

    replacements: Annotated[
        tuple[PastReplacement, ...],
        Field(max_length=MAX_HISTORY_REPLACEMENTS, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """The pods that were replaced."""


class Halt(Part):
    """A stop that outlasts what caused it, until somebody asks for more."""

    revision: ObjectName
    """The revision of which no further replacement is started. With another target, the halt is over."""

    reason: Annotated[Reason, Field(min_length=1)]
    """Why, in one word."""

    message: Message = ""
    """Why, and what to do."""

    at: Time
    """Since when."""

    restarted_at: Time | None = None
    """Set if it stopped a restart: the spec.restartedAt that was being carried out. With another one, it is over."""


class Promotion(Part):
    """A person's word that a step need not be waited for."""

    revision: ObjectName
    """The revision that was promoted. With another target, it counts no more."""

    step: Count = 0
    """Index in spec.strategy.steps of the step whose wait was ended."""

    all_steps: Flag = False
    """Whether no later step is to be waited for, either."""

    at: Time
    """When."""


class StepStatus(Part):
    """Where a rollout in steps stands."""

    revision: ObjectName
    """The revision that is rolled out. Another one begins at the first step."""

    index: Count
    """Index in spec.strategy.steps of the step that it is at; their number once all are passed."""

    reached_at: Time | None = None
    """When the step's pods were all updated and healthy. Absent before."""


class Undo(Part):
    """The workload's former pod template is being restored. Stored before the template is written."""

    revision_name: ObjectName
    """Name of the ReplicaSet or ControllerRevision that has the former template."""

    revision_uid: Uid
    """UID of it."""

    leaves: Annotated[str, Field(max_length=64)]
    """Digest of the template that is undone. Where the workload has any other one, there is nothing left to undo."""

    restores: Annotated[str, Field(max_length=64)]
    """Digest of the former template."""

    at: Time
    """Since when."""


class RolloutStatus(Part):
    """Where the rollout stands, as of observedGeneration."""

    observed_generation: Generation = 0
    """The generation of this object that the status speaks of."""

    observed_workload_generation: Generation = 0
    """The generation of the workload that the status speaks of."""

    observed_action_id: Annotated[str, Field(max_length=128)] = ""
    """The id of the last spec.action that was seen: whatever it had to do is done, or stands in this status."""

    halt: Halt | None = None
    """There while no further replacement is started, after an Abort or a failure."""

    retried_at: Time | None = None
    """When a halt last ended by Retry. Deadlines of pods in flight count from here."""

    step: StepStatus | None = None
    """Where a rollout in steps stands. Absent without steps, and while no rollout is under way."""

    promoted: Promotion | None = None
    """There while a step that was promoted is not waited for."""

    undo: Undo | None = None
    """There while the workload's former pod template is being restored."""

    adopted_at: Time | None = None
    """When this object was first seen. Pods older than that have no predecessor that was missed."""

    current_revision: ObjectName = ""
    """The revision that the pods were last all at."""

    update_revision: ObjectName = ""
    """The revision that the pods are being brought to."""

    replicas: Count = 0
    """Pods the workload asks for."""

    updated_replicas: Count = 0
    """Pods at the update revision; of those, once spec.restartedAt has come, the ones that were created since."""

    ready_replicas: Count = 0
    """Pods that are ready."""

    available_replicas: Count = 0
    """Pods that have been ready for at least the workload's minReadySeconds."""

    unavailable_replicas: Count = 0
    """Pods that the workload asks for and that are not available."""

    gated_replicas: Count = 0
    """Pods that wait at our scheduling gate."""

    last_progress_time: Time | None = None
    """When anything last moved. The progress deadline counts from here."""

    budget_wait_since: Time | None = None
    """Since when it waits for its turn in the budget that it shares with others. Absent while it does not."""

    replacements: Annotated[
        tuple[Replacement, ...],
        Field(
            max_length=MAX_REPLACEMENTS,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]},
        ),
    ] = ()
    """Replacements in flight. Do not edit: what is missing here cannot be proven released."""

    history: Annotated[
        tuple[PastRollout, ...],
        Field(max_length=MAX_HISTORY, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """The last rollouts, newest first."""

    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=MAX_CONDITIONS,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()
    """Ready, Progressing, DevicesReleased, GuardrailsMet; while true also Reconciling, Stalled, Paused."""

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON value to send, with every top-level list, so that a merge patch can empty it."""
        empty: dict[str, Any] = {
            field.alias or name: [] if field.default == () else field.default
            for name, field in type(self).model_fields.items()
            if field.default is not None
        }
        return empty | super().to_raw()

    def says_the_same(self, other: "RolloutStatus") -> bool:
        """Return whether both are written alike: times are cut to seconds. The history is long and seldom changes."""
        if self.history != other.history:
            return self.to_raw() == other.to_raw()
        bare = {"history": ()}
        return self.model_copy(update=bare).to_raw() == other.model_copy(update=bare).to_raw()


@dataclass(frozen=True, slots=True)
class RolloutObject:
    """An AcceleratorRollout that could be read in full."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    created: datetime
    deletion: datetime | None  # deletionTimestamp
    finalizers: tuple[str, ...]
    spec: RolloutSpec
    status: RolloutStatus
    budget: str = ""  # value of the label, "" without one


@dataclass(frozen=True, slots=True)
class LegibleRef:
    """The workload reference of an unreadable object; the kind may be one we do not know."""

    api_version: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An AcceleratorRollout that this version cannot read, with what could be made out.

    It still stands for its workload: its pods are not unreferenced. Without a legible `workload_ref` it may
    stand for any workload of its namespace. To report it, write conditions and nothing else, so that the part
    of the status which we could not read stays for the version that can.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    deletion: datetime | None
    finalizers: tuple[str, ...]
    workload_ref: LegibleRef | None
    conditions: tuple[Condition, ...]
    message: str  # the field, what is wrong with it, what to do
    budget: str = ""  # value of the label, "" without one
