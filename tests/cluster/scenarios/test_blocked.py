"""Given a pod that cannot be replaced, then it is named with the cause, and keeps no other pod from its devices."""

import asyncio
from typing import Any

import pytest

from lab.client import Object, PatchType
from lab.nodes import annotations_of
from lab.operator_process import OperatorProcess
from lab.resources import POD_DISRUPTION_BUDGETS, PODS
from lab.world import NEWER, MakeWorld, Shape, World, condition_of, gated, pod_is_ready

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
EVICTED = pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
SLOW = {"teardown_seconds": 1.2, "unprepare_seconds": 0.2}


async def made(make_world: MakeWorld, kind: str, hold: str = "Never", **release: Any) -> World:
    """Two pods that are well, on a node each if of a DaemonSet."""
    shape = Shape(kind, replicas=2, grace=2, hold=hold, faults=SLOW)
    world = await make_world(shape, devices=(1, 1) if kind == "DaemonSet" else (2,))
    await world.settle_in(spec={"release": {"hold": hold, **release}})
    return world


async def budget(world: World) -> None:
    """Put a PodDisruptionBudget that allows nothing."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": world.namespace},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": world.name}}},
    }
    await world.api.create(POD_DISRUPTION_BUDGETS, body)
    await world.api.wait_for(
        POD_DISRUPTION_BUDGETS,
        "keep",
        lambda b: (b.get("status") or {}).get("observedGeneration") == b["metadata"]["generation"],
        world.namespace,
    )


async def loosen(world: World, **spec: Any) -> None:
    await world.api.patch(
        POD_DISRUPTION_BUDGETS, "keep", {"spec": spec}, world.namespace, patch_type=PatchType.MERGE
    )


async def until_blocked(world: World, words: str = "") -> None:
    """Await that the budget is named, in a message with these words."""
    said = condition_of(await world.until_reason("Progressing", "BlockedByPDB"), "Progressing")
    assert said is not None
    assert "budget keep " in said["message"].lower()
    assert words in said["message"]


def refused(metrics: str) -> float:
    """How many evictions the API server turned down."""
    lines = [line for line in metrics.splitlines() if 'evictions_total{result="refused"}' in line]
    return sum(float(line.split()[-1]) for line in lines)


async def until_it_serves(world: World, but: set[str]) -> Object:
    """Await a ready pod that is none of these, and return it."""
    seen = await world.recorder.until(
        lambda one: one.kind == "Pod" and one.uid not in but and pod_is_ready(one.object),
        what="a successor to be ready",
        timeout=30,
    )
    return seen.object


@EACH
async def test_a_budget_that_keeps_a_ready_pod_is_named_and_another_ones_successor_opens(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, kind)
    await budget(world)
    await world.set_image(NEWER)
    await until_blocked(world)
    assert await world.gone() == 0

    old = {p["metadata"]["uid"] for p in await world.pods()}
    leaves = (await world.pods())[0]["metadata"]
    await world.api.delete(PODS, leaves["name"], world.namespace)
    await until_it_serves(world, old)
    await world.recorder.caught_up()
    assert old & {one.uid for one in world.deletions()} == {leaves["uid"]}

    await loosen(world, minAvailable=0)
    await world.until_ready(image=NEWER)
    # A Deployment that we paused makes the old one again, which is replaced before it ever serves.
    assert await world.gone() == (3 if kind == "Deployment" else 2)
    world.assert_promises()


@EVICTED
async def test_evictions_of_broken_pods_are_tried_again_until_the_budget_allows_them(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """By default a budget keeps also pods that are not ready, once too few others are."""
    world = await made(make_world, kind)
    await budget(world)
    await break_all(world)
    await world.set_image(NEWER)
    await until_blocked(world, "AlwaysAllow")
    async with asyncio.timeout(30):
        while refused(await operator.metrics()) < 2:  # noqa: ASYNC110 - only the count tells of an attempt
            await asyncio.sleep(0.5)
    assert await world.gone() == 0
    await loosen(world, unhealthyPodEvictionPolicy="AlwaysAllow")
    await world.until_ready(image=NEWER)
    assert await world.gone() == 2
    world.assert_promises()


async def test_a_deployments_broken_pods_go_whatever_the_budget_allows(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Its controller deletes and evicts nothing, and a pod that is not ready is missed by nobody."""
    world = await made(make_world, "Deployment")
    await budget(world)
    await break_all(world)
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    assert await world.gone() == 2
    world.assert_promises()


async def break_all(world: World) -> None:
    sick = {"metadata": {"annotations": annotations_of(never_ready=True)}}
    for pod in await world.pods():
        await world.api.patch(
            PODS, pod["metadata"]["name"], sick, world.namespace, patch_type=PatchType.MERGE
        )
    await world.until(lambda o: o["status"].get("unavailableReplicas") == 2, "both pods to be down")


@EACH
async def test_a_release_that_stays_unproven_keeps_no_other_gate_closed(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Its devices are held (or, of a DaemonSet, on a node of their own): nobody else could be given them."""
    hold = "Never" if kind == "DaemonSet" else "Always"
    world = await made(make_world, kind, hold, unproven={"extraSeconds": 3600})
    # By name: an ordered StatefulSet makes a pod anew only while those before it are well.
    first, last = sorted(await world.pods(), key=lambda p: p["metadata"]["name"])
    old = {first["metadata"]["uid"], last["metadata"]["uid"]}
    await world.api.delete(PODS, last["metadata"]["name"], world.namespace, grace_seconds=0)
    await world.until_reason("DevicesReleased", "ReleaseUnproven")
    await world.api.delete(PODS, first["metadata"]["name"], world.namespace)
    serves = await until_it_serves(world, old)
    still = [p for p in await world.pods() if p["metadata"]["uid"] != serves["metadata"]["uid"]]
    assert [gated(p) for p in still] == [True]
    said = condition_of(await world.rollout(), "DevicesReleased")
    assert said is not None
    assert last["metadata"]["name"] in said["message"]

    await world.change_rollout({"release": {"unproven": {"extraSeconds": 0}}})
    await world.until_ready()
    assert await world.gone() == 2
    world.assert_promises()
