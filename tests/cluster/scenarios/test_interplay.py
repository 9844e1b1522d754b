"""Given people and controllers that change their minds in mid-step, then the newest spec is what comes out, and no device is used twice."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from lab.client import ApiError, Object, PatchType
from lab.operator_process import OperatorProcess
from lab.resources import (
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from lab.world import GOOD, NEWER, MakeWorld, Shape, World, condition_of, image_of, is_ready

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
SCALED = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])  # a DaemonSet has no number to write
SLOW = {"teardown_seconds": 1.2, "unprepare_seconds": 0.2}
THIRD = "example.com/llm:v3"


async def made(make_world: MakeWorld, kind: str, replicas: int = 3, *, room: int = 0) -> World:
    """A world at rest, whose pods have a node each if of a DaemonSet; else there is `room` for so many pods."""
    shape = Shape(kind, replicas=replicas, grace=3, faults=SLOW)
    devices = (1,) * replicas if kind == "DaemonSet" else (room or replicas,)
    world = await make_world(shape, devices=devices)
    await world.settle_in(spec={"release": {"unproven": {"extraSeconds": 2}}})
    return world


@asynccontextmanager
async def again_and_again(do: Callable[[], Awaitable[object]], every: float) -> AsyncIterator[None]:
    """Do it all the time in the background, whoever else writes."""

    async def repeat() -> None:
        while True:
            try:
                await do()
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
            await asyncio.sleep(every)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError), ended


# A7


@SCALED
async def test_a7_four_then_six_then_two_in_mid_step(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, kind, 4, room=6)
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    await world.scale(6)
    await world.until(lambda o: o["status"].get("replicas") == 6, "six pods to be seen")
    await world.scale(2)
    await world.until_ready(image=NEWER, seconds=90)
    assert len(await world.pods()) == 2
    world.assert_promises()


@SCALED
async def test_an_autoscaler_that_writes_all_the_time_changes_only_the_number(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, kind, 3, room=5)
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    for number in (4, 2, 5, 3, 4, 3, 5, 2):
        await world.scale(number)
        await asyncio.sleep(
            0.7
        )  # an autoscaler's pace, scaled down: the writes fall into the middle of steps
    await world.scale(3)
    await world.until_ready(image=NEWER, seconds=90)
    assert len(await world.pods()) == 3
    world.assert_promises()


@EACH
@pytest.mark.parametrize("last", [THIRD, GOOD], ids=["a third", "back to the first"])
async def test_a7_another_revision_in_mid_step(
    kind: str, last: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, kind)
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    await world.set_image(last)
    await world.until_ready(image=last, seconds=90)
    assert {image_of(p) for p in await world.pods()} == {last}
    assert await world.gone() <= 4, "each pod once, and the one that came at the second revision once more"
    world.assert_promises()


@EACH
async def test_a7_pause_resume_abort_and_a_third_revision_in_one_step(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, kind)
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    await world.change_rollout({"paused": True})
    await world.set_image(THIRD)
    await world.change_rollout({"paused": False})
    await world.change_rollout({"action": {"type": "Abort", "id": "stop"}})
    await world.change_rollout({"paused": True})
    await world.until(
        lambda o: o["status"].get("observedActionID") == "stop" and not o["status"].get("replacements"),
        "the pod in flight",
    )
    stopped = await world.gone()
    assert stopped <= 2
    await world.change_rollout({"paused": False, "action": {"type": "Retry", "id": "go on"}})
    await world.until_ready(image=THIRD, seconds=90)
    assert await world.gone() <= 4
    world.assert_promises()


# Objects that go


@EACH
async def test_a_workload_that_is_deleted_and_made_again_in_mid_step(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, kind)
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    await world.api.delete(world.workload, world.name, world.namespace, propagation="Background")
    await world.make_workload()
    await world.until_ready(image=GOOD, seconds=90)
    await world.until(lambda o: is_ready(o) and not o["status"].get("replacements"), "rest")
    world.ledger.assert_clean()
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER, seconds=90)
    world.ledger.assert_clean()


async def test_the_namespace_of_a_daemon_set_goes_in_mid_step(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, "DaemonSet", 2)
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    await world.api.delete(NAMESPACES, world.namespace)
    await world.api.wait_gone(NAMESPACES, world.namespace, timeout=40)
    world.ledger.assert_clean()
    assert operator.is_running


# Other people's templates and writes


@EACH
async def test_a_template_of_300_kb_works_and_others_objects_stay_free_of_kopf(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, kind, 2)
    big = {"name": "model", "image": NEWER, "env": [{"name": "PROMPT", "value": "x" * 300_000}]}
    body = {"spec": {"template": {"spec": {"containers": [big]}}}}
    await world.api.patch(world.workload, world.name, body, world.namespace, patch_type=PatchType.STRATEGIC)
    await world.until_ready(image=NEWER)
    assert await world.gone() == 2
    world.assert_promises()
    for resource in (world.workload, REPLICA_SETS, PODS, RESOURCE_CLAIMS):
        for one in (await world.api.list(resource, world.namespace)).items:
            _assert_free_of_kopf(one)
    for resource in (NODES, RESOURCE_SLICES):
        for one in (await world.api.list(resource)).items:
            _assert_free_of_kopf(one)


def _assert_free_of_kopf(one: Object) -> None:
    meta = one["metadata"]
    marks = [*(meta.get("annotations") or {}), *(meta.get("labels") or {}), *(meta.get("finalizers") or [])]
    assert not [mark for mark in marks if "kopf" in mark], (meta["name"], marks)


async def test_a_tool_that_resumes_the_deployment_again_and_again_costs_no_device(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """A manifest that says `paused: false` undoes our pause at each sync."""
    world = await made(make_world, "Deployment")
    resume = {"spec": {"paused": False}}

    async def sync() -> None:
        await world.api.patch(
            DEPLOYMENTS,
            world.name,
            resume,
            world.namespace,
            patch_type=PatchType.MERGE,
            field_manager="gitops",
        )

    async with again_and_again(sync, 0.2):
        await world.set_image(NEWER)
        await world.until_ready(image=NEWER, seconds=90)
        assert await world.gone() == 3
        world.assert_promises()
    assert world.assert_gates_after_release() == 3


@EACH
async def test_a_departure_below_the_partition_is_told_of_and_no_other_pod_follows(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Under OnDelete it comes back at the new revision; a Deployment that we paused makes the old one again."""
    world = await made(make_world, kind)
    await world.change_rollout({"strategy": {"partition": 2}})
    await world.set_image(NEWER)
    await world.until_reason("Ready", "PartitionReached")
    assert await world.gone() == 1
    kept = next(p for p in await world.pods() if image_of(p) == GOOD)
    await world.api.delete(PODS, kept["metadata"]["name"], world.namespace)
    expected = [GOOD, GOOD, NEWER] if kind == "Deployment" else [GOOD, NEWER, NEWER]
    reason = "PartitionReached" if kind == "Deployment" else "PartitionExceeded"
    await world.recorder.until(
        lambda one: one.kind == "Pod" and one.uid == kept["metadata"]["uid"] and one.type == "DELETED",
        what="the pod to go",
    )
    await world.until(
        lambda o: (
            not o["status"].get("replacements")
            and o["status"].get("availableReplicas") == 3
            and (condition_of(o, "Ready") or {}).get("reason") == reason
        ),
        f"rest with {reason}",
    )
    assert sorted(image_of(p) for p in await world.pods()) == expected
    assert await world.gone() == 2
    world.assert_promises()


# What it writes


@EACH
async def test_a_replacement_costs_four_writes_of_status_and_rest_costs_none(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Four a replacement and one a minute, and one each for the beginning and the end of the rollout."""
    world = await made(make_world, kind)
    before = _writes(await operator.metrics())
    begin = time.monotonic()
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    await world.until(lambda o: is_ready(o) and bool(o["status"].get("history")), "the end of the rollout")
    await asyncio.sleep(1.5)  # what comes after the end
    minutes = math.ceil((time.monotonic() - begin) / 60)
    rested = _writes(await operator.metrics())
    assert 3 <= rested - before <= 4 * 3 + minutes + 2, "each replacement is told of, and in few writes"
    await asyncio.sleep(3)  # that nothing happens cannot be awaited
    assert _writes(await operator.metrics()) == rested


def _writes(text: str) -> float:
    """Writes of status that reached the API server, by the operator's own count."""
    lines = [line for line in text.splitlines() if line.startswith("accelerator_rollout_api_requests_total{")]
    return sum(float(line.split()[-1]) for line in lines if 'resource="acceleratorrollouts/status"' in line)
