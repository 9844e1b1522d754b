"""Figures, their goals and the report: nothing here measures."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report. Without a goal it is only told; with one, more than it is a failure."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    remark: str = ""

    @property
    def met(self) -> bool:
        """Whether the goal, if there is one, is met; a figure that is no number meets none."""
        return self.goal is None or self.value <= self.goal

    def __str__(self) -> str:
        value = f"{self.value:.2f}" if self.value < 100 else f"{self.value:.0f}"
        goal = "" if self.goal is None else f"goal ≤ {self.goal:g}, {'met' if self.met else 'MISSED'}"
        return f"{self.name:<58} {value:>8} {self.unit:<4} {goal:<20} {self.remark}".rstrip()


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed. Raises ValueError for none."""
    if not values:
        raise ValueError("a quantile of no values")
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def ratio_of_medians(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return how much longer ours take."""
    return statistics.median(ours) / statistics.median(theirs)


def report(figures: Iterable[Figure]) -> tuple[str, bool]:
    """Return the lines, and whether every goal was met; no figures at all are a failure."""
    lines = list(figures)
    missed = [f.name for f in lines if not f.met]
    end = (
        f"missed: {'; '.join(missed)}"
        if missed
        else "every goal was met"
        if lines
        else "nothing was measured"
    )
    return "\n".join([*map(str, lines), end]), bool(lines) and not missed
