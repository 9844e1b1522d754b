"""spec.strategy.maxUnavailable: as many pods may be down by our doing, and those that are down already count."""

from dataclasses import replace
from typing import Any

import pytest

from accelerator_rollout.api.models import Stage
from accelerator_rollout.decide.actions import PreferVictim, victims_of
from accelerator_rollout.decide.reasons import Refusal, Waiting
from accelerator_rollout.decide.shared_budget import Peer, SharedBudget
from builders import NEW, OLD, World, at, budget, device, pod, replica_set, running

ON_DELETE = pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])


def allowing(kind: str, pods: int | str, replicas: int = 4) -> World:
    """Return a world of old, healthy pods of which so many may be down; a Deployment's own field says the same."""
    world = running(kind, replicas)
    world.spec = {"strategy": {"maxUnavailable": pods}}
    world.budgets = [replace(budget(), disruptions_allowed=replicas)]
    if kind == "Deployment":
        world.set_workload(max_unavailable=pods)
    return world


def victims(world: World) -> list[str]:
    return [uid.removeprefix("p-") for action in world.actions() for uid in victims_of(action)]


def told(world: World) -> str:
    return next(c.reason for c in world.plan().status.conditions if c.type == "Progressing")


@ON_DELETE
def test_a_second_pod_goes_while_the_first_is_in_flight(kind: str) -> None:
    world = allowing(kind, 2)
    world.recorded("worker-3", 3, stage=Stage.TERMINATING)
    world.leave("worker-3")
    assert victims(world) == ["worker-2" if kind == "StatefulSet" else "worker-0"]


@ON_DELETE
def test_no_third_one_does(kind: str) -> None:
    world = allowing(kind, 2)
    for name, number in (("worker-3", 3), ("worker-2", 2)):
        world.recorded(name, number, stage=Stage.TERMINATING)
        world.leave(name)
    assert victims(world) == []
    assert told(world) != Waiting.PODS_UNAVAILABLE, "what is in flight is told, not who waits for it"


@ON_DELETE
def test_a_pod_that_is_down_for_another_reason_counts(kind: str) -> None:
    world = allowing(kind, 2)
    world.recorded("worker-3", 3, stage=Stage.TERMINATING)
    world.leave("worker-3")
    world.put(pod("worker-1", NEW, kind=kind), device(1))
    world.change("worker-1", ready=False)
    assert victims(world) == []


@pytest.mark.parametrize(("asked", "pods"), [("50%", 2), ("74%", 2), ("75%", 3), ("1%", 1), (2, 2)])
def test_a_deployment_moves_in_groups(asked: int | str, pods: int) -> None:
    world = allowing("Deployment", asked)
    decided = world.plan()
    assert len(victims(world)) == pods
    assert decided.record_first
    assert {e.pod_name for e in decided.status.replacements} == set(victims(world)), "each is recorded before"
    steered = {a.pod_name for a in decided.actions if isinstance(a, PreferVictim)}
    assert steered == set(victims(world)), "its controller is told which"


def test_a_deployment_takes_the_next_group_once_the_last_is_well() -> None:
    world = allowing("Deployment", 2)
    world.recorded("worker-3", 3, stage=Stage.TERMINATING)
    world.leave("worker-3")
    world.sets = [replica_set(OLD, 3), replica_set(NEW, 1, 0)]
    assert victims(world) == []


def test_a_broken_pod_and_a_healthy_one_make_a_group() -> None:
    world = allowing("Deployment", 2)
    world.change("worker-2", ready=False)
    world.sets = [replica_set(OLD, 4, 3)]
    assert victims(world) == ["worker-2", "worker-0"]


def test_a_deployment_that_may_take_fewer_down_than_allowed_takes_fewer() -> None:
    world = allowing("Deployment", 3)
    world.set_workload(max_unavailable=2)
    assert len(victims(world)) == 2


def test_a_deployment_that_would_take_more_is_refused() -> None:
    world = allowing("Deployment", 2)
    world.set_workload(max_unavailable=3)
    assert victims(world) == []
    assert told(world) == Refusal.MAX_UNAVAILABLE_TOO_HIGH


@pytest.mark.parametrize("allowed", [0, 1])
def test_a_budget_must_allow_the_whole_group(allowed: int) -> None:
    world = allowing("Deployment", 2)
    world.budgets = [replace(budget(), disruptions_allowed=allowed)]
    assert victims(world) == []
    assert told(world) == Waiting.BLOCKED_BY_PDB


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param({"steps": [{"replicas": 1, "pause": {"type": "Manual"}}]}, id="a step of one pod"),
        pytest.param({"partition": 3}, id="a partition"),
    ],
)
def test_a_group_that_is_more_than_may_go_stays(strategy: dict[str, Any]) -> None:
    world = allowing("Deployment", 2)
    world.spec["strategy"] |= strategy
    assert victims(world) == []
    assert told(world) == Waiting.STEP_NOT_SAFE


@ON_DELETE
def test_a_canary_of_one_pod_is_one_pod(kind: str) -> None:
    world = allowing(kind, 3)
    world.spec["strategy"] |= {"steps": [{"replicas": 1, "pause": {"type": "Manual"}}]}
    assert len(victims(world)) == 1
    world.recorded("worker-3", 3, stage=Stage.TERMINATING)
    world.leave("worker-3")
    assert victims(world) == [], "its successor does not exist yet, and is the one"


def test_departures_of_a_group_are_attributed_to_it_whichever_they_are() -> None:
    world = allowing("Deployment", 2)
    for name, number in (("worker-0", 0), ("worker-1", 1)):
        world.recorded(name, number, stage=Stage.SELECTED)
    world.set_workload(paused=False, parked=None)
    for name in ("worker-2", "worker-3"):
        world.leave(name)
    world.sets = [replica_set(OLD, 2), replica_set(NEW, 2, 0)]
    entries = world.plan().status.replacements
    assert {e.pod_name for e in entries} == {"worker-2", "worker-3"}
    assert {str(e.cause) for e in entries} == {"Rollout"}


def test_one_of_a_group_that_is_still_to_go_is_not_forgotten() -> None:
    world = allowing("Deployment", 2)
    for name, number in (("worker-0", 0), ("worker-1", 1)):
        world.recorded(name, number, stage=Stage.SELECTED)
    world.set_workload(paused=False, parked=None)
    world.leave("worker-0")
    world.sets = [replica_set(OLD, 2), replica_set(NEW, 0, 0)]
    assert {e.pod_name for e in world.plan().status.replacements} == {"worker-0", "worker-1"}


@pytest.mark.parametrize(("others", "goes"), [(0, True), (1, False)])
def test_a_group_needs_as_many_places_of_a_shared_budget(others: int, goes: bool) -> None:
    world = allowing("Deployment", 2)
    other = Peer("other", at(-60), in_flight=others)
    world.shared = SharedBudget("racks", 2, 600, (other,))
    assert bool(victims(world)) is goes


def test_a_group_that_can_never_fit_a_shared_budget_is_named() -> None:
    world = allowing("Deployment", 2)
    world.shared = SharedBudget("racks", 1, 600, ())
    assert victims(world) == []
    assert told(world) == Waiting.STEP_NOT_SAFE


def test_own_pods_in_flight_take_places_of_a_shared_budget() -> None:
    world = allowing("StatefulSet", 2)
    world.shared = SharedBudget("racks", 1, 600, ())
    world.recorded("worker-3", 3, stage=Stage.TERMINATING)
    world.leave("worker-3")
    assert victims(world) == []
