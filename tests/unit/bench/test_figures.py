"""A missed goal is a failure, and so is nothing measured."""

import math

import pytest

from bench.figures import Figure, quantile, ratio_of_medians, report


@pytest.mark.parametrize(
    ("value", "goal", "met"),
    [(1.0, None, True), (1.05, 1.05, True), (1.06, 1.05, False), (math.nan, 1.0, False), (0.0, 0, True)],
)
def test_a_goal_is_the_most_that_may_be(value: float, goal: float | None, met: bool) -> None:
    assert Figure("a", value, "s", goal).met is met


def test_the_report_ends_with_what_was_missed() -> None:
    text, good = report([Figure("a", 1.0, "s", 2.0), Figure("b", 3.0, "s", 2.0), Figure("c", 9.0, "s")])
    assert not good
    assert text.splitlines()[-1] == "missed: b"
    assert "goal ≤ 2, MISSED" in text


def test_a_report_in_which_all_is_met() -> None:
    text, good = report([Figure("a", 1.0, "s", 2.0)])
    assert good
    assert text.splitlines()[-1] == "every goal was met"


def test_nothing_measured_is_no_success() -> None:
    assert report([]) == ("nothing was measured", False)


@pytest.mark.parametrize(("share", "value"), [(0.5, 2), (0.75, 3), (0.99, 4), (0.01, 1), (1.0, 4)])
def test_quantiles_are_values_that_were_measured(share: float, value: int) -> None:
    assert quantile([4, 2, 1, 3], share) == value


def test_a_quantile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_ratios_are_of_medians() -> None:
    assert ratio_of_medians([2, 4, 90], [1, 2, 3]) == 2
