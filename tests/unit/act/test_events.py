"""Events are said once and counted on in their series, bounded in number and length, and never stop an act."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from accelerator_rollout.act.client import Client
from accelerator_rollout.act.events import Events, Subject
from accelerator_rollout.decide.outcome import EventType, Notice, PodRef
from accelerator_rollout.errors import ActError, ForbiddenError, GoneError, UnavailableError
from builders import running

POD = Subject("v1", "Pod", "team", "web-1", "uid-1")
OTHER = Subject("v1", "Pod", "team", "web-2", "uid-2")


class Recording:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
        self.recorded: list[Mapping[str, Any]] = []
        self.counted: list[tuple[str, int, str]] = []
        self.refuses: ActError | None = None
        self.forgets = False

    async def record_event(self, namespace: str, event: Mapping[str, Any]) -> None:
        if self.refuses:
            raise self.refuses
        assert event["metadata"]["namespace"] == namespace
        self.recorded.append(event)

    async def count_event(self, namespace: str, name: str, count: int, last: str) -> None:
        if self.refuses:
            raise self.refuses
        if self.forgets:
            raise GoneError(f"Event {namespace}/{name} is gone")
        self.counted.append((name, count, last))

    def events(self) -> Events:
        return Events(cast("Client", self), lambda: self.now, "test")


def notice(message: str = "free", reason: str = "DevicesReleased", **more: Any) -> Notice:
    return Notice(EventType.NORMAL, reason, message, "Release", **more)


def warning(message: str) -> Notice:
    return Notice(EventType.WARNING, "ActionFailed", message, "OpenGate")


async def test_the_same_reason_about_the_same_object_is_one_event_that_counts_on() -> None:
    world = Recording()
    events = world.events()
    await events.say(POD, notice())
    world.now += timedelta(seconds=3)
    await events.say(POD, notice("free again"))
    assert len(world.recorded) == 1
    assert world.counted == [(world.recorded[0]["metadata"]["name"], 2, "2026-01-31T12:00:03.000000Z")]


@pytest.mark.parametrize(
    ("subject", "said", "related"),
    [
        (OTHER, notice(), None),
        (POD, notice(reason="Replaced"), None),
        (POD, Notice(EventType.WARNING, "DevicesReleased", "free", "Release"), None),
        (POD, Notice(EventType.NORMAL, "DevicesReleased", "free", "Replace"), None),
        (POD, notice(), OTHER),
    ],
    ids=["another object", "another reason", "another type", "another action", "another related object"],
)
async def test_what_differs_in_more_than_its_words_is_an_event_of_its_own(
    subject: Subject, said: Notice, related: Subject | None
) -> None:
    world = Recording()
    events = world.events()
    await events.say(POD, notice())
    await events.say(subject, said, related)
    assert (len(world.recorded), world.counted) == (2, [])


async def test_a_series_is_written_each_time_it_doubles_and_once_a_minute() -> None:
    world = Recording()
    events = world.events()
    for _ in range(40):
        await events.say(POD, notice())
    assert [count for _, count, _ in world.counted] == [2, 4, 8, 16, 32]
    world.now += timedelta(minutes=1)
    await events.say(POD, notice())
    assert [count for _, count, _ in world.counted] == [2, 4, 8, 16, 32, 41]


async def test_a_series_ends_when_nothing_was_added_for_six_minutes() -> None:
    world = Recording()
    events = world.events()
    await events.say(POD, notice())
    for _ in range(3):
        world.now += timedelta(minutes=5)
        await events.say(POD, notice())
    assert len(world.recorded) == 1
    world.now += timedelta(minutes=7)
    await events.say(POD, notice())
    assert len(world.recorded) == 2


async def test_an_event_that_is_gone_begins_anew() -> None:
    world = Recording()
    events = world.events()
    await events.say(POD, notice())
    world.forgets = True
    await events.say(POD, notice())
    world.forgets = False
    await events.say(POD, notice())
    assert len({event["metadata"]["name"] for event in world.recorded}) == 2
    assert [(name, count) for name, count, _ in world.counted] == [(world.recorded[1]["metadata"]["name"], 2)]


async def test_a_flood_ends_and_leaves_room_for_warnings() -> None:
    world = Recording()
    events = world.events()
    for number in range(1000):
        await events.say(Subject("v1", "Pod", "team", f"web-{number}", f"uid-{number}"), notice())
    assert len(world.recorded) == 200
    for number in range(1000):
        await events.say(Subject("v1", "Pod", "team", f"web-{number}", f"uid-{number}"), warning("no"))
    assert len(world.recorded) == 300
    world.now += timedelta(minutes=11)
    await events.say(POD, notice("later"))
    assert world.recorded[-1]["note"] == "later"


@pytest.mark.parametrize(
    "error", [ForbiddenError("no right to create events"), UnavailableError("no answer")]
)
async def test_an_event_that_cannot_be_written_stops_nothing(error: ActError) -> None:
    world = Recording()
    world.refuses = error
    events = world.events()
    await events.say(POD, notice())
    await events.say(POD, notice())
    assert not world.recorded


async def test_words_are_cut_to_what_the_api_takes() -> None:
    world = Recording()
    await world.events().say(POD, notice("x" * 5000))
    assert len(world.recorded[0]["note"]) == 1024


@pytest.mark.parametrize(
    ("reason", "regarding"),
    [
        ("DevicesReleased", ["AcceleratorRollout"]),
        ("Replacing", ["AcceleratorRollout", "Pod"]),
        ("CrashLoop", ["AcceleratorRollout", "Pod"]),
        ("GateOpened", ["Pod"]),
    ],
)
async def test_what_is_about_a_pod_is_told_where_people_look_for_it(
    reason: str, regarding: list[str]
) -> None:
    world = Recording()
    ours = running("StatefulSet").rollout()
    await world.events().tell(ours, notice(reason=reason, pod=PodRef("web-1", "uid-1")))
    assert [event["regarding"]["kind"] for event in world.recorded] == regarding
    for event in world.recorded:
        both = {event["regarding"]["uid"], event["related"]["uid"]}
        assert both == {ours.uid, "uid-1"}, "each names the other"


async def test_what_is_about_no_pod_is_told_at_our_object() -> None:
    world = Recording()
    await world.events().tell(running("StatefulSet").rollout(), notice(reason="Promoted"))
    assert [event["regarding"]["kind"] for event in world.recorded] == ["AcceleratorRollout"]
    assert "related" not in world.recorded[0]
