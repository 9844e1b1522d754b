"""Which of the pods that are due goes first: spec.strategy.order, else as the workload's own controller would.

A Deployment's controller chooses by itself; it is steered by a deletion cost, which counts before everything else that
tells ready pods apart.
"""

from accelerator_rollout.api.models import OrderPolicy
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.records import PodRecord
from accelerator_rollout.workloads.base import Driver
from accelerator_rollout.workloads.deployment import VICTIM_COST


def first(candidates: tuple[PodRecord, ...], snapshot: Snapshot, driver: Driver) -> PodRecord:
    """Return the pod that goes first. `candidates` is not empty, and all of them are healthy."""
    order = snapshot.rollout.spec.strategy.order
    # Steered already: a second one would leave its controller two to choose from.
    steered = tuple(p for p in candidates if p.deletion_cost <= VICTIM_COST)
    if steered:
        return driver.choose(steered)
    pods = _first_domain(candidates, snapshot, driver) if order.topology_key else candidates
    match order.policy:
        case OrderPolicy.NATIVE:
            return driver.choose(pods)
        case OrderPolicy.OLDEST_FIRST:
            return min(pods, key=lambda p: (p.created, p.name))
        case OrderPolicy.NEWEST_FIRST:
            return max(pods, key=lambda p: (p.created, p.name))
        case OrderPolicy.REVERSE_ORDINAL:
            return max(pods, key=lambda p: (p.ordinal, p.name))


def _first_domain(
    candidates: tuple[PodRecord, ...], snapshot: Snapshot, driver: Driver
) -> tuple[PodRecord, ...]:
    """Return the candidates of one domain: of the one that is begun, else of the first by name."""
    key = snapshot.rollout.spec.strategy.order.topology_key

    def domain(pod: PodRecord) -> str:
        node = snapshot.nodes.get(pod.place)
        return node.labels.get(key, "") if node is not None else ""

    begun = {domain(p) for p in snapshot.pods if p.live and driver.updated(p)}
    name = min({domain(p) for p in candidates}, key=lambda d: (d not in begun, d))
    return tuple(p for p in candidates if domain(p) == name)
