"""A DaemonSet with OnDelete: replaced node by node, and every departure of a pod is accounted for."""

from collections.abc import Callable
from typing import Any

import pytest

from lab.client import EventType, Object, PatchType
from lab.operator_process import OperatorProcess
from lab.recorder import Recorded
from lab.resources import NODES, POD_DISRUPTION_BUDGETS, PODS
from lab.world import GROUP_LABEL, NEWER, MakeWorld, Shape, World, condition_of, gated, is_ready

SLOW = {"teardown_seconds": 0.5, "unprepare_seconds": 0.5}
WAIT = {"release": {"unproven": {"extraSeconds": 3}}}


def daemon_set(**over: Any) -> Shape:
    facts: dict[str, Any] = {"grace": 2, "faults": SLOW} | over
    return Shape("DaemonSet", **facts)


async def pod_of(world: World, node: str) -> Object:
    """The pod that is on the node, or made for it."""
    (found,) = [p for p in await world.pods() if place(p) == node]
    return found


def place(pod: Object) -> str:
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def successor(node: str, of: Object) -> Callable[[Recorded], bool]:
    """Whether it is a later pod of the node, at its gate."""

    def fits(one: Recorded) -> bool:
        return (
            one.kind == "Pod"
            and one.type is not EventType.DELETED
            and one.uid != of["metadata"]["uid"]
            and place(one.object) == node
            and gated(one.object)
        )

    return fits


@pytest.mark.parametrize("hold", ["Never", "Auto"])
async def test_a_new_image_replaces_every_pod_once(
    hold: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(daemon_set(hold=hold), devices=(1, 1, 1))
    await world.settle_in()

    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)

    assert len(world.deletions()) == 3
    assert world.assert_gates_after_release() == 3
    world.assert_promises()
    _assert_one_down_at_a_time(world)


def _assert_one_down_at_a_time(world: World) -> None:
    down: set[str] = set()
    for one in world.recorder.events(kind="AcceleratorRollout"):
        flying = (one.status.get("replacements") or []) if one.type is not EventType.DELETED else []
        down = {r["nodeName"] for r in flying if r["stage"] not in ("Selected", "Evicting")}
        assert len(down) <= 1, down


async def test_a_killed_operator_replaces_no_pod_twice(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(daemon_set(), devices=(1, 1))
    await world.settle_in(spec=WAIT)
    await world.set_image(NEWER)
    await world.until_stage("Terminating", "Releasing")
    operator.kill()
    await operator.restart()
    await world.until_ready(image=NEWER)
    assert len(world.deletions()) == 2
    world.assert_promises()


async def test_a10_by_force_on_one_node_keeps_no_other_waiting(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(daemon_set(), devices=(1, 1))
    await world.settle_in(spec={"release": {"unproven": {"extraSeconds": 8}}})
    node = f"{world.namespace}-0"
    victim = await pod_of(world, node)
    await world.api.delete(PODS, victim["metadata"]["name"], world.namespace, grace_seconds=0)
    found = await world.until_reason("DevicesReleased", "ReleaseUnproven")
    (entry,) = found["status"]["replacements"]
    assert entry["nodeName"] == node

    joined = f"{world.namespace}-2"
    await world.nodes.add(joined, devices=1, labels={GROUP_LABEL: world.namespace})
    opened = await world.recorder.until(
        lambda p: p.kind == "Pod" and p.object["spec"].get("nodeName") == joined, what="a pod on the new node"
    )
    ready = await world.until(
        lambda o: is_ready(o) and o["status"]["replicas"] == 3, "all three nodes", seconds=60
    )
    assert not ready["status"].get("replacements")
    late = await world.recorder.until(
        lambda p: (
            p.kind == "Pod"
            and p.uid != victim["metadata"]["uid"]
            and p.object["spec"].get("nodeName") == node
        ),
        what="the successor on the node",
    )
    world.recorder.order(opened, late)
    world.assert_promises()


async def test_a_node_that_goes_keeps_no_other_waiting_and_is_remembered(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Its machine was alive all the time: when it comes back, its old pod's process may still run."""
    world = await make_world(daemon_set(hold="Always"), devices=(1, 1))
    await world.settle_in(spec={"release": {"hold": "Always", "unproven": {"extraSeconds": 4}}})
    node = world.nodes.node(f"{world.namespace}-0")
    old = await pod_of(world, node.name)
    await node.remove()
    # As the pod garbage collector does it, some 50 s later.
    await world.api.delete(PODS, old["metadata"]["name"], world.namespace, grace_seconds=0)

    await world.set_image(NEWER)
    told = await world.until(
        lambda o: is_ready(o) and o["status"]["replicas"] == o["status"]["updatedReplicas"] == 1,
        "the rollout on the node that is left",
        seconds=60,
    )
    said = condition_of(told, "DevicesReleased")
    assert said is not None
    assert (said["status"], said["reason"]) == ("False", "ReleaseUnproven")
    assert node.name in said["message"]

    await node.come_back()
    await world.recorder.until(successor(node.name, old), what="a pod for the node that is back")
    await world.until(
        lambda o: is_ready(o) and o["status"]["replicas"] == 2 and not o["status"].get("replacements"),
        "both nodes",
        seconds=90,
    )
    assert len(world.deletions()) == 2
    world.assert_promises()


async def test_whatever_makes_a_pod_leave_its_successor_waits_for_the_proof(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """An eviction by the API, one by the kubelet, a deletion, a reboot, and a node that is taken from the DaemonSet."""
    world = await make_world(daemon_set(), devices=(1, 1))
    await world.settle_in(spec=WAIT)
    node = world.nodes.node(f"{world.namespace}-0")

    async def evict(pod: Object) -> None:
        await world.api.evict(pod["metadata"]["name"], world.namespace)

    async def under_pressure(pod: Object) -> None:
        node.evict(pod["metadata"]["uid"])

    async def delete(pod: Object) -> None:
        await world.api.delete(PODS, pod["metadata"]["name"], world.namespace)

    for leave in (evict, under_pressure, delete):
        before = await pod_of(world, node.name)
        await leave(before)
        await world.recorder.until(successor(node.name, before), what=f"the successor after {leave.__name__}")
        await world.until(
            lambda o: is_ready(o) and not o["status"].get("replacements"), f"rest after {leave.__name__}"
        )
        assert (await pod_of(world, node.name))["status"]["phase"] == "Running"
    await _label(world, node.name, None)
    await world.until(lambda o: is_ready(o) and o["status"]["replicas"] == 1, "one node")
    await _label(world, node.name, world.namespace)
    await world.until(lambda o: is_ready(o) and o["status"]["replicas"] == 2, "two nodes")
    world.assert_promises()


async def _label(world: World, node: str, value: str | None) -> None:
    labels = {"metadata": {"labels": {GROUP_LABEL: value}}}
    await world.api.patch(NODES, node, labels, patch_type=PatchType.MERGE)


async def test_a_budget_that_cannot_count_a_daemon_set_is_named(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """The disruption controller knows no scale of a DaemonSet: with maxUnavailable, a budget allows nothing for ever."""
    world = await make_world(daemon_set(), devices=(1,))
    await world.settle_in()
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "worker", "namespace": world.namespace},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "worker"}}},
    }
    await world.api.create(POD_DISRUPTION_BUDGETS, budget)
    await world.set_image(NEWER)
    found = await world.until_reason("Progressing", "BlockedByPDB")
    said = condition_of(found, "Progressing")
    assert said is not None
    assert "minAvailable" in said["message"]
    number = {"spec": {"maxUnavailable": None, "minAvailable": 0}}
    await world.api.patch(
        POD_DISRUPTION_BUDGETS, "worker", number, world.namespace, patch_type=PatchType.MERGE
    )
    await world.until_ready(image=NEWER)
