"""Checks: asked after the proof, under the hold, again while one fails, and never in the way of anything else."""

from dataclasses import replace
from typing import Any

import pytest

from accelerator_rollout.api.models import Stage
from accelerator_rollout.decide.actions import EndHold, EvictPod, OpenGate, RunChecks
from accelerator_rollout.decide.reasons import NotFree, Refusal
from accelerator_rollout.decide.snapshot import CheckRun, HoldAbility
from builders import NEW, NOW, OUR_HOLD, World, at, gated_pod, of_type, replica_set, running

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
HEALTHY = {"release": {"checks": [{"name": "healthy", "cel": "device.attributes.healthy"}]}}
ASK = RunChecks("p-worker-2")


def released(kind: str = "StatefulSet", *, hold: bool = False) -> World:
    """`worker-2` has left in order; its successor waits, and the object has a check."""
    world = running(kind, digest=NEW)
    world.spec = HEALTHY
    world.recorded("worker-2", 2)
    claim = world.claims["worker-2-device"]
    world.end("worker-2")
    world.vanish("worker-2")
    if hold:
        world.ability = HoldAbility.POSSIBLE
        world.claims[claim.name] = replace(claim, reserved_for=(OUR_HOLD,), deletion=NOW)
        for name, one in world.claims.items():
            if name != claim.name:
                world.claims[name] = replace(one, reserved_for=(*one.reserved_for, OUR_HOLD))
    world.put(gated_pod("worker-2", kind=kind))
    if kind == "Deployment":
        world.sets = [replica_set(NEW, 3, 2)]
    return world


def came_to(world: World, *failures: str, **over: Any) -> None:
    world.checked["p-worker-2"] = replace(CheckRun(1, NOW, failures), **over)


def told(world: World, seconds: float = 0) -> tuple[str, str]:
    (entry,) = world.plan(at(seconds)).status.replacements
    return str(entry.stage), entry.reason


@EACH
def test_free_devices_are_checked_before_the_gate_opens(kind: str) -> None:
    world = released(kind)
    assert world.actions() == (ASK,)
    assert told(world) == (Stage.SETTLING, NotFree.CHECKS_RUNNING)
    came_to(world)
    assert of_type(world.actions(), OpenGate)


@EACH
def test_a_check_that_fails_keeps_the_gate_and_is_asked_again(kind: str) -> None:
    world = released(kind)
    came_to(world, "check healthy on device x: not true")
    assert world.actions(at(9)) == ()
    assert world.plan(at(9)).next_due is not None
    assert told(world) == (Stage.SETTLING, NotFree.CHECK_FAILED)
    assert world.actions(at(10)) == (ASK,)


def test_an_old_answer_and_one_to_another_question_do_not_count() -> None:
    world = released()
    came_to(world)
    assert world.actions(at(61)) == (ASK,)
    came_to(world, generation=2)
    assert world.actions() == (ASK,)


def test_once_released_it_is_not_asked_again() -> None:
    world = released()
    came_to(world)
    world.store(world.plan())
    world.checked.clear()
    assert of_type(world.actions(at(300)), RunChecks) == ()


def test_the_hold_stays_until_the_checks_are_true() -> None:
    world = released(hold=True)
    assert world.actions() == (ASK,)
    came_to(world, "no")
    assert of_type(world.actions(), EndHold) == ()
    came_to(world)
    assert len(of_type(world.actions(), EndHold)) == 1


def test_nothing_is_asked_before_the_proof() -> None:
    world = running("StatefulSet", digest=NEW)
    world.spec = HEALTHY
    world.recorded("worker-2", 2)
    world.leave("worker-2")
    assert world.actions() == ()


def test_a_device_that_fails_its_check_goes_to_no_other_pod_of_the_workload() -> None:
    world = released()
    came_to(world, "no")
    world.set_workload(replicas=4)
    world.put(gated_pod("worker-3"))
    assert of_type(world.actions(), OpenGate) == ()


def test_a_check_that_can_never_be_evaluated_is_found_out_before_anything_goes() -> None:
    world = running("StatefulSet")
    world.spec, world.bad_checks = HEALTHY, {"healthy": "syntax error"}
    assert of_type(world.actions(), EvictPod) == ()
    stalled = next(c for c in world.plan().status.conditions if c.type == "Stalled")
    assert stalled.reason == Refusal.CHECK_INVALID
    assert "check healthy" in stalled.message
    assert "syntax error" in stalled.message
