"""A successor that is not well: named early, late by the deadline of its stage, and taken as it is once it recovers."""

from pathlib import Path
from typing import Any

from cluster.scenarios.successors import EACH, make, until_stalled, until_told
from lab.client import PatchType
from lab.nodes import annotations_of
from lab.operator_process import OperatorProcess
from lab.prometheus import Prometheus
from lab.resources import EVENTS, PODS
from lab.world import BROKEN, GOOD, NEWER, MakeWorld, World, condition_of

SLOW = "example.com/llm:slow"  # ready after 5 s
FULL = "example.com/llm:memory"  # ends twice for lack of device memory, then stays up


def stalls(world: World) -> list[dict[str, Any]]:
    """Every Stalled condition that there ever was."""
    return [
        c
        for status in world.recorder.statuses(world.name, namespace=world.namespace)
        for c in status.get("conditions") or []
        if c["type"] == "Stalled"
    ]


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


@EACH
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
    assert not stalls(world)
    world.assert_promises()


@EACH
async def test_what_keeps_a_successor_from_running_is_told_apart_long_before_a_deadline(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make(make_world, kind, 2, faults={"ready_seconds": 0.5})  # it crashes before that
    await world.settle_in()
    reasons = {
        "example.com/llm:crashing": ("CrashLoop", "ended with exit code 1"),
        BROKEN: ("ImageError", "cannot start image"),
        FULL: ("DeviceMemoryError", "CUDA out of memory"),
    }
    for number, (image, (reason, words)) in enumerate(reasons.items(), start=1):
        await world.set_image(image)
        await until_told(world, reason, words)
        assert await world.gone() == number, "the pod that is down, and none that serves"
    await world.until_ready(image=FULL, seconds=90)
    told = [e["reason"] for e in (await world.api.list(EVENTS, world.namespace)).items]
    assert {reason for reason, _ in reasons.values()} <= set(told)
    assert not stalls(world)
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


@EACH
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
