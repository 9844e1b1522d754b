"""Guard: our finalizer on the workload's pods, so that a forced deletion still ends in order and gives its proof.

A pod object that a finalizer keeps stays known to its kubelet, which stops the containers, unprepares and reports a
terminal phase as after any deletion. The guard goes with that report. It does not stop the pod garbage collector, which
ends pods of lost nodes by its own word: no kubelet is there to wait for, so it goes then, too, and nothing is proven.
"""

from accelerator_rollout.api.models import Guard
from accelerator_rollout.decide.actions import AddGuard, RemoveGuard
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.names import GUARD_FINALIZER
from accelerator_rollout.records import PodRecord


def guarded(pod: PodRecord) -> bool:
    """Whether the pod carries our guard."""
    return GUARD_FINALIZER in pod.finalizers


def guarding(snapshot: Snapshot) -> bool:
    """Whether pods are to be guarded."""
    return snapshot.rollout.spec.release.guard is Guard.FINALIZER and snapshot.rollout.deletion is None


def guards(snapshot: Snapshot) -> tuple[AddGuard, ...]:
    """Return the guards that are missing: on pods with a node. Others get theirs in the write that opens their gate."""
    if snapshot.workload is None or not guarding(snapshot):
        return ()
    pods = sorted((p for p in snapshot.pods if p.live and p.bound), key=lambda p: (p.created, p.name))
    return tuple(AddGuard(p.name, p.uid) for p in pods if not guarded(p))


def unguarded(snapshot: Snapshot, *, late: bool = False) -> tuple[RemoveGuard, ...]:
    """Return the guards that are to go: of what has ended or never ran, and of what lives where none is wanted.

    `late`: what is still ending has been waited for long enough.
    """
    wanted = guarding(snapshot)
    ours = {p.uid for p in snapshot.pods}
    going = []
    for pod in sorted((*snapshot.pods, *snapshot.former), key=lambda p: (p.created, p.name)):
        over = pod.terminal or (pod.terminating and not pod.bound)
        unwanted = pod.live and (not wanted or pod.uid not in ours)
        if guarded(pod) and (over or unwanted or late):
            going.append(RemoveGuard(pod.name, pod.uid))
    return tuple(going)
