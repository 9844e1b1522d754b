"""A node that is gone: nothing is proven, nobody can get its devices, and the workload goes on elsewhere."""

from dataclasses import replace
from typing import Any

import pytest

from accelerator_rollout.api.conditions import ConditionType, find_condition, is_true
from accelerator_rollout.api.models import Proof, Stage
from accelerator_rollout.decide.actions import EndHold, OpenGate
from accelerator_rollout.decide.reasons import NotFree
from accelerator_rollout.decide.snapshot import HoldAbility
from accelerator_rollout.decide.stranded import MOST_UNHELD
from builders import (
    EXTRA,
    GRACE,
    NEW,
    NOW,
    OUR_HOLD,
    World,
    at,
    device,
    gated_pod,
    node,
    of_type,
    pod,
    pool,
    running,
)

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
LATER = at(10_000)


def node_gone(kind: str, *, hold: bool = True, **release: Any) -> World:
    """`node-2` was removed with its slices; the garbage collector ended `worker-2`, whose successor waits."""
    world = running(kind, digest=NEW)
    world.ability = HoldAbility.POSSIBLE if hold else HoldAbility.NOT_PERMITTED
    world.spec = {"release": release} if release else {}
    for name, claim in world.claims.items():
        if hold:
            world.claims[name] = replace(claim, reserved_for=(*claim.reserved_for, OUR_HOLD))
    world.recorded("worker-2", 2, vanished_at=NOW)
    claim = world.claims["worker-2-device"]
    world.vanish("worker-2")
    if hold:
        world.claims[claim.name] = replace(claim, reserved_for=(OUR_HOLD,), deletion=NOW)
    del world.nodes["node-2"]
    del world.slices[2]
    if kind == "DaemonSet":
        world.set_workload(replicas=2)
    else:
        world.put(gated_pod("worker-2", kind=kind))
    return world


def opened(world: World, now: Any = LATER) -> list[str]:
    return [a.pod_name for a in of_type(world.actions(now), OpenGate) if isinstance(a, OpenGate)]


@EACH
def test_with_a_hold_the_replacement_goes_elsewhere(kind: str) -> None:
    world = node_gone(kind)
    assert opened(world) == ["worker-2"]
    assert of_type(world.actions(LATER), EndHold) == ()


@EACH
def test_without_one_it_waits_for_a_person(kind: str) -> None:
    assert opened(node_gone(kind, hold=False)) == []


@EACH
def test_pinned_to_the_node_it_waits_for_it(kind: str) -> None:
    assert opened(node_gone(kind, placement="SameNode")) == []


@EACH
def test_a_node_that_is_only_not_ready_is_not_gone(kind: str) -> None:
    world = node_gone(kind)
    world.nodes["node-2"] = node("node-2", ready=False, ready_since=None)
    assert opened(world) == []


def healed(kind: str) -> World:
    """The replacement is healthy on another node."""
    world = node_gone(kind)
    if kind == "DaemonSet":
        return world  # nobody takes its place
    made = world.pods["q-worker-2"]
    world.put(pod(made.name, NEW, kind=kind, uid=made.uid, node="node-9", claims=made.claims), device(9))
    world.slices.append(pool(9))
    world.nodes["node-9"] = node("node-9")
    return world


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_the_rollout_is_complete_and_still_tells_of_it(kind: str) -> None:
    world = healed(kind)
    decided = world.plan(LATER)
    assert is_true(decided.status.conditions, ConditionType.READY), decided.status.conditions
    released = find_condition(decided.status.conditions, ConditionType.DEVICES_RELEASED)
    assert released is not None
    assert (released.status, released.reason) == ("False", NotFree.RELEASE_UNPROVEN)
    assert "node-2 is gone" in released.message
    (kept,) = decided.status.replacements
    assert (kept.pod_name, kept.stage, kept.proof) == ("worker-2", Stage.RELEASING, None)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_the_next_rollout_does_not_wait_for_it(kind: str) -> None:
    world = healed(kind)
    assert find_condition(world.plan(LATER).status.conditions, ConditionType.STALLED) is None


def returned(kind: str, **over: Any) -> World:
    world = healed(kind)
    world.nodes["node-2"] = node("node-2", uid="n-second", ready_since=at(100), **over)
    world.slices.append(pool(2))
    return world


@EACH
def test_when_it_comes_back_the_hold_ends_after_the_wait(kind: str) -> None:
    world = returned(kind)
    assert of_type(world.actions(at(100 + EXTRA)), EndHold) == ()
    (ended,) = of_type(world.actions(at(100 + GRACE + EXTRA + 1)), EndHold)
    assert ended == EndHold("worker-2-device", "c-p-worker-2", deallocate=True)


@EACH
def test_after_a_reboot_at_once(kind: str) -> None:
    world = returned(kind, boot_id="another")
    decided = world.plan(at(101))
    assert len(of_type(decided.actions, EndHold)) == 1
    (entry,) = decided.status.replacements
    assert entry.proof is Proof.NODE_REBOOTED


def test_a_daemon_sets_pod_on_the_returned_node_waits_for_its_predecessor() -> None:
    world = node_gone("DaemonSet", hold=False)
    world.nodes["node-2"] = node("node-2", ready_since=at(100))
    world.slices.append(pool(2))
    world.set_workload(replicas=3)
    world.put(gated_pod("worker-2", kind="DaemonSet", created=at(100)))
    assert opened(world, at(100 + EXTRA)) == []
    assert opened(world, at(100 + GRACE + EXTRA + 1)) == ["worker-2"]


def test_of_nodes_that_come_and_go_only_the_latest_are_remembered() -> None:
    world = running("DaemonSet", digest=NEW)
    for number in range(10, 10 + MOST_UNHELD + 5):
        gone = pod(f"worker-{number}", NEW, kind="DaemonSet")
        world.put(gone)
        world.recorded(gone.name, number, vanished_at=at(number))
        world.vanish(gone.name, seen=False)
    kept = {e.pod_name for e in world.plan(LATER).status.replacements}
    assert kept == {f"worker-{n}" for n in range(15, 10 + MOST_UNHELD + 5)}
