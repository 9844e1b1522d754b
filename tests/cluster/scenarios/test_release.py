"""Every way a release gets stuck has its own reason, costs no further pod, and goes on by itself once it is repaired."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from accelerator_rollout.names import HOSTNAME_LABEL
from lab.client import Object
from lab.controlplane import ControlPlane
from lab.nodes.node import SimulatedNode
from lab.operator_process import OperatorProcess
from lab.resources import NODES, RESOURCE_CLAIMS
from lab.world import NEWER, MakeWorld, Shape, World, condition_of

# A fifth of it is when a step that others take in seconds counts as stuck.
IMPATIENT = {"release": {"timeoutSeconds": 10}}
SLOW = {"teardown_seconds": 1.0, "unprepare_seconds": 0.3}
EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])


async def made(make_world: MakeWorld, kind: str, **over: Any) -> World:
    """Two pods that fill their node, or a node each if of a DaemonSet."""
    shape = Shape(kind, replicas=2, faults=SLOW, **over)
    return await make_world(shape, devices=(1, 1) if kind == "DaemonSet" else (2,))


def nodes_of(world: World) -> list[SimulatedNode]:
    count = 2 if world.shape.kind == "DaemonSet" else 1
    return [world.nodes.node(f"{world.namespace}-{number}") for number in range(count)]


async def replacement(world: World, reason: str, words: str = "") -> Object:
    """Await that a replacement in flight has this reason, with these words in its message; return it."""

    def fitting(rollout: Object) -> list[Object]:
        listed = (rollout.get("status") or {}).get("replacements") or []
        return [r for r in listed if r.get("reason") == reason and words in r.get("message", "")]

    found = await world.until(lambda o: bool(fitting(o)), f"a replacement with reason {reason}", seconds=40)
    return fitting(found)[0]


async def finish(world: World, deletions: int) -> None:
    await world.until_ready(image=NEWER, seconds=90)
    assert len(world.deletions()) == deletions
    world.assert_promises()


@EACH
async def test_a2_no_pod_goes_while_its_driver_is_down(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, kind)
    await world.settle_in()
    for node in nodes_of(world):
        await node.driver_down()
        await node.publish_nothing()
    await world.set_image(NEWER)
    found = await world.until_reason("Progressing", "DriverUnavailable")
    said = condition_of(found, "Progressing")
    assert said is not None
    assert f"node {world.namespace}-" in said["message"] or f"pool {world.namespace}-" in said["message"]
    assert not world.deletions()
    for node in nodes_of(world):
        await node.driver_up()
    await finish(world, 2)


@EACH
async def test_a2_a_driver_that_goes_during_the_deletion(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, kind)
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    for node in nodes_of(world):
        await node.driver_down()
        await node.publish_nothing()
    await world.until_reason("DevicesReleased", "DriverUnavailable")
    assert len(world.deletions()) == 1
    for node in nodes_of(world):
        await node.driver_up()
    await finish(world, 2)


@EACH
async def test_a3_one_claim_that_stays_allocated_keeps_no_other_rollout(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Somebody keeps the claim by an entry and a finalizer of their own: neither is touched."""
    world = await make_world(Shape(kind, replicas=1, faults=SLOW), devices=(2,))
    other = replace(world, name="other")
    await world.settle_in(spec=IMPATIENT)
    await other.settle_in(spec=IMPATIENT)
    (pod,) = await world.pods()
    name = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    claim = await world.api.get(RESOURCE_CLAIMS, name, world.namespace)
    theirs = {"apiGroup": "example.com", "resource": "things", "name": "thing", "uid": "of-a-thing"}
    reserved = [*claim["status"]["reservedFor"], theirs]
    await _become(world, name, {"status": {"reservedFor": reserved}}, subresource="status")
    finalizers = [*claim["metadata"].get("finalizers", []), "example.com/theirs"]
    await _become(world, name, {"metadata": {"finalizers": finalizers}})

    await world.set_image(NEWER)
    entry = await replacement(world, "ClaimAllocated")
    assert "things thing" in entry["message"]
    await other.set_image(NEWER)
    await other.until_ready(image=NEWER)

    await _become(world, name, {"status": {"reservedFor": None}}, subresource="status")
    await finish(world, 1)
    found = await world.api.get(RESOURCE_CLAIMS, name, world.namespace)
    assert found["metadata"]["finalizers"] == ["example.com/theirs"]
    await _become(world, name, {"metadata": {"finalizers": None}})


async def _become(world: World, claim: str, body: Object, subresource: str | None = None) -> None:
    await world.api.patch(RESOURCE_CLAIMS, claim, body, world.namespace, subresource=subresource)


@pytest.fixture
def stopped_controllers(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane whose controller manager may be stopped; afterwards it goes on."""
    yield control_plane
    control_plane.resume_component("kube-controller-manager")


@EACH
async def test_a3_a_claim_that_stays_reserved_for_a_pod_that_has_ended_and_then_for_nobody(
    kind: str, stopped_controllers: ControlPlane, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=1, faults=SLOW), devices=(1,))
    await world.settle_in(spec=IMPATIENT)
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    stopped_controllers.pause_component("kube-controller-manager")
    entry = await replacement(world, "OrphanedClaim")
    assert "controller manager" in entry["message"]
    (held,) = entry["claims"]
    await _become(world, held["name"], {"status": {"reservedFor": None}}, subresource="status")
    entry = await replacement(world, "DeallocationStalled")
    assert held["name"] in entry["message"]
    stopped_controllers.resume_component("kube-controller-manager")
    await finish(world, 1)


@EACH
async def test_one_device_allocated_twice_halts(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, kind)
    await world.settle_in()
    (first, *_) = await world.claims()
    request = {"name": "device", "exactly": {"deviceClassName": world.device_class}}
    twin = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "twin", "namespace": world.namespace},
        "spec": {"devices": {"requests": [request]}},
    }
    await world.api.create(RESOURCE_CLAIMS, twin)
    theirs = {"apiGroup": "example.com", "resource": "things", "name": "thing", "uid": "of-a-thing"}
    status = {"allocation": first["status"]["allocation"], "reservedFor": [theirs]}
    await _become(world, "twin", {"status": status}, subresource="status")
    await world.set_image(NEWER)
    found = await world.until_reason("Progressing", "DoubleAllocation")
    said = condition_of(found, "Progressing")
    assert said is not None
    assert "ResourceClaim twin" in said["message"]
    assert first["metadata"]["name"] in said["message"]
    assert not world.deletions()
    # To go on now would be unsafe: the scheduler does not count, and hands out the device once one of the two is gone.
    await world.change_rollout({"paused": True})
    await _become(world, "twin", {"status": {"reservedFor": None, "allocation": None}}, subresource="status")
    await world.until_reason("Progressing", "Paused")
    assert not world.deletions()


@EACH
async def test_a_prepare_that_keeps_failing_is_named_and_no_pod_goes_for_it(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, kind)
    await world.settle_in(spec=IMPATIENT)
    for node in nodes_of(world):
        await node.set_faults(prepare_failures=10_000)
    await world.set_image(NEWER)
    entry = await replacement(world, "PrepareFailed")
    assert f"node {world.namespace}-" in entry["message"]
    assert f"{world.device_class}/" in entry["message"]
    assert len(world.deletions()) == 1
    for node in nodes_of(world):
        await node.set_faults(prepare_failures=None)
    await finish(world, 2)


@EACH
async def test_a_process_that_cannot_die_is_named_and_never_deleted_by_force(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, kind, grace=1)
    await world.settle_in(spec=IMPATIENT)
    for node in nodes_of(world):
        await node.set_faults(unprepare_failures=10_000)
    await world.set_image(NEWER)
    entry = await replacement(world, "TerminationStuck")
    assert f"node {world.namespace}-" in entry["message"]
    assert len(world.deletions()) == 1
    for node in nodes_of(world):
        await node.set_faults(unprepare_failures=None)
    await finish(world, 2)


async def test_an_open_pod_that_the_scheduler_cannot_place(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=2, faults=SLOW), devices=(2,))
    await world.settle_in()
    name = f"{world.namespace}-0"
    await world.set_image(NEWER)
    await replacement(world, "PodTerminating")  # before that, a node without a place would keep its pods
    await world.api.patch(NODES, name, {"spec": {"unschedulable": True}})
    await replacement(world, "AwaitingScheduler", words="unschedulable")
    found = await world.rollout()
    released = condition_of(found, "DevicesReleased")
    assert released is not None
    assert released["status"] == "True"
    assert len(world.deletions()) == 1
    await world.api.patch(NODES, name, {"spec": {"unschedulable": None}})
    await finish(world, 2)


async def test_a_replacement_goes_to_the_node_of_its_predecessor(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=2, faults={"teardown_seconds": 0.3}), devices=(2, 2))
    await world.settle_in(spec={"release": {"placement": "SameNode"}})
    before = Counter(p["spec"]["nodeName"] for p in await world.pods())
    await world.set_image(NEWER)
    await finish(world, 2)
    pods = await world.pods()
    assert Counter(p["spec"]["nodeName"] for p in pods) == before
    assert all(p["spec"]["nodeSelector"] == {HOSTNAME_LABEL: p["spec"]["nodeName"]} for p in pods)
