"""What a decision can ask for: closed set of small frozen values, each naming the object by UID.

The executor refreshes what an action's safety hangs on, decides again over the fresh snapshot, and acts only if the
same action is asked for again. So equality of actions is part of their meaning: no times and no counters in here.
"""

from dataclasses import dataclass
from enum import StrEnum


class ParkReason(StrEnum):
    """Value of the `parked` annotation."""

    TEMPLATE_CHANGED = "template-changed"  # written by the admission policy
    STEP_TAKEN = "step-taken"  # the replacement exists; nothing further until it is healthy
    HALTED = "halted"  # found moving before we had decided anything


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Add our finalizer to the AcceleratorRollout, before anything of the workload is touched."""

    uid: str


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Let the AcceleratorRollout go: nothing of ours is left in the workload."""

    uid: str


@dataclass(frozen=True, slots=True)
class ManageDeployment:
    """Put our label on the Deployment, so that the admission policy parks its template changes."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class UnmanageDeployment:
    """Take our label and our pause (with its annotation) off the Deployment."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PauseDeployment:
    """Set `spec.paused` with our annotation."""

    name: str
    uid: str
    reason: ParkReason


@dataclass(frozen=True, slots=True)
class UnpauseDeployment:
    """Take our pause away: for exactly one step, which removes `victim_uids` most likely, or (none) to leave it at rest."""

    name: str
    uid: str
    victim_uids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreferVictim:
    """Annotate the pod with a deletion cost below its peers, so that the ReplicaSet chooses it (KEP-2255)."""

    pod_name: str
    pod_uid: str
    cost: int


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Evict the pod through the eviction subresource, with its UID as precondition."""

    pod_name: str
    pod_uid: str


@dataclass(frozen=True, slots=True)
class OpenGate:
    """Remove our gate from the pod; others' gates stay."""

    pod_name: str
    pod_uid: str
    predecessor_uid: str  # "" where the pod succeeds nobody
    hostname: str = ""  # value of the label kubernetes.io/hostname that the pod is pinned to; "" for any node
    guard: bool = False  # whether our guard comes on with it


@dataclass(frozen=True, slots=True)
class HoldClaim:
    """Add our entry to the claim's `status.reservedFor`."""

    claim_name: str
    claim_uid: str


@dataclass(frozen=True, slots=True)
class EndHold:
    """Take our entry off the claim; with `deallocate` the others (pods proven finished) and the allocation go with it."""

    claim_name: str
    claim_uid: str
    deallocate: bool


@dataclass(frozen=True, slots=True)
class AddGuard:
    """Add our guard to the pod's finalizers."""

    pod_name: str
    pod_uid: str


@dataclass(frozen=True, slots=True)
class RemoveGuard:
    """Take our guard off the pod's finalizers; others' stay."""

    pod_name: str
    pod_uid: str


@dataclass(frozen=True, slots=True)
class ReserveDevice:
    """Create a DeviceTaintRule of ours on the device."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class EndReservation:
    """Delete a DeviceTaintRule of ours."""

    rule_name: str
    rule_uid: str


@dataclass(frozen=True, slots=True)
class RunChecks:
    """Ask spec.release.checks about the devices of a departed pod."""

    replacement_id: str


@dataclass(frozen=True, slots=True)
class CheckHealth:
    """Ask spec.health.checks about a successor that soaks."""

    pod_name: str
    pod_uid: str


@dataclass(frozen=True, slots=True)
class RestoreTemplate:
    """Write a former pod template, from the object that keeps it, in the place of the one that is undone."""

    name: str
    uid: str
    revision_name: str
    revision_uid: str
    leaves: str  # digest of the template that goes
    restores: str  # digest of the one that comes


@dataclass(frozen=True, slots=True)
class ProbeGate:
    """Create a pod of the workload's template by dry run, to learn whether the admission policy gates it."""

    template_digest: str


Action = (
    AddFinalizer
    | RemoveFinalizer
    | ManageDeployment
    | UnmanageDeployment
    | PauseDeployment
    | UnpauseDeployment
    | PreferVictim
    | EvictPod
    | OpenGate
    | HoldClaim
    | EndHold
    | AddGuard
    | RemoveGuard
    | ReserveDevice
    | EndReservation
    | RunChecks
    | CheckHealth
    | RestoreTemplate
    | ProbeGate
)


def victims_of(action: Action) -> tuple[str, ...]:
    """Return the UIDs of the pods that the action takes down."""
    match action:
        case EvictPod(pod_uid=uid):
            return (uid,)
        case UnpauseDeployment(victim_uids=uids):
            return uids
        case _:
            return ()
