"""How many device sets are in use, and how many pods are down: the two counts that openings and disruptions obey.

S3, "maxSurge: 0" counted in devices: the pods that hold or may take devices, plus the departed pods whose devices are not
proven free, stay below max(spec.replicas, live pods) before a gate opens. The live-pods term keeps an ordered
StatefulSet's scale-down moving.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from accelerator_rollout.api.models import Replacement
from accelerator_rollout.decide.departures import gated
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.records import PodRecord

MAX_UNAVAILABLE = 1  # pods; the guideline's value


def holders(snapshot: Snapshot, unreleased: Iterable[Replacement]) -> int:
    """Return how many device sets are held, may be taken, or are not proven free."""
    holding = {p.uid for p in snapshot.pods if not p.terminal and not (gated(p) and not p.bound)}
    return len(holding | {e.pod_uid or e.id for e in unreleased})


def limit(snapshot: Snapshot) -> int:
    """Return how many device sets the workload may use at once."""
    replicas = snapshot.workload.replicas if snapshot.workload else 0
    return max(replicas, sum(p.live for p in snapshot.pods))


def available(pod: PodRecord, min_ready_seconds: int, now: datetime) -> bool:
    """Whether the pod counts as available: ready for at least `min_ready_seconds`."""
    if not pod.live or not pod.ready:
        return False
    if min_ready_seconds == 0:
        return True
    return pod.ready_since is not None and now >= pod.ready_since + timedelta(seconds=min_ready_seconds)
