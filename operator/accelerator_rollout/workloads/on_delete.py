"""What workloads with update strategy OnDelete share: we evict a pod, and its controller makes the next one.

Their controllers delete nothing by themselves, so nothing of ours has to stand on the workload between two steps.
"""

from abc import ABC, abstractmethod

from accelerator_rollout.decide.actions import Action, EvictPod
from accelerator_rollout.decide.reasons import Refusal
from accelerator_rollout.records import DaemonSetRecord, PodRecord, StatefulSetRecord
from accelerator_rollout.workloads.base import NotNow, Refused


def unless_on_delete(workload: StatefulSetRecord | DaemonSetRecord) -> Refused | None:
    """Return that only OnDelete leaves the deletion to us."""
    if workload.update_strategy == "OnDelete":
        return None
    return Refused(
        Refusal.STRATEGY_NOT_SUPPORTED,
        f"{workload.kind} {workload.name} has update strategy {workload.update_strategy}: its own controller would delete "
        "pods without asking whether devices are free. Set spec.updateStrategy.type to OnDelete",
    )


class OnDeleteDriver(ABC):
    """The part of a Driver that does not depend on how pods are named or placed."""

    __slots__ = ()

    pods: tuple[PodRecord, ...]

    @abstractmethod
    def behind(self) -> NotNow | None:
        """Return why the workload's status does not speak of its newest spec yet."""

    @abstractmethod
    def updated(self, pod: PodRecord) -> bool:
        """Whether the pod is of the target revision."""

    def complete(self) -> bool:
        """Whether every live pod is of the target revision."""
        return all(self.updated(p) for p in self.pods if p.live)

    def stepping(self) -> bool:
        """OnDelete never deletes by itself."""
        return False

    def held_back(self) -> NotNow | None:
        """There is no pause."""
        return None

    def open_blocked(self, pod: PodRecord) -> NotNow | None:
        """Opening sets nothing off."""
        del pod
        return None

    def prepare(self, candidates: tuple[PodRecord, ...]) -> tuple[Action, ...]:
        """Nothing: an eviction needs no preparation."""
        del candidates
        return ()

    def steps_alone(self) -> bool:
        """OnDelete waits for us."""
        return False

    def step_size(self) -> int:
        """One by one: each eviction is a decision of its own."""
        return 1

    def replace(self, victims: tuple[PodRecord, ...]) -> tuple[Action, ...] | NotNow:
        """Evict the pods."""
        return self.behind() or tuple(EvictPod(p.name, p.uid) for p in victims)

    def upkeep(self, *, may_move: bool) -> tuple[Action, ...]:
        """Nothing stands between steps."""
        del may_move
        return ()

    def let_go(self) -> tuple[Action, ...]:
        """Nothing of ours is on the workload."""
        return ()

    def ungated_revisions(self) -> tuple[str, ...]:
        """Every new pod is made of the newest template: old revisions make none."""
        return ()
