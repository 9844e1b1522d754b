"""Ages and durations as people write them."""

import pytest

from accelerator_rollout.cli.ages import duration, length


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (59, "59s"),
        (60, "1m"),
        (192, "3m12s"),
        (3600, "1h"),
        (3605, "1h"),
        (11100, "3h5m"),
        (180000, "2d2h"),
        (864000, "10d"),
        (900000, "10d"),
    ],
)
def test_a_length_is_told_in_its_two_greatest_units(seconds: int, text: str) -> None:
    assert length(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172800)]
)
def test_durations_are_read(text: str, seconds: int) -> None:
    assert duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "5 m", "m5", "-5s", "5x", "1.5h"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write 90s, 5m or 1h30m"):
        duration(text)
