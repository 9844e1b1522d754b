"""A device that a stranger takes after the gate was opened: the pod waits for the scheduler, and the status says why."""

from accelerator_rollout.api.conditions import ConditionType, find_condition
from accelerator_rollout.api.models import Proof, Stage
from accelerator_rollout.decide.actions import EvictPod
from accelerator_rollout.decide.outcome import Plan
from accelerator_rollout.decide.reasons import Waiting
from accelerator_rollout.records import DeviceUse, Phase
from builders import NEW, NOW, World, at, claim_of, device, entry, gated_pod, of_type, pod, running


def opened_world() -> World:
    """`worker-1` is gone and released; its successor's gate is open and it waits for the scheduler."""
    world = running("StatefulSet")
    world.recorded(
        "worker-1",
        1,
        stage=Stage.SCHEDULING,
        proof=Proof.KUBELET_TERMINAL_PHASE,
        released_at=NOW,
        replacement_pod_uid="q-worker-1",
        replacement_pod_name="worker-1",
    )
    world.vanish("worker-1")
    world.put(gated_pod("worker-1", uid="q-worker-1", gates=(), node=""))
    return world


def take_device(world: World) -> None:
    world.strangers.append(claim_of(pod("secret", uid="u"), device(1), namespace="other", owner_pod_uid="u"))


def released(decided: Plan) -> tuple[str, str, str]:
    found = find_condition(decided.status.conditions, ConditionType.DEVICES_RELEASED)
    assert found is not None
    return found.status, found.reason, found.message


def test_who_has_the_device_is_said_without_naming_a_foreign_claim() -> None:
    world = opened_world()
    take_device(world)
    decided = world.plan()
    status, reason, message = released(decided)
    assert (status, reason) == ("False", "DeviceTaken")
    assert "dev-1" in message
    assert "another namespace" in message
    assert "secret" not in message
    entry, _ = decided.status.replacements
    assert (entry.stage, entry.reason) == (Stage.SCHEDULING, "DeviceTaken")


def test_no_further_pod_is_disrupted_while_the_stranger_has_the_device() -> None:
    world = opened_world()
    take_device(world)
    assert of_type(world.actions(), EvictPod) == ()


def test_it_is_all_released_once_the_stranger_has_left() -> None:
    world = opened_world()
    assert released(world.plan())[:2] == ("True", "AllReleased")
    take_device(world)
    assert released(world.plan())[:2] == ("False", "DeviceTaken")
    world.strangers.clear()
    assert released(world.plan())[:2] == ("True", "AllReleased")


def test_a_device_that_the_successor_itself_was_given_is_not_lost() -> None:
    world = opened_world()
    world.put(world.named("worker-1"), device(1))
    assert released(world.plan())[:2] == ("True", "AllReleased")


def test_a_node_that_does_not_begin_to_start_a_pod_is_named_with_the_devices() -> None:
    world = running("StatefulSet", digest=NEW)
    stuck = world.change("worker-2", phase=Phase.PENDING, ready=False, waiting_reason="ContainerCreating")
    gone = entry(pod("worker-2", uid="gone"), device(2), stage=Stage.PREPARING, stage_started_at=at(-119))
    world.remember(
        gone.model_copy(
            update={"replacement_pod_uid": stuck.uid, "released_at": at(-200), "proof": Proof.NEVER_BOUND}
        )
    )
    (told,) = world.plan().status.replacements
    assert told.reason == "ContainerCreating"
    (told,) = world.plan(at(1)).status.replacements
    assert told.reason == Waiting.PREPARE_FAILED
    assert str(device(2)) in told.message
    world.change("worker-2", sandboxed=True)  # devices are prepared: the image takes its time
    (told,) = world.plan(at(1)).status.replacements
    assert told.reason == "ContainerCreating"


def test_devices_that_are_being_attached_are_not_the_schedulers_fault() -> None:
    """KEP-5007: allocated, and bound only once their conditions are true."""
    world = opened_world()
    waiting = world.named("worker-1")
    uses = (DeviceUse(device(1), binding=("attached", "ready")),)
    world.claims["q-worker-1-device"] = claim_of(waiting, device(1), uses=uses)
    told, _ = world.plan().status.replacements
    assert told.reason == Waiting.AWAITING_BINDING
    assert "attached, ready" in told.message
    assert "q-worker-1-device" in told.message
