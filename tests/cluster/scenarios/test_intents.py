"""Given a rollout, when somebody aborts, retries, undoes or restarts, then that happens once, whatever dies when."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from lab.client import Object
from lab.operator_process import OperatorProcess
from lab.recorder import Recorded
from lab.resources import CONTROLLER_REVISIONS, EVENTS, REPLICA_SETS
from lab.world import BROKEN, GOOD, NEWER, MakeWorld, Shape, World, condition_of, image_of, is_ready

KINDS = pytest.mark.parametrize("each", ["Deployment", "StatefulSet", "DaemonSet"])
SLOW = {"teardown_seconds": 0.4, "unprepare_seconds": 0.3}


async def settled(each: str, make_world: MakeWorld) -> World:
    """Three healthy pods at GOOD, each with a device. A release that a killed operator missed costs little."""
    shape = Shape(each, replicas=3, faults=SLOW)
    world = await make_world(shape, devices=(1, 1, 1))
    await world.settle_in(spec={"release": {"unproven": {"extraSeconds": 3}}})
    return world


async def ask(world: World, action: str, identity: str = "1") -> Object:
    """Ask for the action, and await that it was seen."""
    await world.change_rollout({"action": {"type": action, "id": identity}})
    return await world.until(
        lambda o: (o.get("status") or {}).get("observedActionID") == identity, f"{action} to be seen"
    )


async def told(world: World, reason: str) -> str:
    """The message of an Event of this reason."""
    async with asyncio.timeout(20):
        for _ in range(200):
            for event in (await world.api.list(EVENTS, world.namespace)).items:
                if event["reason"] == reason:
                    return str(event["message"])
            await asyncio.sleep(0.1)
    raise AssertionError(f"no Event {reason}")


async def image(world: World) -> str:
    workload = await world.api.get(world.workload, world.name, world.namespace)
    return image_of(workload["spec"]["template"])


async def images(world: World) -> list[str]:
    return sorted(image_of(p) for p in await world.pods())


def outcomes(rollout: Object) -> list[str]:
    return [past["outcome"] for past in rollout["status"]["history"]]


async def stays(world: World, deletions: int, seconds: float = 3.0) -> None:
    """Nothing is replaced for a while."""
    await asyncio.sleep(seconds)  # that nothing happens cannot be awaited
    await world.recorder.caught_up()
    assert len(world.deletions()) == deletions


# Abort and Retry


@KINDS
async def test_an_abort_in_mid_step_finishes_that_pod_alone_and_a_retry_the_rest(
    each: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await settled(each, make_world)
    await world.set_image(NEWER)
    await world.until_stage("Terminating", "Releasing")
    await ask(world, "Abort")
    halted = await world.until(
        lambda o: o["status"].get("halt") and not o["status"].get("replacements"), "the pod in flight"
    )
    stalled, ready = condition_of(halted, "Stalled"), condition_of(halted, "Ready")
    assert stalled is not None
    assert ready is not None
    assert (stalled["status"], stalled["reason"], ready["status"]) == ("True", "Aborted", "False")
    assert "Retry" in stalled["message"]
    await stays(world, 1)
    assert await images(world) == [GOOD, GOOD, NEWER]
    assert outcomes(await world.rollout())[0] == "Aborted"

    await ask(world, "Retry", "2")
    done = await world.until_ready(image=NEWER)
    assert len(world.deletions()) == 3
    assert "halt" not in done["status"]
    assert done["status"]["retriedAt"]
    assert outcomes(done) == ["Completed", "Aborted"]
    world.assert_promises()


@KINDS
async def test_an_abort_of_nothing_is_seen_and_says_so(
    each: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await settled(each, make_world)
    found = await ask(world, "Abort", "idle")
    assert "halt" not in found["status"]
    assert "Abort (id idle) has no effect" in await told(world, "ActionWithoutEffect")
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    world.assert_promises()


# Undo


@KINDS
@pytest.mark.parametrize("bad", [NEWER, BROKEN], ids=["while it goes well", "while it hangs"])
async def test_an_undo_in_the_middle_brings_the_replaced_pods_back(
    each: str, bad: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await settled(each, make_world)
    await world.set_image(bad)
    await world.recorder.until(
        lambda one: one.kind == "Pod" and image_of(one.object) == bad, what="a pod of the new revision"
    )
    await ask(world, "Undo")
    done = await world.until_ready(image=GOOD, seconds=90)
    assert await image(world) == GOOD
    assert "undo" not in done["status"]
    assert "has the pod template of" in await told(world, "TemplateRestored")
    assert len(world.deletions()) == 2, "one of each revision"
    world.assert_promises()


@KINDS
async def test_an_undo_at_rest_is_a_rollout_back_and_keeps_all_the_template_has(
    each: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await settled(each, make_world)
    before = (await world.api.get(world.workload, world.name, world.namespace))["spec"]["template"]
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    gone = len(world.deletions())
    await ask(world, "Undo")
    await world.until_ready(image=GOOD, seconds=90)
    after = (await world.api.get(world.workload, world.name, world.namespace))["spec"]
    assert after["template"] == before
    assert not after.get("paused")
    assert len(world.deletions()) - gone == 3
    assert world.assert_gates_after_release() >= 3
    world.assert_promises()


@KINDS
async def test_an_undo_after_an_abort_ends_the_halt(
    each: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await settled(each, make_world)
    await world.set_image(BROKEN)
    await world.until_stage("Preparing")
    await ask(world, "Abort")
    await ask(world, "Undo", "2")
    done = await world.until_ready(image=GOOD, seconds=90)
    assert "halt" not in done["status"]
    world.assert_promises()


@KINDS
async def test_without_a_former_template_an_undo_says_so(
    each: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await settled(each, make_world)
    found = await ask(world, "Undo")
    assert "undo" not in found["status"]
    assert "no other template" in await told(world, "ActionWithoutEffect")
    assert await image(world) == GOOD
    kept = REPLICA_SETS if each == "Deployment" else CONTROLLER_REVISIONS
    assert len((await world.api.list(kept, world.namespace)).items) == 1


@KINDS
async def test_killed_between_record_and_write_the_next_one_restores_once(
    each: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await settled(each, make_world)
    await world.set_image(BROKEN)
    await world.until_stage("Preparing")

    def recorded(one: Recorded) -> bool:
        return one.kind == "AcceleratorRollout" and bool(one.status.get("undo"))

    killing = asyncio.create_task(world.recorder.until(recorded, what="the undo to be recorded"))
    await world.change_rollout({"action": {"type": "Undo", "id": "1"}})
    await killing
    operator.kill()
    await operator.restart()
    await world.until_ready(image=GOOD, seconds=90)
    await world.recorder.caught_up()
    templates: list[str] = []
    for one in world.recorder.events(kind=each, name=world.name):
        now = image_of(one.object["spec"]["template"])
        templates += [now] if not templates or templates[-1] != now else []
    assert templates == [GOOD, BROKEN, GOOD]
    world.assert_promises()


# Restart


@KINDS
async def test_a_restart_replaces_every_pod_once_and_leaves_the_template(
    each: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await settled(each, make_world)
    old = {p["metadata"]["uid"]: p["metadata"]["creationTimestamp"] for p in await world.pods()}
    before = await world.api.get(world.workload, world.name, world.namespace)
    # A second after the youngest of them, as a person's clock would have it by now.
    when = await _after(max(old.values()))
    await world.change_rollout({"restartedAt": when})

    def done(rollout: Object) -> bool:
        past = (rollout["status"].get("history") or [{}])[0]
        return is_ready(rollout) and past.get("restartedAt") == when and past["outcome"] == "Completed"

    told_so = await world.until(done, "the restart", seconds=90)
    after = await world.api.get(world.workload, world.name, world.namespace)
    assert after["spec"]["template"] == before["spec"]["template"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"], "no write of the workload"
    young = {p["metadata"]["uid"] for p in await world.pods()}
    assert len(young) == 3
    assert not young & old.keys()
    assert len(world.deletions()) == 3
    assert told_so["status"]["updatedReplicas"] == 3
    assert world.assert_gates_after_release() == 3
    world.assert_promises()


@KINDS
async def test_a_restart_survives_a_killed_operator(
    each: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await settled(each, make_world)
    when = await _after(max(p["metadata"]["creationTimestamp"] for p in await world.pods()))
    await world.change_rollout({"restartedAt": when})
    await world.until_stage("Terminating", "Releasing")
    operator.kill()
    await operator.restart()
    await world.until(
        lambda o: is_ready(o) and o["status"]["updatedReplicas"] == 3, "the restart", seconds=90
    )
    assert len(world.deletions()) == 3
    world.assert_promises()


async def _after(created: str) -> str:
    """The next second, once it has come."""
    moment = datetime.fromisoformat(created) + timedelta(seconds=1)
    await asyncio.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds()) + 0.1)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
