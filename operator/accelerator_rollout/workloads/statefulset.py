"""A StatefulSet with update strategy OnDelete: its controller recreates what we evict, at the update revision."""

from dataclasses import dataclass

from accelerator_rollout.decide.reasons import Waiting
from accelerator_rollout.records import PodRecord, StatefulSetRecord, ordinal
from accelerator_rollout.workloads.base import NotNow, Refused
from accelerator_rollout.workloads.on_delete import OnDeleteDriver, unless_on_delete


@dataclass(frozen=True, slots=True)
class StatefulSetDriver(OnDeleteDriver):
    """A StatefulSet and its pods at one moment."""

    stateful_set: StatefulSetRecord
    pods: tuple[PodRecord, ...]

    def refusal(self) -> Refused | None:
        """Return that only OnDelete leaves the deletion to us."""
        return unless_on_delete(self.stateful_set)

    def revision(self) -> str:
        """Return the controller's own name of the update revision."""
        return self.stateful_set.update_revision

    def behind(self) -> NotNow | None:
        """Return why updateRevision does not speak of the newest template yet."""
        spec = self.stateful_set
        if spec.observed_generation < spec.generation or not spec.update_revision:
            return NotNow(
                Waiting.CONTROLLER_BEHIND,
                f"the controller of StatefulSet {spec.name} has not seen generation {spec.generation} yet",
            )
        return None

    def updated(self, pod: PodRecord) -> bool:
        """Whether the pod is of the update revision."""
        return pod.revision == self.stateful_set.update_revision

    def choose(self, candidates: tuple[PodRecord, ...]) -> PodRecord:
        """Return the highest ordinal, as the StatefulSet's own rolling update does; of pods that are down the lowest.

        An ordered StatefulSet makes no pod before those of lower ordinals are healthy, so that from the other end
        broken pods would never be through.
        """
        down = [p for p in candidates if not p.ready]
        return min(down, key=lambda p: p.ordinal) if down else max(candidates, key=lambda p: p.ordinal)

    def holds_up(self, pod: PodRecord, departed_name: str) -> bool:
        """Whether the pod comes before the other one, or succeeds it; where no order matters, that state does not last."""
        return 0 <= pod.ordinal <= ordinal(departed_name)
