"""A cluster's objects by LISTs, in the operator's own store: so that what is decided here is what the operator decides.

What lists cannot tell, and the operator remembers, is taken from the object's status: whether it may hold claims, reserve
devices, and whether its dry-run pod came back gated. Answers of checks and of evictions it keeps to itself; the messages in
the status have them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from accelerator_rollout.act.checks import invalid
from accelerator_rollout.api.conditions import ConditionType, find_condition
from accelerator_rollout.api.models import RolloutObject, RolloutStatus
from accelerator_rollout.cli.cluster import Cluster
from accelerator_rollout.decide.reasons import Holding, Refusal, Reserving, Waiting
from accelerator_rollout.decide.snapshot import (
    GateProbe,
    GateSource,
    HoldAbility,
    ReserveAbility,
    Snapshot,
)
from accelerator_rollout.errors import ForbiddenError, GoneError, OperatorError
from accelerator_rollout.names import PARKING_POLICY
from accelerator_rollout.observe.kinds import SOURCES, Kind, Served
from accelerator_rollout.observe.store import Store

NEAR: Final = (  # what shows a rollout with its pods and their devices
    Kind.ROLLOUTS,
    Kind.DEPLOYMENTS,
    Kind.STATEFUL_SETS,
    Kind.DAEMON_SETS,
    Kind.REPLICA_SETS,
    Kind.REVISIONS,
    Kind.PODS,
    Kind.CLAIMS,
)
_EVERYWHERE: Final = (Kind.ROLLOUTS, Kind.CLAIMS)  # a stranger on a device may be of any namespace
_OF_PEERS: Final = (
    Kind.PODS,
    Kind.REPLICA_SETS,
    Kind.DEPLOYMENTS,
    Kind.STATEFUL_SETS,
    Kind.DAEMON_SETS,
)  # by which pods of other namespaces are known to be managed, too
_POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
_BELIEVED: Final = timedelta(hours=1)


@dataclass(slots=True)
class World:
    """The store, and what could not be read into it: by kind, why."""

    store: Store
    unread: dict[Kind, str] = field(default_factory=dict)
    parks: bool = True  # the parking policy is there

    def snapshot(self, rollout: RolloutObject, now: datetime) -> Snapshot | None:
        """Return what a decision on the rollout may look at; None if it is gone."""
        found = self.store.snapshot((rollout.namespace, rollout.name), now)
        if not isinstance(found, Snapshot):
            return None
        return replace(as_remembered(found), policy_parks=self.parks)

    def present(self, rollout: RolloutObject, now: datetime) -> Snapshot:
        """Return the same of a rollout that was there a moment ago. Raises OperatorError if it went meanwhile."""
        found = self.snapshot(rollout, now)
        if found is None:
            raise OperatorError(f"AcceleratorRollout {rollout.name} is gone")
        return found


def serve(cluster: Cluster, kinds: Iterable[Kind] = Kind) -> dict[Kind, Served]:
    """Return the kinds that the cluster serves, each in the version that the operator would choose."""
    groups: dict[str, set[str]] = {"": {"v1"}}
    for group in cluster.get("/apis").get("groups") or []:
        groups[group["name"]] = {version["version"] for version in group.get("versions") or []}
    resources: dict[tuple[str, str], set[str]] = {}
    found: dict[Kind, Served] = {}
    for kind in kinds:
        source = SOURCES[kind]
        for version in source.versions:
            where = (source.group, version)
            if version in groups.get(source.group, ()) and where not in resources:
                resources[where] = _resources(cluster, *where)
            if kind in resources.get(where, ()):
                found[kind] = Served(source, version)
                break
    return found


def _resources(cluster: Cluster, group: str, version: str) -> set[str]:
    try:
        listed = cluster.get(f"/apis/{group}/{version}" if group else f"/api/{version}")
    except GoneError:
        return set()
    return {resource["name"] for resource in listed.get("resources") or []}


def near(cluster: Cluster, namespace: str, now: datetime) -> World:
    """Return the world as far as one namespace goes: enough to show it, too little to decide."""
    return _read(cluster, NEAR, namespace, (), now)


def whole(cluster: Cluster, namespace: str, now: datetime) -> World:
    """Return the world as far as a decision on an object of the namespace needs it."""
    world = _read(cluster, tuple(Kind), namespace, _EVERYWHERE, now)
    world.parks = parks(cluster)
    homes = {rollout.namespace for rollout in world.store.rollouts} - {namespace}
    rivals = {claim.namespace for claim in world.store.claims} & homes
    for space in sorted(rivals):
        _fill(world, cluster, serve(cluster, _OF_PEERS), space, ())
    return world


def _read(
    cluster: Cluster, kinds: Iterable[Kind], namespace: str, everywhere: Iterable[Kind], now: datetime
) -> World:
    world = World(Store(now=lambda: now))
    _fill(world, cluster, serve(cluster, kinds), namespace, everywhere)
    world.store.believe(now + _BELIEVED)
    # As one who has watched all along, since that is what the operator did.
    for kind in Kind:
        world.store.watched_from(kind, datetime.min.replace(tzinfo=now.tzinfo))
    return world


def _fill(
    world: World,
    cluster: Cluster,
    served: Mapping[Kind, Served],
    namespace: str,
    everywhere: Iterable[Kind],
) -> None:
    for kind, one in served.items():
        try:
            _list(world, cluster, one, "" if kind in everywhere else namespace)
        except ForbiddenError as error:
            world.unread[kind] = str(error)
            if kind in everywhere:
                _own(world, cluster, one, namespace)


def _own(world: World, cluster: Cluster, served: Served, namespace: str) -> None:
    """Read the namespace alone, where others are closed to us."""
    try:
        _list(world, cluster, served, namespace)
    except ForbiddenError:
        return


def _list(world: World, cluster: Cluster, served: Served, namespace: str) -> None:
    for raw in cluster.each(served.path(namespace or None)):
        world.store.apply(served.kind, None, raw)


def parks(cluster: Cluster) -> bool:
    """Return whether the parking policy is there; also where that may not be looked at."""
    try:
        cluster.get(f"{_POLICIES}/{PARKING_POLICY}")
    except GoneError:
        return False
    except OperatorError:
        return True
    return True


def as_remembered(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with what the operator remembers, as far as the status tells it."""
    status = snapshot.rollout.status
    adopted = status.adopted_at or snapshot.rollout.created
    return replace(
        snapshot,
        watched_since=adopted,
        gate_probe=_probe(snapshot, status),
        hold=_ABLE_TO_HOLD.get(_reason(status, ConditionType.HOLD_IN_FORCE), HoldAbility.NOT_PERMITTED),
        reserve=_ABLE_TO_RESERVE.get(
            _reason(status, ConditionType.RESERVATION_IN_FORCE), ReserveAbility.NOT_PERMITTED
        ),
        restore=True,
        bad_checks=invalid(snapshot.rollout.spec),
    )


_ABLE_TO_HOLD: Final[Mapping[str, HoldAbility]] = {
    Holding.IN_FORCE: HoldAbility.POSSIBLE,
    Holding.DISPUTED: HoldAbility.POSSIBLE,
    Holding.NOT_SUPPORTED: HoldAbility.NOT_SUPPORTED,
}
_ABLE_TO_RESERVE: Final[Mapping[str, ReserveAbility]] = {
    Reserving.IN_FORCE: ReserveAbility.POSSIBLE,
    Reserving.NOT_TOLERATED: ReserveAbility.POSSIBLE,
    Reserving.NOT_SUPPORTED: ReserveAbility.NOT_SUPPORTED,
}


def _reason(status: RolloutStatus, kind: ConditionType) -> str:
    found = find_condition(status.conditions, kind)
    return found.reason if found is not None else ""


def _probe(snapshot: Snapshot, status: RolloutStatus) -> GateProbe | None:
    """Return what the operator's dry-run pod seems to have told; None where it was not asked, or got no answer."""
    said = {_reason(status, ConditionType.PROGRESSING), _reason(status, ConditionType.STALLED)}
    if snapshot.workload is None or Waiting.GATE_UNKNOWN in said or not status.conditions:
        return None
    source = GateSource.NONE if Refusal.PODS_NOT_GATED in said else GateSource.POLICY
    return GateProbe(snapshot.workload.template.digest, source)
