"""The operator in the model: the production decision over a store that lags, carried out as the executor does.

Every decision is held to the promises, that over the store and those over fresh reads right before each write. The
process may die before any write; what it had in mind is lost then, and the store starts anew.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from accelerator_rollout.api.models import RolloutObject, RolloutStatus
from accelerator_rollout.decide.actions import (
    Action,
    AddFinalizer,
    AddGuard,
    CheckHealth,
    EndHold,
    EvictPod,
    HoldClaim,
    ManageDeployment,
    OpenGate,
    PauseDeployment,
    PreferVictim,
    ProbeGate,
    RemoveFinalizer,
    RemoveGuard,
    RestoreTemplate,
    RunChecks,
    UnmanageDeployment,
    UnpauseDeployment,
    victims_of,
)
from accelerator_rollout.decide.confirm import (
    Read,
    ReadClaim,
    ReadPod,
    ReadPool,
    ReadReplicaSet,
    ReadTaintRules,
    ReadWorkload,
    Result,
    merge,
    reads_for,
)
from accelerator_rollout.decide.holds import held
from accelerator_rollout.decide.invariants import Violation, violations
from accelerator_rollout.decide.outcome import Plan
from accelerator_rollout.decide.patience import patience
from accelerator_rollout.decide.plan import plan
from accelerator_rollout.decide.snapshot import (
    CheckRun,
    Freshness,
    HealthRun,
    HoldAbility,
    Snapshot,
    Vanished,
)
from accelerator_rollout.names import FINALIZER, GATE, GROUP, GUARD_FINALIZER, PLURAL
from accelerator_rollout.records import (
    BudgetRecord,
    ClaimRecord,
    DeploymentRecord,
    Device,
    NodeRecord,
    PodRecord,
    ReplicaSetRecord,
    Reservation,
    RevisionRecord,
    SliceRecord,
    Workload,
)
from model.cluster import Cluster

Planner = type(plan)
REMEMBER_SENT = timedelta(minutes=2)  # as `control.loop` does
KINDS = ("pods", "claims", "sets", "workload", "revisions", "pools", "rollout")


class BrokenPromiseError(AssertionError):
    """A decision broke a promise."""


class _DiedError(Exception):
    """The process ends right here."""


class _ConflictError(Exception):
    """The write's precondition does not hold: the world moved."""


@dataclass
class Store:
    """What the operator believes, each kind as of the moment of its last event."""

    pods: dict[str, PodRecord] = field(default_factory=dict)
    claims: dict[str, ClaimRecord] = field(default_factory=dict)
    sets: dict[str, ReplicaSetRecord] = field(default_factory=dict)
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    slices: dict[str, SliceRecord] = field(default_factory=dict)
    revisions: dict[str, RevisionRecord] = field(default_factory=dict)
    budget: BudgetRecord | None = None
    workload: Workload | None = None
    rollout: RolloutObject | None = None
    vanished: dict[str, Vanished] = field(default_factory=dict)
    pods_at: int = 0  # the cluster's moment that the pods are of
    watched_since: datetime | None = None


@dataclass
class Opening:
    """A gate that we opened, and what was known then."""

    pods_at: int
    without_proof: bool


@dataclass(frozen=True)
class HeldUp:
    """An eviction that a process sent before it ended, and that the API server has not seen yet."""

    pod_uid: str
    sent: datetime


@dataclass
class Operator:
    """One process after another."""

    cluster: Cluster
    decide: object = plan
    store: Store = field(default_factory=Store)
    stale: bool = False
    unfit: bool = False  # what every check says
    checked: dict[str, CheckRun] = field(default_factory=dict)
    health: dict[str, HealthRun] = field(default_factory=dict)
    dies_before: int | None = None  # writes until the process ends
    sent: dict[str, datetime] = field(default_factory=dict)  # by pod UID: disrupted, as far as we know
    held_up: list[HeldUp] = field(default_factory=list)
    openings: dict[str, Opening] = field(default_factory=dict)  # by pod UID
    unwatched: set[str] = field(default_factory=set)  # pods that went while no process watched, unrecorded
    freed_on_leaving: set[str] = field(
        default_factory=set
    )  # pods whose hold ended because our object was going
    status_writes: int = 0
    untold: tuple[str, RolloutStatus, RolloutStatus, datetime] | None = None  # uid, stored, true, since when
    actions: list[Action] = field(default_factory=list)
    broken: list[Violation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    # What it believes

    def start(self) -> None:
        """A new process lists everything, and from then on misses nothing."""
        cluster = self.cluster
        known = {e.pod_uid for e in cluster.rollout.status.replacements} if cluster.rollout else set()
        for uid in cluster.went:
            if uid not in self.store.vanished and uid in self.store.pods and uid not in known:
                self.unwatched.add(uid)
        self.unwatched |= {uid for uid in self.store.vanished if uid not in known}
        self.store = Store()
        for kind in KINDS:
            self.see(kind)
        self.store.vanished.clear()
        self.store.watched_since = cluster.now
        self.stale = False
        self.untold = None
        self.checked.clear()
        self.health.clear()
        self.sent = dict.fromkeys(known, cluster.now)

    def see(self, kind: str) -> None:
        """Take in all events of one kind, in order."""
        cluster, store = self.cluster, self.store
        match kind:
            case "pods":
                ours = {u: p for u, p in cluster.pods.items() if not p.name.startswith("stranger")}
                for uid in [u for u in cluster.last_states if u not in store.vanished]:
                    seen = cluster.went[uid][1] > store.pods_at  # also one that came and went in between
                    if seen and not cluster.last_states[uid].name.startswith("stranger"):
                        store.vanished[uid] = Vanished(cluster.last_states[uid], cluster.now)
                store.pods, store.pods_at = ours, cluster.moment
            case "claims":
                store.claims = dict(cluster.claims)
            case "sets":
                store.sets = dict(cluster.sets)
            case "workload":
                store.workload = cluster.workload
            case "revisions":
                store.revisions = dict(cluster.revisions)
            case "pools":
                store.nodes, store.slices = dict(cluster.nodes), dict(cluster.slices)
                store.budget = cluster.budget
            case "rollout":
                store.rollout = cluster.rollout

    def snapshot(self) -> Snapshot | None:
        store = self.store
        if store.rollout is None:
            return None
        names = {c.claim_name for p in store.pods.values() for c in p.claims}
        names |= {c.claim_name for v in store.vanished.values() for c in v.pod.claims}
        names |= {c.name for e in store.rollout.status.replacements for c in e.claims}
        own = {n: c for n, c in store.claims.items() if n in names or held(c, store.rollout.uid)}
        devices = {u.device for c in own.values() for u in c.uses or ()}
        devices |= {
            Device(d.driver, d.pool, d.device)
            for e in store.rollout.status.replacements
            for c in e.claims
            for d in c.devices
        }
        return Snapshot(
            rollout=store.rollout,
            rivals=(),
            workload=store.workload,
            replica_sets=tuple(store.sets.values()),
            pods=tuple(store.pods.values()),
            vanished=tuple(store.vanished.values()),
            claims=own,
            holders={
                d: tuple(c for c in store.claims.values() if any(u.device == d for u in c.uses or ()))
                for d in devices
            },
            slices=tuple(store.slices.values()),
            taint_rules=(),
            nodes=dict(store.nodes),
            budgets=(store.budget,) if store.budget is not None else (),
            freshness=Freshness.STALE if self.stale else Freshness.FRESH,
            watched_since=store.watched_since,
            revisions=tuple(store.revisions.values()),
            restore=True,
            checked=dict(self.checked),
            health=dict(self.health),
            hold=HoldAbility.POSSIBLE if self.cluster.hold else HoldAbility.NOT_PERMITTED,
            maybe_sent=self.unseen(),
        )

    def unseen(self) -> frozenset[str]:
        live = {p.uid for p in self.store.pods.values() if p.live}
        recent = (u for u, at in self.sent.items() if self.cluster.now < at + REMEMBER_SENT)
        return frozenset(live.intersection(recent))

    # What it does

    def run(self) -> Plan | None:
        """Decide once and carry it out; None without an object. A process that dies is followed by the next."""
        snapshot = self.snapshot()
        if snapshot is None:
            self._open_unreferenced()
            return None
        stored = snapshot.rollout.status
        if self.untold is not None and self.untold[:2] == (snapshot.rollout.uid, stored):
            snapshot = replace(snapshot, rollout=replace(snapshot.rollout, status=self.untold[2]))
        else:
            self.untold = None
        decided = self._decide(snapshot)
        try:
            self._carry_out(snapshot, decided, stored)
        except _DiedError:
            self.dies_before = None
            self.start()
        except _ConflictError:
            pass
        return decided

    def _decide(self, snapshot: Snapshot) -> Plan:
        decided: Plan = self.decide(snapshot, self.cluster.now)  # type: ignore[operator]
        found = violations(snapshot, decided, self.cluster.now)
        if found:
            self.broken.extend(found)
            raise BrokenPromiseError("; ".join(map(str, found)))
        return decided

    def _carry_out(self, snapshot: Snapshot, decided: Plan, stored: RolloutStatus) -> None:
        if decided.record_first:
            snapshot = self._store_status(snapshot, decided.status, stored)
        for action in decided.actions:
            self._act(action, snapshot)
        left = any(isinstance(a, RemoveFinalizer) for a in decided.actions)
        if not decided.record_first and not left:
            since = self.untold[3] if self.untold else self.cluster.now
            if patience(stored, decided.status) > (self.cluster.now - since).total_seconds():
                self.untold = (snapshot.rollout.uid, stored, decided.status, since)
                return
            self._store_status(snapshot, decided.status, stored)
        self.untold = None
        for uid in decided.acknowledged:
            self.store.vanished.pop(uid, None)

    def _act(self, action: Action, snapshot: Snapshot) -> None:
        fresh = snapshot
        if isinstance(action, RunChecks | CheckHealth):
            self._ask(action, snapshot)
            self.actions.append(action)
            return
        if not isinstance(action, AddFinalizer | RemoveFinalizer | ProbeGate):
            reads = {read: self._read(read) for read in reads_for(action, snapshot)}
            fresh = merge(snapshot, reads, self.cluster.now)
            if action not in self._decide(fresh).actions:
                return
        try:
            self._write()
        except _DiedError:
            # The request may have left for all that: whoever comes next cannot know.
            if isinstance(action, EvictPod):
                self.held_up.append(HeldUp(action.pod_uid, self.cluster.now))
            raise
        self.actions.append(action)
        try:
            self._send(action, fresh)
        except _ConflictError:
            for uid in victims_of(action):
                self.sent.pop(uid, None)
            raise
        self.sent |= dict.fromkeys(victims_of(action), self.cluster.now)

    def _ask(self, action: RunChecks | CheckHealth, snapshot: Snapshot) -> None:
        """Ask the checks: the next decision sees what came of it, as long as the process lives."""
        failures = ("check of the model: not true",) if self.unfit else ()
        generation, now = snapshot.rollout.generation, self.cluster.now
        if isinstance(action, RunChecks):
            self.checked[action.replacement_id] = CheckRun(generation, now, failures)
            return
        before = self.health.get(action.pod_uid)
        in_a_row = (before.in_a_row if before is not None and before.failures else 0) + bool(failures)
        self.health[action.pod_uid] = HealthRun(generation, now, failures, in_a_row if failures else 0)

    def _write(self) -> None:
        if self.dies_before is not None:
            if self.dies_before == 0:
                raise _DiedError
            self.dies_before -= 1

    def _read(self, read: Read) -> Result:
        cluster = self.cluster
        match read:
            case ReadWorkload():
                return cluster.workload
            case ReadReplicaSet(name):
                return next((r for r in cluster.sets.values() if r.name == name), None)
            case ReadPod(name):
                return next((p for p in cluster.pods.values() if p.name == name), None)
            case ReadClaim(name):
                return cluster.claims.get(name)
            case ReadPool(driver, pool):
                return tuple(s for s in cluster.slices.values() if (s.driver, s.pool) == (driver, pool))
            case ReadTaintRules():
                return ()

    def _store_status(self, snapshot: Snapshot, status: RolloutStatus, stored: RolloutStatus) -> Snapshot:
        if status.to_raw() == stored.to_raw():
            return snapshot
        self._write()
        current = self.cluster.rollout
        if current is None or current.resource_version != snapshot.rollout.resource_version:
            raise _ConflictError
        self.status_writes += 1
        self.cluster.set_rollout(status=RolloutStatus.from_raw(status.to_raw()))
        self.see("rollout")
        assert self.store.rollout is not None
        return replace(snapshot, rollout=self.store.rollout)

    def _send(self, action: Action, fresh: Snapshot) -> None:
        cluster = self.cluster
        match action:
            case AddFinalizer() | RemoveFinalizer():
                self._finalizer(action, fresh)
            case ManageDeployment():
                self._same_workload(fresh, version=False)
                self._set_deployment(spec=False, managed=True)
            case UnmanageDeployment():
                self._same_workload(fresh)
                ours = isinstance(cluster.workload, DeploymentRecord) and cluster.workload.parked is not None
                paused = {"paused": False} if ours else {}
                self._set_deployment(spec=ours, managed=False, parked=None, **paused)
            case PauseDeployment(_, _, reason):
                self._same_workload(fresh)
                self._set_deployment(spec=True, paused=True, parked=str(reason))
            case UnpauseDeployment():
                self._same_workload(fresh)
                self._set_deployment(spec=True, paused=False, parked=None)
            case PreferVictim(_, uid, cost):
                cluster.put_pod(self._pod(uid), deletion_cost=cost)
                self._saw_pod(uid)
            case EvictPod(_, uid):
                pod = self._pod(uid)
                if cluster.forbidden(pod):
                    raise _ConflictError  # 429
                cluster.delete_pod(pod)
            case OpenGate(_, uid, _, hostname, guard):
                pod = self._pod(uid)
                if guard and pod.terminating:
                    raise _ConflictError  # no finalizer can be added any more
                finalizers = (*pod.finalizers, GUARD_FINALIZER) if guard else pod.finalizers
                cluster.put_pod(pod, gates=tuple(g for g in pod.gates if g != GATE), finalizers=finalizers)
                if hostname:
                    cluster.pins[uid] = hostname
                self._saw_pod(uid)
                leaving = fresh.rollout.deletion is not None
                self.openings[uid] = Opening(self.store.pods_at, without_proof=leaving)
            case _:
                self._send_more(action, fresh)

    def deliver(self) -> None:
        """Let the evictions arrive that were held up, as far as they still find their pods."""
        while self.held_up:
            pod = self.cluster.pods.get(self.held_up.pop().pod_uid)
            if pod is not None and pod.live and not self.cluster.forbidden(pod):
                self.cluster.delete_pod(pod)

    def _send_more(self, action: Action, fresh: Snapshot) -> None:
        cluster = self.cluster
        match action:
            case RestoreTemplate(_, _, _, revision_uid, _, restores):
                self._same_workload(fresh)
                kept = {r.uid: r.template_digest for r in cluster.sets.values()}
                kept |= {r.uid: r.template_digest for r in cluster.revisions.values()}
                if kept.get(revision_uid) != restores:
                    raise _ConflictError
                cluster.change_template(restores)
                self.see("workload")
            case AddGuard(_, uid):
                pod = self._pod(uid)
                if pod.terminating:
                    raise _ConflictError
                cluster.set_finalizers(pod, (*pod.finalizers, GUARD_FINALIZER))
                self._saw_pod(uid)
            case RemoveGuard(_, uid):
                pod = self._pod(uid)
                cluster.set_finalizers(pod, tuple(f for f in pod.finalizers if f != GUARD_FINALIZER))
                self._saw_pod(uid)
            case HoldClaim(name, _):
                claim = self._same_claim(fresh, name)
                assert claim.uses is not None
                assert claim.deletion is None
                mine = Reservation(GROUP, PLURAL, fresh.rollout.name, fresh.rollout.uid)
                self._set_claim(claim, reserved_for=(*claim.reserved_for, mine))
            case EndHold(name, _, deallocate):
                claim = self._same_claim(fresh, name)
                rest = tuple(r for r in claim.reserved_for if r.uid != fresh.rollout.uid)
                if deallocate:
                    if fresh.rollout.deletion is not None:
                        self.freed_on_leaving.add(claim.owner_pod_uid)
                    self._set_claim(claim, reserved_for=(), uses=None)
                else:
                    self._set_claim(claim, reserved_for=rest)
            case _:
                pass

    def _same_claim(self, fresh: Snapshot, name: str) -> ClaimRecord:
        current = self.cluster.claims.get(name)
        if current is None or current.resource_version != fresh.claims[name].resource_version:
            raise _ConflictError
        return current

    def _set_claim(self, claim: ClaimRecord, **over: object) -> None:
        changed = replace(claim, resource_version=self.cluster.changed(), **over)  # type: ignore[arg-type]
        self.cluster.claims[claim.name] = self.store.claims[claim.name] = changed

    def _finalizer(self, action: AddFinalizer | RemoveFinalizer, fresh: Snapshot) -> None:
        current = self.cluster.rollout
        same = current is not None and current.uid == action.uid
        if current is None or not same or current.finalizers != fresh.rollout.finalizers:
            raise _ConflictError
        if current.deletion != fresh.rollout.deletion:
            raise _ConflictError
        if isinstance(action, AddFinalizer):
            self.cluster.set_rollout(finalizers=(*current.finalizers, FINALIZER))
        else:
            self.cluster.changed()
            self.cluster.rollout = None
        self.see("rollout")

    def _set_deployment(self, *, spec: bool, **over: object) -> None:
        self.cluster.set_workload(spec=spec, **over)
        self.see("workload")

    def _same_workload(self, fresh: Snapshot, *, version: bool = True) -> None:
        current = self.cluster.workload
        assert fresh.workload is not None
        if version and current.resource_version != fresh.workload.resource_version:
            raise _ConflictError

    def _pod(self, uid: str) -> PodRecord:
        if uid not in self.cluster.pods:
            raise _ConflictError
        return self.cluster.pods[uid]

    def _saw_pod(self, uid: str) -> None:
        if uid in self.store.pods and uid in self.cluster.pods:
            self.store.pods[uid] = self.cluster.pods[uid]

    def _open_unreferenced(self) -> None:
        """Gated pods of workloads that no object references are opened at once."""
        if self.cluster.rollout is not None:
            return
        for pod in tuple(self.cluster.pods.values()):
            if GATE in pod.gates and pod.live:
                self.cluster.put_pod(pod, gates=tuple(g for g in pod.gates if g != GATE))
                self.openings[pod.uid] = Opening(self.cluster.moment, without_proof=True)
