"""Events are said once in a while, bounded in number and length, and never stop an act."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from accelerator_rollout.act.client import Client
from accelerator_rollout.act.events import Events, Subject
from accelerator_rollout.decide.outcome import EventType, Notice
from accelerator_rollout.errors import ForbiddenError

POD = Subject("v1", "Pod", "team", "web-1", "uid-1")


class Recording:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
        self.recorded: list[Mapping[str, Any]] = []
        self.refuses = False

    async def record_event(self, namespace: str, event: Mapping[str, Any]) -> None:
        if self.refuses:
            raise ForbiddenError("no right to create events")
        self.recorded.append(event)

    def events(self) -> Events:
        return Events(cast("Client", self), lambda: self.now, "test")


def notice(message: str = "free", reason: str = "DevicesReleased") -> Notice:
    return Notice(EventType.NORMAL, reason, message, "Release")


async def test_the_same_words_are_said_once_in_ten_minutes() -> None:
    world = Recording()
    events = world.events()
    await events.say(POD, notice())
    await events.say(POD, notice())
    await events.say(POD, notice("not free"))
    assert len(world.recorded) == 2
    world.now += timedelta(minutes=11)
    await events.say(POD, notice())
    assert len(world.recorded) == 3


async def test_a_flood_ends() -> None:
    world = Recording()
    events = world.events()
    for number in range(2000):
        await events.say(POD, notice(f"word {number}"))
    assert len(world.recorded) == 300


async def test_a_missing_right_stops_nothing() -> None:
    world = Recording()
    world.refuses = True
    await world.events().say(POD, notice())


async def test_words_are_cut_to_what_the_api_takes() -> None:
    world = Recording()
    await world.events().say(POD, notice("x" * 5000))
    assert len(world.recorded[0]["note"]) == 1024
