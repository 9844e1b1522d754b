"""What a failure policy answers: a halt or an undo, once, and only for a revision that is being rolled out."""

from typing import Any

import pytest

from accelerator_rollout.api.conditions import ConditionType, find_condition
from accelerator_rollout.api.models import Cause, Proof, Stage
from accelerator_rollout.decide.actions import RestoreTemplate
from accelerator_rollout.decide.outcome import Plan
from accelerator_rollout.decide.reasons import Overdue
from builders import NEW, NOW, OLD, World, at, device, entry, of_type, pod, replica_set, revision, running

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
LATE = at(30)


def warming_up(kind: str, policy: str, good: str = OLD, **facts: Any) -> World:
    """`worker-2` at NEW is not ready since NOW, and may take 30 s; all pods were well at `good` before."""
    world = running(kind)
    world.spec = {"health": {"readyTimeoutSeconds": 30}, "failurePolicy": policy}
    successor = pod("worker-2", NEW, kind=kind, ready=False, ready_since=None)
    world.put(successor, device(2))
    linked: dict[str, Any] = {
        "replacement_pod_uid": successor.uid,
        "replacement_pod_name": "worker-2",
        "released_at": at(-9),
    }
    linked |= {"proof": Proof.KUBELET_TERMINAL_PHASE}
    gone = pod("worker-2", uid="first")
    world.remember(entry(gone, device(2), stage=Stage.WARMING_UP, stage_started_at=NOW, **(linked | facts)))
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2, number=1), replica_set(NEW, 1, 0, number=2)]
    else:
        world.revisions = [revision(OLD, 1), revision(NEW, 2)]
    world.store(world.plan())
    name = good[:12] if kind == "Deployment" else good
    world.status = world.status.model_copy(update={"current_revision": name})
    return world


def stalled(decided: Plan) -> str:
    found = find_condition(decided.status.conditions, ConditionType.STALLED)
    return found.reason if found is not None else ""


@EACH
@pytest.mark.parametrize("policy", ["Pause", "Abort", "Undo"])
def test_nothing_is_answered_before_the_deadline(kind: str, policy: str) -> None:
    decided = warming_up(kind, policy).plan(at(29))
    assert (decided.status.halt, decided.status.undo) == (None, None)


@EACH
def test_pause_leaves_no_mark_so_that_it_goes_on_by_itself(kind: str) -> None:
    decided = warming_up(kind, "Pause").plan(LATE)
    assert stalled(decided) == Overdue.READY
    assert (decided.status.halt, decided.status.undo) == (None, None)


@EACH
def test_abort_halts_the_revision_for_good(kind: str) -> None:
    world = warming_up(kind, "Abort")
    world.store(world.plan(LATE))
    assert world.status.halt is not None
    assert world.status.halt.reason == Overdue.READY
    world.put(pod("worker-2", NEW, kind=kind), device(2))
    decided = world.plan(at(40))
    assert stalled(decided) == Overdue.READY
    assert decided.status.halt is not None


@EACH
def test_undo_goes_back_to_the_revision_that_was_well(kind: str) -> None:
    world = warming_up(kind, "Undo")
    decided = world.plan(LATE)
    assert decided.record_first
    assert len(of_type(decided.actions, RestoreTemplate)) == 1
    world.store(decided)
    assert world.status.undo is not None


@EACH
@pytest.mark.parametrize("good", ["", NEW], ids=["never well", "this one was well"])
def test_two_revisions_are_not_undone_by_turns(kind: str, good: str) -> None:
    decided = warming_up(kind, "Undo", good).plan(LATE)
    assert of_type(decided.actions, RestoreTemplate) == ()
    assert decided.status.halt is not None


@EACH
def test_an_undo_for_which_we_lack_the_right_becomes_a_halt(kind: str) -> None:
    world = warming_up(kind, "Undo")
    world.restore = False
    decided = world.plan(LATE)
    assert of_type(decided.actions, RestoreTemplate) == ()
    assert (decided.status.undo, stalled(decided)) == (None, Overdue.READY)
    assert decided.status.halt is not None


@EACH
def test_after_a_retry_the_deadline_counts_anew(kind: str) -> None:
    world = warming_up(kind, "Abort")
    world.store(world.plan(LATE))
    world.spec["action"] = {"type": "Retry", "id": "1"}
    world.generation += 1
    world.store(world.plan(at(100)))
    assert world.status.halt is None
    assert world.plan(at(129)).status.halt is None
    assert world.plan(at(130)).status.halt is not None


@EACH
@pytest.mark.parametrize(("on_timeout", "halted"), [("Pause", False), ("Abort", True)])
def test_a_release_that_is_late_is_answered_by_a_policy_of_its_own(
    kind: str, on_timeout: str, *, halted: bool
) -> None:
    world = running(kind)
    world.spec = {"release": {"timeoutSeconds": 60, "onTimeout": on_timeout}}
    world.recorded("worker-2", 2)
    world.change("worker-2", deletion=at(30))
    world.store(world.plan())
    decided = world.plan(at(60))
    assert stalled(decided) == Overdue.RELEASE
    assert (decided.status.halt is not None) is halted


def test_a_pod_that_left_by_itself_and_is_slow_to_come_back_undoes_nothing() -> None:
    world = warming_up("StatefulSet", "Undo", good=OLD, cause=Cause.DEPARTURE)
    for name in ("worker-0", "worker-1"):
        world.put(pod(name, NEW, kind="StatefulSet"))
    decided = world.plan(LATE)
    assert stalled(decided) == Overdue.READY
    assert (decided.status.halt, decided.status.undo) == (None, None)
