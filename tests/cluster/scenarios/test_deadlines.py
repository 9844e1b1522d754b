"""Given stages that take long, then each is late by its own deadline alone, and says so no longer once it is over."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from accelerator_rollout.decide.reasons import Overdue
from lab.client import Object, PatchType
from lab.controlplane import ControlPlane
from lab.operator_process import OperatorProcess
from lab.resources import POD_DISRUPTION_BUDGETS
from lab.world import NEWER, MakeWorld, Shape, World, condition_of, gated, image_of

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
SLOW = "example.com/llm:slow"  # ready after 5 s


async def made(make_world: MakeWorld, kind: str, replicas: int, spec: dict[str, Any], **faults: Any) -> World:
    """A world at rest, whose pods have a node each if of a DaemonSet."""
    shape = Shape(kind, replicas=replicas, grace=2, faults=faults)
    world = await make_world(shape, devices=(1,) * replicas if kind == "DaemonSet" else (replicas,))
    await world.settle_in(spec=spec)
    return world


def told(world: World) -> list[str]:
    """The deadlines that Stalled told of, in order, each once in a row."""
    reasons: list[str] = []
    for status in world.recorder.statuses(world.name, namespace=world.namespace):
        for one in status.get("conditions") or []:
            late = one["type"] == "Stalled" and one["reason"] in set(Overdue)
            if late and reasons[-1:] != [one["reason"]]:
                reasons.append(one["reason"])
    return reasons


async def until_clear(world: World, image: str) -> None:
    """Await the end of the rollout; nothing of a deadline is left then."""
    await world.until_ready(image=image, seconds=90)
    assert condition_of(await world.rollout(), "Stalled") is None
    world.assert_promises()


async def keep_every_pod(world: World) -> None:
    """Create a budget that allows no disruption, and await that the operator has seen it."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": world.namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": world.name}}},
    }
    await world.api.create(POD_DISRUPTION_BUDGETS, budget)

    def seen(rollout: Object) -> bool:
        return "PodDisruptionBudget keep" in (condition_of(rollout, "GuardrailsMet") or {}).get("message", "")

    await world.until(seen, "a word on the budget", seconds=10)


async def let_pods_go(world: World) -> None:
    """Have that budget allow all."""
    less = {"spec": {"minAvailable": 0}}
    await world.api.patch(POD_DISRUPTION_BUDGETS, "keep", less, world.namespace, patch_type=PatchType.MERGE)


@pytest.fixture
def stoppable(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane of which a part may be stopped; afterwards it goes on."""
    yield control_plane
    for part in ("kube-controller-manager", "kube-scheduler"):
        control_plane.resume_component(part)


@EACH
async def test_a_pod_that_is_ready_only_after_long_is_late_by_no_deadline_of_another_stage(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Scaled down: ready after 5 s where the report had 900 s, and 3 s for all the other stages."""
    health = {"scheduleTimeoutSeconds": 3, "prepareTimeoutSeconds": 3, "readyTimeoutSeconds": 60}
    spec = {"disruption": {"timeoutSeconds": 3}, "release": {"timeoutSeconds": 3}, "health": health}
    world = await made(make_world, kind, 1, spec, teardown_seconds=0.3)
    await world.set_image(SLOW)
    await until_clear(world, SLOW)
    assert told(world) == []
    (past,) = (await world.rollout())["status"]["history"][0]["replacements"]
    assert next(s["seconds"] for s in past["stages"] if s["stage"] == "WarmingUp") >= 4


@EACH
async def test_each_stage_is_late_by_its_own_deadline(
    kind: str, stoppable: ControlPlane, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    health = {"scheduleTimeoutSeconds": 1, "prepareTimeoutSeconds": 1, "readyTimeoutSeconds": 1}
    spec = {"disruption": {"timeoutSeconds": 1}, "release": {"timeoutSeconds": 1}, "health": health}
    world = await made(make_world, kind, 1, spec)
    await keep_every_pod(world)
    slow = {"unprepare_seconds": 2.5, "start_seconds": 2.5}
    await world.nodes.node(f"{world.namespace}-0").set_faults(**slow)
    stoppable.pause_component("kube-scheduler")
    await world.set_image(SLOW)
    await world.until_reason("Stalled", "EvictionTimeout")
    await let_pods_go(world)
    await world.until_reason("Stalled", "ReleaseTimeout")
    await world.until_reason("Stalled", "ScheduleTimeout")
    stoppable.resume_component("kube-scheduler")
    await until_clear(world, SLOW)
    assert told(world) == [
        "EvictionTimeout",
        "ReleaseTimeout",
        "ScheduleTimeout",
        "PrepareTimeout",
        "ReadyTimeout",
    ]
    assert await world.gone() == 1


@EACH
async def test_a_deallocation_that_takes_long_is_no_stall(
    kind: str, stoppable: ControlPlane, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Scaled down: 6 s, for 90 s of a busy controller manager, where 12 s would be a stall, for 120 s."""
    world = await made(
        make_world, kind, 1, {"release": {"timeoutSeconds": 60}}, teardown_seconds=1.5, unprepare_seconds=0.2
    )
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    stoppable.pause_component("kube-controller-manager")
    await world.until_reason("DevicesReleased", "ClaimAllocated")
    await asyncio.sleep(6)  # that nothing happens cannot be awaited
    stoppable.resume_component("kube-controller-manager")
    await until_clear(world, NEWER)
    assert told(world) == []
    (past,) = (await world.rollout())["status"]["history"][0]["replacements"]
    assert next(s["seconds"] for s in past["stages"] if s["stage"] == "Releasing") >= 5, "measured"
    assert await world.gone() == 1


@EACH
async def test_a_deallocation_that_is_held_up_is_named_with_its_time_and_late_by_the_release_deadline(
    kind: str, stoppable: ControlPlane, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """The controller manager stands still for 20 s after the pod is gone, where a release may take 10 s."""
    world = await made(
        make_world, kind, 2, {"release": {"timeoutSeconds": 10}}, teardown_seconds=1.5, unprepare_seconds=0.2
    )
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    stoppable.pause_component("kube-controller-manager")
    found = await world.until_reason("DevicesReleased", "OrphanedClaim")
    (entry,) = [r for r in found["status"]["replacements"] if r["stage"] == "Releasing"]
    (held,) = entry["claims"]
    began = entry["stageStartedAt"].removesuffix("Z").partition("T")[2]
    for words in (held["name"], f"since {began} UTC", "controller manager"):
        assert words in entry["message"]
    stalled = condition_of(await world.until_reason("Stalled", "ReleaseTimeout"), "Stalled")
    assert stalled is not None
    assert held["name"] in stalled["message"]
    assert entry["podName"] in stalled["message"]

    await asyncio.sleep(2)  # until the last news is told
    version = (await world.rollout())["metadata"]["resourceVersion"]
    await asyncio.sleep(8)  # that nothing happens cannot be awaited
    assert (await world.rollout())["metadata"]["resourceVersion"] == version, (
        "nothing changes, nothing is written"
    )
    assert all(gated(p) for p in await world.pods() if image_of(p) == NEWER), "no gate opens"
    assert await world.gone() == 1

    stoppable.resume_component("kube-controller-manager")
    await until_clear(world, NEWER)
    assert told(world) == ["ReleaseTimeout"]
    released = condition_of(await world.rollout(), "DevicesReleased")
    assert released is not None
    assert released["status"] == "True"
    assert world.assert_gates_after_release() == 2
    assert await world.gone() == 2


STOPPED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # what stops it, and what lets it go on
    "Paused": ({"paused": True}, {"paused": False}),
    "OutsideWindow": (
        {"windows": [{"type": "Deny", "schedule": "* * * * *", "durationSeconds": 3600}]},
        {"windows": []},
    ),
}


@pytest.mark.parametrize("stopped", STOPPED)
@EACH
async def test_a_budget_that_keeps_a_pod_for_too_long_is_told_and_no_time_counts_while_stopped(
    kind: str, stopped: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    stop, go_on = STOPPED[stopped]
    world = await made(make_world, kind, 1, {"disruption": {"timeoutSeconds": 4}})
    await keep_every_pod(world)
    await world.set_image(NEWER)
    await world.until_reason("Progressing", "BlockedByPDB")
    await world.change_rollout(stop)
    await world.until_reason("Progressing", stopped)
    await asyncio.sleep(5)  # that nothing happens cannot be awaited
    assert told(world) == []
    await world.change_rollout(go_on)
    await world.until_reason("Progressing", "BlockedByPDB")
    await asyncio.sleep(1.5)  # less than it has left, and more than it would have had the time counted
    assert told(world) == []
    said = condition_of(await world.until_reason("Stalled", "EvictionTimeout"), "Stalled")
    assert said is not None
    assert "keep" in said["message"]
    assert await world.gone() == 0
    await let_pods_go(world)
    await until_clear(world, NEWER)


async def test_without_progress_for_too_long_each_kind_says_so_and_a_pause_begins_anew(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """The shortest progress deadline is 30 s, so all kinds wait for one driver side by side."""
    first = await make_world(Shape("Deployment", replicas=1, grace=2), devices=(3,))
    worlds = [
        first,
        replace(first, name="ordered", shape=replace(first.shape, kind="StatefulSet")),
        replace(first, name="everywhere", shape=replace(first.shape, kind="DaemonSet")),
    ]
    for world in worlds:
        await world.settle_in(spec={"progressDeadlineSeconds": 30, "release": {"timeoutSeconds": 30}})
    node = first.nodes.node(f"{first.namespace}-0")
    await node.driver_down()
    await node.publish_nothing()
    for world in worlds:
        await world.set_image(NEWER)
    for world in worlds:
        await world.until_reason("Progressing", "DriverUnavailable")
    await asyncio.sleep(8)  # time passes, and is not to count
    for world in worlds:
        await world.change_rollout({"paused": True})
    for world in worlds:
        await world.until_reason("Progressing", "Paused")
        await world.change_rollout({"paused": False})
    for world in worlds:
        await world.until_reason("Progressing", "DriverUnavailable")
    await asyncio.sleep(25)  # that nothing happens cannot be awaited
    assert [told(world) for world in worlds] == [[], [], []]
    for world in worlds:
        stalled = condition_of(await world.until_reason("Stalled", "ProgressDeadlineExceeded"), "Stalled")
        assert stalled is not None
        assert node.name in stalled["message"]
        assert await world.gone() == 0
    await node.driver_up()
    for world in worlds:
        await until_clear(world, NEWER)
        assert await world.gone() == 1
