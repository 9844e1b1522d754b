"""When replacements may start: windows open and close by the clocks of their zone, and nothing else is kept by them."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from accelerator_rollout.api.conditions import ConditionType, find_condition
from accelerator_rollout.api.models import Stage, Window
from accelerator_rollout.decide.actions import EvictPod, OpenGate, UnpauseDeployment
from accelerator_rollout.decide.reasons import Refusal, Waiting
from accelerator_rollout.decide.windows import next_change, problem, shut
from builders import NEW, NOW, World, at, device, gated_pod, of_type, pod, replica_set, running

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
HOUR, DAY = 3600, 86400
BERLIN = "Europe/Berlin"


def window(schedule: str, seconds: int = HOUR, zone: str = "UTC", kind: str = "Allow") -> Window:
    return Window.from_raw(raw(schedule, seconds, zone, kind))


def raw(schedule: str, seconds: int = HOUR, zone: str = "UTC", kind: str = "Allow") -> dict[str, Any]:
    return {"type": kind, "schedule": schedule, "durationSeconds": seconds, "timeZone": zone}


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def is_open(windows: tuple[Window, ...], moment: datetime) -> bool:
    return shut(windows, moment) is None


def opening(windows: tuple[Window, ...], moment: datetime) -> datetime | None:
    found = shut(windows, moment)
    assert found is not None
    return found.opens


# By the clock


def test_without_windows_it_is_always_open() -> None:
    assert is_open((), NOW)
    assert next_change((), NOW) is None


@pytest.mark.parametrize(
    ("moment", "open_"),
    [
        ("2026-01-31T01:59:59", False),
        ("2026-01-31T02:00:00", True),
        ("2026-01-31T02:59:59.999999", True),
        ("2026-01-31T03:00:00", False),
    ],
)
def test_a_window_opens_on_the_minute_and_closes_after_its_duration(moment: str, open_: bool) -> None:
    assert is_open((window("0 2 * * *"),), utc(moment)) is open_


def test_a_deny_window_is_the_other_way_round() -> None:
    denied = (window("0 2 * * *", kind="Deny"),)
    assert is_open(denied, utc("2026-01-31T01:59:59"))
    assert not is_open(denied, utc("2026-01-31T02:00:00"))
    assert opening(denied, utc("2026-01-31T02:30:00")) == utc("2026-01-31T03:00:00")


def test_deny_is_stronger_than_allow() -> None:
    both = (window("0 2 * * *", 2 * HOUR), window("0 2 * * *", HOUR, kind="Deny"))
    assert opening(both, utc("2026-01-31T02:10:00")) == utc("2026-01-31T03:00:00")
    assert is_open(both, utc("2026-01-31T03:00:00"))


def test_one_of_several_allow_windows_is_enough() -> None:
    two = (window("0 2 * * *"), window("30 2 * * *"))
    assert is_open(two, utc("2026-01-31T03:15:00"))
    assert opening(two, utc("2026-01-31T03:30:00")) == utc("2026-02-01T02:00:00")


def test_a_window_that_began_before_we_looked_is_open() -> None:
    """A restarted operator knows nothing of the start: it looks back."""
    december = (window("0 0 20 12 *", 14 * DAY, kind="Deny"),)
    assert not is_open(december, utc("2027-01-02T23:59:59"))
    assert is_open(december, utc("2027-01-03T00:00:00"))


def test_a_duration_longer_than_the_period_never_closes() -> None:
    longer = (window("0 * * * *", 2 * HOUR),)
    for minutes in range(0, 24 * 60, 7):
        assert is_open(longer, utc("2026-01-31T00:00:00") + timedelta(minutes=minutes))


def test_a_deny_window_that_never_closes_is_told_as_such() -> None:
    found = shut((window("* * * * *", HOUR, kind="Deny"),), NOW)
    assert found is not None
    assert found.opens is None
    assert "no time was found" in found.why.message


def test_the_opening_is_found_behind_deny_windows_that_hand_over_to_each_other() -> None:
    windows = (
        window("0 0 * * *", 8 * HOUR),
        window("0 0 * * *", 4 * HOUR, kind="Deny"),
        window("0 4 * * 1-6", 4 * HOUR, kind="Deny"),
    )
    assert opening(windows, utc("2026-02-02T01:00:00")) == utc("2026-02-08T04:00:00")  # a Sunday


# Where clocks are changed


def test_a_time_that_is_skipped_counts_as_the_moment_of_the_change() -> None:
    night = (window("30 2 * * *", HOUR, BERLIN),)
    assert opening(night, utc("2026-03-29T00:59:59")) == utc("2026-03-29T01:00:00")
    assert is_open(night, utc("2026-03-29T01:59:59"))
    assert opening(night, utc("2026-03-29T02:00:00")) == utc("2026-03-30T00:30:00")


def test_a_time_that_comes_twice_counts_the_first_time() -> None:
    night = (window("30 2 * * *", 1200, BERLIN),)
    assert is_open(night, utc("2026-10-25T00:30:00"))
    assert not is_open(night, utc("2026-10-25T01:30:00"))  # 02:30 again
    assert opening(night, utc("2026-10-25T01:00:00")) == utc("2026-10-26T01:30:00")


def test_durations_are_of_time_and_not_of_the_clock() -> None:
    """From 01:00 for three hours: in the night in which an hour comes twice until 03:00, not 04:00."""
    night = (window("0 1 * * *", 3 * HOUR, BERLIN),)
    assert is_open(night, utc("2026-10-25T01:59:59"))
    assert not is_open(night, utc("2026-10-25T02:00:00"))


ZONES = (BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC")
SCHEDULES = (
    "30 2 * * *",
    "0 3 * * *",
    "*/15 2 * * *",
    "10 * * * *",
    "0 */2 * * *",
    "45 23 * * 6",
    "5 1,2 * * 0",
)
CHANGES = ("2026-03-08", "2026-03-29", "2026-04-04", "2026-10-03", "2026-10-25", "2026-11-01")


@settings(max_examples=30)
@given(
    st.sampled_from(ZONES),
    st.sampled_from(SCHEDULES),
    st.sampled_from(CHANGES),
    st.integers(-20 * 60, 44 * 60),
    st.sampled_from((60, 900, 3600, 3 * HOUR, 2 * DAY)),
)
def test_what_is_searched_is_what_a_walk_over_all_minutes_finds(
    zone: str, schedule: str, day: str, minutes: int, seconds: int
) -> None:
    moment = utc(day) + timedelta(minutes=minutes)
    starts = _walked(schedule, zone, moment)
    opened = any(s <= moment < s + timedelta(seconds=seconds) for s in starts)
    one = window(schedule, seconds, zone)
    assert is_open((one,), moment) is opened
    if not opened:
        assert opening((one,), moment) == min(s for s in starts if s > moment)
    edges = [*starts, *(s + timedelta(seconds=seconds) for s in starts)]
    change = next_change((one,), moment)
    assert change is not None
    assert moment < change
    assert change in edges
    assert not any(moment < s < change for s in starts), "a start is slept through"


def _walked(schedule: str, zone: str, moment: datetime) -> list[datetime]:
    """Return the starts around `moment`: each minute looked at, each local time used once."""
    begin = moment.astimezone(UTC).replace(second=0) - timedelta(days=9)
    local = (begin + timedelta(minutes=n) for n in range(18 * 24 * 60))
    shown = [(m, m.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)) for m in local]
    walls = CronSim(schedule, shown[0][1] - timedelta(minutes=1))
    due, starts, latest = next(walls), [], shown[0][1] - timedelta(minutes=1)
    for instant, wall in shown:
        if wall <= latest:
            continue  # it has been there
        if due <= wall:
            starts.append(instant)
        while due <= wall:
            due = next(walls)
        latest = wall
    return starts


# What cannot be understood


@pytest.mark.parametrize(
    ("schedule", "zone", "said"),
    [
        ("0 25 * * *", "UTC", '.schedule "0 25 * * *" cannot be used: bad hour'),
        ("0 0 30 2 *", "UTC", '.schedule "0 0 30 2 *" cannot be used: bad day-of-month'),
        ("* * */20 * 1L", "UTC", '.schedule "* * */20 * 1L" cannot be used: no such day comes'),
        ("0 2 * * *", "Europe/Bonn", '.timeZone "Europe/Bonn" cannot be used: no such time zone is known'),
        ("0 2 * * *", "Europe", '.timeZone "Europe" cannot be used'),
    ],
)
def test_a_window_that_means_nothing_is_refused_with_its_field(schedule: str, zone: str, said: str) -> None:
    refused = problem((window("0 2 * * *"), window(schedule, zone=zone)))
    assert refused is not None
    assert refused.reason is Refusal.WINDOW_INVALID
    assert f"spec.windows[1]{said}" in refused.message


@pytest.mark.parametrize("schedule", ["@daily", "0 2 * *", "0 0 2 * * *", "", "0  2 * * *"])
def test_what_has_not_five_fields_is_refused_by_the_schema(schedule: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        window(schedule)


@pytest.mark.parametrize(
    "schedule", ["0 2 * * 1-5", "*/5 0-4 1,15 * *", "0 2 * JAN sun", "0 2 L * *", "0 2 29 2 *"]
)
def test_what_cron_knows_is_understood(schedule: str) -> None:
    assert problem((window(schedule),)) is None


def test_a_gate_opens_although_a_window_is_refused() -> None:
    world = waiting_at_the_gate("StatefulSet")
    world.spec["windows"] = [raw("0 25 * * *")]
    assert [type(a) for a in world.actions()] == [OpenGate]


# What waits (NOW is a Saturday, 12:00 UTC)

CLOSED = [raw("0 2 * * *")]
OPEN = [raw("0 11 * * *", 2 * HOUR)]


def disrupts(world: World, now: datetime = NOW) -> bool:
    return any(isinstance(a, EvictPod | UnpauseDeployment) for a in world.actions(now))


def progress(world: World, now: datetime = NOW) -> tuple[str, str]:
    found = find_condition(world.plan(now).status.conditions, ConditionType.PROGRESSING)
    assert found is not None
    return found.reason, found.message


def waiting_at_the_gate(kind: str) -> World:
    world = running(kind)
    world.recorded("worker-2", 2)
    world.end("worker-2")
    world.vanish("worker-2")
    world.put(gated_pod("worker-2", kind=kind))
    if kind == "Deployment":
        world.sets = [replica_set("old-digest-0000", 2), replica_set(NEW, 1, 0)]
    return world


@EACH
def test_outside_a_window_nothing_is_replaced_and_the_message_says_when_it_will_be(kind: str) -> None:
    world = running(kind)
    world.spec["windows"] = CLOSED
    assert not disrupts(world)
    reason, message = progress(world)
    assert reason == Waiting.OUTSIDE_WINDOW
    assert "2026-02-01 02:00:00 UTC" in message
    assert '"0 2 * * *" (UTC, 3600 s)' in message


@EACH
def test_inside_a_window_it_goes_on(kind: str) -> None:
    world = running(kind)
    world.spec["windows"] = OPEN
    assert disrupts(world)


@EACH
def test_nothing_is_told_anew_while_the_window_is_awaited(kind: str) -> None:
    world = running(kind)
    world.spec["windows"] = CLOSED
    world.store(world.plan())
    assert world.status.says_the_same(world.plan(at(3 * HOUR + 17)).status)


@EACH
def test_the_decision_is_made_again_at_the_opening_and_then_it_goes_on(kind: str) -> None:
    world = running(kind)
    world.spec["windows"] = CLOSED
    assert world.plan().next_due == utc("2026-02-01T02:00:00")
    assert disrupts(world, utc("2026-02-01T02:00:00"))


def test_and_at_the_closing() -> None:
    world = running("StatefulSet")
    world.spec["windows"] = [raw("50 11 * * *", 1200)]
    world.recorded("worker-2", 2, stage=Stage.SELECTED)
    assert world.plan().next_due == utc("2026-01-31T12:10:00")


@EACH
def test_a_choice_that_was_not_acted_on_is_dropped_when_the_window_closes(kind: str) -> None:
    world = running(kind)
    world.spec["windows"] = CLOSED
    world.recorded("worker-2", 2, stage=Stage.SELECTED)
    assert world.plan().status.replacements == ()


def test_a_deployment_that_was_set_free_finishes_its_step() -> None:
    world = running("Deployment", paused=False, parked=None)
    world.spec["windows"] = CLOSED
    world.recorded("worker-2", 2, stage=Stage.SELECTED)
    assert [e.pod_name for e in world.plan().status.replacements] == ["worker-2"]
    assert world.actions() == ()


@EACH
def test_a_gate_opens_outside_the_window(kind: str) -> None:
    world = waiting_at_the_gate(kind)
    world.spec["windows"] = CLOSED
    assert of_type(world.actions(), OpenGate)


def test_a_broken_pod_waits_for_the_window() -> None:
    """Its controller restarts it at any time; to bring it to a new revision is the change that the window is about."""
    world = running("StatefulSet")
    world.change("worker-1", ready=False)
    world.spec["windows"] = CLOSED
    assert not disrupts(world)


def test_a_successor_that_broke_is_replaced_as_what_is_in_flight_is_finished() -> None:
    world = running("StatefulSet")
    world.recorded(
        "worker-2", 2, replacement_pod_uid="p-bad", replacement_pod_name="worker-2", stage=Stage.WARMING_UP
    )
    world.end("worker-2")
    world.vanish("worker-2")
    world.put(pod("worker-2", "bad-digest-0000", uid="p-bad", ready=False), device(2))
    world.change("worker-0", ready=False)
    world.spec["windows"] = CLOSED
    assert of_type(world.actions(), EvictPod) == (EvictPod("worker-2", "p-bad"),)


def test_a_successor_that_still_soaks_is_in_flight_too() -> None:
    """Its checks may be what says that it is the bad one: the fix must not wait for the next night."""
    world = running("StatefulSet")
    facts = {"replacement_pod_uid": "p-bad", "replacement_pod_name": "worker-2", "released_at": at(-60)}
    world.recorded("worker-2", 2, stage=Stage.SOAKING, **facts)
    world.end("worker-2")
    world.vanish("worker-2")
    world.put(pod("worker-2", "bad-digest-0000", uid="p-bad", ready_since=at(-5)), device(2))
    world.spec |= {"windows": CLOSED, "health": {"soakSeconds": 600}}
    assert of_type(world.actions(), EvictPod) == (EvictPod("worker-2", "p-bad"),)


@EACH
def test_time_outside_the_window_counts_towards_no_deadline(kind: str) -> None:
    world = running(kind)
    world.spec["windows"] = CLOSED
    world.store(world.plan())
    for moment in (at(5000), utc("2026-02-01T01:59:59"), utc("2026-02-01T02:00:00")):
        assert find_condition(world.plan(moment).status.conditions, ConditionType.STALLED) is None


def test_a_workload_at_rest_is_not_woken_by_windows() -> None:
    world = running("StatefulSet", digest=NEW)
    world.spec["windows"] = CLOSED
    assert world.plan().next_due is None
