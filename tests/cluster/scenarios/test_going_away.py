"""Given a rollout in the middle, when its object, its namespace or the operator goes, then no pod is left stranded."""

import argparse
import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from accelerator_rollout.cli import release_all
from accelerator_rollout.names import FINALIZER, MANAGED_LABEL, PARKED_ANNOTATION
from lab.client import EventType, Object
from lab.operator_process import OperatorProcess
from lab.resources import ACCELERATOR_ROLLOUTS, DEPLOYMENTS, NAMESPACES, PODS
from lab.world import GOOD, NEWER, MakeWorld, Shape, World, gated, image_of

SLOW = {"teardown_seconds": 2, "unprepare_seconds": 0.5}
EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
SOON = {"release": {"unproven": {"extraSeconds": 2}}}


async def delete_rollout(world: World, *, seconds: float = 40.0) -> None:
    """Delete our object and await that it is gone, finalizer and all."""
    await world.api.delete(ACCELERATOR_ROLLOUTS, world.name, world.namespace)
    await world.api.wait_gone(ACCELERATOR_ROLLOUTS, world.name, world.namespace, timeout=seconds)


async def until_pods(world: World, count: int, *, image: str = "", seconds: float = 40.0) -> list[Object]:
    """Await that so many pods of the workload, and no others, are ready (at the image)."""

    def fine(pods: list[Object]) -> bool:
        return len(pods) == count and all(ready(p) and (not image or image_of(p) == image) for p in pods)

    pods: list[Object] = []
    try:
        async with asyncio.timeout(seconds), aclosing(world.api.follow(PODS, world.namespace)) as changes:
            async for _ in changes:
                pods = await world.pods()
                if fine(pods):
                    break
    except TimeoutError as error:
        shown = [(p["metadata"]["name"], image_of(p), p["spec"].get("schedulingGates")) for p in pods]
        raise AssertionError(
            f"{count} ready pods did not come within {seconds:g} s: {shown}\n"
            + world.recorder.render(namespace=world.namespace)
        ) from error
    return pods


def ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


async def assert_nothing_of_ours(world: World) -> None:
    assert not [p["metadata"]["name"] for p in await world.pods() if gated(p)]
    for pod in await world.pods():
        assert not [f for f in pod["metadata"].get("finalizers") or [] if "accelerator-rollout" in f]
    if world.shape.kind == "Deployment":
        found = await world.api.get(DEPLOYMENTS, world.name, world.namespace)
        assert MANAGED_LABEL not in (found["metadata"].get("labels") or {})
        assert PARKED_ANNOTATION not in (found["metadata"].get("annotations") or {})
        assert not found["spec"].get("paused")


@EACH
async def test_the_pod_in_flight_is_finished_and_the_workload_is_its_controllers_again(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    devices = (1, 1) if kind == "DaemonSet" else (2,)
    world = await make_world(Shape(kind, replicas=2, faults=SLOW), devices=devices)
    await world.settle_in()
    await world.set_image(NEWER)
    going = (await world.until_stage("Terminating"))["status"]["replacements"][0]

    await delete_rollout(world)

    see = world.recorder
    held = {c["uid"] for c in going["claims"]}
    free = see.first(
        "claim free",
        kind="ResourceClaim",
        predicate=lambda c: c.uid in held and (c.type is EventType.DELETED or not c.status.get("allocation")),
    )
    opened = await see.until(
        lambda p: p.kind == "Pod" and image_of(p.object) == NEWER and not gated(p.object),
        what="the first gate to open",
    )
    see.order(free, opened)
    if kind == "Deployment":  # its controller goes on by itself; OnDelete waits for people
        await until_pods(world, 2, image=NEWER)
    else:
        images = {image_of(p) for p in await until_pods(world, 2)}
        assert images == {GOOD, NEWER}
    await assert_nothing_of_ours(world)
    world.ledger.assert_clean()


async def test_without_any_proof_the_gate_opens_after_the_wait_and_an_event_says_so(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """The node was lost, so its word will never come; the object does not stay for ever."""
    world = await make_world(Shape(kind, replicas=1, grace=1, faults=SLOW), devices=(1,))
    await world.settle_in(spec=SOON)
    victim = (await world.pods())[0]
    await world.nodes.node_of(victim).lose(noticed=True)
    await world.api.delete(PODS, victim["metadata"]["name"], world.namespace, grace_seconds=0)
    await world.until_reason("DevicesReleased", "ReleaseUnproven")

    await delete_rollout(world)

    await world.recorder.until(
        lambda one: (
            one.kind == "Pod"
            and one.uid != victim["metadata"]["uid"]
            and one.name.startswith("worker")
            and not gated(one.object)
        ),
        what="the gate to open",
    )
    said = [e for e in await events(world) if e["reason"] == "OpenedWithoutProof"]
    assert said
    assert victim["metadata"]["name"] in said[0]["message"]


async def events(world: World) -> list[Object]:
    path = f"/api/v1/namespaces/{world.namespace}/events"
    return list((await world.api.request("GET", path))["items"])


@EACH
async def test_a_gate_of_others_stays(kind: str, make_world: MakeWorld, operator: OperatorProcess) -> None:
    world = await make_world(Shape(kind, replicas=1, foreign_gate="example.com/quota"), devices=(1,))
    await world.make_workload()
    await world.make_rollout()
    await world.until_reason("Progressing", "WaitingForAdmission")

    await delete_rollout(world)

    (pod,) = await world.pods()
    assert [g["name"] for g in pod["spec"]["schedulingGates"]] == ["example.com/quota"]


async def test_pods_that_come_later_are_not_stranded_either(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """The gate is still in the template: a scale-up and a drained pod come gated, and no object answers for them."""
    world = await make_world(Shape(kind, replicas=1), devices=(3,))
    await world.settle_in()
    await delete_rollout(world)

    await world.scale(2)
    pods = await until_pods(world, 2)
    await world.api.delete(PODS, pods[0]["metadata"]["name"], world.namespace)
    await world.recorder.until(
        lambda one: one.uid == pods[0]["metadata"]["uid"] and one.type is EventType.DELETED,
        what="the drained pod to go",
    )
    await until_pods(world, 2)
    await assert_nothing_of_ours(world)
    world.ledger.assert_clean()


async def test_an_object_that_comes_again_in_mid_step_goes_on(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=3, faults=SLOW), devices=(3,))
    await world.settle_in(spec=SOON)
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    await delete_rollout(world)
    await world.make_rollout(SOON)
    await world.until_ready(image=NEWER, seconds=90)
    assert len(world.deletions()) == 3
    world.assert_promises()


async def test_the_namespace_goes_in_mid_rollout(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=2, faults=SLOW), devices=(2,))
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    await world.api.delete(NAMESPACES, world.namespace)
    await world.api.wait_gone(NAMESPACES, world.namespace, timeout=40)
    world.ledger.assert_clean()
    assert operator.is_running


async def test_release_all_without_an_operator(
    kind: str, make_world: MakeWorld, operator: OperatorProcess, tmp_path: Path
) -> None:
    world = await make_world(Shape(kind, replicas=2, faults=SLOW), devices=(2,))
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_stage("Gated", "Releasing", "Terminating")
    operator.kill()
    kubeconfig = tmp_path / "admin.kubeconfig"
    world.api.connection.write_kubeconfig(kubeconfig, context="lab", user="admin")
    arguments = argparse.Namespace(
        kubeconfig=str(kubeconfig), context="lab", namespace=world.namespace, dry_run=False, yes=True
    )
    said: list[str] = []

    # A pod may still come gated, as its controller makes it a moment later: then the command is to be run again.
    async def released() -> bool:
        code = await asyncio.to_thread(release_all.main, arguments, said.append)
        assert code == 0, said
        pods = await world.pods()
        return len([p for p in pods if not p["metadata"].get("deletionTimestamp")]) == 2 and not any(
            gated(p) for p in pods
        )

    async with asyncio.timeout(40), aclosing(world.api.follow(PODS, world.namespace)) as changes:
        async for _ in changes:
            if await released():
                break

    rollout = await world.rollout()
    assert FINALIZER not in (rollout["metadata"].get("finalizers") or [])
    assert any("carries our gate" in line for line in said), said
    await assert_nothing_of_ours(world)
    await delete_rollout(world)
    world.ledger.assert_clean()
