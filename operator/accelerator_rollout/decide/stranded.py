"""Departures whose node is gone: nothing proves their end, and nobody can be given their devices.

A Node object that is gone proves nothing: the machine may come back with the process still running. But while it is
away its devices are not published, and a hold keeps them from everybody also when it returns. So the workload goes on
elsewhere: such a departure stays on the list with its hold, and stands in nobody's way.
Of a DaemonSet no hold is needed for that: its pods are made for one node each, and none for a node that is gone.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from accelerator_rollout.api.models import Placement, Replacement
from accelerator_rollout.decide.holds import kept
from accelerator_rollout.decide.proof import ended_in_order
from accelerator_rollout.decide.release import last_known
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.records import Succession

MOST_UNHELD = 20  # remembered of a DaemonSet on nodes that come and go, and of which nothing else tells


def stranded(entry: Replacement, snapshot: Snapshot) -> bool:
    """Whether the departed pod's node is gone, without any proof, and the workload may go on without its devices."""
    if entry.proof is not None or entry.vanished_at is None:
        return False
    if not entry.node_name or entry.node_name in snapshot.nodes:
        return False
    pod = last_known(snapshot, entry.pod_uid)
    if pod is not None and (not pod.bound or ended_in_order(pod)):
        return False
    if by_node(snapshot):
        return True
    return kept(entry, snapshot) and snapshot.rollout.spec.release.placement is Placement.ANY


def by_node(snapshot: Snapshot) -> bool:
    """Whether the workload's pods are made for one node each."""
    return snapshot.workload is not None and snapshot.workload.succession is Succession.BY_NODE


def remembered(entries: Iterable[Replacement], snapshot: Snapshot) -> frozenset[str]:
    """Return the ids of the stranded entries to keep: all that are held, and the latest few of the others.

    Nodes that an autoscaler removes never come back, and the list of a status is bounded.
    """
    found = tuple(entries)
    unheld = [e for e in found if not kept(e, snapshot)]
    unheld.sort(key=lambda e: (e.vanished_at or datetime.min.replace(tzinfo=UTC), e.id), reverse=True)
    dropped = {e.id for e in unheld[MOST_UNHELD:]}
    return frozenset(e.id for e in found if e.id not in dropped)
