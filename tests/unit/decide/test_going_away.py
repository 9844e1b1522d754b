"""Our object is being deleted: nothing of ours stays behind, and nobody is stranded at our gate."""

from typing import Any

import pytest

from accelerator_rollout.decide.actions import (
    OpenGate,
    ParkReason,
    PauseDeployment,
    RemoveFinalizer,
    UnmanageDeployment,
)
from accelerator_rollout.decide.outcome import EventType
from accelerator_rollout.decide.snapshot import Freshness, Rival
from builders import EXTRA, GRACE, NAME, NEW, OLD, World, at, gated_pod, replica_set, running

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
LEAVE = RemoveFinalizer(f"arol-{NAME}")
UNMANAGE = UnmanageDeployment(NAME, f"d-{NAME}")


def deleted(kind: str, *, vanished: bool) -> World:
    """Deleted in mid-step: `worker-2` has left, in order or (vanished) without a word; its successor is gated."""
    world = running(kind)
    world.recorded("worker-2", 2, vanished_at=at(0) if vanished else None)
    if not vanished:
        world.end("worker-2")
    world.vanish("worker-2")
    world.put(gated_pod("worker-2", kind=kind))
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(NEW, 1, 0)]
    world.deletion = at(0)
    return world


@EACH
def test_at_rest_we_leave_at_once(kind: str) -> None:
    world = running(kind, digest=NEW)
    world.deletion = at(0)
    assert world.actions() == ((UNMANAGE, LEAVE) if kind == "Deployment" else (LEAVE,))


@EACH
def test_a_gate_opens_first_and_we_leave_afterwards(kind: str) -> None:
    world = deleted(kind, vanished=False)
    assert world.actions() == (OpenGate("worker-2", "q-worker-2", "p-worker-2"),)
    world.change("worker-2", gates=())
    assert world.actions()[-1] == LEAVE


def test_a_step_that_is_not_locked_yet_is_locked_and_then_opened() -> None:
    world = deleted("Deployment", vanished=False)
    world.set_workload(paused=False, parked=None)
    assert world.actions() == (PauseDeployment(NAME, f"d-{NAME}", ParkReason.STEP_TAKEN),)
    world.set_workload(paused=True, parked="step-taken")
    assert world.actions() == (OpenGate("worker-2", "q-worker-2", "p-worker-2"),)


@EACH
def test_an_unproven_release_is_waited_for_and_no_longer(kind: str) -> None:
    world = deleted(kind, vanished=True)
    decided = world.plan(at(GRACE + EXTRA - 1))
    assert (decided.actions, decided.next_due) == ((), at(GRACE + EXTRA))


def test_after_the_wait_the_gate_opens_with_a_warning() -> None:
    world = deleted("StatefulSet", vanished=True)
    del world.nodes["node-2"]  # so that no wait ever proves anything
    decided = world.plan(at(GRACE + EXTRA))
    assert decided.actions == (OpenGate("worker-2", "q-worker-2", "p-worker-2"),)
    assert [(n.type, n.reason) for n in decided.notices] == [(EventType.WARNING, "OpenedWithoutProof")]


@EACH
def test_the_successor_that_is_about_to_come_is_waited_for_and_no_longer(kind: str) -> None:
    """Its gate would stay closed should the operator go together with the object."""
    world = deleted(kind, vanished=False)
    del world.pods["q-worker-2"]
    decided = world.plan(at(1))
    assert (decided.actions, decided.next_due) == ((), at(GRACE + EXTRA))
    said = next(c.message for c in decided.status.conditions if c.type == "Progressing")
    assert "waiting for the pod that takes the place of worker-2" in said
    assert world.actions(at(GRACE + EXTRA))[-1] == LEAVE


@EACH
@pytest.mark.parametrize("change", [{"replicas": 2}, {"deletion": at(0)}], ids=["scaled down", "deleted"])
def test_no_successor_is_waited_for_that_nobody_will_make(kind: str, change: dict[str, Any]) -> None:
    world = deleted(kind, vanished=False)
    del world.pods["q-worker-2"]
    world.set_workload(**change)
    assert world.actions(at(1))[-1] == LEAVE


@EACH
def test_no_pod_is_replaced_any_more(kind: str) -> None:
    world = running(kind)
    world.deletion = at(0)
    names = {type(a).__name__ for a in world.actions()}
    assert names <= {"UnmanageDeployment", "RemoveFinalizer"}


@EACH
def test_a_workload_that_is_gone_keeps_nobody(kind: str) -> None:
    world = running(kind)
    world.deletion = at(0)
    world.workload = None
    assert world.actions() == (LEAVE,)


@EACH
def test_the_younger_of_two_objects_leaves_the_workload_to_the_older(kind: str) -> None:
    world = deleted(kind, vanished=False)
    world.rivals.append(Rival("elder", "e", at(-2000)))
    assert world.actions() == (LEAVE,)


@EACH
def test_without_our_finalizer_there_is_nothing_left_to_do(kind: str) -> None:
    world = deleted(kind, vanished=False)
    world.finalizers = ("other.example.com/f",)
    assert world.actions() == ()


@EACH
def test_an_unknown_world_is_not_left(kind: str) -> None:
    world = deleted(kind, vanished=False)
    world.freshness = Freshness.STALE
    assert world.actions() == ()
