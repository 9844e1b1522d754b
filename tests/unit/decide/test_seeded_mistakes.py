"""Each promise has teeth: a mistake seeded into the decision is caught by its predicate, and by the right one.

A seed replaces one inner rule, in the module that asks it, or distorts the finished plan. In the same world the true
decision breaks nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from accelerator_rollout.api.models import Proof, Stage
from accelerator_rollout.decide import (
    allocatable,
    appraisal,
    budget,
    conditions,
    departures,
    disruption,
    entries,
    intent,
    judgement,
    openings,
    proof,
    release,
    telling,
)
from accelerator_rollout.decide import (
    plan as planning,
)
from accelerator_rollout.decide.actions import (
    Action,
    EvictPod,
    OpenGate,
    PreferVictim,
    RemoveFinalizer,
    RestoreTemplate,
    UnpauseDeployment,
)
from accelerator_rollout.decide.invariants import Promise, violations
from accelerator_rollout.decide.outcome import Plan
from accelerator_rollout.decide.proof import ProofState
from accelerator_rollout.decide.shared_budget import Peer, SharedBudget
from accelerator_rollout.decide.snapshot import Freshness, Snapshot
from accelerator_rollout.records import Access, Device, Phase, PublishedDevice
from builders import (
    NEW,
    NOW,
    OLD,
    World,
    at,
    claim_of,
    device,
    entry,
    gated_pod,
    pod,
    pool,
    replica_set,
    running,
)

Seed = Callable[[pytest.MonkeyPatch], None]
Distort = Callable[[Plan, Snapshot], Plan]


# Worlds


def mid_step(kind: str = "StatefulSet") -> World:
    """`worker-2` has left in order, its devices are free, and its successor is gated."""
    world = running(kind)
    world.recorded("worker-2", 2)
    world.end("worker-2")
    world.vanish("worker-2")
    world.put(gated_pod("worker-2", kind=kind))
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(NEW, 1, 0)]
    return world


def claim_still_allocated() -> World:
    world = mid_step()
    world.claims["worker-2-device"] = claim_of(pod("worker-2"), device(2))
    return world


def forced_among_nodes() -> World:
    """Of a DaemonSet whose devices every node may use, one pod was deleted by force; another node has just joined."""
    world = running("DaemonSet", digest=NEW)
    world.set_workload(replicas=4)
    world.recorded("worker-2", 2)
    world.vanish("worker-2", at(-1))
    world.slices[2] = pool(2, access=Access(every=True))
    world.put(gated_pod("worker-3", kind="DaemonSet"))
    return world


def two_on_a_node() -> World:
    world = running("DaemonSet", digest=NEW)
    world.put(gated_pod("worker-2", kind="DaemonSet", uid="q-second"))
    return world


def node_gone() -> World:
    world = running("DaemonSet", digest=NEW)
    world.recorded("worker-2", 2, vanished_at=at(-5))
    world.vanish("worker-2")
    del world.nodes["node-2"]
    return world


def still_terminating() -> World:
    world = running("Deployment")
    world.recorded("worker-2", 2)
    world.leave("worker-2")
    world.put(gated_pod("worker-9", kind="Deployment"))
    world.sets = [replica_set(OLD, 2), replica_set(NEW, 1, 0)]
    return world


def taken_by_a_stranger() -> World:
    world = mid_step()
    world.strangers.append(claim_of(pod("stranger", kind="Deployment"), device(2)))
    return world


def halted() -> World:
    world = running("StatefulSet")
    world.spec["action"] = {"type": "Abort", "id": "1"}
    world.store(world.plan())
    return world


def undoing() -> World:
    world = running("StatefulSet")
    world.spec["action"] = {"type": "Undo", "id": "1"}
    world.store(world.plan())
    return world


def to_restart() -> World:
    world = running("StatefulSet", digest=NEW)
    world.spec["restartedAt"] = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
    return world


def nothing_to_restart() -> World:
    world = to_restart()
    world.spec["restartedAt"] = f"{at(60):%Y-%m-%dT%H:%M:%SZ}"
    return world


def pool_incomplete() -> World:
    world = mid_step()
    world.slices[2] = pool(2, slice_count=2)
    return world


def to_be_left_alone() -> World:
    world = mid_step()
    world.spec = {"release": {"settleSeconds": 5}}
    return world


def forced() -> World:
    """`worker-2` vanished without word from its kubelet; its claim went with it."""
    world = running("StatefulSet")
    world.recorded("worker-2", 2)
    world.vanish("worker-2", at(-1))
    world.put(gated_pod("worker-2"))
    return world


def forced_on_a_lost_node() -> World:
    world = forced()
    world.status = world.status.model_copy(
        update={"replacements": (world.status.replacements[0].model_copy(update={"vanished_at": at(-3600)}),)}
    )
    world.nodes["node-2"] = replace(world.nodes["node-2"], ready=False, ready_since=None)
    return world


def unknown_predecessor() -> World:
    """A gated pod that was made while nobody watched."""
    world = running("StatefulSet")
    gone = world.named("worker-2")
    del world.pods[gone.uid]
    world.watched_since = at(0)
    world.put(gated_pod("worker-2", created=at(-5)))
    return world


def scaled_up_on_a_full_pool() -> World:
    """One pod waits for the scheduler, one drains: no room for a fourth that succeeds nobody."""
    world = running("StatefulSet", digest=NEW)
    world.change("worker-0", node="", phase=Phase.PENDING, ready=False)
    world.recorded("worker-2", 2)
    world.leave("worker-2")
    world.put(gated_pod("worker-3"))
    return world


def leaving_unrecorded() -> World:
    world = running("StatefulSet")
    world.leave("worker-1")
    return world


def ready_to_begin(kind: str = "StatefulSet", **over: Any) -> World:
    return running(kind, **over)


def chosen(kind: str = "StatefulSet") -> World:
    """The pod to go is recorded already."""
    world = running(kind)
    world.recorded("worker-2", 2, stage=Stage.SELECTED)
    return world


def maybe_leaving() -> World:
    """A pod was told to go by somebody who is not there any more, and is cordoned since."""
    world = chosen()
    world.maybe_sent = frozenset({"p-worker-2"})
    world.nodes["node-2"] = replace(world.nodes["node-2"], unschedulable=True)
    return world


def one_down() -> World:
    world = running("StatefulSet")
    world.put(pod("worker-0", NEW, ready=False, phase=Phase.PENDING), device(0))
    return world


def soaking() -> World:
    world = running("StatefulSet")
    world.spec = {"health": {"soakSeconds": 60}}
    world.put(pod("worker-2", NEW, ready_since=at(-10)), device(2))
    noted = {"proof": Proof.KUBELET_TERMINAL_PHASE, "released_at": at(-9)}
    before = pod("worker-2", uid="first")
    world.remember(entry(before, device(2), stage=Stage.SOAKING, replacement_pod_uid="p-worker-2", **noted))
    return world


def paused() -> World:
    world = running("StatefulSet")
    world.spec = {"paused": True}
    return world


def out_of_turn() -> World:
    world = running("StatefulSet")
    world.shared = SharedBudget("lpu", 1, 3600, (Peer("other", NOW, in_flight=1),))
    return world


def surge() -> World:
    return running("Deployment", max_surge=1)


def paused_by_a_person() -> World:
    return running("Deployment", paused=True, parked=None)


def stale_mid_step() -> World:
    world = mid_step()
    world.freshness = Freshness.STALE
    return world


def generation_ahead() -> World:
    world = running("StatefulSet", digest=NEW, observed_generation=1)
    world.set_workload(current_revision=NEW)
    return world


def going() -> World:
    world = mid_step("Deployment")
    world.deletion = at(0)
    world.claims["worker-2-device"] = claim_of(pod("worker-2"), device(2))
    return world


# Seeds


def patched(module: Any, name: str, instead: Any) -> Seed:
    return lambda patch: patch.setattr(module, name, instead)


def untrue(module: Any, name: str) -> Seed:
    """Replace a rule that finds an obstacle by one that finds none."""
    return patched(module, name, lambda *_, **__: None)


def no_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(proof, "_wait", lambda *_: ProofState(Proof.WAIT_ELAPSED))


def always_by_the_kubelet(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(release, "find_proof", lambda *_: ProofState(Proof.KUBELET_TERMINAL_PHASE))


def no_unknown_predecessors(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(departures, "_known_to_be_new", lambda *_: True)


def forget_departures(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(departures, "_matters", lambda *_: False)


def count_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(budget.Room, "used", lambda *_: 0)


def believed_gone(patch: pytest.MonkeyPatch) -> None:
    for module in (departures, appraisal):
        patch.setattr(module, "stranded", lambda *_: True)
    patch.setattr(openings, "_exposed", lambda *_: None)


def nobody_is_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(disruption, "available", lambda *_: True)


def two_may_be_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(disruption, "max_unavailable", lambda _: 2)


def always_complete(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(telling, "_complete", lambda *_: True)


def next_generation(patch: pytest.MonkeyPatch) -> None:
    class Hasty(conditions._Board):
        def __init__(self, before: Any, generation: int, now: Any) -> None:
            super().__init__(before, generation + 1, now)

    patch.setattr(conditions, "_Board", Hasty)


def forget_the_halt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(intent, "_not_over", lambda held, _scene: replace(held, halt=None))


def leave_at_once(patch: pytest.MonkeyPatch) -> None:
    def leave(snapshot: Snapshot, *_: Any) -> Plan:
        leaving = (RemoveFinalizer(snapshot.rollout.uid),)
        return Plan(leaving, snapshot.rollout.status, record_first=False, next_due=None)

    patch.setattr(planning, "going_away", leave)


def distorted(change: Distort) -> Seed:
    """Distort the finished plan."""

    def seed(patch: pytest.MonkeyPatch) -> None:
        true = planning.plan
        patch.setattr(planning, "plan", lambda snapshot, now: change(true(snapshot, now), snapshot))

    return seed


def with_actions(*actions: Action) -> Seed:
    return distorted(lambda plan, _: replace(plan, actions=(*plan.actions, *actions)))


def another_uid(plan: Plan, _: Snapshot) -> Plan:
    return replace(
        plan,
        actions=tuple(
            replace(a, pod_uid="reborn") if isinstance(a, EvictPod | OpenGate) else a for a in plan.actions
        ),
    )


def forget_replacements(plan: Plan, _: Snapshot) -> Plan:
    return replace(plan, status=plan.status.model_copy(update={"replacements": ()}))


def record_later(plan: Plan, _: Snapshot) -> Plan:
    return replace(plan, record_first=False)


def lose_the_warning(plan: Plan, _: Snapshot) -> Plan:
    return replace(plan, notices=())


def late_going() -> World:
    """The object's wait is over: the gate opens without proof."""
    world = forced()
    world.deletion = at(-3600)
    world.nodes["node-2"] = replace(world.nodes["node-2"], ready=False, ready_since=None)
    return world


@dataclass(frozen=True)
class Mistake:
    promise: Promise
    world: Callable[[], World]
    seed: Seed


def pool_believed(patch: pytest.MonkeyPatch) -> None:
    def published(device: Device, pool: allocatable.Pool) -> PublishedDevice:
        return next(d for s in pool.slices for d in s.devices if d.name == device.name)

    patch.setattr(allocatable, "_published", published)


MISTAKES = {
    "an allocated claim counts as free": Mistake(
        Promise.DEVICES_FREE, claim_still_allocated, untrue(release, "_allocated")
    ),
    "a device that a stranger took counts as free": Mistake(
        Promise.DEVICES_FREE, taken_by_a_stranger, untrue(allocatable, "taken")
    ),
    "an incomplete pool counts as complete": Mistake(Promise.DEVICES_FREE, pool_incomplete, pool_believed),
    "a terminating pod counts as gone": Mistake(
        Promise.DEVICES_FREE,
        still_terminating,
        with_actions(OpenGate("worker-9", "q-worker-9", "p-worker-2")),
    ),
    "nobody waits for an unproven release": Mistake(Promise.RELEASE_PROVEN, forced, no_wait),
    "the wait counts on a node that is not Ready": Mistake(
        Promise.RELEASE_PROVEN, forced_on_a_lost_node, no_wait
    ),
    "devices are not left alone to settle": Mistake(
        Promise.RELEASE_PROVEN, to_be_left_alone, untrue(release, "_settling")
    ),
    "every end counts as the kubelet's": Mistake(Promise.RELEASE_PROVEN, forced, always_by_the_kubelet),
    "a pod of unknown descent counts as new": Mistake(
        Promise.RELEASE_PROVEN, unknown_predecessor, no_unknown_predecessors
    ),
    "a gate opens without proof and nobody is told": Mistake(
        Promise.RELEASE_PROVEN, late_going, distorted(lose_the_warning)
    ),
    "device sets are not counted": Mistake(Promise.WITHIN_BUDGET, scaled_up_on_a_full_pool, count_nobody),
    "devices that every node may use count as another node's": Mistake(
        Promise.RELEASE_PROVEN, forced_among_nodes, patched(openings, "_out_of_reach", lambda *_: True)
    ),
    "a node's device sets are not counted": Mistake(Promise.WITHIN_BUDGET, two_on_a_node, count_nobody),
    "a node that is not Ready counts as gone": Mistake(
        Promise.WITHIN_BUDGET, forced_on_a_lost_node, believed_gone
    ),
    "what is on a node that is gone is forgotten": Mistake(
        Promise.WITHIN_BUDGET, node_gone, patched(entries, "remembered", lambda *_: frozenset())
    ),
    "a departure that is not ours is not counted": Mistake(
        Promise.WITHIN_BUDGET, leaving_unrecorded, forget_departures
    ),
    "the status forgets what is in flight": Mistake(
        Promise.WITHIN_BUDGET, still_terminating, distorted(forget_replacements)
    ),
    "a pod is touched before it is recorded": Mistake(
        Promise.WITHIN_BUDGET, ready_to_begin, distorted(record_later)
    ),
    "a pod of another UID is evicted": Mistake(Promise.OWN_OBJECTS_ONLY, chosen, distorted(another_uid)),
    "a pod of another UID is opened": Mistake(Promise.OWN_OBJECTS_ONLY, mid_step, distorted(another_uid)),
    "a pod of another workload is written to": Mistake(
        Promise.OWN_OBJECTS_ONLY, ready_to_begin, with_actions(PreferVictim("other-0", "p-other-0", -1))
    ),
    "a healthy pod goes while another is down": Mistake(Promise.NO_SECOND_DOWN, one_down, nobody_is_down),
    "a pod that may be leaving is not counted": Mistake(
        Promise.NO_SECOND_DOWN, maybe_leaving, patched(disruption._Choice, "_unseen_beside", lambda *_: [])
    ),
    "a soak is not waited for": Mistake(
        Promise.NO_SECOND_DOWN, soaking, patched(judgement, "soaked", lambda a, *_: a)
    ),
    "two may be down": Mistake(Promise.NO_SECOND_DOWN, one_down, two_may_be_down),
    "two go at once": Mistake(
        Promise.NO_SECOND_DOWN, chosen, with_actions(EvictPod("worker-1", "p-worker-1"))
    ),
    "a paused object starts a replacement": Mistake(
        Promise.FAIL_CLOSED, paused, with_actions(EvictPod("worker-2", "p-worker-2"))
    ),
    "a refused workload is disrupted": Mistake(
        Promise.FAIL_CLOSED, surge, patched(judgement, "refusal", lambda *_: None)
    ),
    "somebody else's pause is overruled": Mistake(
        Promise.FAIL_CLOSED,
        paused_by_a_person,
        with_actions(UnpauseDeployment("worker", "d-worker", ("p-worker-2",))),
    ),
    "a stale state opens a gate": Mistake(
        Promise.FAIL_CLOSED, stale_mid_step, with_actions(OpenGate("worker-2", "q-worker-2", "p-worker-2"))
    ),
    "a halted rollout goes on": Mistake(
        Promise.FAIL_CLOSED, halted, with_actions(EvictPod("worker-2", "p-worker-2"))
    ),
    "a halt ends by itself": Mistake(Promise.FAIL_CLOSED, halted, forget_the_halt),
    "a pod that no restart asks for is replaced": Mistake(
        Promise.NO_SECOND_DOWN, nothing_to_restart, with_actions(EvictPod("worker-2", "p-worker-2"))
    ),
    "a pod goes before the template is restored": Mistake(
        Promise.FAIL_CLOSED, undoing, with_actions(EvictPod("worker-2", "p-worker-2"))
    ),
    "a template is restored that nobody recorded": Mistake(
        Promise.OWN_OBJECTS_ONLY,
        ready_to_begin,
        with_actions(RestoreTemplate("worker", "s-worker", "worker-old", "cr-old", leaves=NEW, restores=OLD)),
    ),
    "a third template is overwritten": Mistake(
        Promise.OWN_OBJECTS_ONLY,
        undoing,
        with_actions(
            RestoreTemplate(
                "worker", "s-worker", f"worker-{OLD}", f"cr-{OLD}", leaves="another", restores=OLD
            )
        ),
    ),
    "success is claimed while a restart is due": Mistake(
        Promise.NO_FALSE_SUCCESS, to_restart, always_complete
    ),
    "success is claimed in mid-rollout": Mistake(Promise.NO_FALSE_SUCCESS, mid_step, always_complete),
    "success is claimed before the controller has looked": Mistake(
        Promise.NO_FALSE_SUCCESS, generation_ahead, always_complete
    ),
    "a condition speaks of a generation to come": Mistake(
        Promise.NO_FALSE_SUCCESS, ready_to_begin, next_generation
    ),
    "a gate that is not ours is opened": Mistake(
        Promise.TAKE_BACK_OUR_OWN, ready_to_begin, with_actions(OpenGate("worker-1", "p-worker-1", ""))
    ),
    "a person's pause is taken back": Mistake(
        Promise.TAKE_BACK_OUR_OWN,
        paused_by_a_person,
        with_actions(UnpauseDeployment("worker", "d-worker")),
    ),
    "the shared budget is not asked": Mistake(
        Promise.SHARED_BUDGET, out_of_turn, patched(disruption, "used_up", lambda *_: None)
    ),
    "the finalizer goes while a pod waits at our gate": Mistake(
        Promise.TAKE_BACK_OUR_OWN, going, leave_at_once
    ),
}


def broken(world: World) -> set[Promise]:
    snapshot = world.snapshot()
    return {v.promise for v in violations(snapshot, planning.plan(snapshot, NOW), NOW)}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_seeded_mistake_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake = MISTAKES[name]
    assert broken(mistake.world()) == set()
    mistake.seed(monkeypatch)
    assert mistake.promise in broken(mistake.world())


def test_every_promise_has_its_mistakes() -> None:
    assert {m.promise for m in MISTAKES.values()} == set(Promise)
