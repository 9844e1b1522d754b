"""A DaemonSet with update strategy OnDelete: its controller makes a pod anew on the node where we evict one.

The status of a DaemonSet does not name its target revision, as a StatefulSet's does. So its ControllerRevisions do:
the one whose template is the DaemonSet's own [daemon/update.go constructHistory]. While there is none, its controller
is behind.
"""

from dataclasses import dataclass

from accelerator_rollout.decide.actions import Action, EvictPod
from accelerator_rollout.decide.reasons import Refusal, Waiting
from accelerator_rollout.records import DaemonSetRecord, PodRecord, RevisionRecord
from accelerator_rollout.workloads.base import NotNow, Refused


@dataclass(frozen=True, slots=True)
class DaemonSetDriver:
    """A DaemonSet, its revisions and its pods at one moment."""

    daemon_set: DaemonSetRecord
    revisions: tuple[RevisionRecord, ...]
    pods: tuple[PodRecord, ...]

    def refusal(self) -> Refused | None:
        """Return that only OnDelete leaves the deletion to us."""
        spec = self.daemon_set
        if spec.update_strategy == "OnDelete":
            return None
        return Refused(
            Refusal.STRATEGY_NOT_SUPPORTED,
            f"DaemonSet {spec.name} has update strategy {spec.update_strategy}: its own controller would delete pods "
            "without asking whether devices are free. Set spec.updateStrategy.type to OnDelete",
        )

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

    def complete(self) -> bool:
        """Whether every live pod is of the target revision."""
        return all(self.updated(p) for p in self.pods if p.live)

    def stepping(self) -> bool:
        """OnDelete never deletes by itself."""
        return False

    def held_back(self) -> NotNow | None:
        """A DaemonSet has no pause."""
        return None

    def open_blocked(self, pod: PodRecord) -> NotNow | None:
        """Opening sets nothing off under OnDelete."""
        del pod
        return None

    def choose(self, candidates: tuple[PodRecord, ...]) -> PodRecord:
        """Return the oldest pod; of those that are equally old, the first by its node's name."""
        return min(candidates, key=lambda p: (p.created, p.place, p.name))

    def holds_up(self, pod: PodRecord, departed_name: str) -> bool:
        """No node waits for another."""
        del pod, departed_name
        return False

    def prepare(self, candidates: tuple[PodRecord, ...]) -> tuple[Action, ...]:
        """Nothing: an eviction needs no preparation."""
        del candidates
        return ()

    def replace(self, victim: PodRecord) -> tuple[Action, ...] | NotNow:
        """Evict the pod."""
        return self.behind() or (EvictPod(victim.name, victim.uid),)

    def upkeep(self, *, may_move: bool) -> tuple[Action, ...]:
        """Nothing stands between steps."""
        del may_move
        return ()

    def let_go(self) -> tuple[Action, ...]:
        """Nothing of ours is on the DaemonSet."""
        return ()

    def ungated_revisions(self) -> tuple[str, ...]:
        """OnDelete makes every new pod of the newest template: old revisions make none."""
        return ()
