"""A device that is free and not fit: the driver's own word keeps the gate, and the hold, until it is."""

from accelerator_rollout.names import GROUP
from lab.nodes.pool import TaintEffect
from lab.operator_process import OperatorProcess
from lab.resources import RESOURCE_CLAIMS
from lab.world import NEWER, MakeWorld, Shape, condition_of


async def test_a_check_keeps_gate_and_hold_until_it_is_true(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    checks = [{"name": "no warning", "cel": "device.taints.all(t, t.key != 'example.com/unwiped')"}]
    spec = {"release": {"hold": "Always", "checks": checks}}
    world = await make_world(Shape(replicas=1, hold="Always"), devices=(1,))
    await world.settle_in(spec=spec)
    node = world.nodes.node(f"{world.namespace}-0")
    await node.taint_device("lpu-0", key="example.com/unwiped", effect=TaintEffect.NONE)

    await world.set_image(NEWER)
    found = await world.until_reason("DevicesReleased", "CheckFailed")
    said = condition_of(found, "DevicesReleased")
    assert said is not None
    assert "check no warning on device" in said["message"]
    (entry,) = found["status"]["replacements"]
    (held,) = entry["claims"]
    claim = await world.api.get(RESOURCE_CLAIMS, held["name"], world.namespace)
    assert [r.get("apiGroup") for r in claim["status"]["reservedFor"]] == [GROUP]

    await node.untaint_device("lpu-0", key="example.com/unwiped")
    await world.until_ready(image=NEWER)
    assert world.assert_gates_after_release() == 1
    world.assert_promises()


async def test_an_expression_that_makes_no_sense_is_told_before_anything_goes(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(replicas=1), devices=(1,))
    await world.make_workload()
    await world.make_rollout({"release": {"checks": [{"name": "half", "cel": "device.x =="}]}})
    found = await world.until_reason("Stalled", "CheckInvalid")
    said = condition_of(found, "Stalled")
    assert said is not None
    assert "check half" in said["message"]
    await world.set_image(NEWER)
    await world.change_rollout({"release": {"checks": [{"name": "whole", "cel": "true"}]}})
    await world.until_ready(image=NEWER)
