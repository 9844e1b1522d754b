"""Pods that went while we watched: nobody can read them again, so we keep what they were until it is noted elsewhere."""

from datetime import datetime, timedelta
from typing import Final

from accelerator_rollout.decide.snapshot import Vanished
from accelerator_rollout.observe.interests import WorkloadTopic
from accelerator_rollout.records import PodRecord

_KEPT: Final = timedelta(hours=24)
_AT_MOST: Final = 5000


class Departures:
    """The last known state of pods whose objects are gone, by the workload they belonged to."""

    def __init__(self, *, kept: timedelta = _KEPT, at_most: int = _AT_MOST) -> None:
        self._kept, self._at_most = kept, at_most
        self._pods: dict[str, tuple[WorkloadTopic, Vanished]] = {}  # in the order in which they went
        self._of: dict[WorkloadTopic, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, workload: WorkloadTopic, pod: PodRecord, at: datetime) -> int:
        """Note that `pod` went at `at`; return how many others had to be forgotten to make room."""
        self._pods[pod.uid] = (workload, Vanished(pod, at))
        self._of.setdefault(workload, {})[pod.uid] = None
        return self.expire(at)

    def improve(self, pod: PodRecord) -> WorkloadTopic | None:
        """Keep `pod` instead of what we have of it if it proves more; return its workload if so."""
        noted = self._pods.get(pod.uid)
        if noted is None or tells_more(noted[1].pod, pod) is not pod:
            return None
        workload, vanished = noted
        self._pods[pod.uid] = (workload, Vanished(pod, vanished.at))
        return workload

    def forget(self, uid: str) -> None:
        """Forget the pod: what mattered of it is stored."""
        workload, _ = self._pods.pop(uid, (None, None))
        if workload is not None:
            self._of[workload].pop(uid, None)
            if not self._of[workload]:
                del self._of[workload]

    def of(self, workload: WorkloadTopic) -> tuple[Vanished, ...]:
        """Return the pods that went, the first first."""
        return tuple(self._pods[uid][1] for uid in self._of.get(workload, ()))

    def get(self, uid: str) -> tuple[WorkloadTopic, Vanished] | None:
        """Return the workload and the last state of the pod that had this UID."""
        return self._pods.get(uid)

    def drop_workload(self, workload: WorkloadTopic) -> None:
        """Forget all pods of a workload that nobody references any more."""
        for uid in tuple(self._of.get(workload, ())):
            self.forget(uid)

    def expire(self, now: datetime) -> int:
        """Forget what is too old or too much; return how many pods that were."""
        forgotten = 0
        while self._pods:
            uid, (_, vanished) = next(iter(self._pods.items()))
            if len(self._pods) <= self._at_most and now - vanished.at <= self._kept:
                break
            self.forget(uid)
            forgotten += 1
        return forgotten


def tells_more(one: PodRecord, other: PodRecord) -> PodRecord:
    """Return whichever state of a pod proves more about its end: both are true, the later one may say less.

    The event of a deletion carries the object as it was deleted; a write that was merged into the deletion may have
    shown us less, and a forced deletion may cut off a proof that an earlier state already gave.
    """
    return other if _strength(other) >= _strength(one) else one


def _strength(pod: PodRecord) -> tuple[bool, bool, int]:
    proven = pod.kubelet_terminal and pod.containers_terminated and not pod.by_pod_gc
    return proven, pod.terminal, int(pod.resource_version)
