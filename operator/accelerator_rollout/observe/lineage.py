"""Which workload a pod belongs to, by UIDs alone, and also after the objects in between are gone.

A Deployment's old ReplicaSets are deleted (revisionHistoryLimit, cascading deletion) while their last pods still
terminate, and such a pod may hold a device. So parentage is remembered for a while after its object is gone.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from accelerator_rollout.api.models import WorkloadKind
from accelerator_rollout.observe.interests import WorkloadTopic
from accelerator_rollout.observe.tables import Index
from accelerator_rollout.records import PodRecord, ReplicaSetRecord, Workload

_OWN_PODS: Final = (
    WorkloadKind.STATEFUL_SET,
    WorkloadKind.DAEMON_SET,
)  # kinds that own their pods themselves
_REMEMBERED: Final = 5000  # objects that are gone; live ones always


class Lineage:
    """Parentage of ReplicaSets, and names of workloads, by UID."""

    def __init__(self) -> None:
        self._parents: OrderedDict[str, str] = OrderedDict()  # ReplicaSet → its controller
        self._children = Index()
        self._names: OrderedDict[str, WorkloadTopic] = OrderedDict()
        self._gone: OrderedDict[str, None] = OrderedDict()

    def saw(self, record: Workload | ReplicaSetRecord) -> None:
        """Learn the parentage that `record` shows. Adoption may change it."""
        if isinstance(record, ReplicaSetRecord):
            parent = self._parents.get(record.uid, "")
            if parent != record.owner_uid:
                self._children.discard(parent, record.uid)
                self._parents[record.uid] = record.owner_uid
                if record.owner_uid:
                    self._children.add(record.owner_uid, record.uid)
        else:
            self._names[record.uid] = WorkloadTopic(record.kind.value, record.namespace, record.name)

    def lost(self, uid: str) -> None:
        """Note that the object is gone; of those, only the latest few thousand are remembered."""
        if uid not in self._names and uid not in self._parents:
            return
        self._gone[uid] = None
        while len(self._gone) > _REMEMBERED:
            oldest, _ = self._gone.popitem(last=False)
            self._names.pop(oldest, None)
            self._children.discard(self._parents.pop(oldest, ""), oldest)

    def named(self, uid: str) -> WorkloadTopic | None:
        """Return the workload that has, or had, this UID."""
        return self._names.get(uid)

    def workload_of(self, pod: PodRecord) -> WorkloadTopic | None:
        """Return the workload that the pod belongs to; None if there is none or we have not seen it (yet)."""
        if pod.owner is None:
            return None
        if pod.owner.kind == "ReplicaSet":
            return self._names.get(self._parents.get(pod.owner.uid, ""))
        return self._names.get(pod.owner.uid) if pod.owner.kind in _OWN_PODS else None

    def undecided(self, pod: PodRecord) -> bool:
        """Return whether the pod may belong to a workload that we have not seen."""
        if pod.owner is None:
            return False
        if pod.owner.kind == "ReplicaSet":
            parent = self._parents.get(pod.owner.uid)
            return parent is None or (parent != "" and parent not in self._names)
        return pod.owner.kind in _OWN_PODS and pod.owner.uid not in self._names

    def owners_of_pods(self, workload_uid: str) -> Iterator[str]:
        """Yield the UIDs that the controlling references of this workload's pods name."""
        yield workload_uid
        yield from self._children.at(workload_uid)
