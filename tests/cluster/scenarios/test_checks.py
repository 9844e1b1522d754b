"""A device that is free and not fit: the driver's own word keeps the gate, and the hold, until it is."""

from pathlib import Path

from accelerator_rollout.names import GROUP
from lab.nodes.pool import TaintEffect
from lab.operator_process import OperatorProcess
from lab.prometheus import Prometheus
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


async def test_device_memory_that_an_exporter_still_sees_in_use(
    make_world: MakeWorld, operator: OperatorProcess, tmp_path: Path
) -> None:
    async with Prometheus(tmp_path) as server:
        world = await make_world(Shape("StatefulSet", replicas=1), devices=(1,))
        used = f'memory_used{{node="{world.namespace}-0",device="lpu-0"}}'
        await server.expose(f"{used} 512\n")
        check = {
            "address": server.address,
            "query": 'memory_used{node="$(node)",device="$(device)"}',
            "condition": "value < 100.0",
        }
        await world.settle_in(spec={"release": {"checks": [{"name": "memory", "prometheus": check}]}})
        await world.set_image(NEWER)
        found = await world.until_reason("DevicesReleased", "CheckFailed")
        said = condition_of(found, "DevicesReleased")
        assert said is not None
        assert "not true (value < 100.0) at 512" in said["message"]
        await server.expose(f"{used} 3\n")
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
