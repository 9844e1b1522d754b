"""A departed pod's device is kept for its successor: strangers do not tolerate our taint, and nothing of it stays behind."""

import pytest

from accelerator_rollout.names import FINALIZER, RESERVED_BY_LABEL, RESERVED_TAINT
from lab.client import Object, PatchType
from lab.operator_process import OperatorProcess
from lab.recorder import Recorded
from lab.resources import ACCELERATOR_ROLLOUTS, DEVICE_TAINT_RULES, PODS
from lab.world import NEWER, MakeWorld, Shape, World, condition_of

SLOW = {"teardown_seconds": 1.0, "unprepare_seconds": 0.5}
RESERVE = {"release": {"reservation": "DeviceTaint"}}


async def rules(world: World) -> list[Object]:
    """The rules on devices of this world."""
    found = (await world.api.list(DEVICE_TAINT_RULES)).items
    return [r for r in found if r["spec"]["deviceSelector"]["driver"] == world.device_class]


def waits(one: Recorded) -> bool:
    return one.name == "stranger" and any(
        c.get("reason") == "Unschedulable" for c in one.status.get("conditions") or []
    )


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
async def test_a8_with_a_reservation_the_stranger_never_gets_the_device(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    shape = Shape(kind, replicas=2, faults=SLOW, tolerates="worker")
    world = await make_world(shape, devices=(1, 1) if kind == "DaemonSet" else (2,))
    await world.settle_in(spec=RESERVE)
    await world.make_pod("stranger")
    await world.recorder.until(waits, what="the stranger to wait")

    await world.set_image(NEWER)
    done = await world.until_ready(image=NEWER)

    said = condition_of(done, "ReservationInForce")
    assert said is not None
    assert (said["status"], said["reason"]) == ("True", "ReservationPossible")
    stranger = await world.api.get(PODS, "stranger", world.namespace)
    assert not stranger["spec"].get("nodeName")
    assert len(world.deletions()) == 2
    assert world.assert_gates_after_release() == 2
    world.assert_promises()
    assert await rules(world) == []


async def test_a_claim_template_without_the_toleration_is_named_and_nothing_reserved(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(replicas=1, faults=SLOW), devices=(1,))
    await world.settle_in(spec=RESERVE)
    await world.set_image(NEWER)
    done = await world.until_ready(image=NEWER)
    said = condition_of(done, "ReservationInForce")
    assert said is not None
    assert (said["status"], said["reason"]) == ("False", "ReservationNotTolerated")
    assert "ResourceClaimTemplate worker-devices" in said["message"]
    assert f"key: {RESERVED_TAINT}, operator: Equal, value: worker" in said["message"]
    assert world.assert_gates_after_release() == 1


async def test_rules_go_with_their_object_and_what_nobody_answers_for_is_swept(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(
        Shape("StatefulSet", replicas=1, faults={"unprepare_seconds": 3}, tolerates="worker"), devices=(1,)
    )
    await world.settle_in(spec=RESERVE)
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    own = await world.rollout()
    (rule,) = await rules(world)
    assert rule["metadata"]["labels"][RESERVED_BY_LABEL] == own["metadata"]["uid"]
    assert rule["spec"]["taint"]["effect"] == "NoSchedule"
    operator.kill()
    kept = [f for f in own["metadata"]["finalizers"] if f != FINALIZER]
    await world.api.delete(ACCELERATOR_ROLLOUTS, world.name, world.namespace)
    await world.api.patch(
        ACCELERATOR_ROLLOUTS,
        world.name,
        {"metadata": {"finalizers": kept}},
        world.namespace,
        patch_type=PatchType.MERGE,
    )
    await operator.restart()
    await world.api.wait_gone(DEVICE_TAINT_RULES, rule["metadata"]["name"], timeout=30)

    await world.make_rollout(RESERVE)
    await world.until_ready(image=NEWER)
    await world.set_image(NEWER.replace("v2", "v3"))
    await world.until_stage("Terminating")
    (rule,) = await rules(world)
    await world.api.delete(ACCELERATOR_ROLLOUTS, world.name, world.namespace)
    await world.api.wait_gone(ACCELERATOR_ROLLOUTS, world.name, world.namespace)
    assert await rules(world) == []
