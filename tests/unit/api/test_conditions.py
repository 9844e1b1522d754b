"""Conditions change when the world does, and their clocks only when their status does."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from accelerator_rollout.api.conditions import (
    MAX_CONDITION_MESSAGE,
    Condition,
    ConditionStatus,
    ConditionType,
    find_condition,
    is_true,
    remove_condition,
    set_condition,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)


def ready(
    conditions: tuple[Condition, ...] = (),
    status: ConditionStatus = ConditionStatus.TRUE,
    *,
    now: datetime = NOON,
    reason: str = "AllUpdated",
    message: str = "All 4 pods run revision 7.",
    generation: int = 1,
) -> tuple[Condition, ...]:
    return set_condition(
        conditions,
        ConditionType.READY,
        status,
        reason=reason,
        message=message,
        now=now,
        observed_generation=generation,
    )


def stalled(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    return set_condition(
        conditions,
        ConditionType.STALLED,
        ConditionStatus.TRUE,
        reason="DriverUnavailable",
        message="",
        now=NOON,
        observed_generation=1,
    )


def test_a_new_condition_begins_now() -> None:
    (condition,) = ready()
    assert condition.to_raw() == {
        "type": "Ready",
        "status": "True",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T12:00:00Z",
        "reason": "AllUpdated",
        "message": "All 4 pods run revision 7.",
    }


def test_its_clock_stands_still_while_its_status_stays() -> None:
    (condition,) = ready(ready(), now=LATER, reason="Other", message="Other words.", generation=2)
    assert condition.last_transition_time == NOON
    assert (condition.reason, condition.message, condition.observed_generation) == (
        "Other",
        "Other words.",
        2,
    )


def test_its_clock_moves_when_its_status_changes() -> None:
    (condition,) = ready(ready(), ConditionStatus.FALSE, now=LATER)
    assert condition.last_transition_time == LATER


def test_saying_the_same_again_changes_nothing() -> None:
    assert ready(ready(), now=LATER) == ready()


def test_the_other_conditions_keep_their_place() -> None:
    both = stalled(ready())
    assert [c.type for c in ready(both, ConditionStatus.FALSE)] == ["Ready", "Stalled"]


def test_a_condition_that_is_over_goes_and_the_rest_stays() -> None:
    assert remove_condition(stalled(ready()), ConditionType.STALLED) == ready()
    assert remove_condition(ready(), ConditionType.STALLED) == ready()


def test_a_condition_is_true_only_when_it_is_there_and_says_so() -> None:
    assert is_true(ready(), ConditionType.READY)
    assert not is_true(ready((), ConditionStatus.UNKNOWN), ConditionType.READY)
    assert not is_true(ready(), ConditionType.STALLED)
    assert find_condition(ready(), ConditionType.STALLED) is None


def test_a_message_longer_than_the_api_allows_is_cut_not_refused() -> None:
    (condition,) = ready(message="é" * (MAX_CONDITION_MESSAGE + 1))
    assert len(condition.message) == MAX_CONDITION_MESSAGE
    assert condition.message.endswith("é…")


def test_an_empty_message_is_written_since_the_api_requires_it() -> None:
    assert stalled(())[0].to_raw()["message"] == ""


@pytest.mark.parametrize("reason", ["", "not one word", "Ends-", "1st"])
def test_a_reason_is_one_word(reason: str) -> None:
    with pytest.raises(ValidationError):
        ready(reason=reason)
