"""The loop decides on each key, remembers what the cluster answered, comes back in time, and outlives any one object's trouble."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from accelerator_rollout.act.executor import Backlog, Executor, Outcome
from accelerator_rollout.act.reporter import Reporter
from accelerator_rollout.api.models import RolloutObject, Stage, Unreadable
from accelerator_rollout.control.loop import Loop
from accelerator_rollout.control.queue import KeyedQueue
from accelerator_rollout.decide.outcome import EventType, Notice, Plan
from accelerator_rollout.decide.snapshot import Freshness, GateProbe, GateSource, HealthRun, Refused, Snapshot
from accelerator_rollout.errors import ConflictError, ForbiddenError, UnavailableError
from accelerator_rollout.observe import project
from accelerator_rollout.observe.interests import Key
from accelerator_rollout.observe.store import Store
from accelerator_rollout.records import PodRecord
from builders import entry as entry_of
from builders import pod
from unit.observe import objects as o

WEB, DB = Key("team", "web"), Key("team", "db")
NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


@dataclass
class World:
    """Store, executor, reporter and metrics at once: what the loop asks them for, and what they are told to answer."""

    queue: KeyedQueue[Key]
    now: datetime = NOW
    gone: set[Key] = field(default_factory=set)
    unreadable: set[Key] = field(default_factory=set)
    next_due: datetime | None = None
    answers: dict[Key, list[Outcome | Exception]] = field(default_factory=dict)
    decided_on: list[Snapshot] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    news: dict[str, Any] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    backlogs: list[Backlog] = field(default_factory=list)
    handled: list[Key] = field(default_factory=list)
    reported: list[Unreadable] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    acknowledged: tuple[str, ...] = ()
    pods: tuple[PodRecord, ...] = ()
    freshness: Freshness = Freshness.FRESH

    def snapshot(self, key: Key, _now: datetime) -> Snapshot | Unreadable | None:
        if key in self.gone:
            return None
        raw = o.rollout(key.name) | {"status": self.status}
        if key in self.unreadable:
            raw["spec"] = {"unheardOf": 1}
        found = project.rollout(raw)
        if not isinstance(found, RolloutObject):
            return found
        nothing: dict[str, Any] = dict.fromkeys(
            ("rivals", "replica_sets", "vanished", "slices", "taint_rules", "budgets"), ()
        )
        return Snapshot(
            rollout=found,
            workload=None,
            pods=self.pods,
            claims={},
            holders={},
            nodes={},
            freshness=self.freshness,
            watched_since=None,
            **nothing,
        )

    def keys(self) -> tuple[Key, ...]:
        return (WEB,)

    def forget(self, uid: str) -> None:
        self.forgotten.append(uid)

    def plan(self, snapshot: Snapshot, _now: datetime) -> Plan:
        self.decided_on.append(snapshot)
        status = snapshot.rollout.status.model_copy(update=self.news)
        return Plan(
            (),
            status,
            record_first=False,
            next_due=self.next_due,
            notices=self.notices,
            acknowledged=self.acknowledged,
        )

    async def run(self, snapshot: Snapshot, _plan: Plan, backlog: Backlog, _sending: object) -> Outcome:
        self.backlogs.append(backlog)
        key = Key(snapshot.rollout.namespace, snapshot.rollout.name)
        self.handled.append(key)
        answers = self.answers.get(key)
        answer = answers.pop(0) if answers else Outcome(stored=True)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def report_unreadable(self, found: Unreadable) -> None:
        self.reported.append(found)

    def took(self, _seconds: float) -> None:
        pass

    def decided(self, _snapshot: Snapshot, _plan: Plan) -> None:
        self.told.append("decided")

    def failed(self, error: Exception) -> None:
        self.told.append(type(error).__name__)

    def gone_(self, _key: Key) -> None:
        self.told.append("gone")


class Telling:
    def __init__(self, world: World) -> None:
        self.took, self.decided = world.took, world.decided
        self.failed, self.gone = world.failed, world.gone_


@pytest.fixture
async def world() -> World:
    return World(KeyedQueue(first_delay=0.01, longest_delay=0.05, moved_delay=0.01))


@asynccontextmanager
async def working(world: World, workers: int = 2) -> AsyncIterator[Loop]:
    loop = Loop(
        cast("Store", world),
        world.queue,
        cast("Executor", world),
        cast("Reporter", world),
        Telling(world),
        lambda: world.now,
        world.plan,
        workers=workers,
    )
    task = asyncio.create_task(loop.run())
    try:
        yield loop
    finally:
        task.cancel()
        await asyncio.wait({task})
        world.queue.close()


async def until(reached: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not reached():  # noqa: ASYNC110 - what is awaited is a state of the fakes, not an event
            await asyncio.sleep(0.005)


async def test_a_key_is_decided_on_once(world: World) -> None:
    async with working(world):
        world.queue.add(WEB)
        await until(lambda: world.handled)
        await asyncio.sleep(0.1)
    assert world.handled == [WEB]
    assert world.told == ["decided"]


async def test_an_object_that_is_gone_takes_its_series_along(world: World) -> None:
    world.gone.add(WEB)
    async with working(world):
        world.queue.add(WEB)
        await until(lambda: world.told)
    assert world.told == ["gone"]
    assert world.handled == []


async def test_an_object_that_cannot_be_read_is_reported_and_not_decided_on(world: World) -> None:
    world.unreadable.add(WEB)
    async with working(world):
        world.queue.add(WEB)
        await until(lambda: world.reported)
    assert world.decided_on == []


@pytest.mark.parametrize(
    "trouble",
    [UnavailableError("no answer"), ForbiddenError("no right"), ValueError("a defect"), ConflictError("x")],
)
async def test_trouble_with_one_object_is_tried_again_and_stops_no_other(
    world: World, trouble: Exception
) -> None:
    world.answers[WEB] = [trouble, trouble]
    async with working(world, workers=1):
        world.queue.add(WEB)
        world.queue.add(DB)
        await until(lambda: world.handled.count(WEB) == 3)
    assert world.handled[1] == DB
    assert world.told.count("decided") == 2


async def test_a_busy_server_is_left_alone_for_as_long_as_it_says(world: World) -> None:
    world.answers[WEB] = [UnavailableError("too many requests", retry_after=0.3)]
    loop = asyncio.get_running_loop()
    async with working(world):
        began = loop.time()
        world.queue.add(WEB)
        await until(lambda: len(world.handled) == 2)
        assert loop.time() - began >= 0.3


async def test_a_refusal_is_told_to_the_next_decision_until_it_is_old(world: World) -> None:
    refusal = Refused("uid-1", "Refused", "the budget allows none", NOW)
    world.answers[WEB] = [Outcome(again=True, refused=refusal)]
    async with working(world):
        world.queue.add(WEB)
        await until(lambda: len(world.decided_on) == 2)
        assert world.decided_on[1].refused == (refusal,)
        world.now += timedelta(minutes=5)
        world.queue.add(WEB)
        await until(lambda: len(world.decided_on) == 3)
        assert world.decided_on[2].refused == ()


async def test_answers_about_a_successor_are_remembered_as_long_as_it_is_followed(world: World) -> None:
    run = HealthRun(1, NOW, ("no",), 1)
    entry = entry_of(pod("worker-2"), replacement_pod_uid="uid-2")
    world.news = {"replacements": (entry,)}
    world.answers[WEB] = [Outcome(again=True, health={"uid-2": run}, stored=True)]
    async with working(world):
        world.queue.add(WEB)
        await until(lambda: len(world.decided_on) == 2)
        assert world.decided_on[1].health == {"uid-2": run}
        world.news = {}
        world.queue.add(WEB)
        await until(lambda: len(world.decided_on) == 3)
        world.queue.add(WEB)
        await until(lambda: len(world.decided_on) == 4)
        assert world.decided_on[3].health == {}


async def test_the_answer_of_a_dry_run_is_remembered_until_it_is_old(world: World) -> None:
    probe = GateProbe("digest", GateSource.POLICY)
    world.answers[WEB] = [Outcome(again=True, probe=probe)]
    async with working(world):
        world.queue.add(WEB)
        await until(lambda: len(world.decided_on) == 2)
        assert world.decided_on[1].gate_probe == probe
        world.now += timedelta(minutes=11)
        world.queue.add(WEB)
        await until(lambda: len(world.decided_on) == 3)
        assert world.decided_on[2].gate_probe is None


@pytest.mark.parametrize("ago", [3600, 0])
async def test_a_deadline_that_is_over_makes_no_busy_loop(world: World, ago: int) -> None:
    world.next_due = NOW - timedelta(seconds=ago)
    async with working(world):
        world.queue.add(WEB)
        await until(lambda: world.handled)
        await asyncio.sleep(0.5)
        assert len(world.handled) == 1
        await until(lambda: len(world.handled) == 2)


async def test_pods_are_forgotten_only_once_they_are_stored(world: World) -> None:
    world.acknowledged = ("uid-1",)
    world.answers[WEB] = [Outcome(moved=True, stored=False)]
    async with working(world):
        world.queue.add(WEB)
        await until(lambda: world.forgotten)
    assert world.handled == [WEB, WEB]  # the first of which stored nothing
    assert world.forgotten == ["uid-1"]


async def test_whoever_begins_takes_recorded_choices_for_maybe_sent_until_the_server_has_forgotten_them(
    world: World,
) -> None:
    live, gone = pod("worker-2"), pod("worker-1")
    world.pods = (live,)
    world.status = {"replacements": [entry_of(p, stage=Stage.SELECTED).to_raw() for p in (live, gone)]}
    async with working(world) as loop:
        world.queue.add(WEB)
        await until(lambda: len(world.decided_on) == 1)
        assert world.decided_on[0].maybe_sent == {live.uid}
        world.now += timedelta(minutes=3)
        world.queue.add(WEB)
        await until(lambda: len(world.decided_on) == 2)
        assert world.decided_on[1].maybe_sent == frozenset()
        loop.restart()  # another term: somebody else decided meanwhile
        await until(lambda: len(world.decided_on) == 3)
        assert world.decided_on[2].maybe_sent == {live.uid}


async def test_choices_are_taken_from_a_status_that_may_be_believed(world: World) -> None:
    world.pods, world.freshness = (pod("worker-2"),), Freshness.STALE
    async with working(world):
        world.queue.add(WEB)
        await until(lambda: len(world.decided_on) == 1)
        world.status = {"replacements": [entry_of(pod("worker-2"), stage=Stage.SELECTED).to_raw()]}
        world.freshness = Freshness.FRESH
        world.queue.add(WEB)
        await until(lambda: len(world.decided_on) == 2)
    assert world.decided_on[1].maybe_sent == {pod("worker-2").uid}


async def test_a_decision_that_hangs_is_seen(world: World) -> None:
    hanging = asyncio.Event()

    async def hang(_snapshot: Snapshot, _plan: Plan, _backlog: Backlog, _sending: object) -> Outcome:
        await hanging.wait()
        return Outcome()

    world.run = hang  # type: ignore[assignment, method-assign]
    async with working(world) as loop:
        assert loop.longest_running() == 0
        world.queue.add(WEB)
        await asyncio.sleep(0.1)
        assert loop.longest_running() >= 0.05
        hanging.set()
        await until(lambda: loop.longest_running() == 0)


async def test_what_is_not_stored_is_the_next_decisions_ground_and_comes_back_in_time(world: World) -> None:
    world.answers[WEB] = [Outcome(stored=False, patience=0.5, untold=0.2)]
    notice = Notice(EventType.NORMAL, "Replaced", "a pod was replaced", "Replace")
    world.news, world.notices = {"ready_replicas": 3}, (notice,)
    loop = asyncio.get_running_loop()
    async with working(world):
        began = loop.time()
        world.queue.add(WEB)
        await until(lambda: len(world.handled) == 2)
        assert loop.time() - began >= 0.2
    first, second = world.backlogs
    assert (first.notices, first.stored.ready_replicas) == ((), 0)
    assert (second.notices, second.stored.ready_replicas, second.patience) == ((notice,), 0, 0.5)
    assert second.left <= 0 < second.at_most
    assert [s.rollout.status.ready_replicas for s in world.decided_on] == [0, 3]


async def test_a_status_that_somebody_else_wrote_is_what_counts(world: World) -> None:
    world.answers[WEB] = [Outcome(stored=False, patience=0.5, untold=5.0)]
    world.news = {"ready_replicas": 3}
    async with working(world):
        world.queue.add(WEB)
        await until(lambda: world.handled)
        world.status = {"replicas": 9}
        world.queue.add(WEB)
        await until(lambda: len(world.handled) == 2)
    assert [s.rollout.status.replicas for s in world.decided_on] == [0, 9]
    assert world.decided_on[1].rollout.status.ready_replicas == 0
    assert world.backlogs[1].left == 0


async def test_a_decision_on_a_world_that_had_moved_is_not_told(world: World) -> None:
    """It is made again: its times would be counted twice."""
    world.answers[WEB] = [Outcome(moved=True, stored=False)]
    async with working(world):
        world.queue.add(WEB)
        await until(lambda: len(world.handled) == 2)
        await until(lambda: world.told)
    assert world.told == ["decided"]
