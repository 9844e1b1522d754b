"""How many device sets are in use, and how many pods are down: the two counts that openings and disruptions obey.

S3, "maxSurge: 0" counted in devices: the pods that hold or may take devices, plus the departed pods whose devices are not
proven free, stay below max(spec.replicas, live pods) before a gate opens. The live-pods term keeps an ordered
StatefulSet's scale-down moving. A DaemonSet is counted node by node, with room for one on each.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from accelerator_rollout.api.models import Replacement
from accelerator_rollout.decide.departures import gated
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.decide.stranded import by_node
from accelerator_rollout.records import PodRecord


def max_unavailable(snapshot: Snapshot) -> int:
    """Return how many pods may be down by our doing: spec.strategy.maxUnavailable, at least 1 (the guideline's value)."""
    asked = snapshot.rollout.spec.strategy.max_unavailable
    if isinstance(asked, int):
        return asked
    replicas = snapshot.workload.replicas if snapshot.workload else 0
    return max(1, int(asked.removesuffix("%")) * replicas // 100)


class Room:
    """The device sets that are held, may be taken, or are not proven free, and how many may be."""

    def __init__(self, snapshot: Snapshot, unreleased: Iterable[Replacement]) -> None:
        self._by_node = by_node(snapshot)
        self.limit = 1 if self._by_node else _limit(snapshot)
        users = {p.uid: p.place for p in snapshot.pods if not p.terminal and not (gated(p) and not p.bound)}
        users |= {e.pod_uid or e.id: e.node_name for e in unreleased if (e.pod_uid or e.id) not in users}
        self._used = Counter(users.values() if self._by_node else ("" for _ in users))

    def used(self, pod: PodRecord) -> int:
        """Return how many count against this pod: of a DaemonSet those of its node, or of a node that nobody knows."""
        if not self._by_node:
            return self._used[""]
        return self._used[pod.place] + (self._used[""] if pod.place else 0)

    def take(self, pod: PodRecord) -> None:
        """Count the pod in: its gate is about to open."""
        self._used[pod.place if self._by_node else ""] += 1


def _limit(snapshot: Snapshot) -> int:
    replicas = snapshot.workload.replicas if snapshot.workload else 0
    return max(replicas, sum(p.live for p in snapshot.pods))


def min_ready(snapshot: Snapshot) -> int:
    """Return for how many seconds a pod must be ready to count as available: the workload's word or ours."""
    own = snapshot.workload.min_ready_seconds if snapshot.workload else 0
    return max(own, snapshot.rollout.spec.health.min_ready_seconds)


def available(pod: PodRecord, min_ready_seconds: int, now: datetime) -> bool:
    """Whether the pod counts as available: ready for at least `min_ready_seconds`."""
    if not pod.live or not pod.ready:
        return False
    if min_ready_seconds == 0:
        return True
    return pod.ready_since is not None and now >= pod.ready_since + timedelta(seconds=min_ready_seconds)
