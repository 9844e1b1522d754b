"""Which facts an action's safety hangs on, and how fresh reads of them replace the store's.

Right before acting, the executor reads these afresh, merges them here, and decides again over the result. An action
that the fresh decision does not repeat is dropped: the world moved, and the next event will tell.
Other claims come from the store: a stranger that slips in costs a wait, never a double use, and a full LIST would
make every step grow with the cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar, assert_never

from accelerator_rollout.decide.actions import (
    Action,
    AddFinalizer,
    AddGuard,
    CheckHealth,
    EndHold,
    EndReservation,
    EvictPod,
    HoldClaim,
    ManageDeployment,
    OpenGate,
    PauseDeployment,
    PreferVictim,
    ProbeGate,
    RemoveFinalizer,
    RemoveGuard,
    ReserveDevice,
    RestoreTemplate,
    RunChecks,
    UnmanageDeployment,
    UnpauseDeployment,
)
from accelerator_rollout.decide.snapshot import Snapshot, Vanished
from accelerator_rollout.records import (
    ClaimRecord,
    DaemonSetRecord,
    DeploymentRecord,
    Device,
    PodRecord,
    ReplicaSetRecord,
    SliceRecord,
    StatefulSetRecord,
    TaintRuleRecord,
    Workload,
)


@dataclass(frozen=True, slots=True)
class ReadWorkload:
    """GET the workload."""


@dataclass(frozen=True, slots=True)
class ReadReplicaSet:
    """GET one ReplicaSet of the Deployment."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadPod:
    """GET one pod of the rollout's namespace."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadClaim:
    """GET one ResourceClaim of the rollout's namespace."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadPool:
    """LIST the ResourceSlices of one pool (field selectors spec.driver and, where served, spec.pool.name)."""

    driver: str
    pool: str


@dataclass(frozen=True, slots=True)
class ReadTaintRules:
    """LIST the DeviceTaintRules (empty where the API is not served)."""


T = TypeVar("T")

Read = ReadWorkload | ReadReplicaSet | ReadPod | ReadClaim | ReadPool | ReadTaintRules

# What a read brought: one record, None where the object does not exist, or the records of a list.
Result = (
    Workload
    | ReplicaSetRecord
    | PodRecord
    | ClaimRecord
    | tuple[SliceRecord, ...]
    | tuple[TaintRuleRecord, ...]
    | None
)


def reads_for(action: Action, snapshot: Snapshot) -> tuple[Read, ...]:
    """Return what must be read afresh before `action`; empty where the write's own preconditions are enough."""
    match action:
        case OpenGate():
            return (
                ReadPod(action.pod_name),
                ReadWorkload(),
                *_release_reads(action.predecessor_uid, snapshot),
            )
        case EvictPod():
            return (ReadWorkload(), ReadPod(action.pod_name))
        case UnpauseDeployment():
            sets = tuple(
                ReadReplicaSet(r.name) for r in snapshot.replica_sets if r.replicas or r.status_replicas
            )
            victims = tuple(ReadPod(p.name) for p in snapshot.pods if p.uid in action.victim_uids)
            return (ReadWorkload(), *sets, *victims)
        # The former template itself is read for the write, and is the one of this digest or none.
        case PauseDeployment() | UnmanageDeployment() | ManageDeployment() | RestoreTemplate():
            return (ReadWorkload(),)
        case RemoveGuard():
            return (ReadPod(action.pod_name),)
        # The claim's resourceVersion goes with a hold; and a proof once found stays one.
        case AddFinalizer() | RemoveFinalizer() | ProbeGate() | HoldClaim() | EndHold() | AddGuard():
            return ()
        # The UIDs that go with them, or a name that is made of both object and device, are enough.
        case PreferVictim() | ReserveDevice() | EndReservation() | RunChecks() | CheckHealth():
            return ()
    assert_never(action)


def _release_reads(predecessor_uid: str, snapshot: Snapshot) -> Iterable[Read]:
    """Yield the reads that prove the predecessor's devices free; those of every departure where there is none."""
    departed = [
        r for r in snapshot.rollout.status.replacements if not predecessor_uid or r.pod_uid == predecessor_uid
    ]
    pools: set[tuple[str, str]] = set()
    for replacement in departed:
        if replacement.pod_name:
            yield ReadPod(replacement.pod_name)
        for claim in replacement.claims:
            yield ReadClaim(claim.name)
            pools |= {(use.driver, use.pool) for use in claim.devices}
    for driver, pool in sorted(pools):
        yield ReadPool(driver, pool)
    if pools:
        yield ReadTaintRules()


def merge(snapshot: Snapshot, results: Mapping[Read, Result], now: datetime) -> Snapshot:
    """Return `snapshot` with every fact that was read afresh in the place of the store's.

    A pod that the store has and the read does not find has vanished: its last known state may hold the proof.
    """
    vanished = list(snapshot.vanished)
    pods = {p.uid: p for p in snapshot.pods}
    sets = {r.name: r for r in snapshot.replica_sets}
    claims = dict(snapshot.claims)
    slices = list(snapshot.slices)
    fresh = snapshot
    for read, result in results.items():
        match read:
            case ReadWorkload():
                fresh = replace(fresh, workload=_workload(result))
            case ReadReplicaSet(name):
                sets.pop(name, None)
                if (replica_set := _expect(result, ReplicaSetRecord)) is not None:
                    sets[name] = replica_set
            case ReadPod(name):
                found = result.uid if isinstance(result, PodRecord) else ""
                vanished += [Vanished(p, now) for p in pods.values() if p.name == name and p.uid != found]
                pods = {uid: p for uid, p in pods.items() if p.name != name}
                if (pod := _expect(result, PodRecord)) is not None:
                    pods[pod.uid] = pod
            case ReadClaim(name):
                claims.pop(name, None)
                if (claim := _expect(result, ClaimRecord)) is not None:
                    claims[name] = claim
            case ReadPool(driver, pool):
                slices = [s for s in slices if (s.driver, s.pool) != (driver, pool)]
                slices += [s for s in _list(result) if isinstance(s, SliceRecord)]
            case ReadTaintRules():
                rules = tuple(r for r in _list(result) if isinstance(r, TaintRuleRecord))
                ours = tuple(r for r in rules if r.reserved_by == snapshot.rollout.uid)
                fresh = replace(fresh, taint_rules=rules, reservations=ours)
    own_uids = {c.uid for c in snapshot.claims.values()} | {c.uid for c in claims.values()}
    return replace(
        fresh,
        pods=tuple(pods.values()),
        vanished=tuple(vanished),
        replica_sets=tuple(sets.values()),
        claims=claims,
        slices=tuple(slices),
        holders=_holders(snapshot.holders, own_uids, claims.values()),
    )


def _holders(
    known: Mapping[Device, tuple[ClaimRecord, ...]], own_uids: set[str], own: Iterable[ClaimRecord]
) -> dict[Device, tuple[ClaimRecord, ...]]:
    """Return who holds each device: strangers as the store knows them, our own claims as just read."""
    holders = {device: [c for c in held if c.uid not in own_uids] for device, held in known.items()}
    pools = {(device.driver, device.pool) for device in known}
    for claim in own:
        for use in claim.uses or ():
            if (use.device.driver, use.device.pool) in pools:
                holders.setdefault(use.device, []).append(claim)
    return {device: tuple(held) for device, held in holders.items()}


def _workload(result: Result) -> Workload | None:
    if isinstance(result, DeploymentRecord | DaemonSetRecord):
        return result
    return _expect(result, StatefulSetRecord)


def _expect(result: Result, kind: type[T]) -> T | None:
    if result is None or isinstance(result, kind):
        return result
    raise TypeError(f"a fresh read brought {type(result).__name__}, not {kind!r}")


def _list(result: Result) -> tuple[object, ...]:
    return result if isinstance(result, tuple) else ()
