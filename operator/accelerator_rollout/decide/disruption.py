"""Which pod to replace next, or why none now.

S5: a healthy pod is replaced only while every pod is available and the last replacement is healthy. A pod that is
already down costs nobody anything more, so it goes first and is exempt, one at a time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from accelerator_rollout.decide import restart, windows
from accelerator_rollout.decide.actions import Action, EvictPod
from accelerator_rollout.decide.admission import gate_unknown
from accelerator_rollout.decide.allocatable import taken, unpublished
from accelerator_rollout.decide.appraisal import Appraisal
from accelerator_rollout.decide.budget import MAX_UNAVAILABLE, available, min_ready
from accelerator_rollout.decide.extent import Extent
from accelerator_rollout.decide.health import soaks
from accelerator_rollout.decide.ordering import first
from accelerator_rollout.decide.reasons import NotFree, Waiting
from accelerator_rollout.decide.release import pool_of
from accelerator_rollout.decide.shared_budget import used_up
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.decide.stranded import by_node
from accelerator_rollout.records import PodRecord
from accelerator_rollout.workloads.base import Driver, NotNow

RETRY_SECONDS = 10  # after an eviction was turned down


@dataclass(frozen=True, slots=True)
class Step:
    """The pod to replace and how. No actions: its controller is about to do it by itself."""

    victim: PodRecord
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
    restarting = not stale
    if restarting:
        stale = [p for p in live if restart.older(p, snapshot, now)]
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
    if restarting and not driver.complete():
        waits = waits or NotNow(
            Waiting.CONTROLLER_BEHIND, "the workload's controller is not done with the last step"
        )
    if waits is not None:
        return Blocked(waits)
    stale, cordoned = without_cordoned(stale, snapshot, now)
    if not stale:
        return Blocked(_stay(cordoned))
    victim = _victim(snapshot, driver, appraisals, stale, now)
    if isinstance(victim, NotNow):
        return Blocked(victim)
    refused = next((r for r in snapshot.refused if r.pod_uid == victim.uid), None)
    if refused is not None:
        due = refused.at + timedelta(seconds=RETRY_SECONDS)
        if now < due:
            return Blocked(NotNow(Waiting.BLOCKED_BY_PDB, refused.message), _kept(snapshot, victim), due)
    silent = _silent_driver(snapshot, victim)
    if silent is not None:
        return Blocked(silent, _kept(snapshot, victim))
    if victim.ready:
        budget = _budget(snapshot, victim)
        if budget is not None:
            return Blocked(budget, _kept(snapshot, victim))
    # A restart leaves the workload as it is: whichever its kind, its controller makes the pod anew.
    actions = (EvictPod(victim.name, victim.uid),) if restarting else driver.replace(victim)
    if isinstance(actions, NotNow):
        return Blocked(actions, _kept(snapshot, victim))
    return _out_of_turn(snapshot, driver, appraisals, victim, now) or Step(victim, actions)


def without_cordoned(
    stale: list[PodRecord], snapshot: Snapshot, now: datetime
) -> tuple[list[PodRecord], list[PodRecord]]:
    """Return the pods that may go, and the healthy ones on nodes that take no new pod.

    Their devices would be lost to the workload, and on a fixed pool no others are left. Whoever cordoned the node is about
    to drain it, or to take that back. A pod that is down serves nobody where it is; those of a DaemonSet tolerate it.
    """
    if by_node(snapshot):
        return stale, []
    seconds = min_ready(snapshot)

    def cordoned(pod: PodRecord) -> bool:
        node = snapshot.nodes.get(pod.node)
        return node is not None and node.unschedulable and available(pod, seconds, now)

    return [p for p in stale if not cordoned(p)], [p for p in stale if cordoned(p)]


def _stay(cordoned: list[PodRecord]) -> NotNow:
    where = ", ".join(sorted(f"pod {p.name} on node {p.node}" for p in cordoned))
    return NotNow(
        Waiting.NODE_UNSCHEDULABLE,
        f"{where}: not replaced, since no pod could come back there. Uncordon the node, or drain it: a pod that is drained comes "
        "back where there is room",
    )


def _out_of_turn(
    snapshot: Snapshot, driver: Driver, appraisals: tuple[Appraisal, ...], victim: PodRecord, now: datetime
) -> Blocked | None:
    """Return that others use up the shared budget. Asked last: who waits for it could go at once."""
    shared = snapshot.shared
    # A pod that is down already is out of service whether it is replaced or not; a step that has begun is finished.
    if shared is None or driver.stepping() or not available(victim, min_ready(snapshot), now):
        return None
    if any(a.in_flight and a.entry.replacement_pod_uid == victim.uid for a in appraisals):
        return None  # a successor that is not wanted any more: it goes on in the place that is taken already
    over = used_up(shared, snapshot.rollout, victim.uid, snapshot.maybe_sent, now)
    if over is None:
        return None
    why = NotNow(Waiting.SHARED_BUDGET_USED_UP, over.message)
    return Blocked(why, victim if over.keep else None, over.due)


def _kept(snapshot: Snapshot, victim: PodRecord) -> PodRecord | None:
    """Return the pod, if its recorded choice may stand while it is blocked: in a shared budget it takes up a place."""
    return victim if snapshot.shared is None or not victim.ready else None


def _victim(
    snapshot: Snapshot,
    driver: Driver,
    appraisals: tuple[Appraisal, ...],
    stale: list[PodRecord],
    now: datetime,
) -> PodRecord | NotNow:
    seconds = min_ready(snapshot)
    chosen = {a.entry.pod_uid for a in appraisals if not a.left}
    broken = [p for p in stale if not available(p, seconds, now)]
    in_flight = [a for a in appraisals if a.in_flight]
    if broken:
        return _broken_victim(broken, in_flight, chosen, driver)
    # Nobody waits for the soak of a successor that is to be replaced itself; it may be the bad one, so it goes first.
    unwanted = {p.uid for p in stale}
    soaking = [a.successor for a in in_flight if soaks(a) and a.successor and a.successor.uid in unwanted]
    if len(in_flight) > len(soaking):
        return _busy([a for a in in_flight if a.successor is None or a.successor not in soaking])
    down = [p for p in snapshot.pods if p.live and not available(p, seconds, now)]
    replicas = snapshot.workload.replicas if snapshot.workload else 0
    missing = replicas - sum(p.live for p in snapshot.pods)
    if len(down) + max(0, missing) >= MAX_UNAVAILABLE:
        names = ", ".join(sorted(p.name for p in down)) or f"{missing} that do not exist yet"
        return NotNow(
            Waiting.PODS_UNAVAILABLE,
            f"pods are down already: {names}. Replacing another would exceed {MAX_UNAVAILABLE}",
        )
    return _stick(stale, chosen) or first(tuple(soaking or stale), snapshot, driver)


def _broken_victim(
    broken: list[PodRecord], in_flight: list[Appraisal], chosen: set[str], driver: Driver
) -> PodRecord | NotNow:
    """Return the pod that is down and may go: the recorded one first, then successors that need one in their turn."""
    followers = [p for p in broken if any(a.entry.replacement_pod_uid == p.uid for a in in_flight)]
    pool = followers or broken
    foremost = _stick(pool, chosen) or driver.choose(tuple(pool))
    # An ordered StatefulSet may wait for another one than that: whoever lets the rest go on is next.
    blocked: list[Appraisal] = []
    for victim in (foremost, *sorted(broken, key=lambda p: (p.created, p.name))):
        others = [a for a in in_flight if not _waits_for_us(a, victim, broken, driver)]
        if len(others) < MAX_UNAVAILABLE:
            return victim
        blocked = blocked or others
    return _busy(blocked)


def _stick(pool: Iterable[PodRecord], chosen: set[str]) -> PodRecord | None:
    """Keep to the pod that is recorded as chosen, so that a second look does not choose a second one."""
    return next((p for p in pool if p.uid in chosen), None)


def _waits_for_us(a: Appraisal, victim: PodRecord, broken: list[PodRecord], driver: Driver) -> bool:
    """Whether this replacement cannot end by itself: its successor is to be replaced, or comes after `victim`.

    Two that crashed under a bad image would otherwise wait for each other, whatever the next image is.
    """
    if a.entry.replacement_pod_uid:
        return any(a.entry.replacement_pod_uid == p.uid for p in broken)
    return not a.unreleased and driver.holds_up(victim, a.entry.pod_name)


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


def _budget(snapshot: Snapshot, victim: PodRecord) -> NotNow | None:
    """Return the PodDisruptionBudget that forbids taking a ready pod down. The snapshot has those that match."""
    if len(snapshot.budgets) > 1:
        names = ", ".join(sorted(b.name for b in snapshot.budgets))
        return NotNow(
            Waiting.BLOCKED_BY_PDB,
            f"pod {victim.name} matches more than one PodDisruptionBudget ({names}), which the eviction API does not "
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
        if budget.disruptions_allowed < 1:
            return NotNow(
                Waiting.BLOCKED_BY_PDB,
                f"PodDisruptionBudget {budget.name} allows no disruption now, so pod {victim.name} stays",
            )
    return None
