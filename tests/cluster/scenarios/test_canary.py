"""Given steps or a partition, when the template changes, then so many pods are replaced and no more until somebody says so."""

from typing import Any

import pytest

from lab.operator_process import OperatorProcess
from lab.world import GOOD, NEWER, MakeWorld, Shape, image_of

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
SLOW = {"teardown_seconds": 0.3, "unprepare_seconds": 0.1}


def shape(kind: str) -> tuple[Shape, tuple[int, ...]]:
    return Shape(kind, replicas=3, faults=SLOW), (1, 1, 1) if kind == "DaemonSet" else (3,)


async def images(world: Any) -> list[str]:
    return sorted(image_of(p) for p in await world.pods())


@EACH
async def test_a_canary_waits_at_its_step_until_it_is_promoted(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    made, devices = shape(kind)
    world = await make_world(made, devices=devices)
    await world.settle_in(spec={"strategy": {"steps": [{"replicas": 1, "pause": {"type": "Manual"}}]}})
    await world.set_image(NEWER)
    found = await world.until_reason("Progressing", "StepPause")
    assert found["status"]["step"]["index"] == 0
    assert len(world.deletions()) == 1
    assert (await images(world)).count(NEWER) == 1

    await world.change_rollout({"action": {"type": "Promote", "id": "look-1"}})
    await world.until_ready(image=NEWER)
    assert len(world.deletions()) == 3
    assert (await world.rollout())["status"]["observedActionID"] == "look-1"
    world.assert_promises()


@EACH
async def test_a_partition_is_kept_and_the_object_is_ready_all_the_same(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    made, devices = shape(kind)
    world = await make_world(made, devices=devices)
    await world.settle_in(spec={"strategy": {"partition": 1}})
    await world.set_image(NEWER)
    await world.until_reason("Ready", "PartitionReached")
    assert await images(world) == sorted([GOOD, NEWER, NEWER])
    assert len(world.deletions()) == 2

    await world.change_rollout({"strategy": {"partition": 0}})
    await world.until_ready(image=NEWER)
    assert len(world.deletions()) == 3
    world.assert_promises()
