"""The time: one place to ask, so that tests can answer."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the time as an aware UTC datetime."""
    return datetime.now(UTC)
