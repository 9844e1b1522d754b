"""A4: the gate opens only while the device's pool is coherent and complete, and each "no" has its reason."""

from collections.abc import Awaitable, Callable

import pytest

from lab.nodes.node import SimulatedNode
from lab.operator_process import OperatorProcess
from lab.world import NEWER, MakeWorld, Shape, gated

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
Fault = Callable[[SimulatedNode], Awaitable[None]]

FAULTS: dict[str, Fault] = {
    "PoolIncomplete": lambda node: node.publish_incomplete(),
    "PoolContradictory": lambda node: node.publish_disagreeing(),
    "PoolMissing": lambda node: node.publish_nothing(),
    "DeviceMissing": lambda node: node.withdraw_device("lpu-0"),
    "DeviceTainted": lambda node: node.taint_device("lpu-0"),
}


@EACH
@pytest.mark.parametrize("reason", FAULTS)
async def test_a4_the_pool_must_be_whole(
    kind: str, reason: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(
        Shape(kind, replicas=1, faults={"teardown_seconds": 1.5, "unprepare_seconds": 0.5}),
        devices=(2,),
        slices=2,
    )
    node = world.nodes.node(f"{world.namespace}-0")
    await node.taint_device("lpu-1", key="spare")  # so that the workload runs on lpu-0
    await world.settle_in()

    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    await FAULTS[reason](node)
    await world.until_reason("DevicesReleased", reason)
    pods = await world.pods()
    assert all(gated(p) for p in pods), "the replacement must stay gated"

    await node.restore_device("lpu-0")
    await node.untaint_device("lpu-0")
    await node.publish()
    await world.until_ready(image=NEWER)
    world.assert_promises()


@EACH
async def test_a4_a_new_generation_is_no_obstacle(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(
        Shape(kind, replicas=1, faults={"teardown_seconds": 1.5}), devices=(1,), slices=1
    )
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    await world.nodes.node(f"{world.namespace}-0").publish()
    await world.until_ready(image=NEWER)
    world.assert_promises()
