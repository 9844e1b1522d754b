"""How far a rollout goes: partitions, steps with their waits, and the order of the pods that are due."""

from typing import Any

import pytest

from accelerator_rollout.api.conditions import ConditionType, find_condition
from accelerator_rollout.decide.actions import PreferVictim, victims_of
from accelerator_rollout.decide.outcome import Plan
from accelerator_rollout.decide.reasons import Announcement, Waiting
from accelerator_rollout.records import NodeRecord
from builders import NEW, OLD, World, at, device, pod, replica_set, running

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
MANUAL: dict[str, Any] = {"pause": {"type": "Manual"}}


def world_with(kind: str, updated: int, strategy: dict[str, Any], replicas: int = 4) -> World:
    """`updated` of the pods, from the last one on, are at NEW, and all are well."""
    world = running(kind, replicas)
    for number in range(replicas - updated, replicas):
        world.put(pod(f"worker-{number}", NEW, kind=kind), device(number))
    if kind == "Deployment":
        world.sets = [replica_set(OLD, replicas - updated)]
        world.sets += [replica_set(NEW, updated)] if updated else []
    world.spec = {"strategy": strategy}
    return world


def victims(decided: Plan) -> list[str]:
    return [uid.removeprefix("p-") for action in decided.actions for uid in victims_of(action)]


def condition(decided: Plan, kind: ConditionType) -> tuple[str, str] | None:
    found = find_condition(decided.status.conditions, kind)
    return (found.status, found.reason) if found is not None else None


def promoted(world: World, kind: str = "Promote", identity: str = "1") -> World:
    world.spec["action"] = {"type": kind, "id": identity}
    world.generation += 1
    return world


@EACH
@pytest.mark.parametrize(("updated", "goes_on"), [(0, True), (1, True), (2, False)])
def test_a_partition_keeps_so_many_pods_as_they_are(kind: str, updated: int, *, goes_on: bool) -> None:
    decided = world_with(kind, updated, {"partition": 2}).plan()
    assert bool(victims(decided)) is goes_on


@EACH
def test_what_a_partition_leaves_to_be_done_makes_the_object_ready(kind: str) -> None:
    decided = world_with(kind, 2, {"partition": 2}).plan()
    assert condition(decided, ConditionType.READY) == ("True", Waiting.PARTITION_REACHED)
    assert condition(decided, ConditionType.RECONCILING) is None
    assert condition(decided, ConditionType.STALLED) is None
    assert decided.next_due is None


@EACH
def test_a_lower_partition_lets_more_pods_go(kind: str) -> None:
    world = world_with(kind, 2, {"partition": 2})
    world.store(world.plan())
    world.spec = {"strategy": {"partition": 1}}
    world.generation += 1
    assert len(victims(world.plan())) == 1


@EACH
def test_pods_that_came_back_updated_below_the_partition_are_told_of(kind: str) -> None:
    decided = world_with(kind, 3, {"partition": 2}).plan()
    assert victims(decided) == []
    assert condition(decided, ConditionType.PROGRESSING) == ("False", Waiting.PARTITION_EXCEEDED)


@EACH
def test_a_pod_that_the_partition_keeps_is_not_replaced_for_being_down(kind: str) -> None:
    world = world_with(kind, 3, {"partition": 1})
    world.change("worker-0", ready=False, ready_since=None)
    decided = world.plan()
    assert victims(decided) == []
    assert condition(decided, ConditionType.READY) != ("True", Waiting.PARTITION_REACHED)


@EACH
@pytest.mark.parametrize(("replicas", "reached"), [(1, 1), ("25%", 1), ("26%", 2), ("50%", 2)])
def test_a_step_stops_at_its_pods_and_waits_for_a_person(
    kind: str, replicas: int | str, reached: int
) -> None:
    strategy = {"steps": [{"replicas": replicas} | MANUAL]}
    assert len(victims(world_with(kind, reached - 1, strategy).plan())) == 1
    decided = world_with(kind, reached, strategy).plan()
    assert victims(decided) == []
    assert condition(decided, ConditionType.PROGRESSING) == ("False", Waiting.STEP_PAUSE)
    assert decided.status.step is not None
    assert decided.status.step.index == 0
    assert decided.next_due is None


@EACH
def test_a_promotion_ends_one_wait_and_no_more(kind: str) -> None:
    world = world_with(kind, 1, {"steps": [{"replicas": 1} | MANUAL, {"replicas": 1} | MANUAL]})
    world.store(world.plan())
    decided = promoted(world).plan()
    assert decided.status.step is not None
    assert (decided.status.step.index, victims(decided)) == (1, [])
    assert Announcement.PROMOTED in [n.reason for n in decided.notices]
    world.store(decided)
    assert victims(world.plan(at(60))) == []
    assert len(victims(promoted(world, identity="2").plan(at(60)))) == 1


@EACH
def test_all_steps_can_be_promoted_at_once(kind: str) -> None:
    world = world_with(kind, 1, {"steps": [{"replicas": 1} | MANUAL, {"replicas": 2} | MANUAL]})
    world.store(world.plan())
    assert len(victims(promoted(world, "PromoteAll").plan())) == 1


@EACH
@pytest.mark.parametrize("action", ["Promote", "PromoteAll"])
def test_a_promotion_where_nothing_waits_has_no_effect(kind: str, action: str) -> None:
    decided = promoted(world_with(kind, 1, {}), action).plan()
    assert decided.status.promoted is None
    assert decided.status.observed_action_id == "1"
    assert Announcement.NO_EFFECT in [n.reason for n in decided.notices]


@EACH
def test_a_timed_step_goes_on_by_itself_also_after_a_restart(kind: str) -> None:
    pause = {"pause": {"type": "Duration", "durationSeconds": 60}}
    world = world_with(kind, 1, {"steps": [{"replicas": 1} | pause]})
    decided = world.plan()
    assert (victims(decided), decided.next_due) == ([], at(60))
    world.store(decided)
    assert victims(world.plan(at(59))) == []
    assert len(victims(world.plan(at(60)))) == 1


@EACH
def test_the_wait_of_a_step_begins_when_its_pods_are_healthy(kind: str) -> None:
    pause = {"pause": {"type": "Duration", "durationSeconds": 60}}
    world = world_with(kind, 1, {"steps": [{"replicas": 1} | pause]})
    world.change("worker-3", ready=False, ready_since=None)
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 3), replica_set(NEW, 1, 0)]
    decided = world.plan()
    assert victims(decided) == []
    assert decided.status.step is not None
    assert decided.status.step.reached_at is None


@EACH
def test_another_revision_begins_at_the_first_step(kind: str) -> None:
    world = world_with(kind, 1, {"steps": [{"replicas": 1} | MANUAL]})
    world.store(promoted(world).plan())
    world.status = world.status.model_copy(
        update={
            "step": world.status.step.model_copy(update={"revision": "another"})
            if world.status.step
            else None,
            "promoted": None,
        }
    )
    assert victims(world.plan()) == []


@EACH
def test_a_step_counts_the_replicas_as_they_are(kind: str) -> None:
    strategy = {"steps": [{"replicas": "50%"} | MANUAL]}
    assert victims(world_with(kind, 2, strategy, replicas=4).plan()) == []
    assert len(victims(world_with(kind, 2, strategy, replicas=6).plan())) == 1


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("OldestFirst", "worker-1"), ("NewestFirst", "worker-2"), ("ReverseOrdinal", "worker-3")],
)
@EACH
def test_the_order_is_as_asked(kind: str, policy: str, expected: str) -> None:
    world = world_with(kind, 0, {"order": {"policy": policy}})
    for name, age in (("worker-0", -500), ("worker-1", -900), ("worker-2", -100), ("worker-3", -300)):
        world.change(name, created=at(age))
    assert victims(world.plan()) == [expected]


@EACH
def test_one_domain_is_finished_before_the_next_is_begun(kind: str) -> None:
    world = world_with(kind, 1, {"order": {"topologyKey": "zone"}})
    for number, zone in enumerate(("a", "b", "a", "b")):
        old: NodeRecord = world.nodes[f"node-{number}"]
        world.nodes[old.name] = NodeRecord(
            old.name,
            old.uid,
            old.resource_version,
            old.boot_id,
            ready=True,
            ready_since=old.ready_since,
            unschedulable=False,
            labels={"zone": zone},
        )
    assert victims(world.plan()) == ["worker-1"]


def test_a_deployment_is_steered_to_the_pod_that_the_order_names() -> None:
    world = world_with("Deployment", 0, {"order": {"policy": "NewestFirst"}})
    world.change("worker-2", created=at(-1))
    steered = [a.pod_name for a in world.actions() if isinstance(a, PreferVictim)]
    assert steered == ["worker-2"]
