"""A store whose clock stands still unless told otherwise."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from accelerator_rollout.observe.store import Store


@dataclass
class Clock:
    now: datetime = field(default=datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Store:
    return Store(now=clock)
