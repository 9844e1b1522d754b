"""The facts the operator keeps about the world: small frozen records, projected once from what the API server sends.

Nothing here talks to a cluster. A record holds what a decision needs and no more, so that ten thousand pods cost
megabytes and not gigabytes, and so that a decision cannot depend on something nobody meant to look at.
Times are aware UTC datetimes with the API's resolution of one second: never order events by them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from accelerator_rollout.api.models import RolloutObject, Unreadable, WorkloadKind
from accelerator_rollout.names import GATE, GATE_LABEL, GATE_LABEL_VALUE


class Phase(StrEnum):
    """Pod phases as the API names them."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


def comes_gated(gates: tuple[str, ...], labels: Mapping[str, str]) -> bool:
    """Whether pods of a template with these come with our gate: of itself, or by our admission policy, where that is there."""
    return GATE in gates or labels.get(GATE_LABEL) == GATE_LABEL_VALUE


def ordinal(pod_name: str) -> int:
    """Return the number at the end of a pod's name, of a StatefulSet's; -1 without one."""
    tail = pod_name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else -1


@dataclass(frozen=True, slots=True)
class Owner:
    """The controlling owner reference of an object."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PodClaim:
    """One entry of a pod's `spec.resourceClaims`, joined with `status.resourceClaimStatuses`.

    `claim_name` is None while the claim of a template has not been generated. `named` is true where the pod
    refers to a ResourceClaim that exists apart from it (KEP-4381).
    """

    name: str
    claim_name: str | None
    named: bool
    template: str = ""  # name of the ResourceClaimTemplate; "" where there is none


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod, as far as its devices, its gate and its end are concerned."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    created: datetime
    owner: Owner | None
    revision: (
        str  # label pod-template-hash (Deployment) or controller-revision-hash (the other kinds); "" without
    )
    node: str  # "" while not bound
    phase: Phase
    gates: tuple[str, ...]
    ready: bool
    ready_since: datetime | None
    deletion: datetime | None  # deletionTimestamp: when the grace period ends, not when it began
    deletion_grace: int | None  # seconds
    grace_seconds: int  # spec.terminationGracePeriodSeconds
    claims: tuple[PodClaim, ...]
    extended_claim: str | None  # status.extendedResourceClaimStatus.resourceClaimName (KEP-5004)
    # The terminal phase was written by the kubelet (field manager of status.phase), which unprepares first.
    kubelet_terminal: bool
    containers_terminated: bool  # every container status is terminated (or there never was a container)
    by_pod_gc: (
        bool  # condition DisruptionTarget with reason DeletionByPodGC: an end nobody on the node confirmed
    )
    finalizers: tuple[str, ...] = ()
    waiting_reason: str = ""  # of the first container that waits, e.g. ImagePullBackOff
    waiting_message: str = ""
    restarts: int = 0
    # How the container that keeps the pod from being ready ended last; None if none has.
    exit_code: int | None = None
    exit_reason: str = ""  # e.g. Error, OOMKilled
    exit_message: str = ""  # the end of its termination message
    killed_at: datetime | None = None  # when a container ended by SIGKILL (137) that no memory limit sent
    ended_at: datetime | None = (
        None  # of a terminal pod: when its last container ended; None if none ever ran
    )
    sandboxed: bool = (
        False  # condition PodReadyToStartContainers: devices are prepared, and the sandbox stands
    )
    unschedulable_message: str = ""  # message of condition PodScheduled=False, reason Unschedulable
    deletion_cost: int = 0
    aimed_at: str = ""  # the one node that its affinity allows by name, as a DaemonSet's controller sets it

    @property
    def place(self) -> str:
        """The node it runs on, or (of a DaemonSet, before it is bound) the one it was made for."""
        return self.node or self.aimed_at

    @property
    def ordinal(self) -> int:
        """The number at the end of its name, of a StatefulSet's; -1 without one."""
        return ordinal(self.name)

    @property
    def claim_names(self) -> tuple[str, ...]:
        """The names of its claims that exist, the one for extended resources too: that stands in its status alone."""
        generated = tuple(claim.claim_name for claim in self.claims if claim.claim_name)
        return (*generated, self.extended_claim) if self.extended_claim else generated

    @property
    def bound(self) -> bool:
        """Whether the scheduler has given the pod a node."""
        return bool(self.node)

    @property
    def terminal(self) -> bool:
        """Whether no container of the pod will run again."""
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED)

    @property
    def terminating(self) -> bool:
        """Whether the pod has a deletionTimestamp."""
        return self.deletion is not None

    @property
    def live(self) -> bool:
        """Whether the pod counts as a pod of its workload: not ended, not ending."""
        return not self.terminal and not self.terminating


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """One requirement of a label or node selector."""

    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist; of nodes also Gt, Lt
    values: tuple[str, ...] = ()

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels satisfies it."""
        have = labels.get(self.key)
        match self.operator:
            case "In":
                return have in self.values
            case "NotIn":  # also true of an object without the label
                return have not in self.values
            case "Exists":
                return have is not None
            case "DoesNotExist":
                return have is None
            case _:
                return self._compares(have)

    def _compares(self, have: str | None) -> bool:
        try:
            mine, asked = int(have or ""), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return mine > asked if self.operator == "Gt" else mine < asked


@dataclass(frozen=True, slots=True)
class Device:
    """A device by its full name: unique in a cluster together with its share."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.name}"


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One allocation result of a claim."""

    device: Device
    admin: bool = False
    share_id: str = ""
    consumed: tuple[
        tuple[str, Decimal], ...
    ] = ()  # capacity of a shared device that the result draws (KEP-5075)
    request: str = ""  # name of the claim's request, "request/subrequest" where it had alternatives
    binding: tuple[str, ...] = ()  # conditions that must come true before the pod is bound (KEP-5007)


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of device taints (KEP-5055); what is empty matches everything."""

    key: str
    operator: str  # Equal (also if empty) or Exists
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """What one request of a claim says about which devices it takes. Alternatives stand as `request/subrequest`."""

    name: str
    tolerations: tuple[Toleration, ...] = ()
    capacity: tuple[tuple[str, Decimal], ...] = ()
    admin: bool = False


@dataclass(frozen=True, slots=True)
class Reservation:
    """One entry of a claim's `status.reservedFor`."""

    api_group: str
    resource: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """A ResourceClaim. `uses` is None while `status.allocation` is nil: only that frees a device (KEP-4381)."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_pod_uid: str  # "" for a named claim
    deletion: datetime | None
    reserved_for: tuple[Reservation, ...]
    uses: tuple[DeviceUse, ...] | None
    finalizers: tuple[str, ...] = ()
    owner_pod_name: str = ""
    requests: tuple[DeviceRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a device."""

    key: str
    value: str
    effect: str

    @property
    def blocks(self) -> bool:
        """Whether the scheduler refuses the device to a claim without a toleration."""
        return self.effect in ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Capacity:
    """One capacity of a device, and (for a shared one) what a request for it is rounded to (KEP-5075)."""

    name: str
    value: Decimal
    default: Decimal | None = None  # what a claim draws that does not ask
    choices: tuple[Decimal, ...] = ()  # valid values, ascending
    least: Decimal | None = None
    most: Decimal | None = None
    step: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Counter:
    """An amount of one counter of a counter set: there, or drawn by a device (KEP-4815)."""

    set: str
    name: str
    value: Decimal


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One term of a node selector: all its requirements, on labels and on fields."""

    labels: tuple[SelectorTerm, ...] = ()
    fields: tuple[SelectorTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """Which nodes may use what a slice or a device offers: one by name, all, or those of a selector; else none."""

    node: str = ""
    every: bool = False
    terms: tuple[NodeTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedDevice:
    """A device as a ResourceSlice lists it. `access` is set where the slice leaves it to each device."""

    name: str
    taints: tuple[Taint, ...] = ()
    draws: tuple[Counter, ...] = ()
    capacity: tuple[Capacity, ...] = ()
    shared: bool = False  # may be allocated several times, each time a part of its capacity
    access: Access | None = None


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """A ResourceSlice. A pool is the set of slices of its highest generation; `slice_count` of them make it complete."""

    name: str
    uid: str
    resource_version: str
    driver: str
    pool: str
    generation: int
    slice_count: int
    devices: tuple[PublishedDevice, ...]
    counters: tuple[Counter, ...] = ()  # what the pool's partitions draw on together
    access: Access = Access()

    @property
    def node(self) -> str:
        """The node that the slice is local to; "" where it is not."""
        return self.access.node


@dataclass(frozen=True, slots=True)
class TaintRuleRecord:
    """A DeviceTaintRule (KEP-5055): empty selector fields match everything."""

    name: str
    uid: str
    resource_version: str
    driver: str
    pool: str
    device: str
    taint: Taint
    reserved_by: str = ""  # our label: UID of the AcceleratorRollout that the device is reserved for
    reserved_in: str = ""  # our label: its namespace

    def selects(self, device: Device) -> bool:
        """Whether the rule is about the device."""
        wanted = ((self.driver, device.driver), (self.pool, device.pool), (self.device, device.name))
        return all(not asked or asked == have for asked, have in wanted)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A Node, as far as proof of an ended pod hangs on it."""

    name: str
    uid: str
    resource_version: str
    boot_id: str
    ready: bool
    ready_since: datetime | None
    unschedulable: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    leaving: str = ""  # type of its condition that tells of a drain, a shutdown or maintenance (KEP-5683); "" if none is true


@dataclass(frozen=True, slots=True)
class BudgetRecord:
    """A PodDisruptionBudget."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    selector: tuple[SelectorTerm, ...]
    disruptions_allowed: int
    generation: int
    observed_generation: int
    unhealthy_policy: str  # "" means IfHealthyBudget
    failure: str = (
        ""  # why its controller cannot evaluate it (condition DisruptionAllowed, reason SyncFailed)
    )


@dataclass(frozen=True, slots=True)
class Template:
    """What a pod template says that decisions hang on. `digest` leaves out the label pod-template-hash."""

    digest: str
    gates: tuple[str, ...]
    labels: Mapping[str, str]
    claims: tuple[PodClaim, ...]
    grace_seconds: int
    pre_stop: bool


class Succession(StrEnum):
    """How a workload's controller chooses what takes a departed pod's place."""

    BY_AGE = "by age"  # any pod may: the oldest departure gets the oldest
    BY_NAME = "by name"
    BY_NODE = "by node"


@dataclass(frozen=True, slots=True)
class DeploymentRecord:
    """A Deployment."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    observed_generation: int
    deletion: datetime | None
    replicas: int
    paused: bool
    parked: str | None  # value of our annotation, None without: the pause is then somebody else's
    managed: bool  # carries our label, so that our admission policy parks it
    strategy: str
    max_surge: int | str
    max_unavailable: int | str
    min_ready_seconds: int
    template: Template
    managed_by: str = ""  # a tool that owns the template and puts it back, by its name; "" if none is known
    pause_written_by: str = ""  # who applies a manifest with a spec.paused of its own; "" if nobody does

    @property
    def kind(self) -> WorkloadKind:
        """The kind, for messages and references."""
        return WorkloadKind.DEPLOYMENT

    @property
    def succession(self) -> Succession:
        """How its departed pods are succeeded."""
        return Succession.BY_AGE


@dataclass(frozen=True, slots=True)
class ReplicaSetRecord:
    """A ReplicaSet of a Deployment."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    created: datetime
    owner_uid: str
    generation: int
    observed_generation: int
    replicas: int
    status_replicas: int
    available: int
    revision: str  # label pod-template-hash
    template_digest: str
    template_gates: tuple[str, ...]
    template_labels: Mapping[str, str]
    number: int = 0  # annotation deployment.kubernetes.io/revision: the newest has the highest


@dataclass(frozen=True, slots=True)
class StatefulSetRecord:
    """A StatefulSet."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    observed_generation: int
    deletion: datetime | None
    replicas: int
    update_strategy: str
    min_ready_seconds: int
    current_revision: str
    update_revision: str
    template: Template
    managed_by: str = ""  # a tool that owns the template and puts it back, by its name; "" if none is known

    @property
    def kind(self) -> WorkloadKind:
        """The kind, for messages and references."""
        return WorkloadKind.STATEFUL_SET

    @property
    def succession(self) -> Succession:
        """How its departed pods are succeeded."""
        return Succession.BY_NAME


@dataclass(frozen=True, slots=True)
class RevisionRecord:
    """A ControllerRevision: the template that a StatefulSet's or DaemonSet's pods of one revision were made of."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str
    number: int  # field `revision`: the newest has the highest
    revision: str  # as its pods carry it in their label controller-revision-hash
    template_digest: str  # "" where it holds no pod template: others keep revisions of their own objects
    gated: bool = True  # whether its template has our gate, or the label by which our policy adds it


@dataclass(frozen=True, slots=True)
class DaemonSetRecord:
    """A DaemonSet. `replicas` counts the nodes that are to run a pod, as its controller last counted them."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    observed_generation: int
    deletion: datetime | None
    replicas: int
    update_strategy: str
    min_ready_seconds: int
    template: Template
    managed_by: str = ""  # a tool that owns the template and puts it back, by its name; "" if none is known

    @property
    def kind(self) -> WorkloadKind:
        """The kind, for messages and references."""
        return WorkloadKind.DAEMON_SET

    @property
    def succession(self) -> Succession:
        """How its departed pods are succeeded."""
        return Succession.BY_NODE


Workload = DeploymentRecord | StatefulSetRecord | DaemonSetRecord
Rollout = RolloutObject | Unreadable
