"""Which pod to replace next, or why none now.

S5: a healthy pod is replaced only while fewer than spec.strategy.maxUnavailable are down or in replacement (1 as a rule). A
pod that is already down costs nobody anything more, so it goes first and is exempt, at most as many at a time. A pod is
chosen in each decision; only where the workload's controller takes several by itself, they are chosen together.

A pod whose eviction may still be on its way (`maybe_sent`) goes before other healthy ones, and counts as down beside them:
it may leave in the same moment as whoever is chosen instead. One that is down already is not kept for it.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from accelerator_rollout.api.models import Cause
from accelerator_rollout.decide import restart, windows
from accelerator_rollout.decide.actions import Action, EvictPod
from accelerator_rollout.decide.admission import gate_unknown
from accelerator_rollout.decide.allocatable import taken, unpublished
from accelerator_rollout.decide.appraisal import Appraisal
from accelerator_rollout.decide.budget import available, max_unavailable, min_ready
from accelerator_rollout.decide.extent import Extent
from accelerator_rollout.decide.health import soaks
from accelerator_rollout.decide.ordering import first
from accelerator_rollout.decide.reasons import NotFree, Waiting
from accelerator_rollout.decide.release import pool_of
from accelerator_rollout.decide.shared_budget import Wish, used_up
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.decide.stranded import by_node
from accelerator_rollout.records import PodRecord
from accelerator_rollout.workloads.base import Driver, NotNow

RETRY_SECONDS = 10  # after an eviction was turned down


@dataclass(frozen=True, slots=True)
class Step:
    """The pods to replace and how; there is at least one. No actions: their controller is about to do it by itself."""

    victims: tuple[PodRecord, ...]
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why the next pod is not replaced now. `victim` is set where one pod in particular is blocked."""

    why: NotNow
    victim: PodRecord | None = None
    due: datetime | None = None


def next_step(
    snapshot: Snapshot, driver: Driver, appraisals: tuple[Appraisal, ...], extent: Extent, now: datetime
) -> Step | Blocked | None:
    """Return the next replacement, why there is none, or None if every pod is where it should be."""
    if snapshot.workload is None or snapshot.workload.deletion is not None:
        return Blocked(NotNow(Waiting.WORKLOAD_GOING, "the workload is being deleted"))
    behind = driver.behind()
    # A controller that is free to move does not wait for its status: whether it may is decided now, or we would halt it in
    # the middle of the step that we allow a moment later.
    if behind is not None and not driver.stepping():
        return Blocked(behind)
    live = [p for p in snapshot.pods if p.live]
    stale = [p for p in live if not driver.updated(p)]
    # What the partition keeps is of another revision for good, and has no restart wait.
    restarting = not stale or extent.partitioned
    if restarting:
        stale = [p for p in live if driver.updated(p) and restart.older(p, snapshot, now)]
    else:
        stale = [p for p in stale if p.uid in extent.due]
    if not stale:
        return Blocked(extent.why, due=extent.until) if extent.why is not None else None
    if snapshot.rollout.spec.paused:
        return Blocked(NotNow(Waiting.PAUSED, "spec.paused is true: no further replacement is started"))
    shut = windows.shut(snapshot.rollout.spec.windows, now)
    if shut is not None:
        # What is in flight is finished: a successor that is not well goes, or its fix would wait for the next window.
        in_flight = {a.entry.replacement_pod_uid for a in appraisals if a.in_flight}
        stale = [p for p in stale if p.uid in in_flight]
        if not stale:
            return Blocked(shut.why)
    waits = driver.held_back() or gate_unknown(snapshot) or _double(snapshot)
    if restarting and (driver.stepping() if extent.partitioned else not driver.complete()):
        waits = waits or NotNow(
            Waiting.CONTROLLER_BEHIND, "the workload's controller is not done with the last step"
        )
    if waits is not None:
        return Blocked(waits)
    stale, cordoned = without_cordoned(stale, snapshot, now)
    if not stale:
        return Blocked(_stay(cordoned, snapshot))
    most = len(stale) if restarting else extent.most
    choice = _Choice(snapshot, driver, appraisals, tuple(stale), most, now, restarting=restarting)
    victims = choice.victims()
    if isinstance(victims, NotNow):
        return Blocked(victims)
    victim = victims[0]
    refused = next((r for r in snapshot.refused if r.pod_uid == victim.uid), None)
    if refused is not None:
        due = refused.at + timedelta(seconds=RETRY_SECONDS)
        if now < due:
            return Blocked(_turned_down(snapshot, victim, refused.message), _kept(snapshot, victim), due)
    silent = next(filter(None, (_silent_driver(snapshot, p) for p in victims)), None)
    why = silent or _budget(snapshot, tuple(p for p in victims if p.ready))
    if why is not None:
        return Blocked(why, _kept(snapshot, victim))
    # A restart leaves the workload as it is: whichever its kind, its controller makes the pod anew.
    actions = (EvictPod(victim.name, victim.uid),) if restarting else driver.replace(victims)
    if isinstance(actions, NotNow):
        return Blocked(actions, _kept(snapshot, victim))
    return _out_of_turn(snapshot, driver, appraisals, victims, now) or Step(victims, actions)


def without_cordoned(
    stale: list[PodRecord], snapshot: Snapshot, now: datetime
) -> tuple[list[PodRecord], list[PodRecord]]:
    """Return the pods that may go, and the healthy ones on nodes that take no new pod, or are about to be drained.

    Their devices would be lost to the workload, and on a fixed pool no others are left. Whoever cordoned the node is about
    to drain it, or to take that back. A pod that is down serves nobody where it is; those of a DaemonSet tolerate it.
    """
    if by_node(snapshot):
        return stale, []
    seconds = min_ready(snapshot)

    def cordoned(pod: PodRecord) -> bool:
        node = snapshot.nodes.get(pod.node)
        away = node is not None and (node.unschedulable or bool(node.leaving))
        return away and available(pod, seconds, now)

    return [p for p in stale if not cordoned(p)], [p for p in stale if cordoned(p)]


def _stay(cordoned: list[PodRecord], snapshot: Snapshot) -> NotNow:
    def place(pod: PodRecord) -> str:
        node = snapshot.nodes.get(pod.node)
        return f"{pod.node} ({node.leaving})" if node is not None and node.leaving else pod.node

    where = ", ".join(sorted(f"pod {p.name} on node {place(p)}" for p in cordoned))
    return NotNow(
        Waiting.NODE_UNSCHEDULABLE,
        f"{where}: not replaced, since no pod could come back there, or stay. Uncordon the node (or end its maintenance), or drain "
        "it: a pod that is drained comes back where there is room",
    )


def _out_of_turn(
    snapshot: Snapshot,
    driver: Driver,
    appraisals: tuple[Appraisal, ...],
    victims: tuple[PodRecord, ...],
    now: datetime,
) -> Blocked | None:
    """Return that others use up the shared budget. Asked last: who waits for it could go at once."""
    shared = snapshot.shared
    if shared is None or driver.stepping():
        return None  # a step that has begun is finished
    seconds = min_ready(snapshot)
    # A pod that is down already is out of service whether it is replaced or not, and a successor that is not wanted any
    # more goes on in the place that is taken already.
    taken = {a.entry.replacement_pod_uid for a in appraisals if a.in_flight}
    healthy = [p for p in victims if available(p, seconds, now) and p.uid not in taken]
    if not healthy:
        return None
    if len(healthy) > shared.limit:
        text = (
            f"its controller replaces {len(healthy)} pods at once, and budget {shared.group} of the operator is {shared.limit}: "
            "lower the workload's maxUnavailable"
        )
        return Blocked(NotNow(Waiting.STEP_NOT_SAFE, text))
    flying = sum(a.in_flight and a.entry.cause is Cause.ROLLOUT for a in appraisals)
    wish = Wish(snapshot.rollout, healthy[0].uid, len(healthy), flying)
    over = used_up(shared, wish, snapshot.maybe_sent, now)
    if over is None:
        return None
    why = NotNow(Waiting.SHARED_BUDGET_USED_UP, over.message)
    return Blocked(why, healthy[0] if over.keep else None, over.due)


def _kept(snapshot: Snapshot, victim: PodRecord) -> PodRecord | None:
    """Return the pod, if its recorded choice may stand while it is blocked: in a shared budget it takes up a place."""
    return victim if snapshot.shared is None or not victim.ready else None


class _Choice:
    """The choice among the pods that are due: `stale`, of which `most` healthy ones may go."""

    def __init__(
        self,
        snapshot: Snapshot,
        driver: Driver,
        appraisals: tuple[Appraisal, ...],
        stale: tuple[PodRecord, ...],
        most: int,
        now: datetime,
        *,
        restarting: bool,
    ) -> None:
        self._snapshot = snapshot
        self._driver = driver
        self._stale = stale
        self._most = most
        self._limit = max_unavailable(snapshot)
        self._chosen = {a.entry.pod_uid for a in appraisals if not a.left}
        self._in_flight = [a for a in appraisals if a.in_flight]
        seconds = min_ready(snapshot)
        self._broken = [p for p in stale if not available(p, seconds, now)]
        self._down = [p for p in snapshot.pods if p.live and not available(p, seconds, now)]
        self._unseen = [
            p for p in snapshot.pods if p.live and p.uid in snapshot.maybe_sent and p not in self._down
        ]
        # A step of a controller that deletes by itself is counted beforehand: nothing may change the count meanwhile.
        self._waves = driver.steps_alone() and not restarting
        # Nobody waits for the soak of a successor that is to be replaced itself; it may be the bad one, so it goes first.
        unwanted = {p.uid for p in stale}
        self._soaking = [
            a.successor for a in self._in_flight if soaks(a) and a.successor and a.successor.uid in unwanted
        ]
        self._busy = [a for a in self._in_flight if a.successor is None or a.successor not in self._soaking]

    def victims(self) -> tuple[PodRecord, ...] | NotNow:
        """Return the pods that go now, the first one first, or why none."""
        victim = self._broken_victim() if self._broken else self._healthy_victim()
        if isinstance(victim, NotNow) or not self._waves or not self._driver.step_size() > 1:
            return victim if isinstance(victim, NotNow) else (victim,)
        return self._group(victim)

    def _healthy_victim(self) -> PodRecord | NotNow:
        used = self._used()
        if self._busy and (self._waves or used >= self._limit or not self._most):
            return _busy(self._busy)
        if used >= self._limit:
            missing = self._missing()
            names = ", ".join(sorted(p.name for p in self._down)) or f"{missing} that do not exist yet"
            return NotNow(
                Waiting.PODS_UNAVAILABLE,
                f"pods are down already: {names}. Replacing another would exceed {self._limit}",
            )
        pool = tuple(self._soaking) or self._stale
        victim = (
            _stick(self._stale, self._snapshot.maybe_sent)
            or _stick(self._stale, self._chosen)
            or first(pool, self._snapshot, self._driver)
        )
        others = self._unseen_beside(victim)
        if used + len(others) >= self._limit:
            return _unanswered(others)
        return victim

    def _unseen_beside(self, victim: PodRecord) -> list[PodRecord]:
        return [p for p in self._unseen if p is not victim]

    def _broken_victim(self) -> PodRecord | NotNow:
        """Return the pod that is down and may go: the recorded one first, then successors that need one in their turn."""
        broken = self._broken
        followers = [p for p in broken if any(a.entry.replacement_pod_uid == p.uid for a in self._in_flight)]
        pool = followers or broken
        foremost = _stick(pool, self._chosen) or self._driver.choose(tuple(pool))
        # An ordered StatefulSet may wait for another one than that: whoever lets the rest go on is next.
        blocked: list[Appraisal] = []
        for victim in (foremost, *sorted(broken, key=lambda p: (p.created, p.name))):
            others = self._in_the_way(victim)
            if len(others) < self._limit and not (others and self._waves):
                return victim
            blocked = blocked or others
        return _busy(blocked)

    def _in_the_way(self, victim: PodRecord) -> list[Appraisal]:
        return [a for a in self._in_flight if not _waits_for_us(a, victim, self._broken, self._driver)]

    def _group(self, victim: PodRecord) -> tuple[PodRecord, ...]:
        """Return the pods that the workload's controller replaces in one step, or as many of them as may go."""
        size = self._driver.step_size()
        healthy = [p for p in self._stale if p not in self._broken]
        spare, most = self._limit - self._used() - len(self._unseen_beside(victim)), self._most
        if victim not in self._broken:
            healthy.remove(victim)
            spare, most = spare - 1, most - 1
        broken = [p for p in self._broken if p is not victim]
        group = [victim]
        while len(group) < min(size, self._limit):
            if broken:
                following = _stick(broken, self._chosen) or self._driver.choose(tuple(broken))
                broken.remove(following)
                group.append(following)
                continue
            unseen = _stick(healthy, self._snapshot.maybe_sent)  # counted already
            if most <= 0 or not healthy or not (unseen or spare > 0):
                break
            following = unseen or (
                _stick(healthy, self._chosen) or first(tuple(healthy), self._snapshot, self._driver)
            )
            healthy.remove(following)
            spare, most = spare - (unseen is None), most - 1
            group.append(following)
        return tuple(group)

    def _missing(self) -> int:
        replicas = self._snapshot.workload.replicas if self._snapshot.workload else 0
        return max(0, replicas - sum(p.live for p in self._snapshot.pods))

    def _used(self) -> int:
        """Return how many are down or in replacement, each counted once."""
        followers = {a.successor.uid for a in self._busy if a.successor is not None}
        unborn = sum(a.successor is None for a in self._busy)
        down = sum(p.uid not in followers for p in self._down)
        return len(self._busy) + down + max(0, self._missing() - unborn)


def _stick(pool: Iterable[PodRecord], chosen: AbstractSet[str]) -> PodRecord | None:
    """Keep to the pod that is recorded as chosen, so that a second look does not choose a second one."""
    return next((p for p in pool if p.uid in chosen), None)


def _waits_for_us(a: Appraisal, victim: PodRecord, broken: list[PodRecord], driver: Driver) -> bool:
    """Whether this replacement cannot end by itself: its successor is to be replaced, or comes after `victim`.

    Two that crashed under a bad image would otherwise wait for each other, whatever the next image is.
    """
    if a.entry.replacement_pod_uid:
        return any(a.entry.replacement_pod_uid == p.uid for p in broken)
    return not a.unreleased and driver.holds_up(victim, a.entry.pod_name)


def _unanswered(pods: list[PodRecord]) -> NotNow:
    names = ", ".join(sorted(p.name for p in pods))
    return NotNow(
        Waiting.EVICTION_UNANSWERED,
        f"pod {names} may have been told to go, by a request whose answer is not known: no other pod is replaced until it shows, "
        "or two minutes have passed",
    )


def _busy(others: list[Appraisal]) -> NotNow:
    entry = others[0].entry
    who = entry.pod_name or entry.replacement_pod_name
    return NotNow(Waiting.PODS_UNAVAILABLE, f"the replacement of pod {who} is not finished")


def _double(snapshot: Snapshot) -> NotNow | None:
    """Return that a device of the workload is allocated twice: whichever pod goes, it may go from under the other."""
    own = {use.device for claim in snapshot.claims.values() for use in claim.uses or ()}
    for device in sorted(own & snapshot.holders.keys(), key=str):
        obstacle = taken(device, pool_of(device, snapshot, snapshot.holders[device]))
        if obstacle is not None and obstacle.reason is NotFree.DOUBLE_ALLOCATION:
            return NotNow(Waiting.DOUBLE_ALLOCATION, obstacle.message)
    return None


def _silent_driver(snapshot: Snapshot, victim: PodRecord) -> NotNow | None:
    """Return that the driver of one of the pod's devices does not publish them: who would unprepare them?"""
    for claim in (c for c in snapshot.claims.values() if c.owner_pod_uid == victim.uid):
        for use in claim.uses or ():
            obstacle = unpublished(use.device, pool_of(use.device, snapshot))
            if obstacle is not None and obstacle.reason is not NotFree.DEVICE_MISSING:
                return NotNow(
                    Waiting.DRIVER_UNAVAILABLE,
                    f"pod {victim.name} on node {victim.node} is not replaced while its driver seems to be down: "
                    f"{obstacle.message}",
                )
    return None


def _turned_down(snapshot: Snapshot, victim: PodRecord, said: str) -> NotNow:
    """Return that the API server turned an eviction down, in its own words, and what lets a broken pod go."""
    counting = sorted(b.name for b in snapshot.budgets if b.unhealthy_policy != "AlwaysAllow")
    text = f"the eviction of pod {victim.name} was turned down: {said}"
    if counting and not victim.ready:
        text += (
            f". The pod is not ready, and PodDisruptionBudget {', '.join(counting)} keeps it all the same: set "
            "unhealthyPodEvictionPolicy to AlwaysAllow there"
        )
    return NotNow(Waiting.BLOCKED_BY_PDB, text)


def _budget(snapshot: Snapshot, victims: tuple[PodRecord, ...]) -> NotNow | None:
    """Return the PodDisruptionBudget that forbids taking these ready pods down. The snapshot has those that match."""
    if not victims:
        return None
    names = ", ".join(p.name for p in victims)
    who = f"pod {names} stays" if len(victims) == 1 else f"pods {names} stay"
    if len(snapshot.budgets) > 1:
        budgets = ", ".join(sorted(b.name for b in snapshot.budgets))
        return NotNow(
            Waiting.BLOCKED_BY_PDB,
            f"pod {victims[0].name} matches more than one PodDisruptionBudget ({budgets}), which the eviction API does not "
            "support. Leave one",
        )
    for budget in snapshot.budgets:
        if budget.failure:
            text = f"PodDisruptionBudget {budget.name} cannot be evaluated, and so allows no disruption: {budget.failure}"
            if by_node(snapshot):
                text += ". For a DaemonSet, use spec.minAvailable with a number instead of maxUnavailable or a percentage"
            return NotNow(Waiting.BLOCKED_BY_PDB, text)
        if budget.observed_generation < budget.generation:
            return NotNow(
                Waiting.CONTROLLER_BEHIND, f"PodDisruptionBudget {budget.name} has not been evaluated yet"
            )
        if budget.disruptions_allowed < len(victims):
            allows = (
                "no disruption" if not budget.disruptions_allowed else f"{budget.disruptions_allowed} only"
            )
            return NotNow(
                Waiting.BLOCKED_BY_PDB, f"PodDisruptionBudget {budget.name} allows {allows} now, so {who}"
            )
    return None
