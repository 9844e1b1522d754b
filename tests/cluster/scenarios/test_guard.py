"""A guarded pod that is deleted by force still ends in order, and nothing of the guard stays behind."""

import pytest

from accelerator_rollout.names import GUARD_FINALIZER
from lab.client import Object
from lab.operator_process import OperatorProcess
from lab.resources import ACCELERATOR_ROLLOUTS, PODS
from lab.world import NEWER, MakeWorld, Shape, World

LINGERING = {"teardown_seconds": 1.0, "unprepare_seconds": 0.5}
GUARD = {"release": {"guard": "Finalizer"}}


def guarded(pod: Object) -> bool:
    return GUARD_FINALIZER in (pod["metadata"].get("finalizers") or [])


async def until_guarded(world: World, count: int) -> list[Object]:
    """Await that so many pods are guarded; return them."""
    seen = None
    while len(found := [p for p in await world.pods() if guarded(p)]) != count:
        seen = await world.recorder.until(lambda one: one.kind == "Pod", what="a change of a pod", after=seen)
    return found


@pytest.mark.parametrize("hold", ["Never", "Always"])
async def test_a_forced_deletion_gives_its_proof(
    hold: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(replicas=1, grace=2, hold=hold, faults=LINGERING), devices=(1,))
    await world.settle_in(spec=GUARD)
    (victim,) = await until_guarded(world, 1)
    await world.make_pod("stranger")
    await world.api.delete(PODS, victim["metadata"]["name"], world.namespace, grace_seconds=0)
    found = await world.until(
        lambda o: any(r.get("proof") for r in o["status"].get("replacements") or []), "a proof"
    )
    assert found["status"]["replacements"][0]["proof"] == "KubeletTerminalPhase"
    await world.recorder.until(
        lambda p: p.name == "stranger" and p.status.get("phase") == "Running", what="the stranger to run"
    )
    await world.api.delete(PODS, "stranger", world.namespace)
    await world.until_ready()
    world.ledger.assert_clean()


async def test_a_rollout_of_guarded_pods(kind: str, make_world: MakeWorld, operator: OperatorProcess) -> None:
    world = await make_world(Shape(kind, replicas=3, faults={"teardown_seconds": 0.3}), devices=(3,))
    await world.settle_in(spec=GUARD)
    await until_guarded(world, 3)
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER, seconds=90)
    assert len(world.deletions()) == 3
    assert world.assert_gates_after_release() == 3
    assert len(await until_guarded(world, 3)) == 3
    world.assert_promises()

    await world.api.delete(ACCELERATOR_ROLLOUTS, world.name, world.namespace)
    await world.api.wait_gone(ACCELERATOR_ROLLOUTS, world.name, world.namespace)
    assert not await until_guarded(world, 0)


async def test_deleting_the_workload_leaves_no_pod_behind(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=2, faults={"teardown_seconds": 0.3}), devices=(2,))
    await world.settle_in(spec=GUARD)
    pods = await until_guarded(world, 2)
    await world.api.delete(world.workload, world.name, world.namespace)
    for pod in pods:
        await world.api.wait_gone(PODS, pod["metadata"]["name"], world.namespace, uid=pod["metadata"]["uid"])
    world.ledger.assert_clean()


async def test_a_guard_that_nobody_answers_for_is_taken_off(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(replicas=1), devices=(1,))
    await world.settle_in(spec=GUARD)
    await until_guarded(world, 1)
    await operator.stop()
    none = {"metadata": {"finalizers": None}}
    await world.api.patch(ACCELERATOR_ROLLOUTS, world.name, none, world.namespace)
    await world.api.delete(ACCELERATOR_ROLLOUTS, world.name, world.namespace)
    await operator.restart()
    assert not await until_guarded(world, 0)
