"""What people are told by Events: success and each new cause of a stall once, and what is about a pod at that pod."""

from accelerator_rollout.api.conditions import ConditionType, find_condition
from accelerator_rollout.api.models import Proof, Stage
from accelerator_rollout.decide.actions import EvictPod, OpenGate
from accelerator_rollout.decide.outcome import EventType, Notice, PodRef
from accelerator_rollout.decide.snapshot import Freshness, Rival
from builders import NEW, World, at, device, entry, gated_pod, of_type, running


def told(world: World, reason: str, seconds: float = 0) -> list[Notice]:
    return [n for n in world.plan(at(seconds)).notices if n.reason == reason]


def test_the_pod_that_is_replaced_is_named() -> None:
    world = running("StatefulSet")
    decided = world.plan()
    (eviction,) = of_type(decided.actions, EvictPod)
    assert isinstance(eviction, EvictPod)
    (notice,) = [n for n in decided.notices if n.reason == "Replacing"]
    assert notice.pod == PodRef(eviction.pod_name, eviction.pod_uid)


def test_an_opened_gate_is_told_at_its_pod_with_the_predecessors_name() -> None:
    world = running("StatefulSet")
    gone = world.vanish("worker-2", seen=False)
    proven = Proof.KUBELET_TERMINAL_PHASE
    world.remember(entry(gone, device(2), stage=Stage.RELEASING, proof=proven, released_at=at(-1)))
    world.put(gated_pod("worker-2", uid="second"))
    decided = world.plan()
    assert of_type(decided.actions, OpenGate)
    (notice,) = [n for n in decided.notices if n.reason == "GateOpened"]
    assert (notice.pod, notice.type) == (PodRef("worker-2", "second"), EventType.NORMAL)
    assert "worker-2" in notice.message


def test_a_stall_is_a_warning_once_for_each_cause() -> None:
    world = running("Deployment")
    world.set_workload(max_surge=1)
    (notice,) = told(world, "SurgeNotAllowed")
    assert notice.type is EventType.WARNING
    world.store(world.plan())
    assert told(world, "SurgeNotAllowed") == []
    world.workload = None
    assert told(world, "WorkloadNotFound")


def test_a_younger_rival_is_told_of_its_conflict() -> None:
    world = running("StatefulSet")
    world.rivals = [Rival("elder", "a-uid", at(-5000))]
    assert [n.reason for n in world.plan().notices] == ["WorkloadConflict"]
    world.store(world.plan())
    assert world.plan().notices == ()


def test_success_is_told_when_it_comes_and_not_at_first_sight() -> None:
    world = running("StatefulSet", digest=NEW)
    assert told(world, "Complete") == []
    world.store(world.plan())
    world.change("worker-1", ready=False)
    world.store(world.plan())
    unready = find_condition(world.status.conditions, ConditionType.READY)
    assert unready is not None
    assert unready.status == "False"
    world.change("worker-1", ready=True)
    (notice,) = told(world, "Complete")
    assert notice.type is EventType.NORMAL
    world.store(world.plan())
    assert told(world, "Complete") == []


def test_a_view_that_comes_back_is_no_success() -> None:
    world = running("StatefulSet", digest=NEW)
    world.store(world.plan())
    world.freshness = Freshness.UNREADABLE
    world.store(world.plan())
    world.freshness = Freshness.FRESH
    assert told(world, "Complete") == []


def test_devices_are_told_free_with_the_pod_that_had_them() -> None:
    world = running("StatefulSet")
    world.recorded("worker-2", 2)
    world.leave("worker-2")
    world.end("worker-2")
    (notice,) = told(world, "DevicesReleased")
    assert notice.pod is not None
    assert notice.pod.name == "worker-2"
