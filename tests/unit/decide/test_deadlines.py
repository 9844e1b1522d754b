"""Each stage has its own deadline; it clears by itself, and no time counts in which a person has stopped us."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from accelerator_rollout.api.conditions import Condition, ConditionType, find_condition
from accelerator_rollout.api.models import Stage
from accelerator_rollout.decide.deadlines import failure
from accelerator_rollout.decide.judgement import Judgement
from accelerator_rollout.decide.reasons import Overdue
from accelerator_rollout.decide.snapshot import Refused
from accelerator_rollout.records import Phase, PodRecord
from accelerator_rollout.workloads import driver_for
from builders import NEW, NOW, OLD, World, at, budget, device, entry, pod, replica_set, running

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
SHORT = {"scheduleTimeoutSeconds": 10, "prepareTimeoutSeconds": 20, "readyTimeoutSeconds": 30}
PENDING = {"ready": False, "ready_since": None, "phase": Phase.PENDING}
STATES: dict[Stage, dict[str, Any]] = {
    Stage.SCHEDULING: PENDING | {"node": ""},
    Stage.PREPARING: PENDING,
    Stage.WARMING_UP: {"ready": False, "ready_since": None},
}
LATE = [
    (Stage.SCHEDULING, Overdue.SCHEDULE, 10),
    (Stage.PREPARING, Overdue.PREPARE, 20),
    (Stage.WARMING_UP, Overdue.READY, 30),
]


def mid_step(kind: str, stage: Stage, digest: str = NEW, **over: Any) -> World:
    """`worker-2` is at `stage` since NOW, on its devices unless it has no node."""
    world = running(kind)
    world.spec = {"health": SHORT}
    successor = pod("worker-2", digest, kind=kind, **STATES[stage])
    world.put(successor, *([device(2)] if successor.bound else []))
    facts = {"replacement_pod_uid": successor.uid, "replacement_pod_name": "worker-2", "released_at": at(-9)}
    world.remember(
        entry(pod("worker-2", uid="first"), device(2), stage=stage, stage_started_at=NOW, **(facts | over))
    )
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(digest, 1, 0)]
    world.store(world.plan())
    return world


def stalled(world: World, now: datetime) -> Condition | None:
    return find_condition(world.plan(now).status.conditions, ConditionType.STALLED)


@EACH
@pytest.mark.parametrize(("stage", "reason", "seconds"), LATE)
def test_a_stage_that_takes_too_long_stalls_with_its_own_reason(
    kind: str, stage: Stage, reason: Overdue, seconds: int
) -> None:
    world = mid_step(kind, stage)
    assert world.plan(at(1)).next_due == at(seconds)
    assert stalled(world, at(seconds - 1)) is None
    told = stalled(world, at(seconds))
    assert told is not None
    assert told.reason == reason
    assert "worker-2" in told.message
    if stage is not Stage.SCHEDULING:
        assert "node-2" in told.message
        assert str(device(2)) in told.message


@EACH
@pytest.mark.parametrize(("stage", "reason", "seconds"), LATE)
def test_it_clears_by_itself_and_no_timer_runs_meanwhile(
    kind: str, stage: Stage, reason: Overdue, seconds: int
) -> None:
    del reason
    world = mid_step(kind, stage)
    world.store(world.plan(at(seconds)))
    again = world.plan(at(seconds + 60))
    assert again.next_due is None or stage is Stage.PREPARING  # it waits to name a failing driver
    assert again.status.to_raw() == world.status.to_raw()
    world.put(pod("worker-2", NEW, kind=kind), device(2))
    assert stalled(world, at(seconds + 90)) is None


@EACH
def test_no_healthy_pod_is_replaced_while_one_has_failed(kind: str) -> None:
    world = mid_step(kind, Stage.WARMING_UP)
    world.store(world.plan(at(30)))
    assert world.actions(at(3000)) == world.actions(at(31))
    assert not [a for a in world.actions(at(3000)) if type(a).__name__ in ("EvictPod", "UnpauseDeployment")]


@EACH
def test_the_progress_deadline_leaves_a_stage_to_its_own(kind: str) -> None:
    world = mid_step(kind, Stage.WARMING_UP)
    world.spec = {"health": {"readyTimeoutSeconds": 3600}, "progressDeadlineSeconds": 600}
    world.store(world.plan(at(1)))
    assert stalled(world, at(3599)) is None
    told = stalled(world, at(3600))
    assert told is not None
    assert told.reason == Overdue.READY


@EACH
def test_a_model_that_loads_for_a_quarter_of_an_hour_is_not_late(kind: str) -> None:
    world = mid_step(kind, Stage.WARMING_UP)
    world.spec = {}
    assert stalled(world, at(900)) is None


@EACH
def test_a_pause_stops_no_clock_of_what_is_in_flight(kind: str) -> None:
    world = mid_step(kind, Stage.WARMING_UP)
    world.spec["paused"] = True
    told = stalled(world, at(30))
    assert told is not None
    assert told.reason == Overdue.READY


# Eviction


@EACH
def test_a_budget_that_keeps_the_next_pod_too_long_is_named(kind: str) -> None:
    world = running(kind)
    world.spec = {"disruption": {"timeoutSeconds": 40}}
    world.budgets = [budget(0)]
    world.store(world.plan())
    assert world.plan(at(1)).next_due == at(40)
    assert stalled(world, at(39)) is None
    told = stalled(world, at(40))
    assert told is not None
    assert told.reason == Overdue.EVICTION
    assert "worker-pdb" in told.message
    world.store(world.plan(at(40)))
    world.budgets = [budget(1)]
    assert stalled(world, at(41)) is None


def test_a_refused_eviction_counts_from_its_first_refusal() -> None:
    world = running("StatefulSet")
    world.spec = {"disruption": {"timeoutSeconds": 40}}
    world.recorded("worker-2", 2, stage=Stage.EVICTING, stage_started_at=at(-35))
    world.refused = [Refused("p-worker-2", "Refused", "budget worker-pdb forbids it", NOW)]
    assert stalled(world, at(4)) is None
    told = stalled(world, at(5))
    assert told is not None
    assert told.reason == Overdue.EVICTION


@EACH
def test_while_paused_no_budget_is_late(kind: str) -> None:
    world = running(kind)
    world.spec = {"disruption": {"timeoutSeconds": 40}, "paused": True}
    world.budgets = [budget(0)]
    world.store(world.plan())
    assert stalled(world, at(4000)) is None
    world.spec["paused"] = False
    world.store(world.plan(at(4000)))
    assert stalled(world, at(4039)) is None
    assert stalled(world, at(4040)) is not None


# Whose doing it is


def failed(world: World, now: datetime) -> Overdue | None:
    snapshot = world.snapshot()
    driver = driver_for(snapshot)
    assert driver is not None
    found = failure(snapshot, Judgement(snapshot, driver, now).appraisals, driver, now)
    return found.reason if found else None


@EACH
@pytest.mark.parametrize(("stage", "reason", "seconds"), LATE)
def test_only_what_the_revision_does_is_a_failure(
    kind: str, stage: Stage, reason: Overdue, seconds: int
) -> None:
    world = mid_step(kind, stage)
    assert failed(world, at(seconds - 1)) is None
    assert failed(world, at(seconds)) == (None if stage is Stage.SCHEDULING else reason)


@EACH
def test_a_successor_of_an_older_revision_is_no_failure_of_the_new_one(kind: str) -> None:
    world = mid_step(kind, Stage.WARMING_UP, OLD)
    assert failed(world, at(3000)) is None


# Killed at the end of the grace period


def killed(of: PodRecord, seconds: int) -> dict[str, Any]:
    assert of.deletion is not None
    return {"killed_at": of.deletion + timedelta(seconds=seconds)}


@EACH
def test_a_pod_that_was_killed_after_its_grace_is_told_of_once_and_kept_in_the_history(kind: str) -> None:
    world = running(kind)
    world.store(world.plan())
    world.recorded("worker-2", 2)
    world.leave("worker-2")
    ended = world.end("worker-2")
    world.change("worker-2", **killed(ended, 0))
    first = world.plan()
    assert [n.reason for n in first.notices if n.type == "Warning"] == ["KilledAfterGrace"]
    world.store(first)
    world.vanish("worker-2")
    assert [n for n in world.plan().notices if n.type == "Warning"] == []
    (kept,) = [e for e in world.plan().status.replacements if e.pod_name == "worker-2"]
    assert kept.killed_after_grace


@pytest.mark.parametrize(
    "facts",
    [{}, {"killed_at": at(-100)}],  # it ended by itself; a liveness probe had it killed long before
)
def test_what_was_not_killed_for_its_grace_is_not_told(facts: dict[str, Any]) -> None:
    world = running("StatefulSet")
    world.recorded("worker-2", 2)
    world.leave("worker-2")
    world.end("worker-2")
    world.change("worker-2", **facts)
    assert all(n.reason != "KilledAfterGrace" for n in world.plan().notices)
