"""A successor that is not well: named early, late by the deadline of its stage, and taken as it is once it recovers."""

from pathlib import Path
from typing import Any

import pytest

from lab.client import Object, PatchType
from lab.nodes import StartFailure, annotations_of
from lab.operator_process import OperatorProcess
from lab.prometheus import Prometheus
from lab.resources import EVENTS, PODS
from lab.world import BROKEN, GOOD, NEWER, MakeWorld, Shape, World, condition_of

SLOW = "example.com/llm:slow"  # ready after 5 s
FULL = "example.com/llm:memory"  # ends twice for lack of device memory, then stays up
EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])


async def make(make_world: MakeWorld, kind: str, replicas: int, **over: Any) -> World:
    """A world whose pods have a node each, if of a DaemonSet."""
    devices = (1,) * replicas if kind == "DaemonSet" else (replicas,)
    return await make_world(Shape(kind, replicas=replicas, **over), devices=devices)


async def until_told(world: World, reason: str, words: str = "") -> Object:
    """Await that a replacement in flight has this reason, with these words in its message."""

    def there(rollout: Object) -> bool:
        listed = (rollout.get("status") or {}).get("replacements") or []
        return any(r.get("reason") == reason and words in r.get("message", "") for r in listed)

    return await world.until(there, f"a replacement with reason {reason}", seconds=40)


async def until_stalled(world: World, reason: str) -> str:
    found = condition_of(await world.until_reason("Stalled", reason, seconds=40), "Stalled")
    assert found is not None
    return str(found["message"])


def last_status(world: World) -> dict[str, Any]:
    return dict(world.recorder.statuses(world.name, namespace=world.namespace)[-1])


@EACH
async def test_a6_a_bad_image_its_revert_and_a_good_one_when_all_are_down(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make(make_world, kind, 3)
    await world.settle_in(spec={"health": {"prepareTimeoutSeconds": 2}})

    await world.set_image(BROKEN)
    await until_told(world, "ImageError", "cannot start image")
    assert world.device_class in await until_stalled(world, "PrepareTimeout")
    assert len(world.deletions()) == 1, "never more than the budget down"
    await world.set_image(GOOD)
    await world.until_ready(image=GOOD)
    assert len(world.deletions()) == 2, "the broken pod, and no other"

    sick = {"metadata": {"annotations": annotations_of(never_ready=True)}}
    for pod in await world.pods():
        await world.api.patch(
            PODS, pod["metadata"]["name"], sick, world.namespace, patch_type=PatchType.MERGE
        )
    await world.until(lambda o: o["status"]["unavailableReplicas"] == 3, "all pods to be down")
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER, seconds=90)
    assert len(world.deletions()) == 5
    assert condition_of(await world.rollout(), "Stalled") is None
    world.assert_promises()


async def test_a_successor_that_lacks_device_memory_twice_is_told_of_and_not_failed(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make(make_world, kind, 2)
    await world.settle_in()
    await world.set_image(FULL)
    await until_told(world, "DeviceMemoryError", "settleSeconds")
    assert len(world.deletions()) == 1
    await world.until_ready(image=FULL, seconds=90)
    assert len(world.deletions()) == 2
    stalled = [
        c
        for status in world.recorder.statuses(world.name, namespace=world.namespace)
        for c in status.get("conditions") or []
        if c["type"] == "Stalled"
    ]
    assert stalled == []
    world.assert_promises()


async def test_a_node_that_reboots_in_mid_rollout_and_starts_no_container(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make(make_world, kind, 2)
    await world.settle_in()
    node = world.nodes.node(f"{world.namespace}-0")
    await world.set_image(SLOW)
    await world.until_stage("WarmingUp")
    await node.set_faults(start_failure=StartFailure.CREATE)
    await node.reboot()
    await until_told(world, "CreateContainerError", "cannot be created")
    assert len(world.deletions()) == 1, "nothing more is replaced"
    await node.set_faults(start_failure=None)
    await world.until_ready(image=SLOW, seconds=90)
    assert len(world.deletions()) == 2
    world.assert_promises()


@EACH
async def test_a_pod_that_is_ready_after_its_deadline_is_taken_as_it_is(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make(make_world, kind, 2)
    await world.settle_in(spec={"health": {"readyTimeoutSeconds": 1}})
    await world.set_image(SLOW)
    said = await until_stalled(world, "ReadyTimeout")
    assert f"node {world.namespace}-" in said
    await world.until_ready(image=SLOW, seconds=90)
    assert len(world.deletions()) == 2
    assert condition_of(await world.rollout(), "Stalled") is None
    world.assert_promises()


async def test_a_check_that_is_not_true_keeps_the_next_pod(
    kind: str, make_world: MakeWorld, operator: OperatorProcess, tmp_path: Path
) -> None:
    async with Prometheus(tmp_path) as server:
        world = await make(make_world, kind, 2)
        errors = f'errors{{namespace="{world.namespace}"}}'
        await server.expose(f"{errors} 7\n")
        check = {
            "address": server.address,
            "query": 'errors{namespace="$(namespace)"}',
            "condition": "value < 1.0",
        }
        health = {
            "soakSeconds": 2,
            "failureThreshold": 1,
            "checks": [{"name": "no errors", "prometheus": check}],
        }
        await world.settle_in(spec={"health": health})
        await world.set_image(NEWER)
        assert "check no errors" in await until_stalled(world, "HealthFailed")
        await until_told(world, "HealthCheckFailing")
        assert len(world.deletions()) == 1
        await server.expose(f"{errors} 0\n")
        await world.until_ready(image=NEWER, seconds=120)
        assert len(world.deletions()) == 2
        (stages, *_) = [
            {s["stage"] for s in r["stages"]} for r in last_status(world)["history"][0]["replacements"]
        ]
        assert "Soaking" in stages
        world.assert_promises()


async def test_a_pod_whose_grace_is_too_short_is_told_of(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make(make_world, kind, 1, grace=3, faults={"teardown_seconds": 60})
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    (past,) = last_status(world)["history"][0]["replacements"]
    assert past["killedAfterGrace"] is True
    assert past["proof"] == "KubeletTerminalPhase"
    told = [
        e for e in (await world.api.list(EVENTS, world.namespace)).items if e["reason"] == "KilledAfterGrace"
    ]
    assert len(told) == 1
    world.assert_promises()
