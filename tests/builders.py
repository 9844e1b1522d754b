"""A small world in facts, for tests of decisions: start from one in which nothing is wrong, and change one thing.

Pod `worker-N` runs on node `node-N` and holds device `dev-N` of that node's pool by a generated claim. UIDs are the
names with a prefix. Time stands at NOW; `at(seconds)` is so much later.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from accelerator_rollout.api.models import (
    Cause,
    HeldClaim,
    HeldDevice,
    Replacement,
    RolloutObject,
    RolloutSpec,
    RolloutStatus,
    Stage,
    StageEntry,
)
from accelerator_rollout.decide.actions import Action
from accelerator_rollout.decide.invariants import violations
from accelerator_rollout.decide.outcome import Plan
from accelerator_rollout.decide.plan import plan
from accelerator_rollout.decide.shared_budget import SharedBudget
from accelerator_rollout.decide.snapshot import (
    CheckRun,
    Freshness,
    GateProbe,
    HealthRun,
    HoldAbility,
    Refused,
    ReserveAbility,
    Rival,
    Snapshot,
    Vanished,
)
from accelerator_rollout.names import FINALIZER, GATE, GROUP, PLURAL
from accelerator_rollout.records import (
    Access,
    BudgetRecord,
    ClaimRecord,
    DaemonSetRecord,
    DeploymentRecord,
    Device,
    DeviceUse,
    NodeRecord,
    Owner,
    Phase,
    PodClaim,
    PodRecord,
    PublishedDevice,
    ReplicaSetRecord,
    Reservation,
    RevisionRecord,
    SliceRecord,
    StatefulSetRecord,
    TaintRuleRecord,
    Template,
    Workload,
)

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
CREATED = NOW - timedelta(hours=1)  # of everything that has been there for long
SPACE, NAME, DRIVER = "models", "worker", "lpu.example.com"
OLD, NEW = "old-digest-0000", "new-digest-0000"
GRACE, EXTRA = 30, 60  # seconds
OUR_HOLD = Reservation(GROUP, PLURAL, NAME, f"arol-{NAME}")


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def template(digest: str = NEW, **over: Any) -> Template:
    facts: dict[str, Any] = {
        "digest": digest,
        "gates": (GATE,),
        "labels": {"app": NAME},
        "claims": (PodClaim("device", None, named=False),),
        "grace_seconds": GRACE + 1,
        "pre_stop": True,
    }
    return Template(**(facts | over))


def deployment(replicas: int, **over: Any) -> DeploymentRecord:
    facts: dict[str, Any] = {
        "namespace": SPACE,
        "name": NAME,
        "uid": f"d-{NAME}",
        "resource_version": "1",
        "generation": 2,
        "observed_generation": 2,
        "deletion": None,
        "replicas": replicas,
        "paused": False,
        "parked": None,
        "managed": True,
        "strategy": "RollingUpdate",
        "max_surge": 0,
        "max_unavailable": 1,
        "min_ready_seconds": 0,
        "template": template(),
    }
    return DeploymentRecord(**(facts | over))


def stateful_set(replicas: int, **over: Any) -> StatefulSetRecord:
    facts: dict[str, Any] = {
        "namespace": SPACE,
        "name": NAME,
        "uid": f"s-{NAME}",
        "resource_version": "1",
        "generation": 2,
        "observed_generation": 2,
        "deletion": None,
        "replicas": replicas,
        "update_strategy": "OnDelete",
        "min_ready_seconds": 0,
        "current_revision": OLD,
        "update_revision": NEW,
        "template": template(),
    }
    return StatefulSetRecord(**(facts | over))


def daemon_set(replicas: int, **over: Any) -> DaemonSetRecord:
    facts: dict[str, Any] = {
        "namespace": SPACE,
        "name": NAME,
        "uid": f"s-{NAME}",
        "resource_version": "1",
        "generation": 2,
        "observed_generation": 2,
        "deletion": None,
        "replicas": replicas,
        "update_strategy": "OnDelete",
        "min_ready_seconds": 0,
        "template": template(),
    }
    return DaemonSetRecord(**(facts | over))


def revision(digest: str, number: int, **over: Any) -> RevisionRecord:
    """A StatefulSet's or DaemonSet's revision, named as its template's digest."""
    facts: dict[str, Any] = {
        "namespace": SPACE,
        "name": f"{NAME}-{digest}",
        "uid": f"cr-{digest}",
        "resource_version": "1",
        "owner_uid": f"s-{NAME}",
        "number": number,
        "revision": digest,
        "template_digest": digest,
    }
    return RevisionRecord(**(facts | over))


def replica_set(digest: str, replicas: int, available: int | None = None, **over: Any) -> ReplicaSetRecord:
    facts: dict[str, Any] = {
        "namespace": SPACE,
        "name": f"{NAME}-{digest[:3]}",
        "uid": f"rs-{digest}",
        "resource_version": "1",
        "created": CREATED if digest == OLD else NOW,
        "owner_uid": f"d-{NAME}",
        "generation": 1,
        "observed_generation": 1,
        "replicas": replicas,
        "status_replicas": replicas,
        "available": replicas if available is None else available,
        "revision": digest[:3],
        "template_digest": digest,
        "template_gates": (GATE,),
        "template_labels": {"app": NAME},
    }
    return ReplicaSetRecord(**(facts | over))


def pod(name: str, digest: str = OLD, *, kind: str = "StatefulSet", **over: Any) -> PodRecord:
    """A healthy pod. `kind` is that of its workload."""
    number = name.rpartition("-")[2]
    owner = (
        Owner("ReplicaSet", f"{NAME}-{digest[:3]}", f"rs-{digest}")
        if kind == "Deployment"
        else Owner(kind, NAME, f"s-{NAME}")
    )
    facts: dict[str, Any] = {
        "namespace": SPACE,
        "name": name,
        "uid": f"p-{name}",
        "resource_version": "1",
        "created": CREATED,
        "owner": owner,
        "revision": digest[:3] if kind == "Deployment" else digest,
        "node": f"node-{number}",
        "phase": Phase.RUNNING,
        "gates": (),
        "ready": True,
        "ready_since": CREATED,
        "deletion": None,
        "deletion_grace": None,
        "grace_seconds": GRACE,
        "claims": (PodClaim("device", f"{name}-device", named=False),),
        "extended_claim": None,
        "kubelet_terminal": False,
        "containers_terminated": False,
        "by_pod_gc": False,
        "aimed_at": f"node-{number}" if kind == "DaemonSet" else "",
    }
    return PodRecord(**(facts | over))


def gated_pod(name: str, digest: str = NEW, **over: Any) -> PodRecord:
    """A pod that waits at our gate, made a moment ago."""
    facts: dict[str, Any] = {
        "uid": f"q-{name}",
        "created": NOW,
        "node": "",
        "phase": Phase.PENDING,
        "gates": (GATE,),
        "ready": False,
        "ready_since": None,
    }
    uid = over.get("uid", facts["uid"])
    facts["claims"] = (PodClaim("device", f"{uid}-device", named=False),)
    return pod(name, digest, **(facts | over))


def device(number: int | str) -> Device:
    return Device(DRIVER, f"node-{number}", f"dev-{number}")


def claim_of(of: PodRecord, *devices: Device, **over: Any) -> ClaimRecord:
    """The pod's generated claim, allocated to `devices` if there are any."""
    name = of.claims[0].claim_name or f"{of.name}-device"
    facts: dict[str, Any] = {
        "namespace": SPACE,
        "name": name,
        "uid": f"c-{of.uid}",
        "resource_version": "1",
        "owner_pod_uid": of.uid,
        "deletion": None,
        "reserved_for": (Reservation("", "pods", of.name, of.uid),) if devices else (),
        "uses": tuple(DeviceUse(d) for d in devices) or None,
    }
    return ClaimRecord(**(facts | over))


def pool(number: int | str, **over: Any) -> SliceRecord:
    """The one ResourceSlice of a node's pool, with its one device."""
    facts: dict[str, Any] = {
        "name": f"slice-{number}",
        "uid": f"sl-{number}",
        "resource_version": "1",
        "driver": DRIVER,
        "pool": f"node-{number}",
        "generation": 1,
        "slice_count": 1,
        "access": Access(node=f"node-{number}"),
        "devices": (PublishedDevice(f"dev-{number}"),),
    }
    return SliceRecord(**(facts | over))


def node(name: str, **over: Any) -> NodeRecord:
    facts: dict[str, Any] = {
        "name": name,
        "uid": f"n-{name}",
        "resource_version": "1",
        "boot_id": f"boot-{name}",
        "ready": True,
        "ready_since": CREATED,
        "unschedulable": False,
    }
    return NodeRecord(**(facts | over))


def budget(allowed: int = 1, **over: Any) -> BudgetRecord:
    facts: dict[str, Any] = {
        "namespace": SPACE,
        "name": f"{NAME}-pdb",
        "uid": f"b-{NAME}",
        "resource_version": "1",
        "selector": (),
        "disruptions_allowed": allowed,
        "generation": 1,
        "observed_generation": 1,
        "unhealthy_policy": "AlwaysAllow",
    }
    return BudgetRecord(**(facts | over))


def entry(of: PodRecord, *devices: Device, stage: Stage = Stage.TERMINATING, **over: Any) -> Replacement:
    """The stored entry of a pod that held `devices`."""
    held = HeldClaim(
        name=of.claims[0].claim_name or "",
        uid=f"c-{of.uid}",
        devices=tuple(HeldDevice(driver=d.driver, pool=d.pool, device=d.name) for d in devices),
    )
    facts: dict[str, Any] = {
        "id": of.uid,
        "pod_uid": of.uid,
        "pod_name": of.name,
        "node_name": of.node,
        "node_uid": f"n-{of.node}",
        "boot_id": f"boot-{of.node}",
        "grace_seconds": of.grace_seconds,
        "stage": stage,
        "cause": Cause.ROLLOUT,
        "stage_started_at": at(-5),
        "started_at": at(-5),
        "claims": (held,),
        "stage_times": (StageEntry(stage=stage, at=at(-5)),),
    }
    return Replacement(**(facts | over))


def leaving(of: PodRecord) -> PodRecord:
    """The pod with a deletionTimestamp, its containers still running."""
    return replace(of, deletion=at(GRACE), deletion_grace=GRACE, ready=False)


def ended(of: PodRecord) -> PodRecord:
    """The pod after its kubelet reported the end."""
    return replace(of, phase=Phase.SUCCEEDED, ready=False, kubelet_terminal=True, containers_terminated=True)


@dataclass
class World:
    """What one Snapshot is made of, to be changed by a test. Start with `running(…)`."""

    workload: Workload | None
    sets: list[ReplicaSetRecord] = field(default_factory=list)
    pods: dict[str, PodRecord] = field(default_factory=dict)  # by UID
    claims: dict[str, ClaimRecord] = field(default_factory=dict)  # by name
    strangers: list[ClaimRecord] = field(default_factory=list)
    slices: list[SliceRecord] = field(default_factory=list)
    rules: list[TaintRuleRecord] = field(default_factory=list)
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    budgets: list[BudgetRecord] = field(default_factory=lambda: [budget()])
    vanished: list[Vanished] = field(default_factory=list)
    rivals: list[Rival] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    freshness: Freshness = Freshness.FRESH
    watched_since: datetime | None = field(default_factory=lambda: at(-600))
    probe: GateProbe | None = None
    policy_parks: bool = True
    checked: dict[str, CheckRun] = field(default_factory=dict)
    bad_checks: dict[str, str] = field(default_factory=dict)
    health: dict[str, HealthRun] = field(default_factory=dict)
    revisions: list[RevisionRecord] = field(default_factory=list)
    former: list[PodRecord] = field(default_factory=list)
    ability: HoldAbility = HoldAbility.NOT_PERMITTED
    reserve: ReserveAbility = ReserveAbility.NOT_PERMITTED
    restore: bool = True
    disputed: frozenset[str] = frozenset()
    shared: SharedBudget | None = None
    maybe_sent: frozenset[str] = frozenset()
    peers: frozenset[str] = frozenset()
    spec: dict[str, Any] = field(default_factory=dict)
    status: RolloutStatus = field(default_factory=lambda: RolloutStatus(adopted_at=at(-600)))
    generation: int = 1
    finalizers: tuple[str, ...] = (FINALIZER,)
    deletion: datetime | None = None

    @property
    def kind(self) -> str:
        return str(self.workload.kind) if self.workload else "StatefulSet"

    def named(self, name: str) -> PodRecord:
        (found,) = (p for p in self.pods.values() if p.name == name)
        return found

    def put(self, one: PodRecord, *devices: Device) -> PodRecord:
        """Set the pod, and its claim with these devices (unallocated without)."""
        self.pods[one.uid] = one
        made = claim_of(one, *devices)
        self.claims[made.name] = made
        return one

    def change(self, name: str, **over: Any) -> PodRecord:
        """Change facts of the pod."""
        changed = replace(self.named(name), **over)
        self.pods[changed.uid] = changed
        return changed

    def set_workload(self, **over: Any) -> None:
        assert self.workload is not None
        self.workload = replace(self.workload, **over)

    def leave(self, name: str) -> PodRecord:
        """Delete the pod gracefully: it terminates and still holds its devices."""
        gone = leaving(self.named(name))
        self.pods[gone.uid] = gone
        return gone

    def end(self, name: str) -> PodRecord:
        """Let the kubelet report the end of the pod, and free its claim."""
        gone = ended(self.named(name))
        self.pods[gone.uid] = gone
        self.free(gone)
        return gone

    def free(self, of: PodRecord) -> None:
        """Deallocate the pod's claim."""
        held = self.claims.get(of.claims[0].claim_name or "")
        if held is not None and held.owner_pod_uid == of.uid:
            self.claims[held.name] = replace(held, uses=None, reserved_for=())

    def vanish(self, name: str, at_time: datetime | None = None, *, seen: bool = True) -> PodRecord:
        """Let the pod object go, with its claim; `seen`: while we watched."""
        gone = self.named(name)
        del self.pods[gone.uid]
        self.claims = {n: c for n, c in self.claims.items() if c.owner_pod_uid != gone.uid}
        if seen:
            self.vanished.append(Vanished(gone, at_time or NOW))
        return gone

    def remember(self, *entries: Replacement) -> None:
        """Store these entries in the status."""
        self.status = self.status.model_copy(update={"replacements": (*self.status.replacements, *entries)})

    def recorded(self, name: str, number: int | str, **over: Any) -> Replacement:
        """Store the entry of a pod that held `dev-<number>`."""
        one = entry(self.named(name), device(number), **over)
        self.remember(one)
        return one

    def store(self, decided: Plan) -> None:
        """Store the status as the executor would, with times as the API keeps them."""
        self.status = RolloutStatus.from_raw(decided.status.to_raw())

    def rollout(self) -> RolloutObject:
        raw = {"workloadRef": {"apiVersion": "apps/v1", "kind": self.kind, "name": NAME}} | self.spec
        return RolloutObject(
            namespace=SPACE,
            name=NAME,
            uid=f"arol-{NAME}",
            resource_version="1",
            generation=self.generation,
            created=at(-1000),
            deletion=self.deletion,
            finalizers=self.finalizers,
            spec=RolloutSpec.from_raw(raw),
            status=self.status,
        )

    def snapshot(self) -> Snapshot:
        noted = {
            Device(d.driver, d.pool, d.device)
            for e in self.status.replacements
            for c in e.claims
            for d in c.devices
        }
        noted |= {use.device for c in self.claims.values() for use in c.uses or ()}
        everyone = (*self.claims.values(), *self.strangers)
        pools = {(d.driver, d.pool) for d in noted}
        noted |= {
            u.device for c in everyone for u in c.uses or () if (u.device.driver, u.device.pool) in pools
        }
        return Snapshot(
            rollout=self.rollout(),
            rivals=tuple(self.rivals),
            workload=self.workload,
            replica_sets=tuple(self.sets),
            pods=tuple(self.pods.values()),
            vanished=tuple(self.vanished),
            claims=dict(self.claims),
            holders={
                d: tuple(c for c in everyone if any(u.device == d for u in c.uses or ())) for d in noted
            },
            slices=tuple(self.slices),
            taint_rules=tuple(self.rules),
            nodes=dict(self.nodes),
            budgets=tuple(self.budgets),
            freshness=self.freshness,
            watched_since=self.watched_since,
            gate_probe=self.probe,
            refused=tuple(self.refused),
            unreadable=dict(self.unreadable),
            policy_parks=self.policy_parks,
            former=tuple(self.former),
            revisions=tuple(self.revisions),
            hold=self.ability,
            reserve=self.reserve,
            restore=self.restore,
            checked=dict(self.checked),
            bad_checks=dict(self.bad_checks),
            health=dict(self.health),
            reservations=tuple(r for r in self.rules if r.reserved_by == f"arol-{NAME}"),
            disputed=self.disputed,
            shared=self.shared,
            maybe_sent=self.maybe_sent,
            peers=self.peers,
        )

    def plan(self, now: datetime = NOW) -> Plan:
        """Decide, and hold the decision to every promise."""
        snapshot = self.snapshot()
        decided = plan(snapshot, now)
        found = violations(snapshot, decided, now)
        assert not found, "; ".join(map(str, found))
        return decided

    def actions(self, now: datetime = NOW) -> tuple[Action, ...]:
        return self.plan(now).actions


def running(kind: str, replicas: int = 3, digest: str = OLD, **over: Any) -> World:
    """A workload whose pods are all healthy at `digest`, on a full pool; its template is at NEW.

    A Deployment at another digest than its template's is parked, as our admission policy leaves it.
    """
    world = World(None)
    for number in range(replicas):
        world.put(pod(f"{NAME}-{number}", digest, kind=kind), device(number))
        world.slices.append(pool(number))
        world.nodes[f"node-{number}"] = node(f"node-{number}")
    if kind == "StatefulSet":
        world.workload = stateful_set(replicas, **over)
        world.revisions = [revision(OLD, 1), revision(NEW, 2)]
    elif kind == "DaemonSet":
        world.workload = daemon_set(replicas, **over)
        world.revisions = [revision(OLD, 1), revision(NEW, 2)]
    else:
        parked = {} if digest == NEW else {"paused": True, "parked": "template-changed"}
        world.workload = deployment(replicas, **(parked | over))
        world.sets.append(replica_set(digest, replicas))
    return world


def of_type(actions: Iterable[Action], kind: type[Action]) -> tuple[Action, ...]:
    return tuple(a for a in actions if isinstance(a, kind))
