"""What we know of the cluster: the newest record of every object, and whom a change concerns.

Everything that tells about an object comes through `apply`: watch events, lists, and the responses to our own writes
(so that we read what we wrote). Order and repetition do not matter: an object is its UID, of two states the one with
the higher resourceVersion stands, and a UID that is gone does not come back.
The store lives in one event loop and knows no threads.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from accelerator_rollout.api.models import Unreadable, WorkloadKind
from accelerator_rollout.decide.holds import is_hold
from accelerator_rollout.decide.shared_budget import SharedBudget
from accelerator_rollout.decide.snapshot import Freshness, Snapshot
from accelerator_rollout.names import GATE, GUARD_FINALIZER
from accelerator_rollout.observe import snapshots
from accelerator_rollout.observe.departures import Departures, tells_more
from accelerator_rollout.observe.errors import ProjectionError
from accelerator_rollout.observe.fields import Raw
from accelerator_rollout.observe.interests import (
    AnyWorkloadTopic,
    ClaimTopic,
    Interests,
    Key,
    NamespaceTopic,
    NodeTopic,
    PodTopic,
    PoolTopic,
    WorkloadTopic,
    workload_of,
)
from accelerator_rollout.observe.kinds import OF_WORKLOAD, SOURCES, Kind
from accelerator_rollout.observe.lineage import Lineage
from accelerator_rollout.observe.project import KUBELET_MANAGERS, Record, project
from accelerator_rollout.observe.shared_budgets import SharedBudgets
from accelerator_rollout.observe.tables import Table
from accelerator_rollout.records import (
    BudgetRecord,
    ClaimRecord,
    DaemonSetRecord,
    DeploymentRecord,
    Device,
    NodeRecord,
    PodRecord,
    ReplicaSetRecord,
    RevisionRecord,
    Rollout,
    SliceRecord,
    StatefulSetRecord,
    TaintRuleRecord,
    Workload,
)

NOBODY: Final[frozenset[Key]] = frozenset()

# Kinds whose events tell which pods a workload has and had: a gap in one of them is a gap in what we know of it.
_HISTORY: Final = (Kind.PODS, Kind.REPLICA_SETS, *OF_WORKLOAD.values())

_GUARDED: Final = ""  # the key of all pods with our guard; the others are their namespaces
_HELD: Final = "held"  # the one key of an index of claims that carry a hold, whosever
_RESERVED: Final = "reserved"  # in the index of taint rules: all that are ours
_GONE_REMEMBERED: Final = 20_000
# Streams of different kinds run apart: a pod may be seen before its Deployment and before the AcceleratorRollout that
# came with them. So a pod counts as unreferenced only after it has looked so for a while.
_STRAY_AFTER: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Lost:
    """An object that exists and cannot be read, with what could be made out."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    resource_version: str
    why: str
    owner_uid: str
    devices: tuple[tuple[str, str, str], ...]  # driver, pool, device that it may be about; "" for unknown
    last: Record | None  # the last state that could be read

    @property
    def title(self) -> str:
        """What to call it in its own namespace."""
        return f"{SOURCES[self.kind].title}/{self.name}"

    def may_concern(self, device: Device) -> bool:
        """Return whether it may be about this device, as far as it can be read."""
        have = (device.driver, device.pool, device.name)
        return any(all(not k or k == h for k, h in zip(known, have, strict=True)) for known in self.devices)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Store:
    """The newest record of every object we watch, with indices for whatever a decision asks.

    `now` is the clock. `namespaces`, where given, are those whose AcceleratorRollouts are ours to care for; everything
    else is watched everywhere, since a stranger on a device may come from any namespace. `orphan_hold_wait` is how long
    a hold stays whose AcceleratorRollout and pod are both gone.
    """

    def __init__(
        self,
        *,
        now: Callable[[], datetime] = _utc_now,
        namespaces: Collection[str] = (),
        kubelet_managers: frozenset[str] = KUBELET_MANAGERS,
        departures: Departures | None = None,
        orphan_hold_wait: timedelta = timedelta(minutes=5),
        shared_budgets: SharedBudgets | None = None,
    ) -> None:
        self.now = now
        self._namespaces = frozenset(namespaces)
        self._kubelet_managers = kubelet_managers
        self._shared = shared_budgets or SharedBudgets()
        self.rollouts: Table[Rollout] = Table(budget=self._shared.active_in)
        self.pods: Table[PodRecord] = Table(
            owner=lambda p: (p.owner.uid,) if p.owner else (),
            gate=lambda p: p.gates,
            node=lambda p: (p.node,) if p.node else (),
            guard=lambda p: (p.namespace, _GUARDED) if GUARD_FINALIZER in p.finalizers else (),
        )
        self.claims: Table[ClaimRecord] = Table(
            device=lambda c: {use.device for use in c.uses or ()},
            pool=lambda c: {(use.device.driver, use.device.pool) for use in c.uses or ()},
            hold=lambda c: {entry.uid for entry in c.reserved_for if is_hold(entry)},
            held=lambda c: {_HELD for entry in c.reserved_for if is_hold(entry)},
        )
        self.slices: Table[SliceRecord] = Table(pool=lambda s: ((s.driver, s.pool),))
        self.taint_rules: Table[TaintRuleRecord] = Table(
            reserved=lambda r: (r.reserved_by, _RESERVED) if r.reserved_by else ()
        )
        self.nodes: Table[NodeRecord] = Table()
        self.budgets: Table[BudgetRecord] = Table(namespace=lambda b: (b.namespace,))
        self.deployments: Table[DeploymentRecord] = Table()
        self.replica_sets: Table[ReplicaSetRecord] = Table(
            owner=lambda r: (r.owner_uid,) if r.owner_uid else ()
        )
        self.stateful_sets: Table[StatefulSetRecord] = Table()
        self.daemon_sets: Table[DaemonSetRecord] = Table()
        self.revisions: Table[RevisionRecord] = Table(owner=lambda r: (r.owner_uid,) if r.owner_uid else ())
        self._tables: Mapping[Kind, Table[Any]] = {
            Kind.ROLLOUTS: self.rollouts,
            Kind.PODS: self.pods,
            Kind.CLAIMS: self.claims,
            Kind.SLICES: self.slices,
            Kind.TAINT_RULES: self.taint_rules,
            Kind.NODES: self.nodes,
            Kind.BUDGETS: self.budgets,
            Kind.DEPLOYMENTS: self.deployments,
            Kind.REPLICA_SETS: self.replica_sets,
            Kind.STATEFUL_SETS: self.stateful_sets,
            Kind.DAEMON_SETS: self.daemon_sets,
            Kind.REVISIONS: self.revisions,
        }
        self.lineage = Lineage()
        self.interests = Interests()
        self.departures = Departures() if departures is None else departures
        self._lost: dict[Kind, dict[str, Lost]] = {kind: {} for kind in Kind}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._strays: dict[str, datetime] = {}
        self._unreserved: dict[str, datetime] = {}
        self._ownerless: dict[tuple[str, str], datetime] = {}
        self._orphan_hold_wait = orphan_hold_wait
        self._believed_until: datetime | None = None
        self._gapless_since: dict[Kind, datetime] = {}

    # Changes

    def apply(self, kind: Kind, event_type: str | None, raw: Raw) -> frozenset[Key]:
        """Take in a state of an object and return the AcceleratorRollouts that must be decided anew.

        `event_type` is DELETED for the last state of an object that is gone; anything else says that it exists.
        A state that is older than what we have, or of an object that is gone, changes nothing.
        """
        deleted = event_type == "DELETED"
        if not deleted and self._knows(kind, raw):
            return NOBODY
        try:
            record = project(kind, raw, kubelet_managers=self._kubelet_managers)
        except ProjectionError as error:
            return self._apply_unreadable(kind, raw, error, deleted=deleted)
        if kind is Kind.ROLLOUTS and not self.cares_for(kind, cast("Rollout", record).namespace):
            return NOBODY
        if deleted:
            return self._remove(kind, record.uid, record)
        if record.uid in self._gone:
            return NOBODY
        self._lost[kind].pop(record.uid, None)
        return self._put(kind, record)

    def sweep(self, kind: Kind, listed: Collection[str], resource_version: int) -> tuple[frozenset[Key], int]:
        """Remove what a complete list lacks; return whom that concerns and how many objects were removed.

        `listed` are the UIDs of a list of the whole kind as of `resource_version`. What is younger than the list
        stays: it was created after it.
        """
        known = [*self._tables[kind], *self._lost[kind].values()]
        missing = [
            r.uid for r in known if r.uid not in listed and int(r.resource_version) <= resource_version
        ]
        keys = NOBODY.union(*(self._remove(kind, uid, None) for uid in missing))
        return keys, len(missing)

    def forget(self, uid: str) -> None:
        """Forget the vanished pod of this UID: whatever mattered of it is stored in a status."""
        self.departures.forget(uid)

    def _knows(self, kind: Kind, raw: Raw) -> bool:
        """Return whether this state tells nothing new: cheap, since a list repeats everything we have."""
        try:
            uid, version = raw["metadata"]["uid"], int(raw["metadata"]["resourceVersion"])
            known = self._tables[kind].get(uid) or self._lost[kind].get(uid)
            return uid in self._gone or (known is not None and int(known.resource_version) >= version)
        except (KeyError, TypeError, ValueError):
            return False

    def _put(self, kind: Kind, record: Record) -> frozenset[Key]:
        old = self._tables[kind].put(record)
        if isinstance(record, DeploymentRecord | StatefulSetRecord | DaemonSetRecord | ReplicaSetRecord):
            self.lineage.saw(record)
        if kind is Kind.ROLLOUTS:
            return self._rollout_changed(old, cast("Rollout", record))
        if old is not None and replace(old, resource_version=record.resource_version) == record:
            return NOBODY  # something changed that no decision looks at
        return self._concerned(kind, old).union(self._concerned(kind, record))

    def _remove(self, kind: Kind, uid: str, final: Record | None) -> frozenset[Key]:
        if uid in self._gone:
            # Swept before its event came: the event may still bring the proof that the sweep had not.
            workload = self.departures.improve(final) if isinstance(final, PodRecord) else None
            return self.interests.of(workload) if workload else NOBODY
        self._gone[uid] = None
        if len(self._gone) > _GONE_REMEMBERED:
            self._gone.popitem(last=False)
        lost = self._lost[kind].pop(uid, None)
        old = self._tables[kind].drop(uid)
        last = old or (lost.last if lost else None)
        if kind is Kind.ROLLOUTS:
            return self._rollout_changed(cast("Rollout | None", last), None)
        keys = self._concerned(kind, last).union(self._concerned(kind, final))
        if kind is Kind.PODS:
            keys |= self._departed(cast("PodRecord | None", last), cast("PodRecord | None", final))
        self.lineage.lost(uid)
        return keys

    def _departed(self, last: PodRecord | None, final: PodRecord | None) -> frozenset[Key]:
        pod = tells_more(last, final) if last and final else last or final
        if pod is None:
            self.missed(Kind.PODS)  # a pod went that we could never read: whatever it held is unknown to us
            return self.keys()
        self._strays.pop(pod.uid, None)
        workload = self.lineage.workload_of(pod)
        if workload is None or not self.interests.referenced(workload):
            return NOBODY
        if self.departures.add(workload, pod, self.now()):
            self.missed(Kind.PODS)  # what was forgotten might as well never have been seen
        return self.interests.of(workload)

    def _rollout_changed(self, old: Rollout | None, new: Rollout | None) -> frozenset[Key]:
        changed = new or old
        if changed is None:
            return NOBODY
        key = Key(changed.namespace, changed.name)
        if old is not None and new is not None and replace(old, resource_version=new.resource_version) == new:
            return NOBODY
        before = workload_of(old) if old else None
        if new is None:
            new = self.rollouts.named(*key)  # recreated before we saw this one go
        if new is None:
            self.interests.drop(key)
        else:
            self.interests.put(key, self.rollouts.named(*key) or new, self.now())
        after = workload_of(new) if new else None
        if before and not self.interests.referenced(before):
            self.departures.drop_workload(before)
        awaiting = self._shared.awaiting(old, new, self._active)
        return self.interests.of(*(topic for topic in (before, after) if topic)).union(awaiting, {key})

    def _active(self, group: str) -> tuple[Rollout, ...]:
        return self.rollouts.by("budget", group)

    def _apply_unreadable(
        self, kind: Kind, raw: Raw, error: ProjectionError, *, deleted: bool
    ) -> frozenset[Key]:
        lost = _make_out(kind, raw, error)
        if deleted:
            return self._remove(kind, lost.uid, None)
        if lost.uid in self._gone:
            return NOBODY
        # Facts that may be outdated are worse than none: what could be read before serves only its obituary.
        before = self._lost[kind].get(lost.uid)
        last = self._tables[kind].drop(lost.uid) or (before.last if before else None)
        self._lost[kind][lost.uid] = replace(lost, last=last)
        return self.interests.of(NamespaceTopic(lost.namespace)) if lost.namespace else self.keys()

    # Whom a change concerns

    def _concerned(self, kind: Kind, record: Record | None) -> frozenset[Key]:
        of = self.interests.of
        match record:
            case None:
                return NOBODY
            case PodRecord():
                workload = self.lineage.workload_of(record)
                named = (self.claims.named(record.namespace, c.claim_name or "") for c in record.claims)
                holders = NOBODY.union(*(self._holders(claim) for claim in named if claim is not None))
                return of(PodTopic(record.uid), *([workload] if workload else [])) | holders
            case ClaimRecord():
                return self._concerned_by_claim(record)
            case SliceRecord():
                return of(PoolTopic(record.driver, record.pool)) | self._using(record.driver, record.pool)
            case TaintRuleRecord():
                owner = self.rollouts.get(record.reserved_by)
                owners = frozenset({Key(owner.namespace, owner.name)}) if owner is not None else NOBODY
                return self.interests.under(record) | owners
            case NodeRecord():
                there = (self.lineage.workload_of(p) for p in self.pods.by("node", record.name))
                return of(NodeTopic(record.name), *(workload for workload in there if workload))
            case BudgetRecord():
                return of(NamespaceTopic(record.namespace))
            case ReplicaSetRecord() | RevisionRecord():
                workload = self.lineage.named(record.owner_uid)
                return of(workload) if workload else NOBODY
            case DeploymentRecord() | StatefulSetRecord() | DaemonSetRecord():
                return of(WorkloadTopic(record.kind.value, record.namespace, record.name))
        raise TypeError(f"a record of {kind} is {type(record).__name__}")

    def _concerned_by_claim(self, claim: ClaimRecord) -> frozenset[Key]:
        devices = {use.device for use in claim.uses or ()}
        beside = [other for device in devices for other in self.claims.by("device", device)]
        pods = {
            uid
            for held in (claim, *beside)
            for uid in (held.owner_pod_uid, *(r.uid for r in held.reserved_for))
        }
        workloads = [workload for uid in pods if (workload := self._workload_of_pod(uid))]
        pools = {
            PoolTopic(device.driver, device.pool) for device in devices
        }  # partitions draw on the same counters
        asked = self.interests.of(ClaimTopic(claim.namespace, claim.name), *devices, *pools, *workloads)
        return asked | self._holders(claim)

    def _using(self, driver: str, pool: str) -> frozenset[Key]:
        """Return whose running pods use devices of the pool: none of them goes while it is not published."""
        claims = self.claims.by("pool", (driver, pool))
        found = (self._workload_of_pod(claim.owner_pod_uid) for claim in claims)
        return self.interests.of(*(workload for workload in found if workload is not None))

    def _holders(self, claim: ClaimRecord) -> frozenset[Key]:
        """Return the AcceleratorRollouts that hold the claim."""
        found = (self.rollouts.get(entry.uid) for entry in claim.reserved_for if is_hold(entry))
        return frozenset(Key(r.namespace, r.name) for r in found if r is not None)

    def _workload_of_pod(self, uid: str) -> WorkloadTopic | None:
        pod = self.pods.get(uid)
        if pod is not None:
            return self.lineage.workload_of(pod)
        departed = self.departures.get(uid)
        return departed[0] if departed else None

    # What is known

    def keys(self) -> frozenset[Key]:
        """Return all AcceleratorRollouts."""
        return frozenset(Key(r.namespace, r.name) for r in self.rollouts)

    def rollout(self, key: tuple[str, str]) -> Rollout | None:
        """Return the AcceleratorRollout of this name."""
        return self.rollouts.named(*key)

    def shared(self, rollout: Rollout) -> SharedBudget | None:
        """Return the budget that `rollout` shares with others, and what they are doing; None if it shares none."""
        return self._shared.budget(rollout, self._active)

    def shared_use(self) -> dict[str, int]:
        """Return by group of a shared budget how many pods are in replacement."""
        return self._shared.used(self._active)

    def workload(self, topic: WorkloadTopic) -> Workload | None:
        """Return the workload of this name."""
        kind = OF_WORKLOAD.get(WorkloadKind(topic.kind)) if topic.kind in list(WorkloadKind) else None
        return self._tables[kind].named(topic.namespace, topic.name) if kind else None

    def snapshot(self, key: tuple[str, str], now: datetime) -> Snapshot | Unreadable | None:
        """Return what a decision on this AcceleratorRollout may look at; None if there is none of this name."""
        if self.departures.expire(now):
            self.missed(Kind.PODS)
        rollout = self.rollout(key)
        if rollout is None or isinstance(rollout, Unreadable):
            return rollout
        return snapshots.build(self, rollout, now)

    def strays(self) -> tuple[PodRecord, ...]:
        """Return the pods that carry our gate or guard although nobody answers for them, and have for some seconds.

        Empty unless the store is fresh: what looks unreferenced may be a list that is not in yet. Ask again later: a
        pod is returned at the earliest some seconds after it was first asked for.
        """
        now = self.now()
        if self.freshness(now) is not Freshness.FRESH:
            self._strays.clear()
            return ()
        waiting = {pod.uid: pod for pod in self.pods.by("gate", GATE) if pod.live}
        waiting |= {
            pod.uid: pod for pod in self.pods.by("guard", _GUARDED) if self._guarded_in_vain(pod, now)
        }
        unclaimed = [pod for pod in waiting.values() if self._unclaimed(pod)]
        self._strays = {pod.uid: self._strays.get(pod.uid, now) for pod in unclaimed}
        return tuple(pod for pod in unclaimed if now - self._strays[pod.uid] >= _STRAY_AFTER)

    def _guarded_in_vain(self, pod: PodRecord, now: datetime) -> bool:
        """Whether nothing is to be waited for: it lives, has ended, or has been ending for very long."""
        if pod.live or pod.terminal or pod.deletion is None:
            return True
        return now >= pod.deletion + self._orphan_hold_wait

    def ownerless_holds(self) -> tuple[tuple[ClaimRecord, str], ...]:
        """Return claims with the UID of a hold whose AcceleratorRollout is gone; empty unless the store is fresh.

        A hold whose pod still lives is returned after some seconds, another only after the wait for a release that
        nothing can prove any more: its object knew the grace period.
        """
        now = self.now()
        if self.freshness(now) is not Freshness.FRESH or self._lost[Kind.ROLLOUTS]:
            self._ownerless.clear()
            return ()
        found = [
            (claim, entry.uid)
            for claim in self.claims.by("held", _HELD)
            if not self._namespaces or claim.namespace in self._namespaces
            for entry in claim.reserved_for
            if is_hold(entry) and self.rollouts.get(entry.uid) is None
        ]
        self._ownerless = {(c.uid, uid): self._ownerless.get((c.uid, uid), now) for c, uid in found}
        return tuple(
            (c, uid) for c, uid in found if now - self._ownerless[c.uid, uid] >= self._sweep_after(c)
        )

    def _sweep_after(self, claim: ClaimRecord) -> timedelta:
        pod = self.pods.get(claim.owner_pod_uid)
        beside = any(not is_hold(entry) for entry in claim.reserved_for)
        return _STRAY_AFTER if pod is not None and pod.live and beside else self._orphan_hold_wait

    def ownerless_reservations(self) -> tuple[TaintRuleRecord, ...]:
        """Return our taint rules whose AcceleratorRollout has been gone for some seconds; empty unless the store is fresh."""
        now = self.now()
        if self.freshness(now) is not Freshness.FRESH or self._lost[Kind.ROLLOUTS]:
            self._unreserved.clear()
            return ()
        found = [
            rule
            for rule in self.taint_rules.by("reserved", _RESERVED)
            if self.rollouts.get(rule.reserved_by) is None
            and (not self._namespaces or rule.reserved_in in self._namespaces)
        ]
        self._unreserved = {rule.uid: self._unreserved.get(rule.uid, now) for rule in found}
        return tuple(rule for rule in found if now - self._unreserved[rule.uid] >= _STRAY_AFTER)

    def _unclaimed(self, pod: PodRecord) -> bool:
        if self._namespaces and pod.namespace not in self._namespaces:
            return False
        if self.lineage.undecided(pod) or self._lost[Kind.ROLLOUTS]:
            return False
        workload = self.lineage.workload_of(pod)
        if workload is None and pod.owner is not None:
            # Of a kind that we cannot drive, but an object that we cannot read may be able to name it.
            workload = WorkloadTopic(pod.owner.kind, pod.namespace, pod.owner.name)
        return not self.interests.of(
            AnyWorkloadTopic(pod.namespace), *([workload] if workload is not None else [])
        )

    def lost(self, *kinds: Kind) -> Iterator[Lost]:
        """Yield the objects of these kinds (of all, without) that cannot be read."""
        for kind in kinds or Kind:
            yield from self._lost[kind].values()

    def versions(self, kind: Kind) -> dict[str, int]:
        """Return the resourceVersion of every object of this kind, by UID."""
        known: Iterable[Any] = (*self._tables[kind], *self._lost[kind].values())
        return {r.uid: int(r.resource_version) for r in known}

    def cares_for(self, kind: Kind, namespace: str) -> bool:
        """Return whether objects of this kind and namespace are kept here at all."""
        return kind is not Kind.ROLLOUTS or not self._namespaces or namespace in self._namespaces

    def is_gone(self, uid: str) -> bool:
        """Return whether the object of this UID was deleted, not long ago."""
        return uid in self._gone

    def counts(self) -> dict[Kind, int]:
        """Return the number of objects of each kind."""
        return {kind: len(table) for kind, table in self._tables.items()}

    def unreadable_counts(self) -> Counter[Kind]:
        """Return the number of objects of each kind that cannot be read, for metrics."""
        counts = Counter({kind: len(lost) for kind, lost in self._lost.items()})
        counts[Kind.ROLLOUTS] += sum(isinstance(r, Unreadable) for r in self.rollouts)
        return counts

    # Whether it may be believed

    def believe(self, until: datetime) -> None:
        """Note that the store agrees with the cluster, and that until then nobody needs to look again."""
        self._believed_until = until

    def doubt(self) -> None:
        """Note that the store may disagree with the cluster. Before the first agreement, this says nothing new."""
        if self._believed_until is not None:
            self._believed_until = datetime.min.replace(tzinfo=UTC)

    def freshness(self, now: datetime) -> Freshness:
        """Return whether the store may be believed at `now`."""
        if self._believed_until is None:
            return Freshness.SYNCING
        return Freshness.FRESH if now <= self._believed_until else Freshness.STALE

    def watched_from(self, kind: Kind, since: datetime) -> None:
        """Note that every event of this kind from `since` on reaches us; what came before may have been missed."""
        self._gapless_since[kind] = since

    def missed(self, kind: Kind) -> None:
        """Note that events of this kind were missed."""
        if kind in self._gapless_since:
            self._gapless_since[kind] = self.now()

    def watched_since(self, workload: WorkloadTopic) -> datetime | None:
        """Return the moment from which no event about the workload's pods can have been missed; None if unknown."""
        moments = [
            *(self._gapless_since.get(kind) for kind in _HISTORY),
            self.interests.referenced_since(workload),
        ]
        known = [moment for moment in moments if moment is not None]
        return max(known) if len(known) == len(moments) else None


def _make_out(kind: Kind, raw: Raw, error: ProjectionError) -> Lost:
    """Return what can be made out of an object that cannot be read."""
    meta = raw.get("metadata") if isinstance(raw, Mapping) else None
    meta = meta if isinstance(meta, Mapping) else {}
    owners = meta.get("ownerReferences")
    owner = next(
        (o for o in owners if isinstance(o, Mapping) and o.get("controller") is True)
        if isinstance(owners, list)
        else iter(()),
        {},
    )
    version = str(meta.get("resourceVersion") or "")
    return Lost(
        kind=kind,
        namespace=error.namespace,
        name=error.name,
        uid=error.uid or f"{error.namespace}/{error.name}",
        resource_version=version if version.isdecimal() else "0",
        why=error.why,
        owner_uid=str(owner.get("uid") or ""),
        devices=_devices_made_out(kind, raw),
        last=None,
    )


def _devices_made_out(kind: Kind, raw: Raw) -> tuple[tuple[str, str, str], ...]:
    """Return which devices an unreadable object may be about: all of them, unless it says otherwise."""
    anything = (("", "", ""),)
    try:
        if kind is Kind.CLAIMS:
            allocation = (raw.get("status") or {}).get("allocation")
            if allocation is None:
                return ()
            results = allocation["devices"]["results"]
            return tuple((r.get("driver") or "", r.get("pool") or "", r.get("device") or "") for r in results)
        if kind is Kind.SLICES:
            return ((raw["spec"].get("driver") or "", (raw["spec"].get("pool") or {}).get("name") or "", ""),)
    except (AttributeError, KeyError, TypeError):
        return anything
    return anything if kind is Kind.TAINT_RULES else ()
