"""Given a cordoned node, when the template changes, then its pods are left alone until it is uncordoned or drained."""

from typing import Any

import pytest

from lab.operator_process import OperatorProcess
from lab.resources import NODES
from lab.world import NEWER, MakeWorld, Shape, image_of

BOTH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])


async def cordon(world: Any, node: str, *, on: bool = True) -> None:
    await world.api.patch(NODES, node, {"spec": {"unschedulable": on}})


async def begun(world: Any) -> str:
    """Cordon the node of one pod and change the template; return the node once only its pods are left."""
    await world.settle_in()
    node = (await world.pods())[0]["spec"]["nodeName"]
    await cordon(world, node)
    await world.set_image(NEWER)
    found = await world.until_reason("Progressing", "NodeUnschedulable")
    assert node in str(found["status"]["conditions"])
    assert len(world.deletions()) == 2
    left = [p for p in await world.pods() if image_of(p) != NEWER]
    assert {p["spec"]["nodeName"] for p in left} == {node}
    return str(node)


@BOTH
async def test_pods_on_a_cordoned_node_go_last_and_only_once_it_is_uncordoned(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=4), devices=(2, 2))
    node = await begun(world)
    await cordon(world, node, on=False)
    await world.until_ready(image=NEWER)
    assert len(world.deletions()) == 4
    world.assert_promises()


async def test_pods_on_a_node_under_maintenance_wait_for_its_end(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """The conditions of KEP-5683, which an administrator sets."""
    world = await make_world(Shape("StatefulSet", replicas=2), devices=(1, 1))
    await world.settle_in()
    node = (await world.pods())[0]["spec"]["nodeName"]
    await maintain(world, node, "True")
    await world.set_image(NEWER)
    found = await world.until_reason("Progressing", "NodeUnschedulable")
    assert f"{node} (MaintenanceInProgress)" in str(found["status"]["conditions"])
    assert len(world.deletions()) == 1
    await maintain(world, node, "False")
    await world.until_ready(image=NEWER)
    world.assert_promises()


async def maintain(world: Any, node: str, status: str) -> None:
    condition = {"type": "MaintenanceInProgress", "status": status, "reason": "Firmware", "message": ""}
    await world.api.patch(NODES, node, {"status": {"conditions": [condition]}}, subresource="status")
