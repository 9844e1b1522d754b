"""The soak: watched before the next one goes, asked in the open, failed after so many times, and healed by a new template."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from accelerator_rollout.api.conditions import ConditionType, find_condition
from accelerator_rollout.api.models import Proof, Stage
from accelerator_rollout.decide.actions import CheckHealth, victims_of
from accelerator_rollout.decide.reasons import Overdue, Waiting
from accelerator_rollout.decide.snapshot import HealthRun
from builders import NEW, NOW, OLD, World, at, device, entry, of_type, pod, replica_set, running

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
SOAK = {"soakSeconds": 60}
QUERY = {"address": "http://prometheus:9090", "query": "errors", "condition": "value < 1.0"}
CHECKED = SOAK | {"checks": [{"name": "no errors", "prometheus": QUERY}]}
ASK = CheckHealth("worker-2", "p-worker-2")
WHY = "check no errors: not true"


def soaking(kind: str = "StatefulSet", health: dict[str, Any] | None = None, digest: str = NEW) -> World:
    """`worker-2` has become ready just now."""
    world = running(kind)
    world.spec = {"health": SOAK if health is None else health}
    world.put(pod("worker-2", digest, kind=kind, ready_since=NOW), device(2))
    successor = {
        "replacement_pod_uid": "p-worker-2",
        "replacement_pod_name": "worker-2",
        "proof": Proof.KUBELET_TERMINAL_PHASE,
    }
    world.remember(
        entry(
            pod("worker-2", uid="first"),
            device(2),
            stage=Stage.WARMING_UP,
            released_at=at(-9),
            **successor,
        )
    )
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(digest, 1)]
    world.store(world.plan())
    return world


def victims(world: World, now: datetime) -> list[str]:
    return [uid for action in world.actions(now) for uid in victims_of(action)]


def came_to(world: World, seconds: float, *failures: str, in_a_row: int = 0, generation: int = 1) -> None:
    world.health["p-worker-2"] = HealthRun(generation, at(seconds), failures, in_a_row)


def stalled(world: World, now: datetime) -> str:
    found = find_condition(world.plan(now).status.conditions, ConditionType.STALLED)
    return found.reason if found else ""


def told(world: World, now: datetime) -> tuple[Stage, str]:
    (found,) = (e for e in world.plan(now).status.replacements if e.replacement_pod_name == "worker-2")
    return found.stage, found.reason


@EACH
def test_the_next_pod_goes_only_after_the_soak(kind: str) -> None:
    world = soaking(kind)
    assert told(world, at(1)) == (Stage.SOAKING, Waiting.AWAITING_SOAK)
    assert world.plan(at(1)).next_due == at(60)
    assert victims(world, at(59)) == []
    assert len(victims(world, at(60))) == 1


@EACH
def test_without_a_soak_the_next_pod_goes_at_once(kind: str) -> None:
    assert len(victims(soaking(kind, {}), at(1))) == 1


@EACH
def test_the_longer_of_both_min_ready_seconds_counts(kind: str) -> None:
    world = soaking(kind, {"minReadySeconds": 20})
    world.set_workload(min_ready_seconds=10)
    assert told(world, at(15)) == (Stage.SOAKING, Waiting.AWAITING_MIN_READY)
    assert victims(world, at(19)) == []
    assert len(victims(world, at(20))) == 1
    world.set_workload(min_ready_seconds=30)
    assert victims(world, at(29)) == []


def test_the_soak_begins_when_the_pod_is_available() -> None:
    world = soaking(health=SOAK | {"minReadySeconds": 20})
    assert told(world, at(20)) == (Stage.SOAKING, Waiting.AWAITING_SOAK)
    assert victims(world, at(79)) == []
    assert victims(world, at(80)) == ["p-worker-1"]


@EACH
def test_nothing_is_written_while_it_soaks(kind: str) -> None:
    world = soaking(kind, CHECKED)
    came_to(world, 0)
    world.store(world.plan(at(1)))
    assert world.plan(at(9)).status.to_raw() == world.status.to_raw()
    came_to(world, 10)
    assert world.plan(at(11)).status.to_raw() == world.status.to_raw()


# Checks


def test_checks_are_asked_at_once_every_ten_seconds_and_at_the_end() -> None:
    world = soaking(health=CHECKED)
    assert of_type(world.actions(at(1)), CheckHealth) == (ASK,)
    came_to(world, 1)
    assert of_type(world.actions(at(10)), CheckHealth) == ()
    assert world.plan(at(10)).next_due == at(11)
    assert of_type(world.actions(at(11)), CheckHealth) == (ASK,)
    came_to(world, 55)
    assert world.plan(at(56)).next_due == at(60)
    assert of_type(world.actions(at(60)), CheckHealth) == (ASK,)
    assert victims(world, at(60)) == []
    came_to(world, 60.5)
    assert victims(world, at(61)) == ["p-worker-1"]


def test_no_check_is_asked_before_the_pod_is_available() -> None:
    assert of_type(soaking(health=CHECKED | {"minReadySeconds": 20}).actions(at(5)), CheckHealth) == ()


def test_a_check_that_is_not_true_keeps_the_next_pod_beyond_the_soak() -> None:
    world = soaking(health=CHECKED)
    came_to(world, 60, WHY, in_a_row=1)
    assert told(world, at(61)) == (Stage.SOAKING, Waiting.HEALTH_CHECK_FAILING)
    assert victims(world, at(69)) == []
    assert of_type(world.actions(at(70)), CheckHealth) == (ASK,)
    assert stalled(world, at(70)) == ""
    came_to(world, 70)
    assert victims(world, at(71)) == ["p-worker-1"]


@EACH
def test_a_successor_fails_after_so_many_times_in_a_row_and_heals_by_itself(kind: str) -> None:
    world = soaking(kind, CHECKED)
    came_to(world, 20, WHY, in_a_row=2)
    assert stalled(world, at(21)) == ""
    came_to(world, 30, WHY, in_a_row=3)
    assert stalled(world, at(31)) == Overdue.HEALTH
    assert victims(world, at(500)) == []
    world.store(world.plan(at(31)))
    came_to(world, 70)
    assert stalled(world, at(71)) == ""


def test_an_answer_to_an_older_spec_does_not_count() -> None:
    world = soaking(health=CHECKED)
    came_to(world, 70, generation=2)
    assert of_type(world.actions(at(71)), CheckHealth) == (ASK,)
    assert victims(world, at(71)) == []


# Unready again


@EACH
def test_a_pod_that_keeps_becoming_unready_fails(kind: str) -> None:
    world = soaking(kind, SOAK | {"failureThreshold": 2})
    for number in range(2):
        world.store(world.plan(at(10 * number)))
        world.change("worker-2", ready=False, ready_since=None)
        if kind == "Deployment":
            world.sets = [replica_set(OLD, 2), replica_set(NEW, 1, 0)]
        world.store(world.plan(at(10 * number + 5)))
        found, *_ = world.status.replacements
        assert (found.stage, found.relapses) == (Stage.WARMING_UP, number + 1)
        assert stalled(world, at(10 * number + 5)) == ("" if number == 0 else Overdue.HEALTH)
        world.change("worker-2", ready=True, ready_since=at(10 * number + 6))
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(NEW, 1)]
    assert len(victims(world, at(100))) == 1


# A new template


@EACH
def test_a_new_template_does_not_wait_for_the_soak_of_the_old_one(kind: str) -> None:
    world = soaking(kind, CHECKED, digest="bad-digest-0000")
    came_to(world, 30, WHY, in_a_row=3)
    assert victims(world, at(31)) == ["p-worker-2"], "the failed pod goes first"


def test_a_new_template_takes_no_second_pod_down_for_it() -> None:
    world = soaking(health=CHECKED, digest="bad-digest-0000")
    came_to(world, 30, WHY, in_a_row=3)
    world.pods["p-worker-0"] = replace(world.named("worker-0"), revision=NEW, ready=False)
    assert victims(world, at(31)) == []
