"""A successor that is not well: named early, late by the deadline of its stage, and taken as it is once it recovers."""

from pathlib import Path
from typing import Any

import pytest

from lab.client import Object, PatchType
from lab.nodes import StartFailure, annotations_of
from lab.nodes.node import SimulatedNode
from lab.operator_process import OperatorProcess
from lab.prometheus import Prometheus
from lab.resources import EVENTS, PODS
from lab.world import BROKEN, GOOD, NEWER, MakeWorld, Shape, World, condition_of

SLOW = "example.com/llm:slow"  # ready after 5 s
FULL = "example.com/llm:memory"  # ends twice for lack of device memory, then stays up
EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
STAGE_LATE = {"prepareTimeoutSeconds": 4, "readyTimeoutSeconds": 4}


async def make(make_world: MakeWorld, kind: str, replicas: int, **over: Any) -> World:
    """A world whose pods have a node each, if of a DaemonSet."""
    devices = (1,) * replicas if kind == "DaemonSet" else (replicas,)
    return await make_world(Shape(kind, replicas=replicas, **over), devices=devices)


async def until_told(world: World, reason: str, words: str = "") -> Object:
    """Await that a replacement in flight has this reason, with these words in its message."""

    def there(rollout: Object) -> bool:
        listed = (rollout.get("status") or {}).get("replacements") or []
        return any(r.get("reason") == reason and words in r.get("message", "") for r in listed)

    return await world.until(there, f"a replacement with reason {reason}", seconds=40)


async def until_stalled(world: World, *reasons: str) -> str:
    """Await that Stalled has one of these reasons; return its message."""

    def there(rollout: Object) -> bool:
        return (condition_of(rollout, "Stalled") or {}).get("reason") in reasons

    found = condition_of(await world.until(there, f"Stalled: {' or '.join(reasons)}", seconds=40), "Stalled")
    assert found is not None
    return str(found["message"])


def stalls(world: World) -> list[dict[str, Any]]:
    """Every Stalled condition that there ever was."""
    return [
        c
        for status in world.recorder.statuses(world.name, namespace=world.namespace)
        for c in status.get("conditions") or []
        if c["type"] == "Stalled"
    ]


def last_status(world: World) -> dict[str, Any]:
    return dict(world.recorder.statuses(world.name, namespace=world.namespace)[-1])


@EACH
async def test_a6_a_bad_image_its_revert_and_a_good_one_when_all_are_down(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make(make_world, kind, 3)
    await world.settle_in(spec={"health": {"prepareTimeoutSeconds": 2}})

    await world.set_image(BROKEN)
    await until_told(world, "ImageError", "cannot start image")
    assert world.device_class in await until_stalled(world, "PrepareTimeout")
    assert len(world.deletions()) == 1, "never more than the budget down"
    await world.set_image(GOOD)
    await world.until_ready(image=GOOD)
    assert len(world.deletions()) == 2, "the broken pod, and no other"

    sick = {"metadata": {"annotations": annotations_of(never_ready=True)}}
    for pod in await world.pods():
        await world.api.patch(
            PODS, pod["metadata"]["name"], sick, world.namespace, patch_type=PatchType.MERGE
        )
    await world.until(lambda o: o["status"]["unavailableReplicas"] == 3, "all pods to be down")
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER, seconds=90)
    assert len(world.deletions()) == 5
    assert condition_of(await world.rollout(), "Stalled") is None
    world.assert_promises()


@EACH
async def test_a_successor_that_lacks_device_memory_twice_is_told_of_and_not_failed(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make(make_world, kind, 2)
    await world.settle_in()
    await world.set_image(FULL)
    await until_told(world, "DeviceMemoryError", "settleSeconds")
    assert len(world.deletions()) == 1
    await world.until_ready(image=FULL, seconds=90)
    assert len(world.deletions()) == 2
    assert not stalls(world)
    world.assert_promises()


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


@EACH
async def test_what_keeps_a_successor_from_running_is_told_apart_long_before_a_deadline(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make(make_world, kind, 2, faults={"ready_seconds": 0.5})  # it crashes before that
    await world.settle_in()
    reasons = {
        "example.com/llm:crashing": ("CrashLoop", "ended with exit code 1"),
        BROKEN: ("ImageError", "cannot start image"),
        FULL: ("DeviceMemoryError", "CUDA out of memory"),
    }
    for number, (image, (reason, words)) in enumerate(reasons.items(), start=1):
        await world.set_image(image)
        await until_told(world, reason, words)
        assert await world.gone() == number, "the pod that is down, and none that serves"
    await world.until_ready(image=FULL, seconds=90)
    told = [e["reason"] for e in (await world.api.list(EVENTS, world.namespace)).items]
    assert {reason for reason, _ in reasons.values()} <= set(told)
    assert not stalls(world)
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


@EACH
async def test_a_pod_that_is_ready_after_its_deadline_is_taken_as_it_is(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make(make_world, kind, 2)
    await world.settle_in(spec={"health": {"readyTimeoutSeconds": 1}})
    await world.set_image(SLOW)
    said = await until_stalled(world, "ReadyTimeout")
    assert f"node {world.namespace}-" in said
    await world.until_ready(image=SLOW, seconds=90)
    assert len(world.deletions()) == 2
    assert condition_of(await world.rollout(), "Stalled") is None
    world.assert_promises()


@EACH
async def test_a_check_that_is_not_true_keeps_the_next_pod(
    kind: str, make_world: MakeWorld, operator: OperatorProcess, tmp_path: Path
) -> None:
    async with Prometheus(tmp_path) as server:
        world = await make(make_world, kind, 2)
        errors = f'errors{{namespace="{world.namespace}"}}'
        await server.expose(f"{errors} 7\n")
        check = {
            "address": server.address,
            "query": 'errors{namespace="$(namespace)"}',
            "condition": "value < 1.0",
        }
        health = {
            "soakSeconds": 2,
            "failureThreshold": 1,
            "checks": [{"name": "no errors", "prometheus": check}],
        }
        await world.settle_in(spec={"health": health})
        await world.set_image(NEWER)
        assert "check no errors" in await until_stalled(world, "HealthFailed")
        await until_told(world, "HealthCheckFailing")
        assert len(world.deletions()) == 1
        await server.expose(f"{errors} 0\n")
        await world.until_ready(image=NEWER, seconds=120)
        assert len(world.deletions()) == 2
        (stages, *_) = [
            {s["stage"] for s in r["stages"]} for r in last_status(world)["history"][0]["replacements"]
        ]
        assert "Soaking" in stages
        world.assert_promises()


@EACH
async def test_a_pod_whose_grace_is_too_short_is_told_of(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make(make_world, kind, 1, grace=3, faults={"teardown_seconds": 60})
    await world.settle_in()
    met = condition_of(await world.rollout(), "GuardrailsMet")
    assert met is not None
    assert "terminationGracePeriodSeconds is 3:" in met["message"], "told before anything is lost"
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    (gone,) = world.deletions()
    ended = world.recorder.first(
        "the end", kind="Pod", predicate=lambda p: p.uid == gone.uid and p.status.get("phase") == "Failed"
    )
    assert ended.monotonic - gone.monotonic > 2.8, "nobody shortens the grace that it has"
    (past,) = last_status(world)["history"][0]["replacements"]
    assert past["killedAfterGrace"] is True
    assert past["proof"] == "KubeletTerminalPhase"
    told = [
        e for e in (await world.api.list(EVENTS, world.namespace)).items if e["reason"] == "KilledAfterGrace"
    ]
    assert len(told) == 1
    world.assert_promises()


@EACH
async def test_a_drain_by_somebody_else_that_outlasts_the_grace_ends_by_sigkill_and_is_told(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Scaled down: flushing takes 60 s and the grace period is 3 s, where the reports had 120 s and 30 s."""
    world = await make(make_world, kind, 1, grace=3, faults={"teardown_seconds": 60})
    await world.settle_in()
    (old,) = await world.pods()
    name, uid = old["metadata"]["name"], old["metadata"]["uid"]
    await world.api.evict(name, world.namespace)
    ended = await world.recorder.until(
        lambda one: one.uid == uid and one.status.get("phase") == "Failed", what="the end", timeout=20
    )
    (container,) = ended.status["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 137
    await world.until_replaced(uid)
    await world.until_ready()
    entries = [
        entry
        for status in world.recorder.statuses(world.name, namespace=world.namespace)
        for entry in status.get("replacements") or []
        if entry["podUID"] == uid
    ]
    assert {e["cause"] for e in entries} == {"Departure"}
    assert entries[-1]["killedAfterGrace"] is True
    (told,) = [
        e for e in (await world.api.list(EVENTS, world.namespace)).items if e["reason"] == "KilledAfterGrace"
    ]
    assert f"pod {name} did not end within its grace period (3 s)" in told["message"]
    assert await world.gone() == 1
    world.assert_promises()
