"""Builds what one decision may look at out of the store, touching nothing that the AcceleratorRollout has no part in."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from accelerator_rollout.api.models import RolloutObject, Unreadable
from accelerator_rollout.decide.snapshot import Freshness, Rival, Snapshot, Vanished
from accelerator_rollout.names import FINALIZER
from accelerator_rollout.observe.interests import WorkloadTopic, workload_of
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.records import (
    BudgetRecord,
    ClaimRecord,
    Device,
    PodRecord,
    ReplicaSetRecord,
    SelectorTerm,
    Workload,
)

if TYPE_CHECKING:
    from accelerator_rollout.observe.store import Lost, Store

# An object we cannot read shows no age that we could trust: it goes first, so the younger ones step back.
_ELDEST: Final = datetime.min.replace(tzinfo=UTC)


def build(store: "Store", rollout: RolloutObject, now: datetime) -> Snapshot:
    """Return the Snapshot of `rollout` as of `now`."""
    topic = workload_of(rollout)
    if topic is None:
        raise ValueError(f"AcceleratorRollout {rollout.namespace}/{rollout.name} references no workload")
    workload = store.workload(topic)
    family = _Family.of(store, rollout, topic, workload)
    devices = family.devices()
    pools = sorted({(device.driver, device.pool) for device in devices})
    sets = store.replica_sets.by("owner", workload.uid) if workload else ()
    slices = tuple(s for pool in pools for s in store.slices.by("pool", pool))
    names = family.nodes() | {s.node for s in slices if s.node}
    nodes = {name: node for name in names if (node := store.nodes.named("", name))}
    unreadable = dict(_unreadable(store, topic, workload, family, devices, pools))
    freshness = store.freshness(now)
    holders = _holders(store, devices, pools)
    return Snapshot(
        rollout=rollout,
        rivals=tuple(_rivals(store, rollout, topic)),
        workload=workload,
        replica_sets=sets,
        revisions=store.revisions.by("owner", workload.uid) if workload else (),
        pods=family.pods,
        vanished=family.vanished,
        claims=family.claims,
        holders=holders,
        peers=frozenset(_peers(store, topic, holders)),
        slices=slices,
        taint_rules=tuple(r for r in store.taint_rules if any(map(r.selects, devices))),
        reservations=store.taint_rules.by("reserved", rollout.uid),
        nodes=nodes,
        budgets=tuple(_budgets(store, topic.namespace, workload, sets)),
        freshness=Freshness.UNREADABLE if unreadable and freshness is Freshness.FRESH else freshness,
        watched_since=store.watched_since(topic),
        unreadable=unreadable,
        former=family.former,
        shared=store.shared(rollout),
    )


@dataclass(frozen=True, slots=True)
class _Family:
    """The pods of a workload, present and departed, and the claims they have."""

    rollout: RolloutObject
    pods: tuple[PodRecord, ...]
    vanished: tuple[Vanished, ...]
    former: tuple[PodRecord, ...] = ()  # held or guarded by us, and not the workload's (any more)
    claims: Mapping[str, ClaimRecord] = field(default_factory=dict)

    @classmethod
    def of(
        cls, store: "Store", rollout: RolloutObject, topic: WorkloadTopic, workload: Workload | None
    ) -> "_Family":
        owners = store.lineage.owners_of_pods(workload.uid) if workload else iter(())
        pods = tuple(pod for owner in owners for pod in store.pods.by("owner", owner))
        known = {pod.uid for pod in pods}
        held = store.claims.by("hold", rollout.uid)
        owners_of_held = (store.pods.get(c.owner_pod_uid) for c in held if c.owner_pod_uid not in known)
        former = {pod.uid: pod for pod in owners_of_held if pod is not None}
        for pod in store.pods.by("guard", rollout.namespace):
            if pod.uid not in known and store.lineage.workload_of(pod) == topic:
                former[pod.uid] = pod
        family = cls(rollout, pods, store.departures.of(topic), tuple(former.values()))
        claims = {claim.name: claim for claim in held if claim.namespace == rollout.namespace}
        claims |= {
            name: claim
            for name in family.claim_names()
            if (claim := store.claims.named(rollout.namespace, name)) is not None
        }
        return cls(rollout, pods, family.vanished, family.former, claims)

    def claim_names(self) -> set[str]:
        """Return the names of all claims that the decision may ask for, whether they exist or not."""
        noted = {claim.name for r in self.rollout.status.replacements for claim in r.claims}
        return noted.union(*(p.claim_names for p in self._everyone()))

    def devices(self) -> set[Device]:
        """Return the devices that departed pods held, and those that the claims hold now."""
        noted = {
            Device(held.driver, held.pool, held.device)
            for replacement in self.rollout.status.replacements
            for claim in replacement.claims
            for held in claim.devices
        }
        return noted | {use.device for claim in self.claims.values() for use in claim.uses or ()}

    def nodes(self) -> set[str]:
        """Return the names of the nodes that proof may hang on."""
        noted = {r.node_name for r in self.rollout.status.replacements if r.node_name}
        return noted | {pod.place for pod in self._everyone() if pod.place}

    def _everyone(self) -> Iterator[PodRecord]:
        yield from self.pods
        yield from self.former
        yield from (gone.pod for gone in self.vanished)


def _holders(
    store: "Store", devices: Iterable[Device], pools: Iterable[tuple[str, str]]
) -> dict[Device, tuple[ClaimRecord, ...]]:
    """Return who has the devices, and who has others of their pools: partitions draw on the same counters."""
    found: dict[Device, dict[str, ClaimRecord]] = {device: {} for device in devices}
    for pool in pools:
        for claim in store.claims.by("pool", pool):
            for use in claim.uses or ():
                if (use.device.driver, use.device.pool) == pool:
                    found.setdefault(use.device, {})[claim.uid] = claim
    return {device: tuple(claims.values()) for device, claims in found.items()}


def _peers(
    store: "Store", topic: WorkloadTopic, holders: Mapping[Device, tuple[ClaimRecord, ...]]
) -> Iterator[str]:
    for uid in {claim.owner_pod_uid for claims in holders.values() for claim in claims}:
        pod = store.pods.get(uid)
        theirs = store.lineage.workload_of(pod) if pod is not None else None
        if theirs is not None and theirs != topic and store.interests.of(theirs):
            yield uid


def _rivals(store: "Store", rollout: RolloutObject, topic: WorkloadTopic) -> Iterator[Rival]:
    for key in sorted(store.interests.of(topic)):
        other = store.rollout(key)
        if other is not None and other.uid != rollout.uid:
            created = _ELDEST if isinstance(other, Unreadable) else other.created
            yield Rival(other.name, other.uid, created, adopted=FINALIZER in other.finalizers)


def _budgets(
    store: "Store", namespace: str, workload: Workload | None, sets: Iterable[ReplicaSetRecord]
) -> Iterator[BudgetRecord]:
    # Pods of an older revision carry that revision's labels, so a budget may select only those.
    labels = [workload.template.labels] if workload else []
    labels += [s.template_labels for s in sets if s.replicas or s.status_replicas]
    for budget in store.budgets.by("namespace", namespace):
        if any(selects(budget.selector, candidate) for candidate in labels):
            yield budget


def selects(selector: tuple[SelectorTerm, ...], labels: Mapping[str, str]) -> bool:
    """Return whether a label selector takes an object with these labels; one without terms takes every object."""
    return all(term.takes(labels) for term in selector)


def _unreadable(
    store: "Store",
    topic: WorkloadTopic,
    workload: Workload | None,
    family: _Family,
    devices: set[Device],
    pools: list[tuple[str, str]],
) -> Iterator[tuple[str, str]]:
    """Yield the objects that this decision needs and that cannot be read; others' names stay out of it."""
    needed_claims, needed_nodes = family.claim_names(), family.nodes()
    owners = set(store.lineage.owners_of_pods(workload.uid)) if workload else set()
    whole_pools = {Device(driver, pool, "") for driver, pool in pools}
    for lost in store.lost():
        ours = lost.namespace == topic.namespace
        if _needs(lost, topic, owners, needed_claims, needed_nodes) or (
            lost.kind in (Kind.CLAIMS, Kind.TAINT_RULES) and any(map(lost.may_concern, devices))
        ):
            yield (lost.title, lost.why) if ours or not lost.namespace else _anonymous(lost)
        elif lost.kind is Kind.SLICES and any(map(lost.may_concern, whole_pools)):
            yield lost.title, lost.why


def _needs(
    lost: "Lost", topic: WorkloadTopic, owners: set[str], claim_names: set[str], node_names: set[str]
) -> bool:
    if lost.kind is Kind.NODES:
        return lost.name in node_names
    if lost.namespace != topic.namespace:
        return False
    match lost.kind:
        case Kind.PODS | Kind.REPLICA_SETS | Kind.REVISIONS:
            return not lost.owner_uid or lost.owner_uid in owners
        case Kind.CLAIMS:
            return lost.name in claim_names
        case Kind.DEPLOYMENTS | Kind.STATEFUL_SETS | Kind.DAEMON_SETS:
            return lost.name == topic.name and lost.kind == f"{topic.kind.lower()}s"
        case Kind.BUDGETS:
            return True
        case _:
            return False


def _anonymous(lost: "Lost") -> tuple[str, str]:
    kind = lost.title.partition("/")[0]
    return f"{kind} of another namespace", "it may hold a device of this workload, and cannot be read"
