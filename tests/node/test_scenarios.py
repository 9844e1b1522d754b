"""What the operator is for, with real processes on devices: the ledger and the processes themselves are the witnesses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from accelerator_rollout.names import GROUP
from lab.operator_process import OperatorProcess
from lab.realnode.happenings import Happening, What
from lab.realnode.node import KUBELET, RealNode
from lab.realnode.workload import TAKEN
from lab.realnode.world import ABSENT, NEWER, RealShape, RealWorld
from lab.resources import PODS
from lab.world import condition_of, gated

MakeRealWorld = Callable[..., Awaitable[RealWorld]]

# Long enough to be seen in every stage, short enough to wait for.
SLOW = 2.0
WAIT = {"unproven": {"extraSeconds": 3}}


def letting_go(found: list[Happening]) -> float:
    """Seconds from the first deletion until that pod's device was unprepared."""
    gone = next(one for one in found if one.what is What.DELETED)
    return _seconds(gone, next(one for one in found if one.pod == gone.pod and one.what is What.UNPREPARED))


def _seconds(first: Happening, last: Happening) -> float:
    return (last.wall - first.wall).total_seconds()


def assert_released_first(found: list[Happening]) -> int:
    """Assert that no gate opened before the node had let go of a predecessor's device; return how many opened."""
    gone = [one.pod for one in found if one.what is What.DELETED]
    opened = [one for one in found if one.what is What.OPENED and one.wall > _first(found, What.DELETED)]
    for number, one in enumerate(opened):
        released = [each for each in found if each.what is What.UNPREPARED and each.wall < one.wall]
        assert len({each.pod for each in released} & set(gone)) > number, "\n".join(map(str, found))
    return len(opened)


def _first(found: list[Happening], what: What) -> Any:
    return next(one.wall for one in found if one.what is what)


async def finish(world: RealWorld, figures: list[str], title: str, *, replaced: int) -> list[Happening]:
    """Await the end of the rollout to NEWER; assert what must hold in every run; note the figures."""
    await world.until_ready(image=NEWER, seconds=180)
    found = await world.happenings()
    assert len(world.deletions()) == replaced
    assert assert_released_first(found) == replaced
    world.assert_promises()
    figures += await world.figures(title)
    return found


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
async def test_the_guidelines_rollout(
    kind: str, make_world: MakeRealWorld, operator: OperatorProcess, figures: list[str]
) -> None:
    """As many replicas as devices, a new image, and each process takes its time to let go."""
    world = await make_world(RealShape(kind, replicas=3, grace=10, letting_go=SLOW), devices=3)
    await world.settle_in()
    await world.set_image(NEWER)
    await finish(world, figures, f"The guideline's rollout of a {kind}", replaced=3)
    assert world.assert_gates_after_release() == 3


@pytest.mark.parametrize("how", ["deleted", "evicted"])
async def test_a_pod_that_goes_in_order(
    how: str, make_world: MakeRealWorld, operator: OperatorProcess, figures: list[str]
) -> None:
    world = await make_world(RealShape(replicas=2, grace=10, letting_go=SLOW), devices=2)
    await world.settle_in()
    victim = (await world.pods())[0]["metadata"]
    if how == "deleted":
        await world.api.delete(PODS, victim["name"], world.namespace)
    else:
        await world.api.evict(victim["name"], world.namespace)
    await world.until_replaced(victim["uid"], seconds=60)
    found = await world.happenings()
    assert assert_released_first(found) == 1
    world.assert_promises()
    figures += await world.figures(f"A pod that is {how}")


@pytest.mark.parametrize("kept_by", ["hold", "guard", "the wait"])
async def test_a_forced_deletion(
    kept_by: str, make_world: MakeRealWorld, operator: OperatorProcess, figures: list[str]
) -> None:
    """The object is gone at once, the process is not; under a hold or a guard not even a stranger gets in."""
    hold = "Always" if kept_by == "hold" else "Never"
    world = await make_world(RealShape(replicas=1, grace=8, letting_go=4, hold=hold), devices=1)
    guard = "Finalizer" if kept_by == "guard" else "None"
    await world.settle_in(spec={"release": {"guard": guard, **WAIT}})
    (pod,) = await world.pods()
    if kept_by == "guard":
        await world.api.wait_for(
            PODS, pod["metadata"]["name"], lambda p: bool(p["metadata"].get("finalizers")), world.namespace
        )
    if kept_by == "hold":
        await world.recorder.until(
            lambda one: any(entry.get("apiGroup") == GROUP for entry in one.status.get("reservedFor") or []),
            what="a hold",
        )
    if kept_by != "the wait":
        await world.make_pod("stranger")
        await world.recorder.until(lambda one: one.name == "stranger", what="the stranger")
    await world.api.delete(PODS, pod["metadata"]["name"], world.namespace, grace_seconds=0)
    if kept_by != "the wait":
        await world.recorder.until(
            lambda one: one.name == "stranger" and one.status.get("phase") == "Running",
            what="the stranger to run",
            timeout=60,
        )
        await world.api.delete(PODS, "stranger", world.namespace)
    await world.until_replaced(pod["metadata"]["uid"], seconds=90)
    found = await world.happenings()
    assert assert_released_first(found) == 1
    world.assert_promises()
    figures += await world.figures(f"A forced deletion, kept by {kept_by}")


async def test_a_forced_deletion_without_the_operator(make_world: MakeRealWorld, figures: list[str]) -> None:
    """The danger itself: Kubernetes gives the device to the next pod while the old process has it."""
    world = await make_world(RealShape(replicas=1, grace=15, letting_go=8, gate="none"), devices=1)
    await world.make_workload()
    await world.recorder.until(
        lambda one: one.kind == "Pod" and _ready(one.object), what="the pod to be ready", timeout=60
    )
    (pod,) = await world.pods()
    await world.api.delete(PODS, pod["metadata"]["name"], world.namespace, grace_seconds=0)
    await world.recorder.until(
        lambda one: one.kind == "Pod" and one.uid != pod["metadata"]["uid"] and TAKEN in _exits(one.object),
        what="a successor that finds its device taken",
        timeout=60,
    )
    (overlap, *_) = world.read_ledger().violations()
    assert overlap.first.holder.pod_uid == pod["metadata"]["uid"]
    figures += await world.figures("A forced deletion without the operator")


def _ready(pod: dict[str, Any]) -> bool:
    found = condition_of(pod, "Ready")
    return found is not None and found["status"] == "True"


def _exits(pod: dict[str, Any]) -> list[int]:
    """The exit codes of a pod's containers, now and before their last start."""
    listed = (pod.get("status") or {}).get("containerStatuses") or []
    states = [one.get(which) or {} for one in listed for which in ("state", "lastState")]
    return [state["terminated"]["exitCode"] for state in states if "terminated" in state]


async def test_a_grace_period_of_nothing(
    make_world: MakeRealWorld, operator: OperatorProcess, figures: list[str]
) -> None:
    """Every deletion is a forced one then: there is no proof, so there is the wait."""
    world = await make_world(RealShape(replicas=1, grace=0), devices=1)
    await world.settle_in(spec={"release": WAIT})
    await world.set_image(NEWER)
    await finish(world, figures, "A grace period of 0", replaced=1)


async def test_a_hook_that_takes_longer_than_the_grace_period(
    make_world: MakeRealWorld, operator: OperatorProcess, figures: list[str]
) -> None:
    world = await make_world(RealShape(replicas=1, grace=3, pre_stop=30), devices=1)
    await world.settle_in()
    await world.set_image(NEWER)
    found = await finish(world, figures, "A preStop hook longer than the grace period", replaced=1)
    assert 2.5 < letting_go(found) < 20


async def test_a_process_that_ignores_its_end(
    make_world: MakeRealWorld, operator: OperatorProcess, figures: list[str]
) -> None:
    world = await make_world(RealShape(replicas=1, grace=4, stubborn=True), devices=1)
    await world.settle_in()
    await world.set_image(NEWER)
    found = await finish(world, figures, "A process that ignores SIGTERM", replaced=1)
    assert letting_go(found) > 3  # what watches the deletion may be a moment late


async def test_a_driver_that_is_down_before_the_rollout(
    make_world: MakeRealWorld, operator: OperatorProcess, figures: list[str]
) -> None:
    """The kubelet takes its slices away after 30 seconds; from then on no pod goes."""
    world = await make_world(RealShape(replicas=2), devices=2)
    await world.settle_in()
    world.devices.kill()
    await world.recorder.until(
        lambda one: (
            one.kind == "ResourceSlice"
            and one.type == "DELETED"
            and one.object["spec"]["driver"] == world.devices.driver
        ),
        what="the kubelet to take the driver's slices away",
        timeout=90,
    )
    await world.set_image(NEWER)
    await world.until_reason("Progressing", "DriverUnavailable")
    assert not world.deletions()
    world.devices.start()
    await finish(world, figures, "A driver that is down before", replaced=2)


async def test_a_driver_that_goes_while_a_pod_ends(
    make_world: MakeRealWorld, operator: OperatorProcess, figures: list[str]
) -> None:
    """Without it nothing is unprepared, so the pod stays, and so does its device."""
    world = await make_world(RealShape(replicas=2, grace=10, letting_go=4), devices=2)
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    world.devices.kill()
    await asyncio.sleep(8)  # more than the process needs: what does not happen gives no sign
    found = await world.happenings()
    assert What.TERMINAL not in [one.what for one in found]
    assert len(world.deletions()) == 1
    world.devices.start()
    await finish(world, figures, "A driver that goes while a pod ends", replaced=2)


async def test_a_driver_that_goes_after_the_release(
    make_world: MakeRealWorld, operator: OperatorProcess, figures: list[str]
) -> None:
    """In the middle of preparing the device for the successor."""
    world = await make_world(RealShape(replicas=2), devices=2)
    await world.settle_in()
    world.devices.order(prepare_seconds=30)
    await world.set_image(NEWER)
    await world.until_stage("Preparing")
    world.devices.kill()
    world.devices.order()
    await asyncio.sleep(5)
    assert len(world.deletions()) == 1
    world.devices.start()
    await finish(world, figures, "A driver that goes after the release", replaced=2)


async def test_a_driver_that_fails_to_clean_up_three_times(
    make_world: MakeRealWorld, operator: OperatorProcess, figures: list[str]
) -> None:
    world = await make_world(RealShape(replicas=2), devices=2)
    await world.settle_in()
    world.devices.order(fail_unprepares=3)
    await world.set_image(NEWER)
    found = await finish(world, figures, "A driver that fails to unprepare three times", replaced=2)
    assert letting_go(found) > 5


async def test_a_kubelet_that_restarts_in_the_middle(
    node: RealNode, make_world: MakeRealWorld, operator: OperatorProcess, figures: list[str]
) -> None:
    world = await make_world(RealShape(replicas=2, grace=10, letting_go=SLOW), devices=2)
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    await asyncio.to_thread(node.kill_component, KUBELET)
    await asyncio.sleep(5)
    assert len(world.deletions()) == 1
    await asyncio.to_thread(node.restart_component, KUBELET)
    await finish(world, figures, "A kubelet that restarts in the middle", replaced=2)


async def test_an_image_that_never_starts(
    make_world: MakeRealWorld, operator: OperatorProcess, figures: list[str]
) -> None:
    """It costs one pod, and the next change of the template goes on from there."""
    world = await make_world(RealShape(replicas=2), devices=2)
    await world.settle_in()
    await world.set_image(ABSENT)
    await world.until(
        lambda o: any(r.get("reason") == "ImageError" for r in o["status"].get("replacements") or []),
        "a replacement whose image cannot be had",
    )
    assert len(world.deletions()) == 1
    assert sum(not gated(pod) for pod in await world.pods()) == 2
    await world.set_image(NEWER)
    await finish(world, figures, "An image that never starts, and the next one", replaced=3)
