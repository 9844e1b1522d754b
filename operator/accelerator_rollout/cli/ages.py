"""Times as people read and write them: ages like 3m12s, and durations like 90s or 1h30m."""

import re
from datetime import datetime, timedelta
from typing import Final

_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_DURATION: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_LONG: Final = 10  # of a unit: what is less than the next one says nothing any more


def length(seconds: float) -> str:
    """Return a length of time in its two greatest units; in one, if that is ten days or more."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
            if unit == "d" and count >= _LONG:
                break
        elif parts:
            break
        if len(parts) == 2:
            break
    return "".join(parts)


def age(since: datetime | None, now: datetime) -> str:
    """Return how long ago that was; "" if nobody knows."""
    return length((now - since).total_seconds()) if since is not None else ""


def duration(text: str) -> timedelta:
    """Return what 90s, 5m or 1h30m means; a number alone counts seconds. Raises ValueError."""
    if text.isdecimal():
        return timedelta(seconds=int(text))
    found = _DURATION.fullmatch(text)
    if found is None or not text:
        raise ValueError(f"{text!r} is no length of time: write 90s, 5m or 1h30m")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
