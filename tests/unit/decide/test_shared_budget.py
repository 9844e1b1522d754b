"""At most so many pods of a group are in replacement at once, whoever waits longest goes first, and nobody starves."""

import random
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelerator_rollout.api.conditions import Condition, ConditionStatus, ConditionType, find_condition
from accelerator_rollout.api.models import (
    Cause,
    Replacement,
    RolloutObject,
    RolloutSpec,
    RolloutStatus,
    Stage,
    Unreadable,
)
from accelerator_rollout.decide.actions import EvictPod, OpenGate, UnpauseDeployment
from accelerator_rollout.decide.reasons import Waiting
from accelerator_rollout.decide.shared_budget import Peer, SharedBudget, Wish, peer, used_up, waiting_since
from accelerator_rollout.names import FINALIZER
from builders import NEW, NOW, World, at, budget, device, gated_pod, of_type, pod, replica_set, running

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
HOUR = 3600.0
BUSY = Peer("busy", at(-5000), in_flight=1)
CHOSEN_EARLIER, CHOSEN_LATER = at(-60), at(60)


def shared(*peers: Peer, limit: int = 1) -> SharedBudget:
    return SharedBudget("lpu", limit, HOUR, peers)


def grouped(kind: str, *peers: Peer, limit: int = 1) -> World:
    world = running(kind)
    world.shared = shared(*peers, limit=limit)
    return world


def disrupts(world: World, now: datetime = NOW) -> bool:
    return any(isinstance(a, EvictPod | UnpauseDeployment) for a in world.actions(now))


def told(world: World, now: datetime = NOW) -> Condition:
    found = find_condition(world.plan(now).status.conditions, ConditionType.PROGRESSING)
    assert found is not None
    return found


# Who may go


@EACH
@pytest.mark.parametrize("peers", [(), (replace(BUSY, in_flight=0),)], ids=["alone", "beside an idle one"])
def test_a_budget_that_is_not_used_keeps_nobody(kind: str, peers: tuple[Peer, ...]) -> None:
    assert disrupts(grouped(kind, *peers))


@EACH
@pytest.mark.parametrize(
    "other",
    [
        BUSY,
        replace(BUSY, in_flight=0, choices=(CHOSEN_LATER,)),
        replace(BUSY, in_flight=0, waiting_since=at(-1)),
    ],
    ids=["in flight", "chosen", "waiting for longer"],
)
def test_a_healthy_pod_stays_while_others_use_the_budget_up(kind: str, other: Peer) -> None:
    world = grouped(kind, other)
    assert not disrupts(world)
    assert told(world).reason == Waiting.SHARED_BUDGET_USED_UP
    assert "at most 1 pod of budget lpu" in told(world).message
    assert world.plan().status.budget_wait_since == NOW


def test_of_a_larger_budget_what_is_left_may_be_used() -> None:
    assert disrupts(grouped("StatefulSet", BUSY, replace(BUSY, uid="too"), limit=3))
    assert not disrupts(grouped("StatefulSet", BUSY, replace(BUSY, uid="too"), limit=2))


def test_who_waits_shorter_keeps_nobody() -> None:
    world = grouped("StatefulSet", replace(BUSY, in_flight=0, waiting_since=at(5)))
    world.status = world.status.model_copy(update={"budget_wait_since": at(-5)})
    assert disrupts(world)


def test_the_wait_counts_from_its_beginning_and_nothing_is_told_anew() -> None:
    world = grouped("StatefulSet", BUSY)
    world.store(world.plan())
    later = world.plan(at(700)).status
    assert later.budget_wait_since == NOW
    assert world.status.says_the_same(later)


@EACH
def test_time_spent_waiting_counts_towards_no_deadline(kind: str) -> None:
    world = grouped(kind, BUSY)
    world.store(world.plan())
    assert find_condition(world.plan(at(9000)).status.conditions, ConditionType.STALLED) is None


@EACH
def test_what_is_in_flight_is_finished_whoever_uses_the_budget(kind: str) -> None:
    world = grouped(kind, BUSY)
    world.recorded("worker-2", 2)
    world.end("worker-2")
    world.vanish("worker-2")
    world.put(gated_pod("worker-2", kind=kind))
    if kind == "Deployment":
        world.sets = [replica_set("old-digest-0000", 2), replica_set(NEW, 1, 0)]
    assert of_type(world.actions(), OpenGate)


@EACH
def test_a_pod_that_is_down_already_is_replaced_although_the_budget_is_used_up(kind: str) -> None:
    world = grouped(kind, BUSY)
    world.change("worker-1", ready=False)
    world.sets = [replica_set("old-digest-0000", 3, 2)] if kind == "Deployment" else []
    assert disrupts(world)


def test_a_step_of_a_deployment_that_has_begun_is_finished() -> None:
    world = grouped("Deployment", BUSY)
    world.set_workload(paused=False, parked=None)
    world.recorded("worker-2", 2, stage=Stage.SELECTED)
    decided = world.plan()
    assert [e.pod_name for e in decided.status.replacements] == ["worker-2"]
    assert decided.status.budget_wait_since is None


def test_a_successor_in_flight_that_is_not_wanted_any_more_goes_on_in_its_own_place() -> None:
    """Were it to queue, it would wait for those who wait for it."""
    world = grouped("StatefulSet", replace(BUSY, in_flight=0, waiting_since=at(-500)))
    world.spec["health"] = {"soakSeconds": 600}
    facts: dict[str, Any] = {"replacement_pod_uid": "p-mid", "replacement_pod_name": "worker-2"}
    world.recorded("worker-2", 2, stage=Stage.SOAKING, released_at=at(-60), **facts)
    world.end("worker-2")
    world.vanish("worker-2")
    world.put(pod("worker-2", "mid-digest-0000", uid="p-mid", ready_since=at(-5)), device(2))
    assert of_type(world.actions(), EvictPod) == (EvictPod("worker-2", "p-mid"),)


@EACH
def test_no_choice_is_recorded_ahead_of_time_where_others_may_have_the_next_turn(kind: str) -> None:
    world = grouped(kind)
    facts: dict[str, Any] = {"replacement_pod_uid": "p-new", "replacement_pod_name": "worker-2"}
    world.recorded("worker-2", 2, stage=Stage.WARMING_UP, released_at=at(-60), **facts)
    world.end("worker-2")
    world.vanish("worker-2")
    world.put(pod("worker-2", NEW, kind=kind, uid="p-new", ready=False), device(2))
    if kind == "Deployment":
        world.sets = [replica_set("old-digest-0000", 2), replica_set(NEW, 1, 0)]
    assert len(world.plan().status.replacements) == 1
    world.shared = None
    assert len(world.plan().status.replacements) == 2


# Two that chose at the same moment


@EACH
@pytest.mark.parametrize(
    ("other", "kept"),
    [(CHOSEN_EARLIER, False), (CHOSEN_LATER, True)],
    ids=["the younger drops its choice", "the older keeps it"],
)
def test_of_two_choices_neither_is_acted_on_and(kind: str, other: datetime, *, kept: bool) -> None:
    world = grouped(kind, replace(BUSY, in_flight=0, choices=(other,)))
    world.recorded("worker-2", 2, stage=Stage.SELECTED, started_at=NOW)
    decided = world.plan()
    assert not disrupts(world)
    assert [e.pod_name for e in decided.status.replacements] == (["worker-2"] if kept else [])
    assert decided.status.budget_wait_since == NOW


def test_a_choice_that_may_have_been_acted_on_is_never_dropped() -> None:
    """Its eviction was sent, and the pod does not show it: dropped, its place would be given to another."""
    world = grouped("StatefulSet", replace(BUSY, in_flight=0, choices=(CHOSEN_EARLIER,)))
    world.recorded("worker-2", 2, stage=Stage.SELECTED, started_at=NOW)
    world.maybe_sent = frozenset({"p-worker-2"})
    assert [e.pod_name for e in world.plan().status.replacements] == ["worker-2"]
    world.spec["paused"] = True
    assert [e.pod_name for e in world.plan().status.replacements] == ["worker-2"]


def test_the_place_in_the_queue_is_kept_until_the_pod_has_left() -> None:
    world = grouped("StatefulSet")
    world.status = world.status.model_copy(update={"budget_wait_since": at(-500)})
    world.store(world.plan())
    assert world.status.replacements
    assert world.status.budget_wait_since == at(-500)
    world.leave("worker-2")
    assert world.plan().status.budget_wait_since is None


def test_a_choice_that_a_budget_for_disruptions_blocks_takes_up_no_place() -> None:
    world = grouped("StatefulSet")
    world.recorded("worker-2", 2, stage=Stage.SELECTED)
    world.budgets = [budget(0)]
    assert world.plan().status.replacements == ()
    world.shared = None
    assert len(world.plan().status.replacements) == 1


# Trouble


def test_what_is_stalled_for_long_leaves_its_place_and_somebody_looks_then() -> None:
    world = grouped("StatefulSet", replace(BUSY, stalled_since=at(-100)))
    assert not disrupts(world)
    assert world.plan().next_due == at(HOUR - 100)
    assert disrupts(world, at(HOUR - 100))


def test_patience_without_end_is_possible() -> None:
    world = grouped("StatefulSet", replace(BUSY, stalled_since=at(-100)))
    assert world.shared is not None
    world.shared = replace(world.shared, patience_seconds=float("inf"))
    assert not disrupts(world, at(10**8))


# What others know


def entry(stage: Stage, cause: Cause = Cause.ROLLOUT, number: int = 0) -> Replacement:
    facts: dict[str, Any] = {"stage_started_at": NOW, "started_at": at(number)}
    return Replacement(id=f"{stage}-{number}", stage=stage, cause=cause, **facts)


def condition(kind: ConditionType, status: ConditionStatus) -> Condition:
    return Condition(type=kind, status=status, last_transition_time=NOW, reason="Because", message="")


def test_choices_and_what_is_in_flight_are_counted_and_departures_are_not() -> None:
    world = running("StatefulSet")
    world.remember(
        entry(Stage.SELECTED, number=1),
        entry(Stage.EVICTING, number=2),
        entry(Stage.RELEASING),
        entry(Stage.SOAKING),
        entry(Stage.TERMINATING, Cause.DEPARTURE),
    )
    found = peer(world.rollout())
    assert (found.in_flight, found.choices) == (2, (at(1), at(2)))


@pytest.mark.parametrize(
    ("conditions", "deletion"),
    [
        ((condition(ConditionType.STALLED, ConditionStatus.TRUE),), None),
        ((condition(ConditionType.READY, ConditionStatus.UNKNOWN),), None),
        ((), NOW),
    ],
    ids=["stalled", "unknown", "being deleted"],
)
def test_who_could_not_take_its_turn_is_not_waited_for(
    conditions: tuple[Condition, ...], deletion: datetime | None
) -> None:
    world = running("StatefulSet")
    world.status = world.status.model_copy(update={"budget_wait_since": NOW})
    assert peer(world.rollout()).waiting_since == NOW
    assert peer(world.rollout(), in_turn=False).waiting_since is None
    world.status = world.status.model_copy(update={"conditions": conditions})
    world.deletion = deletion
    assert peer(world.rollout()).waiting_since is None


def test_what_a_finished_rollout_left_on_lost_nodes_is_not_counted() -> None:
    world = running("StatefulSet")
    world.remember(entry(Stage.RELEASING))
    ready = condition(ConditionType.READY, ConditionStatus.TRUE)
    world.status = world.status.model_copy(update={"conditions": (ready,)})
    assert peer(world.rollout()).counted == 0


@pytest.mark.parametrize(("finalizers", "counted"), [((FINALIZER,), 1), ((), 0)])
def test_an_object_that_cannot_be_read_any_more_counts_as_one_pod(
    finalizers: tuple[str, ...], counted: int
) -> None:
    stalled = condition(ConditionType.STALLED, ConditionStatus.TRUE)
    lost = Unreadable("n", "x", "u", "1", 1, None, finalizers, None, (stalled,), "")
    assert peer(lost).counted == counted
    assert peer(lost).stalled_since == NOW


# Many rollouts, at random


@dataclass
class Simulated:
    """A rollout of some pods, as far as the budget is concerned: its object as stored, and what was really sent."""

    rollout: RolloutObject
    pods: int
    takes: int  # ticks that one replacement takes
    sent_at: int | None = None
    plans: bool = False  # decided to record a choice; the write is under way
    turns_of_others: int = 0

    def store(self, **update: object) -> None:
        self.rollout = replace(self.rollout, status=self.rollout.status.model_copy(update=update))


def _simulated(number: int, pods: int, takes: int) -> Simulated:
    ref = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x"}
    spec = RolloutSpec.from_raw({"workloadRef": ref})
    made = RolloutObject(
        "n", f"r{number}", f"u{number}", "1", 1, at(-number), None, (), spec, RolloutStatus()
    )
    return Simulated(made, pods, takes)


class Group:
    """Several rollouts under one budget, whose decisions, writes and acts interleave as a test says."""

    def __init__(self, limit: int, members: list[Simulated]) -> None:
        self.limit, self.members, self.tick = limit, members, 0

    @property
    def now(self) -> datetime:
        return NOW + timedelta(milliseconds=400 * self.tick)

    def step(self, one: Simulated) -> None:
        """Let one member go on: decide, have the choice stored, confirm it and act, or finish."""
        self.tick += 1
        if one.sent_at is not None:
            if self.tick - one.sent_at >= one.takes:
                one.sent_at, one.pods = None, one.pods - 1
                one.store(replacements=(), budget_wait_since=None)
            return
        if not one.pods:
            return
        if one.plans:  # decided earlier, over what was known then
            one.plans = False
            one.store(replacements=(self._choice(),))
            return
        over = self._used_up(one)
        chosen = bool(one.rollout.status.replacements)
        if over is not None:
            kept = one.rollout.status.replacements if over.keep else ()
            since = waiting_since(one.rollout.status.budget_wait_since, self.now)
            one.store(replacements=kept, budget_wait_since=since)
        elif chosen:
            (entry,) = one.rollout.status.replacements
            one.store(
                replacements=(entry.model_copy(update={"stage": Stage.TERMINATING}),), budget_wait_since=None
            )
            one.sent_at, one.turns_of_others = self.tick, 0
            for other in self.members:
                other.turns_of_others += (
                    other is not one and other.rollout.status.budget_wait_since is not None
                )
        else:
            one.plans = True

    def _choice(self) -> Replacement:
        facts: dict[str, Any] = {"stage_started_at": self.now, "started_at": self.now.replace(microsecond=0)}
        return Replacement(id="x", pod_uid="p", stage=Stage.SELECTED, cause=Cause.ROLLOUT, **facts)

    def _used_up(self, one: Simulated) -> Any:
        peers = tuple(peer(m.rollout) for m in self.members if m is not one)
        return used_up(shared(*peers, limit=self.limit), Wish(one.rollout, "p"), frozenset(), self.now)

    @property
    def in_replacement(self) -> int:
        return sum(m.sent_at is not None for m in self.members)


MEMBERS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 40)), min_size=2, max_size=7)


@settings(max_examples=100)
@given(st.integers(1, 3), MEMBERS, st.integers(0, 2**32))
def test_never_more_than_the_budget_and_nobody_starves(
    limit: int, members: list[tuple[int, int]], seed: int
) -> None:
    """In each round everybody comes once or twice, in any order: who is never decided on goes nowhere, budget or not."""
    chance = random.Random(seed)
    group = Group(limit, [_simulated(n, *m) for n, m in enumerate(members)])
    for _ in range(sum(pods * (takes + 10) for pods, takes in members)):
        everybody = [*group.members, *chance.sample(group.members, chance.randint(0, len(members)))]
        for one in chance.sample(everybody, len(everybody)):
            group.step(one)
            assert group.in_replacement <= limit
        for one in group.members:
            # Others that waited longer, or chose in the same moment, once each; never the same one again and again.
            assert one.turns_of_others <= len(members) + limit, "somebody starves"
    assert not any(m.pods for m in group.members), "not finished"
