"""A Deployment: its own controller deletes and creates, and we let it make exactly one step at a time.

The lock: with maxSurge 0, gated replacements count as unavailable, so the controller can take no further pod down. A step is
one pod, or as many as the Deployment's maxUnavailable says where we are asked to let as many go.
Before the gate opens we set `spec.paused`, and open only when the Deployment's observedGeneration covers that pause;
afterwards nothing moves until we unpause. Between two steps and while nobody allowed one, the Deployment is parked:
paused with our annotation (by our admission policy in the very write that changes the template, else by us). At rest it
is not paused.

A pause between the old ReplicaSet's shrinking and the new one's growing would scale the old one back up, so we pause
only once the gated pod exists, or while no step has begun.
"""

from dataclasses import dataclass, replace

from accelerator_rollout.decide.actions import (
    Action,
    ManageDeployment,
    ParkReason,
    PauseDeployment,
    PreferVictim,
    UnmanageDeployment,
    UnpauseDeployment,
)
from accelerator_rollout.decide.reasons import Refusal, Waiting
from accelerator_rollout.names import GATE
from accelerator_rollout.records import DeploymentRecord, PodRecord, ReplicaSetRecord, comes_gated
from accelerator_rollout.workloads.base import NotNow, Refused

REVISION_LENGTH = 12  # characters of the template digest that name a revision
VICTIM_COST = -1_000_000  # below anything people set; the controller takes the lowest first (KEP-2255)


@dataclass(frozen=True, slots=True)
class _Set:
    """A ReplicaSet in the arithmetic below: how many pods it has and how many of them are available."""

    replicas: int
    available: int


def resolve(value: int | str, replicas: int, *, round_up: bool) -> int:
    """Return an int-or-percent field as pods, rounded as the Deployment controller does. Raises ValueError."""
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%"))
    return -(-percent * replicas // 100) if round_up else percent * replicas // 100


def step_size(replicas: int, max_unavailable: int, new: _Set, old: tuple[_Set, ...]) -> int:
    """Return how many old pods the controller would delete before gated replacements lock it.

    The arithmetic of kube-controller-manager's rolling update with maxSurge 0 [deployment/rolling.go]: replacements
    never become available here, because their gates stay closed.
    """
    olds = list(old)
    deleted = 0
    floor = replicas - max_unavailable
    while True:
        total = new.replicas + sum(o.replicas for o in olds)
        grown = max(0, min(replicas - total, replicas - new.replicas))
        if grown:
            new = replace(new, replicas=new.replicas + grown)
            continue
        budget = total - floor - (new.replicas - new.available)
        before = deleted
        for i, one in enumerate(olds):  # pods that are not available go first, whatever the floor
            broken = min(one.replicas - one.available, budget)
            if broken > 0:
                olds[i] = replace(one, replicas=one.replicas - broken)
                budget -= broken
                deleted += broken
        spare = new.available + sum(o.available for o in olds) - floor
        for i, one in enumerate(olds):
            healthy = min(one.replicas, spare, budget)
            if healthy > 0:
                olds[i] = _Set(one.replicas - healthy, min(one.available, one.replicas - healthy))
                spare -= healthy
                budget -= healthy
                deleted += healthy
        if deleted == before:
            return deleted


@dataclass(frozen=True, slots=True)
class DeploymentDriver:
    """A Deployment, its ReplicaSets and its pods at one moment. `limit` pods may be down by our doing."""

    deployment: DeploymentRecord
    replica_sets: tuple[ReplicaSetRecord, ...]
    pods: tuple[PodRecord, ...]
    limit: int = 1

    def refusal(self) -> Refused | None:
        """Return what about the update strategy keeps us from driving it."""
        spec = self.deployment
        name = f"Deployment {spec.name}"
        if spec.strategy != "RollingUpdate":
            return Refused(
                Refusal.STRATEGY_NOT_SUPPORTED,
                f"{name} has strategy {spec.strategy}, which takes all pods down at once. "
                "Set spec.strategy to RollingUpdate with maxSurge 0 and maxUnavailable 1",
            )
        try:
            surge = resolve(spec.max_surge, spec.replicas, round_up=True)
            down = resolve(spec.max_unavailable, spec.replicas, round_up=False)
        except ValueError:
            return Refused(
                Refusal.STRATEGY_NOT_SUPPORTED,
                f"{name} has maxSurge {spec.max_surge!r} and maxUnavailable {spec.max_unavailable!r}, which cannot be "
                "read as numbers or percentages. Set them to 0 and 1",
            )
        if surge > 0:
            return Refused(
                Refusal.SURGE_NOT_ALLOWED,
                f"{name} has maxSurge {spec.max_surge}: a surge pod waits for a device that the old pod holds, and on a "
                "fixed pool that is a deadlock. Set spec.strategy.rollingUpdate to maxSurge 0 and maxUnavailable 1",
            )
        if down > self.limit:
            return Refused(
                Refusal.MAX_UNAVAILABLE_TOO_HIGH,
                f"{name} has maxUnavailable {spec.max_unavailable} ({down} pods): its controller would take more than "
                f"{self.limit} down at once, which is what spec.strategy.maxUnavailable of the AcceleratorRollout allows. Set "
                f"spec.strategy.rollingUpdate.maxUnavailable to {self.limit}",
            )
        return None

    def revision(self) -> str:
        """Return the start of the template's digest: it exists before the ReplicaSet does."""
        return self.deployment.template.digest[:REVISION_LENGTH]

    def behind(self) -> NotNow | None:
        """Return why the Deployment's status does not speak of its newest spec yet."""
        if self.deployment.observed_generation < self.deployment.generation:
            return NotNow(
                Waiting.CONTROLLER_BEHIND,
                f"the controller of Deployment {self.deployment.name} has not seen generation "
                f"{self.deployment.generation} yet",
            )
        return None

    def updated(self, pod: PodRecord) -> bool:
        """Whether the pod's ReplicaSet has the Deployment's template."""
        new = self._new()
        return new is not None and pod.owner is not None and pod.owner.uid == new.uid

    def complete(self) -> bool:
        """Whether no old ReplicaSet has pods left to replace."""
        new = self._new()
        return not self._old() and (new is not None or self.deployment.replicas == 0)

    def stepping(self) -> bool:
        """Whether the controller is free to replace a pod by itself."""
        return not self.deployment.paused and not self.complete()

    def held_back(self) -> NotNow | None:
        """Return that a person paused the Deployment, if so: a pause of ours has our annotation."""
        if self.deployment.paused and self.deployment.parked is None:
            return NotNow(
                Waiting.PAUSED_BY_USER,
                f"Deployment {self.deployment.name} was paused by somebody else. "
                f"Resume it with: kubectl rollout resume deployment/{self.deployment.name}",
            )
        return None

    def open_blocked(self, pod: PodRecord) -> NotNow | None:
        """Return why the Deployment could move on once this pod is ready: it is neither paused nor done."""
        del pod
        if self.complete():
            return None
        if not self.deployment.paused:
            return NotNow(
                Waiting.STEP_NOT_LOCKED,
                f"Deployment {self.deployment.name} is not paused yet: it could start a second replacement",
            )
        return self.behind()

    def choose(self, candidates: tuple[PodRecord, ...]) -> PodRecord:
        """Return the pod that the ReplicaSet controller would rank first anyway, else the oldest [ActivePodsWithRanks]."""
        return min(
            candidates,
            key=lambda p: (p.bound, p.phase != "Pending", p.ready, p.deletion_cost, p.created, p.name),
        )

    def holds_up(self, pod: PodRecord, departed_name: str) -> bool:
        """No pod of a Deployment waits for another."""
        del pod, departed_name
        return False

    def prepare(self, candidates: tuple[PodRecord, ...]) -> tuple[Action, ...]:
        """Steer the next choice while the Deployment is locked: once it is unpaused, that costs the pods time."""
        if not candidates or not self.deployment.paused or self.deployment.parked is None:
            return ()
        if any(p.deletion_cost <= VICTIM_COST for p in candidates):
            return ()  # one is enough, or the ReplicaSet has two to choose from
        victim = self.choose(candidates)
        return (PreferVictim(victim.name, victim.uid, VICTIM_COST),)

    def steps_alone(self) -> bool:
        """Its controller deletes by itself, as many as its own arithmetic allows."""
        return True

    def step_size(self) -> int:
        """Return how many pods the controller would replace if it were unpaused now."""
        new = self._new()
        down = resolve(self.deployment.max_unavailable, self.deployment.replicas, round_up=False)
        return step_size(
            self.deployment.replicas,
            max(1, down),  # with both at 0 the controller takes 1 [deployment/util ResolveFenceposts]
            _Set(new.replicas, new.available) if new else _Set(0, 0),
            tuple(_Set(r.replicas, r.available) for r in self._old()),
        )

    def replace(self, victims: tuple[PodRecord, ...]) -> tuple[Action, ...] | NotNow:
        """Unpause, if the controller's own arithmetic then yields exactly as many replacements."""
        spec = self.deployment
        if not spec.paused:
            return ()  # its controller is about to do it: nothing to add
        behind = self.behind()
        if behind is not None:
            return behind
        lagging = [
            r.name
            for r in self.replica_sets
            if r.observed_generation < r.generation or r.status_replicas != r.replicas
        ]
        if lagging:
            return NotNow(Waiting.CONTROLLER_BEHIND, f"ReplicaSet {lagging[0]} has not settled yet")
        size = self.step_size()
        if size != len(victims):
            return NotNow(
                Waiting.STEP_NOT_SAFE,
                f"unpausing Deployment {spec.name} would replace {size} pods at once, by its own arithmetic, and "
                f"{len(victims)} may go",
            )
        prefer = (PreferVictim(p.name, p.uid, VICTIM_COST) for p in victims if p.deletion_cost > VICTIM_COST)
        return (*prefer, UnpauseDeployment(spec.name, spec.uid, tuple(p.uid for p in victims)))

    def upkeep(self, *, may_move: bool) -> tuple[Action, ...]:
        """Label the Deployment; park it once a step is taken, or if it moves without leave; unpark it at rest."""
        spec = self.deployment
        actions: list[Action] = []
        if not spec.managed:
            actions.append(ManageDeployment(spec.name, spec.uid))
        if self.complete():
            # Also where a person has resumed it: left behind, the annotation would make their next pause look like ours.
            if spec.parked is not None:
                actions.append(UnpauseDeployment(spec.name, spec.uid))
        elif spec.paused and spec.parked is not None and self._unborn():
            actions.append(UnpauseDeployment(spec.name, spec.uid))
        elif not spec.paused:
            if self._step_taken():
                actions.append(PauseDeployment(spec.name, spec.uid, ParkReason.STEP_TAKEN))
            elif not may_move and self._untouched():
                actions.append(PauseDeployment(spec.name, spec.uid, ParkReason.HALTED))
        return tuple(actions)

    def let_go(self) -> tuple[Action, ...]:
        """Take label, pause and annotation off, if any is there."""
        spec = self.deployment
        if not spec.managed and spec.parked is None:
            return ()
        return (UnmanageDeployment(spec.name, spec.uid),)

    def ungated_revisions(self) -> tuple[str, ...]:
        """Return the ReplicaSets that can still make pods without our gate."""
        return tuple(
            r.name
            for r in self.replica_sets
            if r.replicas and not comes_gated(r.template_gates, r.template_labels)
        )

    def _new(self) -> ReplicaSetRecord | None:
        """Return the ReplicaSet of the current template: the oldest, as the controller has it, should two match."""
        same = [r for r in self.replica_sets if r.template_digest == self.deployment.template.digest]
        return min(same, key=lambda r: (r.created, r.name), default=None)

    def _old(self) -> tuple[ReplicaSetRecord, ...]:
        new = self._new()
        return tuple(r for r in self.replica_sets if r is not new and (r.replicas or r.status_replicas))

    def _step_taken(self) -> bool:
        """Whether the new ReplicaSet has grown and a gated pod of it exists, so that a pause takes nothing back."""
        grown = sum(r.replicas for r in self.replica_sets) >= self.deployment.replicas
        return grown and any(GATE in p.gates and p.live and self.updated(p) for p in self.pods)

    def _unborn(self) -> bool:
        """Whether there is nothing to replace yet: a paused Deployment makes no ReplicaSet, and so never a pod."""
        none_left = not self._old() and not any(p.live for p in self.pods)
        return self._new() is None and none_left

    def _untouched(self) -> bool:
        """Whether the old ReplicaSets still hold every replica: no step has begun, so a pause undoes none."""
        new = self._new()
        return (new is None or not new.replicas) and sum(
            r.replicas for r in self._old()
        ) >= self.deployment.replicas
