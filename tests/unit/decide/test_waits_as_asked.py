"""How long is waited is as the spec says, and not only as its defaults say."""

import pytest

from accelerator_rollout.api.conditions import ConditionType, find_condition
from accelerator_rollout.decide.actions import OpenGate
from builders import GRACE, NEW, NOW, World, at, gated_pod, of_type, replica_set, running

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])


def forced(kind: str, unproven: dict[str, object]) -> World:
    """`worker-2` vanished at NOW without a word from its kubelet; its successor waits at the gate."""
    world = running(kind, digest=NEW)
    world.spec = {"release": {"unproven": unproven}}
    world.recorded("worker-2", 2, vanished_at=NOW)
    world.vanish("worker-2")
    world.put(gated_pod("worker-2", kind=kind))
    if kind == "Deployment":
        world.sets = [replica_set(NEW, 3, 2)]
    return world


def opened(world: World, seconds: float) -> bool:
    return bool(of_type(world.actions(at(seconds)), OpenGate))


@EACH
@pytest.mark.parametrize("extra", [0, 7, 600])
def test_an_unproven_release_counts_after_the_grace_period_and_so_many_seconds(kind: str, extra: int) -> None:
    world = forced(kind, {"extraSeconds": extra})
    assert not opened(world, GRACE + extra - 1)
    assert opened(world, GRACE + extra)


@EACH
def test_or_never_by_time_alone(kind: str) -> None:
    world = forced(kind, {"policy": "Pause"})
    assert not opened(world, 86400)
    world.spec = {"release": {"unproven": {"policy": "Wait"}}}
    assert opened(world, 86400)


@EACH
@pytest.mark.parametrize("seconds", [600, 3600])
def test_a_rollout_without_any_movement_stalls_after_so_many_seconds(kind: str, seconds: int) -> None:
    world = running(kind)
    world.spec = {"progressDeadlineSeconds": seconds}
    world.set_workload(replicas=4)  # and its controller makes none
    world.store(world.plan())
    assert find_condition(world.plan(at(seconds - 1)).status.conditions, ConditionType.STALLED) is None
    told = find_condition(world.plan(at(seconds)).status.conditions, ConditionType.STALLED)
    assert told is not None
    assert told.reason == "ProgressDeadlineExceeded"
