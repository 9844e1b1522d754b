"""A node that reboots in mid-rollout and starts no container: what each failure policy makes of it."""

from cluster.scenarios.successors import EACH, make, until_stalled, until_told
from lab.nodes import StartFailure
from lab.nodes.node import SimulatedNode
from lab.operator_process import OperatorProcess
from lab.world import GOOD, NEWER, MakeWorld, World, condition_of

STAGE_LATE = {"prepareTimeoutSeconds": 4, "readyTimeoutSeconds": 4}


@EACH
async def test_a_node_that_reboots_in_mid_rollout_and_starts_no_container(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """The failure policy is the default, Pause."""
    world = await make(make_world, kind, 2, faults={"ready_seconds": 2.5})
    await world.settle_in(spec={"health": STAGE_LATE})
    node = await rebooted(world)
    said = await until_stalled(world, "PrepareTimeout", "ReadyTimeout")
    assert node.name in said
    assert "CreateContainerError" in said
    assert await world.gone() == 1, "nothing more is replaced"
    await node.set_faults(start_failure=None)
    await world.until_ready(image=NEWER, seconds=90)
    assert await world.gone() == 2
    assert condition_of(await world.rollout(), "Stalled") is None
    world.assert_promises()


async def rebooted(world: World) -> SimulatedNode:
    """In mid-rollout the node of the successor reboots, and creates no container any more; return it."""
    await world.set_image(NEWER)
    found = await world.until_stage("WarmingUp")
    (entry,) = [r for r in found["status"]["replacements"] if r["stage"] == "WarmingUp"]
    node = world.nodes.node(entry["nodeName"])
    await node.set_faults(start_failure=StartFailure.CREATE)
    await node.reboot()
    await until_told(world, "CreateContainerError", "cannot be created")
    return node


@EACH
async def test_a_failure_after_a_reboot_aborts_where_that_is_the_policy(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make(make_world, kind, 2, faults={"ready_seconds": 2.5})
    await world.settle_in(spec={"health": STAGE_LATE, "failurePolicy": "Abort"})
    node = await rebooted(world)
    halted = await world.until(lambda o: "halt" in o["status"], "the halt", seconds=40)
    assert halted["status"]["halt"]["reason"] in ("PrepareTimeout", "ReadyTimeout")
    await node.set_faults(start_failure=None)
    stalled = await world.until(
        lambda o: not o["status"].get("replacements"), "the pod in flight to recover", seconds=60
    )
    assert "halt" in stalled["status"]
    assert await world.gone() == 1, "no further pod of this revision"
    await world.change_rollout({"action": {"type": "Retry", "id": "healed"}})
    await world.until_ready(image=NEWER, seconds=90)
    assert await world.gone() == 2
    world.assert_promises()


@EACH
async def test_a_failure_after_a_reboot_is_undone_where_that_is_the_policy(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make(make_world, kind, 2, faults={"ready_seconds": 2.5})
    await world.settle_in(spec={"health": STAGE_LATE, "failurePolicy": "Undo"})
    node = await rebooted(world)
    template = await world.api.wait_for(
        world.workload,
        world.name,
        lambda o: o["spec"]["template"]["spec"]["containers"][0]["image"] == GOOD,
        world.namespace,
        timeout=40,
    )
    assert template["metadata"]["generation"] > 1
    await node.set_faults(start_failure=None)
    await world.until_ready(image=GOOD, seconds=90)
    assert await world.gone() == 2, "one of each revision"
    world.assert_promises()
