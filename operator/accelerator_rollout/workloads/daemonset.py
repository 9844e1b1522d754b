"""A DaemonSet with update strategy OnDelete: its controller makes a pod anew on the node where we evict one.

The status of a DaemonSet does not name its target revision, as a StatefulSet's does. So its ControllerRevisions do:
the one whose template is the DaemonSet's own [daemon/update.go constructHistory]. While there is none, its controller
is behind.
"""

from dataclasses import dataclass

from accelerator_rollout.decide.reasons import Waiting
from accelerator_rollout.records import DaemonSetRecord, PodRecord, RevisionRecord
from accelerator_rollout.workloads.base import NotNow, Refused
from accelerator_rollout.workloads.on_delete import OnDeleteDriver, unless_on_delete


@dataclass(frozen=True, slots=True)
class DaemonSetDriver(OnDeleteDriver):
    """A DaemonSet, its revisions and its pods at one moment."""

    daemon_set: DaemonSetRecord
    revisions: tuple[RevisionRecord, ...]
    pods: tuple[PodRecord, ...]

    def refusal(self) -> Refused | None:
        """Return that only OnDelete leaves the deletion to us."""
        return unless_on_delete(self.daemon_set)

    def revision(self) -> str:
        """Return the target revision as its pods carry it; "" while the controller is behind."""
        same = [r for r in self.revisions if r.template_digest == self.daemon_set.template.digest]
        newest = max(same, key=lambda r: (r.number, r.name), default=None)
        return newest.revision if newest else ""

    def behind(self) -> NotNow | None:
        """Return why no revision speaks of the newest template yet."""
        spec = self.daemon_set
        if spec.observed_generation < spec.generation or not self.revision():
            return NotNow(
                Waiting.CONTROLLER_BEHIND,
                f"the controller of DaemonSet {spec.name} has not seen generation {spec.generation} yet",
            )
        return None

    def updated(self, pod: PodRecord) -> bool:
        """Whether the pod is of the target revision."""
        target = self.revision()
        return bool(target) and pod.revision == target

    def choose(self, candidates: tuple[PodRecord, ...]) -> PodRecord:
        """Return the oldest pod; of those that are equally old, the first by its node's name."""
        return min(candidates, key=lambda p: (p.created, p.place, p.name))

    def holds_up(self, pod: PodRecord, departed_name: str) -> bool:
        """No node waits for another."""
        del pod, departed_name
        return False
