"""Which gates open: within the device budget (S3), never onto a device that only looks free, never past the lock."""

from dataclasses import replace

import pytest

from accelerator_rollout.api.models import Cause, Stage
from accelerator_rollout.decide.actions import EvictPod, OpenGate, PreferVictim, UnpauseDeployment
from accelerator_rollout.decide.reasons import Waiting
from accelerator_rollout.names import GATE, HOSTNAME_LABEL
from accelerator_rollout.records import Phase
from accelerator_rollout.workloads.deployment import VICTIM_COST
from builders import (
    EXTRA,
    GRACE,
    NEW,
    NOW,
    OLD,
    World,
    at,
    device,
    entry,
    gated_pod,
    leaving,
    of_type,
    pod,
    pool,
    replica_set,
    running,
)

BOTH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])  # that share one pool of devices
EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])


def opened(world: World, seconds: float = 0) -> list[str]:
    return [a.pod_name for a in of_type(world.actions(at(seconds)), OpenGate) if isinstance(a, OpenGate)]


def reason(world: World, name: str) -> str:
    return next(e.reason for e in world.plan().status.replacements if e.pod_name == name)


def in_mid_step(kind: str, replicas: int = 3) -> World:
    """`worker-2` has left in order, its devices are free, and its successor is gated; a Deployment is locked."""
    world = running(kind, replicas)
    world.recorded("worker-2", 2)
    world.end("worker-2")
    world.vanish("worker-2")
    world.put(gated_pod("worker-2", kind=kind))
    if kind == "Deployment":
        world.sets = [replica_set(OLD, replicas - 1), replica_set(NEW, 1, 0)]
    return world


@EACH
def test_the_gate_opens_when_the_devices_are_free(kind: str) -> None:
    assert in_mid_step(kind).actions() == (OpenGate("worker-2", "q-worker-2", "p-worker-2"),)


@EACH
def test_an_opening_does_not_wait_for_the_status_to_be_stored(kind: str) -> None:
    assert not in_mid_step(kind).plan().record_first


@EACH
def test_the_gate_stays_closed_while_the_old_pod_drains(kind: str) -> None:
    world = running(kind)
    world.recorded("worker-2", 2)
    world.leave("worker-2")
    if kind == "Deployment":
        world.put(gated_pod("worker-9", kind=kind))
        world.sets = [replica_set(OLD, 2), replica_set(NEW, 1, 0)]
    assert opened(world) == []
    assert reason(world, "worker-2") == "PodTerminating"


@EACH
def test_all_pods_of_a_new_workload_open_at_once(kind: str) -> None:
    world = running(kind, 0, digest=NEW)
    world.set_workload(replicas=3)
    for number in range(3):
        world.put(gated_pod(f"worker-{number}", kind=kind))
    if kind == "Deployment":
        world.sets = [replica_set(NEW, 3, 0)]
    assert opened(world) == ["worker-0", "worker-1", "worker-2"]


@EACH
def test_a_refused_workload_still_gets_the_gates_opened_that_safety_allows(kind: str) -> None:
    world = in_mid_step(kind)
    world.set_workload(**({"max_surge": 1} if kind == "Deployment" else {"update_strategy": "RollingUpdate"}))
    assert opened(world) == ["worker-2"]


@EACH
def test_a_gate_of_others_is_not_ours_to_wait_for(kind: str) -> None:
    world = in_mid_step(kind)
    world.change("worker-2", gates=("other.example.com/wait", GATE))
    assert opened(world) == ["worker-2"]


# S3


@BOTH
def test_no_more_pods_open_than_devices_are_left(kind: str) -> None:
    """Scaled up by hand while two pods still drain: four are asked for, four sets are held."""
    world = running(kind, 4, digest=NEW)
    for name in ("worker-2", "worker-3"):
        world.recorded(name, name[-1])
        world.leave(name)
    for name in ("worker-4", "worker-5"):
        world.put(gated_pod(name, kind=kind))
    world.status = world.status.model_copy(update={"replacements": ()})
    assert opened(world) == []


@BOTH
def test_a_pod_that_anybody_deleted_counts_until_its_devices_are_free(kind: str) -> None:
    world = in_mid_step(kind)
    world.leave("worker-0")
    world.put(gated_pod("worker-4", kind=kind, created=at(-30)))
    assert opened(world) in (["worker-2"], ["worker-4"])  # one set is free, and not two


def test_an_ordered_stateful_sets_scale_down_does_not_deadlock_on_a_gated_pod() -> None:
    """From four to two: worker-1 is gated, and the controller deletes worker-3 only once it is ready."""
    world = running("StatefulSet", 4, digest=NEW)
    world.set_workload(replicas=2)
    world.recorded("worker-1", 1)
    world.end("worker-1")
    world.vanish("worker-1")
    world.put(gated_pod("worker-1"))
    assert opened(world) == ["worker-1"]


def test_a_pod_that_waits_for_the_scheduler_may_take_a_device_at_any_moment() -> None:
    world = running("StatefulSet", digest=NEW)
    world.change("worker-0", node="", phase=Phase.PENDING, ready=False)
    world.recorded("worker-2", 2)
    world.leave("worker-2")
    world.put(gated_pod("worker-3"))
    assert opened(world) == []  # worker-0 may take one, worker-1 and worker-2 hold one each
    world.end("worker-2")
    assert opened(world) == ["worker-3"]


# Devices that only look free


@BOTH
def test_nothing_opens_while_a_device_looks_free_and_is_not_proven_so(kind: str) -> None:
    """Somebody force-deleted worker-0: the pod that opens now could be given its device."""
    world = in_mid_step(kind)
    world.vanish("worker-0", NOW)
    assert opened(world) == []
    assert reason(world, "worker-2") == "OtherReleaseUnproven"
    world.store(world.plan())
    assert opened(world, GRACE + EXTRA) == ["worker-2"]


@BOTH
def test_nothing_opens_while_devices_settle_and_the_gate_opens_afterwards(kind: str) -> None:
    world = in_mid_step(kind, 4)
    world.spec = {"release": {"settleSeconds": 5}}
    world.put(gated_pod("worker-4", kind=kind, created=at(-30)))
    decided = world.plan()
    assert (of_type(decided.actions, OpenGate), decided.next_due) == ((), at(5))
    assert [e.stage for e in decided.status.replacements if e.pod_name == "worker-2"] == [Stage.SETTLING]
    world.store(decided)
    assert opened(world, 4) == []
    assert opened(world, 6) != []


@BOTH
def test_nothing_opens_between_a_forced_deletion_and_the_end_of_its_claim(kind: str) -> None:
    """Found by a random walk: the claim was still allocated when we looked, and free when the pod came to the scheduler."""
    world = in_mid_step(kind, 4)
    held = world.claims["worker-0-device"]
    world.vanish("worker-0", NOW)
    world.claims[held.name] = held
    assert opened(world) == []


@EACH
def test_a_departure_that_still_holds_its_devices_keeps_nobody_elses_gate_closed(kind: str) -> None:
    world = in_mid_step(kind, 4)
    world.leave("worker-0")
    assert opened(world) == ["worker-2"]


@EACH
def test_a_device_that_nobody_repairs_keeps_only_its_own_successor(kind: str) -> None:
    world = in_mid_step(kind, 4)
    world.remember(
        entry(
            pod("worker-1"),
            device(1),
            replacement_pod_uid="q-worker-1",
            vanished_at=at(-9),
            started_at=at(-9),
        )
    )
    world.end("worker-1")
    world.vanish("worker-1")
    world.put(gated_pod("worker-1", kind=kind, created=at(-4)))
    world.slices[1] = pool(1, devices=())
    assert opened(world) == ["worker-2"]
    assert reason(world, "worker-1") == "DeviceMissing"


# The lock of a Deployment


def test_a_deployment_that_is_not_paused_yet_could_go_on_once_the_gate_opens() -> None:
    world = in_mid_step("Deployment")
    world.set_workload(paused=False, parked=None)
    assert [type(a).__name__ for a in world.actions()] == ["PauseDeployment"]
    assert reason(world, "worker-2") == "StepNotLocked"


def test_a_deployment_whose_controller_has_not_seen_the_pause_could_go_on() -> None:
    world = in_mid_step("Deployment")
    world.set_workload(generation=3)
    assert opened(world) == []
    assert reason(world, "worker-2") == "WaitingForController"


def test_a_users_own_pause_locks_as_well() -> None:
    world = in_mid_step("Deployment")
    world.set_workload(parked=None)
    assert opened(world) == ["worker-2"]


def test_at_rest_there_is_nothing_to_lock() -> None:
    world = running("Deployment", digest=NEW)
    world.set_workload(replicas=4)
    world.sets = [replica_set(NEW, 4, 3)]
    world.put(gated_pod("worker-3", kind="Deployment"))
    assert opened(world) == ["worker-3"]


def test_a_pod_about_to_be_replaced_is_not_opened_first() -> None:
    world = in_mid_step("Deployment")
    bad = "bad-digest-0000"
    world.put(gated_pod("worker-2", bad, kind="Deployment"))
    world.sets = [replica_set(OLD, 2), replica_set(bad, 1, 0)]
    assert opened(world) == []


def test_a_terminating_pod_is_never_opened() -> None:
    world = in_mid_step("StatefulSet")
    gated = world.named("worker-2")
    world.pods[gated.uid] = replace(leaving(gated), node="")
    assert opened(world) == []


@EACH
def test_an_opened_gate_is_not_opened_again(kind: str) -> None:
    world = in_mid_step(kind)
    world.store(world.plan())
    world.change("worker-2", gates=())
    decided = world.plan()
    assert of_type(decided.actions, OpenGate) == ()
    assert [e.stage for e in decided.status.replacements] == [Stage.SCHEDULING, Stage.SELECTED]


@EACH
def test_the_next_choice_is_recorded_while_the_successor_starts_so_that_the_step_waits_for_no_write(
    kind: str,
) -> None:
    world = in_mid_step(kind)
    world.store(world.plan())
    world.change("worker-2", gates=())
    ahead = world.plan()
    _, following = ahead.status.replacements
    name = "worker-1" if kind == "StatefulSet" else "worker-0"
    assert (following.pod_name, following.reason) == (name, Waiting.NEXT_IN_LINE)
    world.store(ahead)
    assert world.plan().status.replacements == ahead.status.replacements
    world.spec = {"paused": True}
    assert [e.stage for e in world.plan().status.replacements] == [Stage.SCHEDULING]
    world.spec = {}
    world.change("worker-2", node="node-2", phase=Phase.RUNNING, ready=True, ready_since=at(-10))
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(NEW, 1)]
    step = world.plan()
    assert of_type(step.actions, EvictPod if kind != "Deployment" else UnpauseDeployment)
    assert not step.record_first


def test_a_pod_that_goes_by_itself_is_no_part_of_a_step_that_is_only_recorded_ahead() -> None:
    world = in_mid_step("Deployment")
    world.store(world.plan())
    world.change("worker-2", gates=())
    world.store(world.plan())
    world.change("worker-1", deletion=at(30))
    causes = {e.pod_name: e.cause for e in world.plan().status.replacements}
    assert causes["worker-1"] is Cause.DEPARTURE


def test_the_next_choice_is_steered_while_the_successor_starts_and_only_once() -> None:
    world = in_mid_step("Deployment")
    assert of_type(world.actions(), PreferVictim) == ()
    world.store(world.plan())
    world.change("worker-2", gates=())
    steered = PreferVictim("worker-0", "p-worker-0", VICTIM_COST)
    assert world.actions() == (steered,)
    world.spec = {"paused": True}
    assert world.actions() == ()
    world.spec = {}
    world.change("worker-0", deletion_cost=VICTIM_COST)
    assert world.actions() == ()


@EACH
def test_a_gated_pod_of_unknown_descent_stays_closed_also_if_it_is_chosen_to_go(kind: str) -> None:
    """Found by a random walk: the choice was recorded, a person stopped us, and we had started anew."""
    world = running(kind)
    world.vanish("worker-2", seen=False)
    chosen = world.put(gated_pod("worker-2", OLD, kind=kind, created=at(-5)))
    world.remember(entry(chosen, stage=Stage.SELECTED))
    world.watched_since = at(0)
    world.spec = {"paused": True}
    assert opened(world) == []


# Pinned to the node


def on_the_same_node(kind: str = "StatefulSet") -> World:
    world = in_mid_step(kind)
    world.spec = {"release": {"placement": "SameNode"}}
    world.nodes["node-2"] = replace(world.nodes["node-2"], labels={HOSTNAME_LABEL: "host-2"})
    return world


@EACH
def test_a_successor_is_pinned_to_the_node_of_its_predecessor(kind: str) -> None:
    assert on_the_same_node(kind).actions() == (OpenGate("worker-2", "q-worker-2", "p-worker-2", "host-2"),)


def test_a_pod_that_succeeds_nobody_goes_anywhere() -> None:
    world = running("StatefulSet", digest=NEW)
    world.spec = {"release": {"placement": "SameNode"}}
    world.set_workload(replicas=4)
    world.put(gated_pod("worker-3"))
    assert world.actions() == (OpenGate("worker-3", "q-worker-3", ""),)


def test_a_successor_waits_for_a_node_that_is_gone() -> None:
    world = on_the_same_node()
    del world.nodes["node-2"]
    assert not opened(world)
    assert reason(world, "worker-2") == "NodeNotAvailable"
