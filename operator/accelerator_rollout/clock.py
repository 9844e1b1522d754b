"""The time: one place to ask, so that tests can answer."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

Clock = Callable[[], datetime]
Stopwatch = Callable[[], float]

# On Linux this clock goes on while the machine is suspended, as the other machines' do; CLOCK_MONOTONIC stands still.
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def utc_now() -> datetime:
    """Return the time as an aware UTC datetime."""
    return datetime.now(UTC)


def steady_seconds() -> float:
    """Return seconds of a clock that nobody sets: for how long something took, and never when it was."""
    return time.clock_gettime(_STEADY)


def micro_time(moment: datetime) -> str:
    """Return a UTC time as the API's MicroTime, which Events and Leases have."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
