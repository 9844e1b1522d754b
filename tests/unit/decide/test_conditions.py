"""What the conditions say: kstatus can read them, nothing is claimed that was not observed, and time stands still at rest."""

from datetime import datetime

import pytest

from accelerator_rollout.api.conditions import Condition, ConditionStatus, find_condition
from accelerator_rollout.api.conditions import ConditionType as Kind
from accelerator_rollout.api.models import Outcome
from accelerator_rollout.decide.snapshot import Freshness
from builders import NEW, NOW, OLD, World, at, gated_pod, leaving, pod, replica_set, running

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
YES, NO, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


def told(world: World, now: datetime = NOW) -> tuple[Condition, ...]:
    return world.plan(now).status.conditions


def state(world: World, kind: Kind, now: datetime = NOW) -> tuple[ConditionStatus, str] | None:
    found = find_condition(told(world, now), kind)
    return (found.status, found.reason) if found else None


@EACH
def test_ready_if_every_pod_is_healthy_at_the_target(kind: str) -> None:
    world = running(kind, digest=NEW)
    assert state(world, Kind.READY) == (YES, "Complete")
    assert state(world, Kind.PROGRESSING) == (NO, "Complete")
    assert state(world, Kind.DEVICES_RELEASED) == (YES, "AllReleased")
    assert state(world, Kind.RECONCILING) is None
    assert state(world, Kind.STALLED) is None


@EACH
def test_while_it_works_it_reconciles_and_is_neither_ready_nor_stalled(kind: str) -> None:
    world = running(kind)
    ready = state(world, Kind.READY)
    assert ready is not None
    assert ready[0] is NO
    assert state(world, Kind.RECONCILING) == (YES, ready[1])
    assert state(world, Kind.STALLED) is None


@EACH
def test_a_refusal_stalls_and_the_fix_clears_it(kind: str) -> None:
    world = running(kind, digest=NEW)
    bad = {"max_surge": 1} if kind == "Deployment" else {"update_strategy": "RollingUpdate"}
    world.set_workload(**bad)
    world.store(world.plan())
    assert state(world, Kind.STALLED) == state(world, Kind.STALLED)
    assert find_condition(world.status.conditions, Kind.STALLED) is not None
    assert find_condition(world.status.conditions, Kind.RECONCILING) is None
    world.set_workload(max_surge=0) if kind == "Deployment" else world.set_workload(
        update_strategy="OnDelete"
    )
    assert state(world, Kind.STALLED) is None
    assert state(world, Kind.READY) == (YES, "Complete")


# S8


@EACH
@pytest.mark.parametrize(
    "why",
    [
        "controller behind",
        "pod missing",
        "pod down",
        "pod of the old revision",
        "pod too many",
        "pod draining",
    ],
)
def test_not_ready_if_anything_is_not_as_asked(kind: str, why: str) -> None:
    world = running(kind, digest=NEW)
    match why:
        case "controller behind":
            world.set_workload(generation=3)
        case "pod missing":
            world.set_workload(replicas=4)
        case "pod down":
            world.change("worker-1", ready=False)
        case "pod of the old revision":
            world.put(pod("worker-1", OLD, kind=kind))
            world.sets.append(replica_set(OLD, 1))
        case "pod too many":
            world.put(pod("worker-7", NEW, kind=kind))
        case "pod draining":
            world.pods["x"] = leaving(pod("worker-7", NEW, kind=kind, uid="x"))
    ready = state(world, Kind.READY)
    assert ready is not None
    assert ready[0] is NO


def test_a_complete_deployment_is_ready_only_when_it_is_no_longer_parked() -> None:
    """Its unparking is a new generation: Ready would be taken back a moment later."""
    world = running("Deployment", digest=NEW)
    world.set_workload(paused=True, parked="step-taken")
    assert [type(a).__name__ for a in world.actions()] == ["UnpauseDeployment"]
    ready = state(world, Kind.READY)
    assert ready is not None
    assert ready[0] is NO


@EACH
def test_every_condition_names_the_generation_that_was_looked_at(kind: str) -> None:
    world = running(kind, digest=NEW)
    world.generation = 7
    decided = world.plan()
    assert {c.observed_generation for c in decided.status.conditions} == {7}
    assert decided.status.observed_generation == 7


@EACH
def test_a_generation_of_the_workload_counts_as_observed_when_its_controller_says_so(kind: str) -> None:
    world = running(kind, digest=NEW)
    world.store(world.plan())
    world.set_workload(generation=3)
    assert world.plan().status.observed_workload_generation == 2
    world.set_workload(observed_generation=3)
    assert world.plan().status.observed_workload_generation == 3


@EACH
def test_an_unknown_world_claims_nothing_and_names_what_cannot_be_read(kind: str) -> None:
    world = running(kind, digest=NEW)
    world.store(world.plan())
    world.generation = 2
    world.freshness = Freshness.UNREADABLE
    world.unreadable["Pod/worker-1"] = "a null list"
    ready = find_condition(told(world), Kind.READY)
    assert ready is not None
    assert (ready.status, ready.reason) == (UNKNOWN, "StateUnknown")
    assert "Pod/worker-1: a null list" in ready.message
    assert world.plan().status.observed_generation == 1


@EACH
def test_while_the_first_lists_come_in_nothing_is_written(kind: str) -> None:
    world = running(kind)
    world.freshness = Freshness.SYNCING
    assert world.plan().status == world.status


# Time


@EACH
def test_a_transition_time_moves_only_with_the_status(kind: str) -> None:
    world = running(kind, digest=NEW)
    world.store(world.plan())
    world.change("worker-1", ready=False)
    world.store(world.plan(at(10)))
    world.set_workload(replicas=4)
    ready = find_condition(told(world, at(20)), Kind.READY)
    assert ready is not None
    assert ready.last_transition_time == at(10)


@EACH
@pytest.mark.parametrize("what", ["rest", "mid-step", "paused", "unproven"])
def test_nothing_is_written_while_nothing_changes(kind: str, what: str) -> None:
    world = running(kind, digest=NEW if what == "rest" else OLD)
    match what:
        case "mid-step":
            world.recorded("worker-2", 2)
            world.leave("worker-2")
        case "paused":
            world.spec["paused"] = True
        case "unproven":
            world.vanish("worker-1", NOW)
    world.store(world.plan())
    world.vanished.clear()
    again = world.plan(at(7))
    assert again.status.to_raw() == world.status.to_raw()
    assert again.actions == ()


# Deadlines


@EACH
def test_a_release_that_takes_too_long_stalls_until_it_is_there(kind: str) -> None:
    world = running(kind)
    world.recorded("worker-2", 2)
    world.leave("worker-2")
    world.store(world.plan())
    assert world.plan(at(300)).next_due == at(595)
    assert state(world, Kind.STALLED, at(594)) is None
    assert state(world, Kind.STALLED, at(595)) == (YES, "ReleaseTimeout")
    world.store(world.plan(at(595)))
    world.end("worker-2")
    assert state(world, Kind.STALLED, at(700)) is None


@EACH
def test_a_rollout_that_does_not_move_stalls_and_goes_on_when_it_does(kind: str) -> None:
    world = running(kind)
    world.set_workload(replicas=4)  # and its controller makes none
    world.store(world.plan())
    assert world.plan(at(5)).next_due == at(1800)
    assert state(world, Kind.STALLED, at(1800)) == (YES, "ProgressDeadlineExceeded")
    world.store(world.plan(at(1800)))
    world.put(gated_pod("worker-3", kind=kind, created=at(1900)))
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 3), replica_set(NEW, 1, 0)]
    assert state(world, Kind.STALLED, at(1900)) is None


@EACH
def test_paused_time_counts_towards_no_deadline(kind: str) -> None:
    world = running(kind)
    world.spec["paused"] = True
    world.store(world.plan())
    later = world.plan(at(5000))
    assert later.next_due is None
    assert state(world, Kind.STALLED, at(5000)) is None
    assert state(world, Kind.PAUSED, at(5000)) == (YES, "Paused")
    world.spec["paused"] = False
    assert state(world, Kind.STALLED, at(5000)) is None


# What else is told


@EACH
def test_devices_that_are_not_free_are_named_with_their_pod(kind: str) -> None:
    world = running(kind)
    world.recorded("worker-2", 2)
    world.leave("worker-2")
    found = find_condition(told(world), Kind.DEVICES_RELEASED)
    assert found is not None
    assert (found.status, found.reason) == (NO, "PodTerminating")
    assert "worker-2" in found.message


@EACH
def test_a_rollout_enters_the_history_and_completes_there(kind: str) -> None:
    world = running(kind)
    world.store(world.plan())
    (begun,) = world.status.history
    assert begun.outcome is Outcome.IN_PROGRESS
    for number in range(3):
        world.put(pod(f"worker-{number}", NEW, kind=kind))
    world.status = world.status.model_copy(update={"replacements": ()})
    world.set_workload(**({"paused": False, "parked": None} if kind == "Deployment" else {}))
    world.sets = [replica_set(NEW, 3)]
    world.store(world.plan(at(60)))
    assert [(p.outcome, p.finished_at) for p in world.status.history] == [(Outcome.COMPLETED, at(60))]


@EACH
def test_a_rule_of_the_guideline_that_is_not_met_is_told_and_stops_nothing(kind: str) -> None:
    world = running(kind)
    world.budgets = []
    assert state(world, Kind.GUARDRAILS_MET) == (NO, "PodDisruptionBudgetMissing")
    assert world.actions() != ()
