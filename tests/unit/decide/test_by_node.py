"""A DaemonSet is counted node by node: what happened on one node keeps no other waiting, unless devices are shared."""

from dataclasses import replace

from accelerator_rollout.decide.actions import OpenGate
from accelerator_rollout.decide.reasons import NotFree, Waiting
from accelerator_rollout.records import Access, Phase
from builders import EXTRA, GRACE, NEW, NOW, World, at, device, gated_pod, node, of_type, pool, running

KIND = "DaemonSet"


def opened(world: World, seconds: float = 0) -> list[str]:
    return [a.pod_name for a in of_type(world.actions(at(seconds)), OpenGate) if isinstance(a, OpenGate)]


def forced_on_node_2() -> World:
    """The pod of node-2 was deleted by force; on node-3, which has just joined, a first pod waits."""
    world = running(KIND, digest=NEW, replicas=3)
    world.set_workload(replicas=4)
    world.recorded("worker-2", 2)
    world.vanish("worker-2", NOW)
    world.put(gated_pod("worker-2", kind=KIND))
    world.slices.append(pool(3))
    world.nodes["node-3"] = node("node-3")
    world.put(gated_pod("worker-3", kind=KIND))
    return world


def test_the_successor_is_whoever_is_made_for_the_same_node() -> None:
    world = forced_on_node_2()
    linked = {e.pod_name: e.replacement_pod_name for e in world.plan().status.replacements}
    assert linked == {"worker-2": "worker-2"}


def test_a_pod_of_another_node_opens_while_a_release_is_unproven() -> None:
    world = forced_on_node_2()
    assert opened(world) == ["worker-3"]
    assert opened(world, GRACE + EXTRA + 1) == ["worker-2", "worker-3"]


def test_devices_that_any_node_may_use_keep_all_waiting() -> None:
    world = forced_on_node_2()
    world.slices[2] = pool(2, access=Access(every=True))
    assert opened(world) == []


def test_devices_published_for_the_other_node_keep_its_pod_waiting() -> None:
    world = forced_on_node_2()
    world.slices[2] = pool(2, access=Access(node="node-3"))
    assert opened(world) == []


def test_a_node_has_room_for_one_device_set() -> None:
    """Two pods of one node: its controller deletes one of them soon, and until then only one may have devices."""
    world = running(KIND, digest=NEW)
    world.change("worker-2", ready=False, phase=Phase.PENDING)
    world.put(gated_pod("worker-2", kind=KIND, uid="q-second"))
    assert opened(world) == []


def test_an_unknown_predecessor_was_on_the_same_node_and_a_reboot_proves_its_end() -> None:
    world = running(KIND, digest=NEW)
    gone = world.named("worker-2")
    world.vanish("worker-2", seen=False)
    world.watched_since = NOW
    world.put(gated_pod("worker-2", kind=KIND, created=at(-5)))
    first = world.plan()
    (told,) = first.status.replacements
    assert (told.node_name, told.boot_id, told.reason) == (gone.node, "boot-node-2", NotFree.RELEASE_UNPROVEN)
    world.store(first)
    assert opened(world) == []
    world.nodes["node-2"] = replace(world.nodes["node-2"], boot_id="another")
    assert opened(world) == ["worker-2"]


def test_a_hold_tells_the_node_once_the_pool_is_published_again() -> None:
    world = forced_on_node_2()
    world.slices = [s for s in world.slices if s.name != "slice-2"]
    world.status = world.status.model_copy(
        update={
            "replacements": tuple(
                e.model_copy(update={"node_name": "", "node_uid": "", "boot_id": ""})
                for e in world.status.replacements
            )
        }
    )
    world.vanished.clear()
    decided = world.plan(at(10_000))
    told = next(e for e in decided.status.replacements if e.pod_name == "worker-2")
    assert (told.proof, told.reason) == (None, NotFree.RELEASE_UNPROVEN)
    world.slices.append(pool(2))
    told = next(e for e in world.plan(at(10_000)).status.replacements if e.pod_name == "worker-2")
    assert told.node_name == "node-2"


def test_while_no_revision_is_known_no_pod_goes() -> None:
    world = running(KIND)
    world.revisions = world.revisions[:1]
    decided = world.plan()
    assert decided.actions == ()
    assert next(c.reason for c in decided.status.conditions if c.type == "Progressing") == (
        Waiting.CONTROLLER_BEHIND
    )


def test_the_device_that_the_successor_gets_is_its_nodes() -> None:
    world = forced_on_node_2()
    (entry,) = world.plan().status.replacements
    assert [d.device for c in entry.claims for d in c.devices] == [device(2).name]
