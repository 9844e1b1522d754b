"""Everything one decision may look at, frozen at one moment.

The store builds a Snapshot per AcceleratorRollout; the executor builds another from fresh reads right before it acts.
The decision is the same pure function over both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from accelerator_rollout.api.models import RolloutObject
from accelerator_rollout.decide.shared_budget import SharedBudget
from accelerator_rollout.records import (
    BudgetRecord,
    ClaimRecord,
    Device,
    NodeRecord,
    PodRecord,
    ReplicaSetRecord,
    RevisionRecord,
    SliceRecord,
    TaintRuleRecord,
    Workload,
)


class Freshness(StrEnum):
    """Whether the store may be believed."""

    FRESH = "Fresh"
    SYNCING = "Syncing"  # first lists are not in yet
    STALE = "Stale"  # the last resync failed or is overdue
    UNREADABLE = "Unreadable"  # an object this decision hangs on could not be read


class GateSource(StrEnum):
    """Where the gate of the workload's future pods comes from, as far as known."""

    UNKNOWN = "Unknown"  # not probed yet, or the probe failed: see `detail`
    POLICY = "Policy"  # a dry-run pod of the template came back gated
    NONE = "None"  # a dry-run pod of the template came back without our gate


@dataclass(frozen=True, slots=True)
class GateProbe:
    """What a dry-run pod of the template with this digest told."""

    template_digest: str
    source: GateSource
    detail: str = ""


class HoldAbility(StrEnum):
    """Whether claims can be held here."""

    POSSIBLE = "Possible"
    NOT_PERMITTED = "NotPermitted"  # the optional role is not installed
    NOT_SUPPORTED = (
        "NotSupported"  # before Kubernetes 1.36 the claim controller stumbles over entries of others
    )


class ReserveAbility(StrEnum):
    """Whether devices can be reserved here."""

    POSSIBLE = "Possible"
    NOT_PERMITTED = "NotPermitted"  # the optional role is not installed
    NOT_SUPPORTED = "NotSupported"  # the cluster serves no DeviceTaintRules


@dataclass(frozen=True, slots=True)
class CheckRun:
    """What the checks on a departed pod's devices came to. `generation` is the object's that asked for them.

    `failures` holds a sentence for each check that was not true, or could not be evaluated.
    """

    generation: int
    at: datetime
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HealthRun:
    """What spec.health.checks on a successor came to when they were last asked, of the object's generation.

    `failures` holds a sentence for each check that was not true; `in_a_row` counts the runs that had any, up to this one,
    since the process began.
    """

    generation: int
    at: datetime
    failures: tuple[str, ...] = ()
    in_a_row: int = 0


@dataclass(frozen=True, slots=True)
class Rival:
    """Another AcceleratorRollout that names the same workload. `adopted`: it carries our finalizer already."""

    name: str
    uid: str
    created: datetime
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class Vanished:
    """A pod of the workload whose object went while we watched: its last state, and when we saw it go."""

    pod: PodRecord
    at: datetime


@dataclass(frozen=True, slots=True)
class Refused:
    """An act the API server turned down, for the next decision to explain (a 429 of an eviction, mostly)."""

    pod_uid: str
    reason: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One AcceleratorRollout and what it touches.

    `claims` are the claims of the workload's pods, of its vanished pods and of `status.replacements`, and those that
    carry our hold, by name, all of the rollout's namespace. `former` are the pods of held claims, and
    those with our guard, that are not among the workload's any more (it was deleted, or they were taken from it): they
    are owed a proof, and nothing else. `holders` maps each device that a departed or departing pod held, and each held one
    of the same pools, to every claim of any namespace whose allocation names it. `slices` are those of the pools of these devices, all generations.
    `watched_since` is the moment from which no event of this workload can have been missed; None if unknown.
    `unreadable` names objects (kind/name: why) that this decision needs and that could not be read.
    """

    rollout: RolloutObject
    rivals: tuple[Rival, ...]
    workload: Workload | None
    replica_sets: tuple[ReplicaSetRecord, ...]
    pods: tuple[PodRecord, ...]
    vanished: tuple[Vanished, ...]
    claims: Mapping[str, ClaimRecord]
    holders: Mapping[Device, tuple[ClaimRecord, ...]]
    slices: tuple[SliceRecord, ...]
    taint_rules: tuple[TaintRuleRecord, ...]
    nodes: Mapping[str, NodeRecord]
    budgets: tuple[BudgetRecord, ...]
    freshness: Freshness
    watched_since: datetime | None
    gate_probe: GateProbe | None = None
    refused: tuple[Refused, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    former: tuple[PodRecord, ...] = ()
    hold: HoldAbility = HoldAbility.NOT_PERMITTED
    reservations: tuple[TaintRuleRecord, ...] = ()  # taint rules of ours, for this object
    reserve: ReserveAbility = ReserveAbility.NOT_PERMITTED
    restore: bool = (
        False  # whether we may write a former pod template: the optional role of Undo is installed
    )
    disputed: frozenset[str] = frozenset()  # UIDs of claims whose hold somebody else keeps taking away
    revisions: tuple[RevisionRecord, ...] = ()  # of a DaemonSet, all it has
    checked: Mapping[str, CheckRun] = field(default_factory=dict)  # by id of the replacement
    # By list and name of the check ("health.checks" and so on): why it can never be evaluated.
    bad_checks: Mapping[str, str] = field(default_factory=dict)
    health: Mapping[str, HealthRun] = field(default_factory=dict)  # by UID of the successor
    shared: SharedBudget | None = None  # the budget across AcceleratorRollouts, and the others in it
    # UIDs of pods that may have been disrupted already, though they do not show it: the answer was lost, or is not in yet,
    # or another process chose them and may have sent it.
    maybe_sent: frozenset[str] = frozenset()
    # UIDs of pods of other workloads that some AcceleratorRollout manages, as far as they hold devices of these pools.
    peers: frozenset[str] = frozenset()
    policy_parks: bool = True  # the cluster serves the parking policy (1.36 and newer, installed)

    def devices_of(self, pod: PodRecord) -> tuple[Device, ...]:
        """Return the devices that the pod's claims have, by name."""
        names = set(pod.claim_names)
        uses = (u for c in self.claims.values() if c.name in names for u in c.uses or ())
        return tuple(sorted({u.device for u in uses}, key=str))
