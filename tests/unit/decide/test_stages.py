"""Where one replacement stands, told from the successor and the verdict alone."""

from dataclasses import replace
from typing import Any

import pytest

from accelerator_rollout.api.models import Proof, Stage
from accelerator_rollout.decide.allocatable import Obstacle
from accelerator_rollout.decide.reasons import NotFree
from accelerator_rollout.decide.release import Verdict
from accelerator_rollout.decide.stages import after_release, before_release
from accelerator_rollout.names import GATE
from accelerator_rollout.records import Phase
from builders import NOW, at, gated_pod, pod

MIN_READY = 10
OPEN = {"gates": (), "node": ""}


@pytest.mark.parametrize(
    ("facts", "stage", "reason", "names"),
    [
        ({}, Stage.GATED, "", ""),
        (OPEN, Stage.SCHEDULING, "AwaitingScheduler", "worker-2"),
        (
            OPEN | {"unschedulable_message": "0/3 nodes"},
            Stage.SCHEDULING,
            "AwaitingScheduler",
            "0/3 nodes",
        ),
        ({"gates": ("other.example.com/g",)}, Stage.SCHEDULING, "WaitingForAdmission", "other.example.com/g"),
        (OPEN | {"node": "node-2"}, Stage.PREPARING, "AwaitingNode", "node-2"),
        (
            OPEN
            | {"node": "node-2", "waiting_reason": "ImagePullBackOff", "waiting_message": "no such image"},
            Stage.PREPARING,
            "ImageError",
            "no such image",
        ),
        (OPEN | {"node": "node-2", "phase": Phase.RUNNING}, Stage.WARMING_UP, "AwaitingReadiness", "node-2"),
        (
            OPEN | {"node": "node-2", "phase": Phase.RUNNING, "waiting_reason": "CrashLoopBackOff"},
            Stage.WARMING_UP,
            "CrashLoop",
            "worker-2",
        ),
        (
            OPEN | {"node": "node-2", "phase": Phase.RUNNING, "ready": True, "ready_since": at(-4)},
            Stage.SOAKING,
            "AwaitingMinReadySeconds",
            "10 s",
        ),
        (
            OPEN | {"node": "node-2", "phase": Phase.RUNNING, "ready": True, "ready_since": at(-10)},
            Stage.DONE,
            "",
            "",
        ),
    ],
)
def test_each_state_of_the_successor_is_a_stage(
    facts: dict[str, Any], stage: Stage, reason: str, names: str
) -> None:
    found = after_release(replace(gated_pod("worker-2"), **facts), MIN_READY, NOW)
    assert (found.stage, found.reason) == (stage, reason)
    assert names in found.message


def test_without_a_successor_the_controller_is_waited_for() -> None:
    found = after_release(None, 0, NOW)
    assert (found.stage, found.reason) == (Stage.GATED, "AwaitingReplacement")


def test_a_gate_of_others_beside_ours_does_not_hide_ours() -> None:
    found = after_release(replace(gated_pod("worker-2"), gates=("other.example.com/g", GATE)), 0, NOW)
    assert (found.stage, found.reason) == (Stage.GATED, "")


def test_soaking_says_when_it_ends() -> None:
    assert after_release(pod("worker-2", ready_since=at(-4)), MIN_READY, NOW).due == at(6)


OTHER_STAGES = (
    NotFree.TERMINATION_STUCK,
    NotFree.DRIVER_UNAVAILABLE,
    NotFree.POD_TERMINATING,
    NotFree.SETTLING,
    NotFree.HOLD_ENDING,
    NotFree.CHECKS_RUNNING,
    NotFree.CHECK_FAILED,
)


@pytest.mark.parametrize(
    ("obstacle", "stage"),
    [
        (NotFree.POD_TERMINATING, Stage.TERMINATING),
        (NotFree.TERMINATION_STUCK, Stage.TERMINATING),
        (NotFree.DRIVER_UNAVAILABLE, Stage.TERMINATING),
        (NotFree.SETTLING, Stage.SETTLING),
        (NotFree.HOLD_ENDING, Stage.SETTLING),
        (NotFree.CHECKS_RUNNING, Stage.SETTLING),
        (NotFree.CHECK_FAILED, Stage.SETTLING),
        *((r, Stage.RELEASING) for r in NotFree if r not in OTHER_STAGES),
    ],
)
def test_until_the_devices_are_free_the_obstacle_is_told(obstacle: NotFree, stage: Stage) -> None:
    found = before_release(Verdict(Obstacle(obstacle, "why", at(9)), None, exposed=False))
    assert found is not None
    assert (found.stage, found.reason, found.message, found.due) == (stage, obstacle, "why", at(9))


def test_free_devices_leave_it_to_the_successor() -> None:
    assert before_release(Verdict(None, Proof.KUBELET_TERMINAL_PHASE, exposed=False)) is None
