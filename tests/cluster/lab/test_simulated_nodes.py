"""The faults of a whole node, of its driver and of its pool, as the real API server and scheduler see them."""

import time

import pytest

from cluster.lab.workload import Bench, container_state, is_terminal, phase_is, restarts
from lab.client import Object, has_condition
from lab.ledger import Deed
from lab.nodes import SimulatedNodes, TaintEffect
from lab.recorder import Recorder
from lab.resources import LEASES, NODES, RESOURCE_SLICES

pytestmark = pytest.mark.cluster


def pools(slices: list[Object]) -> list[Object]:
    """What the slices say about their pool."""
    return [one["spec"]["pool"] for one in slices]


def device_names(slices: list[Object]) -> list[str]:
    """The devices that the slices list."""
    return [device["name"] for one in slices for device in one["spec"].get("devices") or ()]


async def unschedulable(bench: Bench, name: str = "llm") -> None:
    await bench.until(name, lambda pod: has_condition(pod, "PodScheduled", "False"))


# Nodes


async def test_a_node_is_ready_has_room_and_renews_its_lease(bench: Bench) -> None:
    await bench.nodes.add("node-a", devices=3, labels={"zone": "a"})
    node = await bench.node()
    lease = await bench.api.get(LEASES, "node-a", "kube-node-lease")

    assert has_condition(node, "Ready")
    assert node["status"]["allocatable"]["pods"] == "110"
    assert node["status"]["nodeInfo"]["bootID"]
    assert node["metadata"]["labels"]["zone"] == "a"
    assert lease["spec"]["holderIdentity"] == "node-a"
    assert device_names(await bench.slices()) == ["lpu-0", "lpu-1", "lpu-2"]

    await bench.nodes.node("node-a").renew_lease()
    renewed = await bench.api.get(LEASES, "node-a", "kube-node-lease")
    assert renewed["spec"]["renewTime"] > lease["spec"]["renewTime"]


async def test_a_lost_node_leaves_everything_as_it_was_and_ends_its_pods_when_it_is_back(
    bench: Bench, recorder: Recorder
) -> None:
    node = await bench.nodes.add("node-a", devices=1)
    await bench.pod()
    await bench.ready()
    await node.lose(noticed=True)
    assert has_condition(await bench.node(), "Ready", "Unknown")
    await bench.delete()
    with pytest.raises(TimeoutError):
        await recorder.until(is_terminal, timeout=0.5)
    assert len(bench.nodes.ledger.held()) == 1

    await node.come_back()
    await bench.gone()
    assert bench.nodes.ledger.held() == ()
    assert has_condition(await bench.node(), "Ready")


async def test_a_pod_forced_away_from_a_lost_node_holds_its_device_until_the_node_is_back(
    bench: Bench,
) -> None:
    node = await bench.nodes.add("node-a", devices=1)
    await bench.pod(teardown_seconds=0.1)
    await bench.ready()
    await node.lose()
    await bench.delete(force=True)
    await bench.gone()
    assert len(bench.nodes.ledger.held()) == 1

    await node.come_back()
    await bench.released()


async def test_a_reboot_changes_the_boot_id_stops_everything_and_restarts_the_pods(bench: Bench) -> None:
    node = await bench.nodes.add("node-a", devices=1)
    await bench.pod()
    await bench.ready()
    boot = (await bench.node())["status"]["nodeInfo"]["bootID"]
    await node.reboot()
    await bench.until("llm", lambda pod: pod is not None and restarts(pod) == 1)
    await bench.ready()

    assert (await bench.node())["status"]["nodeInfo"]["bootID"] != boot
    assert [(entry.deed, entry.cause) for entry in bench.nodes.ledger.entries()] == [
        (Deed.PREPARED, ""),
        (Deed.UNPREPARED, "reboot"),
        (Deed.PREPARED, ""),
    ]


async def test_a_reboot_ends_a_pod_that_was_terminating(bench: Bench) -> None:
    node = await bench.nodes.add("node-a", devices=1)
    await bench.pod(never_dies=True)
    await bench.ready()
    await bench.delete()
    await node.reboot()

    await bench.gone()
    assert bench.nodes.ledger.held() == ()


async def test_a_removed_node_leaves_its_devices_held_and_may_come_back_with_the_process_running(
    bench: Bench,
) -> None:
    node = await bench.nodes.add("node-a", devices=1)
    await bench.pod()
    await bench.ready()
    boot = node.boot_id
    await node.remove()
    await bench.api.wait_gone(NODES, "node-a")
    assert len(bench.nodes.ledger.held()) == 1

    await node.come_back()
    await bench.delete()
    await bench.gone()
    assert (await bench.node())["status"]["nodeInfo"]["bootID"] == boot
    assert bench.nodes.ledger.held() == ()


async def test_a_real_node_is_never_taken_over(bench: Bench) -> None:
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{bench.namespace}-real"}}
    await bench.api.create(NODES, manifest)
    try:
        with pytest.raises(RuntimeError, match="exists and is not a simulated one"):
            await bench.nodes.add(f"{bench.namespace}-real")
    finally:
        await bench.nodes.close()
        assert await bench.api.find(NODES, f"{bench.namespace}-real"), "the clean-up must leave it alone"
        await bench.api.delete(NODES, f"{bench.namespace}-real")


@pytest.mark.parametrize("deleted_first", [False, True], ids=["then deleted", "already terminating"])
async def test_another_process_takes_over_nodes_and_running_pods_as_they_are(
    bench: Bench, recorder: Recorder, deleted_first: bool
) -> None:
    await bench.nodes.add("node-a", devices=1)
    await bench.pod()
    await bench.ready()
    await bench.nodes.close(clean=False)
    await recorder.caught_up()
    before = recorder.events()[-1]

    if deleted_first:
        await bench.delete()
    async with SimulatedNodes(bench.api, driver=bench.nodes.driver) as successor:
        await successor.add("node-a", devices=1)
        if not deleted_first:
            await bench.delete()
        await bench.gone()
        await recorder.caught_up()
        changes = recorder.events(kind="Pod", predicate=lambda one: one.version > before.version)
        assert changes[0].deleting, "the pod was neither restarted nor reported anew"
        assert [entry.deed for entry in successor.ledger.entries()] == [Deed.PREPARED, Deed.UNPREPARED]


# Drivers


async def test_a_driver_that_is_down_unprepares_nothing_until_it_is_back(bench: Bench) -> None:
    node = await bench.nodes.add("node-a", devices=1)
    await bench.pod()
    await bench.ready()
    await node.driver_down()
    await bench.delete()
    pod = await bench.until("llm", lambda pod: pod is not None and "terminated" in container_state(pod))
    assert pod["status"]["phase"] == "Running"
    (claim,) = await bench.claims()
    assert claim["status"]["allocation"]

    await node.driver_up()
    await bench.gone()


async def test_a_driver_that_stays_away_loses_its_slices_and_publishes_a_higher_generation_when_it_is_back(
    bench: Bench,
) -> None:
    node = await bench.nodes.add("node-a", devices=1)
    (before,) = await bench.slices()
    await node.driver_down()
    assert await bench.slices() == [before], "not at once"
    await bench.api.wait_gone(RESOURCE_SLICES, before["metadata"]["name"], timeout=10)
    await bench.pod()
    await unschedulable(bench)

    await node.driver_up()
    (after,) = await bench.slices()
    assert after["spec"]["pool"]["generation"] > before["spec"]["pool"]["generation"]
    await bench.ready()


# Pools


async def test_a_pool_of_several_slices_raises_generation_in_all_of_them(bench: Bench) -> None:
    node = await bench.nodes.add("node-a", devices=4, slices=2)
    await node.publish()

    assert pools(await bench.slices()) == [{"name": "node-a", "generation": 2, "resourceSliceCount": 2}] * 2
    assert device_names(await bench.slices()) == ["lpu-0", "lpu-1", "lpu-2", "lpu-3"]


async def test_nothing_is_allocated_from_an_incomplete_pool(bench: Bench) -> None:
    node = await bench.nodes.add("node-a", devices=2)
    await node.publish_incomplete()
    assert pools(await bench.slices()) == [{"name": "node-a", "generation": 2, "resourceSliceCount": 2}]
    await bench.pod()
    await unschedulable(bench)

    await node.publish()
    await bench.ready()


async def test_slices_may_disagree_on_their_count(bench: Bench) -> None:
    node = await bench.nodes.add("node-a", devices=2)
    await node.publish_disagreeing()

    assert [(pool["generation"], pool["resourceSliceCount"]) for pool in pools(await bench.slices())] == [
        (2, 2),
        (2, 3),
    ]
    await node.publish()
    assert [pool["resourceSliceCount"] for pool in pools(await bench.slices())] == [1]


async def test_nothing_is_allocated_from_a_pool_that_lists_a_device_twice(bench: Bench) -> None:
    node = await bench.nodes.add("node-a", devices=2)
    await node.publish_duplicate()
    assert sorted(device_names(await bench.slices())) == ["lpu-0", "lpu-0", "lpu-1"]
    await bench.pod()
    await unschedulable(bench)

    await node.publish()
    await bench.ready()


async def test_a_pool_may_be_missing_altogether(bench: Bench) -> None:
    node = await bench.nodes.add("node-a", devices=2)
    await node.publish_nothing()

    assert await bench.slices() == []


async def test_a_withdrawn_device_is_not_given_out_until_it_is_published_again(bench: Bench) -> None:
    node = await bench.nodes.add("node-a", devices=1)
    await node.withdraw_device("lpu-0")
    assert device_names(await bench.slices()) == []
    await bench.pod()
    await unschedulable(bench)

    await node.restore_device("lpu-0")
    await bench.ready()


async def test_a_tainted_device_is_not_given_out_until_the_taint_goes(bench: Bench) -> None:
    node = await bench.nodes.add("node-a", devices=1)
    await node.taint_device("lpu-0")
    await bench.pod()
    await unschedulable(bench)

    await node.untaint_device("lpu-0")
    await bench.ready()


async def test_a_device_taint_that_evicts_ends_the_pod_in_order(bench: Bench, recorder: Recorder) -> None:
    node = await bench.nodes.add("node-a", devices=1)
    await bench.pod()
    await bench.ready()
    await node.taint_device("lpu-0", effect=TaintEffect.NO_EXECUTE)
    await bench.gone()
    await recorder.caught_up()

    recorder.first("a terminal phase", kind="Pod", predicate=lambda one: phase_is("Succeeded")(one.object))
    assert bench.nodes.ledger.held() == ()


# Many


async def test_a_hundred_nodes_run_in_one_process_and_leave_nothing_behind(bench: Bench) -> None:
    began, cpu = time.monotonic(), time.process_time()
    await bench.nodes.add_many(100, prefix=bench.namespace, devices=4)
    await bench.deployment(replicas=20)
    await bench.available(20)
    took, used = time.monotonic() - began, time.process_time() - cpu
    assert took < 60
    assert used < 30, "the simulation must leave the machine to what is tested"

    bench.nodes.ledger.assert_clean()
    await bench.clear()
    await bench.nodes.close()
    left = (await bench.api.list(NODES, label_selector="lab.accelerator-rollout.dev/simulated")).items
    assert [
        one["metadata"]["name"] for one in left if one["metadata"]["name"].startswith(bench.namespace)
    ] == []
