"""When spec.windows let a replacement start: cron in a time zone, without a clock of its own.

Schedules are walked in local time without a zone, and brought to UTC here. So it is one rule wherever clocks change: a
time that is skipped counts as the moment of the change, one that comes twice counts the first time. Both keep the order
of times, which the searches below hang on. (CronSim's own walk through a zone forgets which of two equal times it is at.)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from accelerator_rollout.api.models import Window, WindowType
from accelerator_rollout.decide.reasons import Refusal, Waiting
from accelerator_rollout.workloads.base import NotNow, Refused

_LOOKS: Final = 400  # from window to window in search of the next opening: nightly ones for half a year
_LONGEST_REPEAT: Final = timedelta(hours=3)  # of local time, when clocks go back
_ANY_MOMENT: Final = datetime(2024, 1, 1)  # noqa: DTZ001 - local time; whether a schedule ever comes hangs on no date
_CACHED: Final = 8192


@dataclass(frozen=True, slots=True)
class Shut:
    """Why no replacement may start now, and when one may."""

    why: NotNow
    opens: datetime | None


def problem(windows: tuple[Window, ...]) -> Refused | None:
    """Return which window can never be understood. The API server's patterns cannot tell all of them."""
    for number, window in enumerate(windows):
        field, value, wrong = _wrong(window)
        if field:
            return Refused(
                Refusal.WINDOW_INVALID, f'spec.windows[{number}].{field} "{value}" cannot be used: {wrong}'
            )
    return None


def shut(windows: tuple[Window, ...], now: datetime) -> Shut | None:
    """Return why nothing may start at `now`; None inside an Allow window (if there is any) and outside all Deny windows."""
    if _permitted(windows, now):
        return None
    denied = _denied(windows, now)
    cause = f"Deny window {_title(denied)} is open" if denied else "no Allow window of spec.windows is open"
    opens = _next_opening(windows, now)
    if opens is None:
        until = "no time was found at which a replacement may start: look at spec.windows"
    else:
        until = f"the next replacement may start at {opens:%Y-%m-%d %H:%M:%S} UTC{_by(windows, opens)}"
    return Shut(NotNow(Waiting.OUTSIDE_WINDOW, f"{cause}: {until}"), opens)


def next_change(windows: tuple[Window, ...], now: datetime) -> datetime | None:
    """Return when the first window after `now` opens or closes; None without windows."""
    return min((moment for window in windows for moment in _changes(window, now)), default=None)


def _wrong(window: Window) -> tuple[str, str, str]:
    """Return the field of the window that is wrong, its value and why; empty texts if none is."""
    try:
        ZoneInfo(window.time_zone)
    except (KeyError, ValueError, OSError):  # a folder of the database is an OSError
        return (
            "timeZone",
            window.time_zone,
            "no such time zone is known. Write one such as Europe/Berlin or UTC",
        )
    try:
        # A sixth field would be seconds, which nothing that deletes pods should be aimed at.
        if len(window.schedule.split()) != 5:
            return "schedule", window.schedule, 'it has not five fields. Write one such as "0 2 * * 1-5"'
        next(CronSim(window.schedule, _ANY_MOMENT))
    except CronSimError as error:
        hint = "Write minute, hour, day of month, month and day of week"
        return "schedule", window.schedule, f"{str(error).lower()}. {hint}"
    except StopIteration:
        return "schedule", window.schedule, "no such day comes within 50 years"
    return "", "", ""


def _permitted(windows: tuple[Window, ...], moment: datetime) -> bool:
    return _denied(windows, moment) is None and _allowed(windows, moment)


def _denied(windows: tuple[Window, ...], moment: datetime) -> Window | None:
    denying = (w for w in windows if w.type is WindowType.DENY)
    return next((w for w in denying if _closes(w, moment) is not None), None)


def _allowed(windows: tuple[Window, ...], moment: datetime) -> bool:
    allowing = [w for w in windows if w.type is WindowType.ALLOW]
    return not allowing or any(_closes(w, moment) is not None for w in allowing)


def _next_opening(windows: tuple[Window, ...], now: datetime) -> datetime | None:
    moment = now
    for _ in range(_LOOKS):
        denied = _denied(windows, moment)
        closes = _closes(denied, moment) if denied else None
        if closes is not None:
            moment = closes
        elif _allowed(windows, moment):
            return moment
        else:
            allowing = (w for w in windows if w.type is WindowType.ALLOW)
            starts = [s for w in allowing if (s := _start_after(w, moment)) is not None]
            if not starts:
                return None
            moment = min(starts)
    return None


def _by(windows: tuple[Window, ...], moment: datetime) -> str:
    allowing = (w for w in windows if w.type is WindowType.ALLOW)
    opened = next((w for w in allowing if _closes(w, moment) is not None), None)
    return f", in Allow window {_title(opened)}" if opened else ""


def _title(window: Window) -> str:
    return f'"{window.schedule}" ({window.time_zone}, {window.duration_seconds} s)'


def _closes(window: Window, moment: datetime) -> datetime | None:
    """Return when the window that is open at `moment` closes, as far as its latest start tells; None if it is not open.

    All starts have the same duration, so the latest one closes last, however many overlap.
    """
    start = _start_until(window, moment)
    if start is None:
        return None
    end = start + timedelta(seconds=window.duration_seconds)
    return end if moment < end else None


def _changes(window: Window, now: datetime) -> Iterator[datetime]:
    closes = _closes(window, now)
    start = _start_after(window, now)
    yield from (moment for moment in (closes, start) if moment is not None)


def _start_until(window: Window, moment: datetime) -> datetime | None:
    # Starts lie on whole minutes, so all moments of a minute share the answer.
    return _last(window.schedule, window.time_zone, moment.astimezone(UTC).replace(second=0, microsecond=0))


def _start_after(window: Window, moment: datetime) -> datetime | None:
    return _next(window.schedule, window.time_zone, moment.astimezone(UTC).replace(second=0, microsecond=0))


@lru_cache(maxsize=_CACHED)
def _last(schedule: str, time_zone: str, moment: datetime) -> datetime | None:
    """Return the last start at or before `moment`."""
    zone = ZoneInfo(time_zone)
    local = moment.astimezone(zone)
    # In the second of two equal hours, times later by the clock have been there already.
    latest = local.replace(tzinfo=None, fold=0) + (_LONGEST_REPEAT if local.fold else timedelta())
    walk = CronSim(schedule, latest + timedelta(minutes=1), reverse=True)
    return next((start for wall in walk if (start := _in_utc(wall, zone)) <= moment), None)


@lru_cache(maxsize=_CACHED)
def _next(schedule: str, time_zone: str, moment: datetime) -> datetime | None:
    """Return the first start after `moment`."""
    zone = ZoneInfo(time_zone)
    walk = CronSim(schedule, moment.astimezone(zone).replace(tzinfo=None, fold=0))
    return next((start for wall in walk if (start := _in_utc(wall, zone)) > moment), None)


def _in_utc(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return when the clocks of the zone first show `wall`; when they are changed, if they skip it."""
    after = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if after.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
        return after
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    offset = before.astimezone(zone).utcoffset()
    while after - before > timedelta(minutes=1):
        middle = before + timedelta(minutes=(after - before) // timedelta(minutes=2))
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after
