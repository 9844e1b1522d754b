"""Given nodes that are drained, that go, or that come in the middle of a rollout, then no further pod goes down for it."""

import pytest

from lab.client import EventType, Object
from lab.operator_process import OperatorProcess
from lab.recorder import Recorded
from lab.resources import NODES, PODS
from lab.world import GROUP_LABEL, NEWER, MakeWorld, Shape, World, condition_of, image_of, pod_is_ready

SLOW = "example.com/llm:slow"  # ready after 5 s
EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
FAULTS = {"teardown_seconds": 0.3, "unprepare_seconds": 0.2}


async def loading(make_world: MakeWorld, kind: str, hold: str = "Never") -> tuple[World, Object]:
    """Three pods on a node each (with one to spare, where a pod may move), the first successor of which loads its model.

    Return the world and an old pod that is well.
    """
    shape = Shape(kind, replicas=3, grace=2, hold=hold, faults=FAULTS)
    world = await make_world(shape, devices=(1,) * (3 if kind == "DaemonSet" else 4))
    await world.settle_in(spec={"release": {"hold": hold, "unproven": {"extraSeconds": 2}}})
    await world.set_image(SLOW)
    await world.until_stage("WarmingUp")
    old = next(p for p in await world.pods() if image_of(p) != SLOW and pod_is_ready(p))
    return world, old


def ready_before(world: World, moment: Recorded) -> set[str]:
    """The UIDs of the workload's pods that were ready and stayed, right before this change."""
    ready: set[str] = set()
    for one in world.recorder.events(kind="Pod"):
        if one.version >= moment.version:
            break
        well = one.type is not EventType.DELETED and not one.deleting and pod_is_ready(one.object)
        (ready.add if well else ready.discard)(one.uid)
    return ready


@EACH
async def test_a_drain_of_another_node_while_a_successor_loads_counts_until_both_are_back(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world, old = await loading(make_world, kind)
    node = old["spec"]["nodeName"]
    await world.api.patch(NODES, node, {"spec": {"unschedulable": True}})
    await world.api.evict(old["metadata"]["name"], world.namespace)
    await world.until_ready(image=SLOW, seconds=90)
    gone = world.deletions()
    # Under OnDelete the drained pod comes back updated; a Deployment that we paused makes the old one again.
    assert len(gone) == (4 if kind == "Deployment" else 3)
    assert gone[1].uid == old["metadata"]["uid"]
    assert all(len(ready_before(world, one)) == 3 for one in gone[2:])
    assert world.most_down() == 2
    assert world.assert_gates_after_release() >= 3
    world.assert_promises()


@EACH
async def test_an_old_pod_that_goes_with_its_node_counts_and_is_not_deleted_again(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Its devices are held; all but a DaemonSet's successor go elsewhere."""
    world, old = await loading(make_world, kind, hold="Always")
    node = world.nodes.node_of(old)
    await node.remove()
    # As the pod garbage collector does it, some 50 s later.
    await world.api.delete(PODS, old["metadata"]["name"], world.namespace, grace_seconds=0)
    told = await world.until_reason("DevicesReleased", "ReleaseUnproven")
    said = condition_of(told, "DevicesReleased")
    assert said is not None
    assert f"{old['metadata']['name']} vanished" in said["message"]
    assert f"node {node.name} is gone" in said["message"]
    await world.until_ready(image=SLOW, seconds=90)
    gone = world.deletions()
    wanted = 2 if kind == "DaemonSet" else 3
    assert len(gone) == (4 if kind == "Deployment" else 3)
    assert gone[1].uid == old["metadata"]["uid"]
    assert all(len(ready_before(world, one)) == wanted for one in gone[2:])
    (entry,) = (await world.rollout())["status"]["replacements"]
    assert entry["podUID"] == old["metadata"]["uid"], "remembered, with its hold"
    world.ledger.assert_clean()


@EACH
async def test_a_node_that_is_ready_before_its_slices_exist_is_no_room(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    shape = Shape(kind, replicas=2, grace=2, faults=FAULTS)
    world = await make_world(shape, devices=(1, 1))
    await world.settle_in()
    well = {p["metadata"]["uid"] for p in await world.pods()}
    late = await world.nodes.add(
        f"{world.namespace}-late", devices=1, published=False, labels={GROUP_LABEL: world.namespace}
    )
    if kind != "DaemonSet":
        await world.scale(3)
    await until_said(world, "AwaitingScheduler")

    await world.set_image(NEWER)
    await world.recorder.until(
        lambda one: one.kind == "Pod" and image_of(one.object) == NEWER and _unplaced(one),
        what="the pod without a node at the new image",
        timeout=30,
    )
    await until_said(world, "Scheduling", "PodsUnavailable")
    assert not well & {one.uid for one in world.deletions()}, "no pod that serves goes for it"

    await late.publish()
    await world.until_ready(image=NEWER, seconds=90)
    assert len(world.deletions()) == 3
    assert late.name in {p["spec"]["nodeName"] for p in await world.pods()}
    world.assert_promises()


async def until_said(world: World, *reasons: str) -> None:
    """Await that Progressing has one of these reasons and the scheduler's own words."""

    def there(rollout: Object) -> bool:
        said = condition_of(rollout, "Progressing") or {}
        return said.get("reason") in reasons and "cannot allocate all claims" in said["message"]

    await world.until(there, f"{' or '.join(reasons)} with the scheduler's words", seconds=30)


def _unplaced(one: Recorded) -> bool:
    return any(c.get("reason") == "Unschedulable" for c in one.status.get("conditions") or [])
