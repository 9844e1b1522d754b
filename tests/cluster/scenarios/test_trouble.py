"""Given trouble in the middle of a rollout: a bad image, a stranger, a crash, other people's writes."""

import asyncio
from dataclasses import replace

import pytest

from lab.client import PatchType
from lab.operator_process import OperatorProcess
from lab.recorder import Recorded
from lab.resources import ACCELERATOR_ROLLOUTS, EVENTS, PODS
from lab.world import BROKEN, GOOD, NEWER, MakeWorld, Shape, World, condition_of, gated, image_of

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])


async def test_a6_a_bad_image_stops_after_one_pod_and_its_revert_heals(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=3), devices=(3,))
    await world.settle_in()

    await world.set_image(BROKEN)
    found = await world.until_stage("Preparing")
    await world.until(
        lambda o: any(r["reason"] == "ImageError" for r in o["status"]["replacements"]),
        "the image error to be named",
    )
    assert len(world.deletions()) == 1, "never more than the budget down"
    assert found["status"]["unavailableReplicas"] == 1

    await world.set_image(GOOD)
    await world.until_ready(image=GOOD)
    assert len(world.deletions()) == 2, "the broken pod, and no other"
    world.assert_promises()


async def test_a6_broken_pods_go_first_and_one_at_a_time(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=3, image="example.com/llm:unready"), devices=(3,))
    await world.make_workload()
    await world.make_rollout()
    expected = 3 if kind == "Deployment" else 1  # an ordered StatefulSet waits for its first pod
    bound: set[str] = set()

    def all_bound(one: Recorded) -> bool:
        if one.kind == "Pod" and one.object["spec"].get("nodeName"):
            bound.add(one.uid)
        return len(bound) == expected

    await world.recorder.until(all_bound, what="the first pods to come to their nodes")

    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    assert len(world.deletions()) == expected
    world.assert_promises()


async def test_labels_patched_by_others_in_mid_step_cost_no_pod(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=2, faults={"teardown_seconds": 2}), devices=(2,))
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    for number in range(10):
        label = {"metadata": {"labels": {"touched": str(number)}}}
        for pod in await world.pods():
            name = pod["metadata"]["name"]
            await world.api.patch(PODS, name, label, world.namespace, patch_type=PatchType.MERGE)
        await world.api.patch(world.workload, "worker", label, world.namespace, patch_type=PatchType.MERGE)
        await world.api.patch(
            ACCELERATOR_ROLLOUTS, "worker", label, world.namespace, patch_type=PatchType.MERGE
        )
    await world.until_ready(image=NEWER)
    assert len(world.deletions()) == 2
    world.assert_promises()


async def test_a_node_that_is_removed_after_its_pod_has_ended_keeps_nobody_waiting(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=1), devices=(1, 1))
    await world.settle_in(spec={"release": {"settleSeconds": 3}})
    (old,) = await world.pods()
    await world.set_image(NEWER)
    await world.until_stage("Settling")
    await world.nodes.node_of(old).remove()
    await world.until_ready(image=NEWER)
    (new,) = await world.pods()
    assert new["spec"]["nodeName"] != old["spec"]["nodeName"]
    world.assert_promises()


@EACH
async def test_a_stranger_takes_the_device_and_nothing_more_goes_down(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    shape = Shape(kind, replicas=2, faults={"teardown_seconds": 1})
    world = await make_world(shape, devices=(1, 1) if kind == "DaemonSet" else (2,))
    await world.settle_in()
    await world.make_pod("stranger")
    await world.set_image(NEWER)
    await world.until_reason("DevicesReleased", "DeviceTaken")
    assert len(world.deletions()) == 1
    said = condition_of(await world.rollout(), "DevicesReleased")
    assert said is not None
    assert "stranger" in said["message"], "a claim of the same namespace is named"

    await world.api.delete(PODS, "stranger", world.namespace)
    await world.until_ready(image=NEWER)
    assert len(world.deletions()) == 2
    world.assert_promises()


async def test_a_pod_that_somebody_else_deletes_is_replaced_behind_the_gate(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=2, faults={"unprepare_seconds": 2}), devices=(2,))
    await world.settle_in()
    victim = (await world.pods())[0]["metadata"]
    await world.api.delete(PODS, victim["name"], world.namespace)
    found = await world.until_stage("Releasing", "Terminating")
    assert found["status"]["replacements"][0]["cause"] == "Departure"
    await world.until(lambda o: not o["status"].get("replacements"), "the departure to be made good")
    await world.until_ready()
    assert len(world.deletions()) == 1
    world.assert_promises()


async def test_a_forced_deletion_is_unproven_and_costs_the_wait(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=1, grace=2, faults={"teardown_seconds": 1}), devices=(1,))
    await world.settle_in(spec={"release": {"unproven": {"extraSeconds": 2}}})
    victim = (await world.pods())[0]["metadata"]
    await world.api.delete(PODS, victim["name"], world.namespace, grace_seconds=0)
    await world.until_reason("DevicesReleased", "ReleaseUnproven")
    await world.until(lambda o: not o["status"].get("replacements"), "the departure to be made good")
    await world.until_ready()
    world.assert_promises()


@pytest.mark.parametrize("hold", ["Never", "Always"])
@EACH
async def test_a10_a_template_without_grace_costs_a_wait_for_each_pod(
    kind: str, hold: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """A grace of 0 makes a forced deletion of every one: the pod is gone at once, and its containers are not."""
    lingering = {"teardown_seconds": 0.5, "unprepare_seconds": 0.5}
    shape = Shape(kind, replicas=2, grace=0, hold=hold, faults=lingering)
    world = await make_world(shape, devices=(1, 1) if kind == "DaemonSet" else (2,))
    await world.settle_in(spec={"release": {"unproven": {"extraSeconds": 3}}})
    met = condition_of(await world.rollout(), "GuardrailsMet")
    assert met is not None
    assert "terminationGracePeriodSeconds is 0:" in met["message"]
    await world.set_image(NEWER)
    await world.until_reason("DevicesReleased", "ReleaseUnproven")
    gauge = f'unproven_releases{{name="{world.name}",namespace="{world.namespace}"}} 1.0'
    assert gauge in await operator.metrics()
    assert await world.gone() == 1
    done = await world.until_ready(image=NEWER)
    assert await world.gone() == 2
    assert [r["proof"] for r in done["status"]["history"][0]["replacements"]] == ["WaitElapsed"] * 2
    assert world.most_down() == 1
    world.assert_promises()


async def test_a_third_image_in_mid_step_just_changes_the_target(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=3, faults={"teardown_seconds": 1}), devices=(3,))
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    await world.set_image("example.com/llm:v3")
    await world.until_ready(image="example.com/llm:v3", seconds=90)
    assert {image_of(p) for p in await world.pods()} == {"example.com/llm:v3"}
    world.assert_promises()


async def test_scaling_in_mid_step(kind: str, make_world: MakeWorld, operator: OperatorProcess) -> None:
    world = await make_world(Shape(kind, replicas=2, faults={"teardown_seconds": 1}), devices=(4,))
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    await world.scale(4)
    await world.until_ready(image=NEWER, seconds=90)
    await world.set_image(GOOD)
    await world.until_stage("Terminating")
    await world.scale(1)
    await world.until_ready(image=GOOD, seconds=90)
    assert len(await world.pods()) == 1
    world.assert_promises()


async def test_ten_idle_minutes_scaled_to_one_bring_no_write(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """60 s: longer than a resync and than every timer that could tick."""
    one = await make_world(Shape("Deployment", replicas=1), devices=(1, 1))
    other = replace(one, name="other", shape=Shape("StatefulSet", replicas=1))
    await one.settle_in()
    await other.settle_in()
    async with asyncio.timeout(30):  # that each is complete is told by an Event, after the status
        while await _told_of(one) != {one.name, other.name}:  # noqa: ASYNC110 - two objects, one look
            await asyncio.sleep(0.2)
    before = _writes(await operator.metrics())
    versions = [(await world.rollout())["metadata"]["resourceVersion"] for world in (one, other)]
    await asyncio.sleep(60)
    after = [(await world.rollout())["metadata"]["resourceVersion"] for world in (one, other)]
    assert after == versions
    assert _writes(await operator.metrics()) == before, "an idle operator writes nothing"


async def _told_of(world: World) -> set[str]:
    about = [e["involvedObject"] for e in (await world.api.list(EVENTS, world.namespace)).items]
    return {entry["name"] for entry in about if entry["kind"] == "AcceleratorRollout"}


def _writes(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if line.startswith("accelerator_rollout_api_requests_total{")]
    found = (line.rsplit(" ", 1) for line in lines if 'verb="patch"' in line or 'verb="post"' in line)
    return {labels: float(count) for labels, count in found}


async def test_a_pod_that_the_kubelet_evicts_does_not_haunt_later_rollouts(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """A Deployment's evicted pod stays as an object; a StatefulSet's controller removes it."""
    world = await make_world(Shape(kind, replicas=2, faults={"unprepare_seconds": 1}), devices=(2,))
    await world.settle_in()
    victim = (await world.pods())[0]
    world.nodes.node_of(victim).evict(victim["metadata"]["uid"])
    await world.until_replaced(victim["metadata"]["uid"])
    await world.until(lambda o: not o["status"].get("replacements"), "the departure to be made good")
    await world.until_ready()

    await world.set_image(NEWER)
    await world.until_ready(seconds=60)
    await world.until(lambda o: o["status"]["updatedReplicas"] == 2, "both pods at the new image")
    world.assert_promises()


@EACH
async def test_what_an_evicted_pod_held_settles_before_its_successor_opens(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Its claim may be free before anyone looks; a Deployment's stays as an object, so nothing tells of it by going."""
    world = await make_world(Shape(kind, replicas=1, faults={"unprepare_seconds": 0}), devices=(1,))
    await world.settle_in(spec={"release": {"settleSeconds": 3}})
    (victim,) = await world.pods()
    uid = victim["metadata"]["uid"]
    world.nodes.node_of(victim).evict(uid)
    await world.until_replaced(uid)
    allocated = world.recorder.first(
        "allocation", kind="ResourceClaim", predicate=lambda c: bool(c.status.get("allocation"))
    )
    free = world.recorder.first(
        "claim free",
        kind="ResourceClaim",
        predicate=lambda c: (
            c.uid == allocated.uid and c.version > allocated.version and not c.status.get("allocation")
        ),
    )
    opened = world.recorder.first(
        "opening",
        kind="Pod",
        predicate=lambda p: p.uid != uid and p.name.startswith("worker") and not gated(p.object),
    )
    assert opened.monotonic - free.monotonic > 2.8
    await world.until(lambda o: not o["status"].get("replacements"), "the departure to be made good")
    await world.until_ready()
    world.assert_promises()
