"""Every reason that a status can carry stands in docs/conditions.md, and none that the code does not know."""

import re
from enum import StrEnum
from pathlib import Path

import pytest

from accelerator_rollout.api.conditions import ConditionType
from accelerator_rollout.api.models import Guardrail, Proof, Stage
from accelerator_rollout.decide.reasons import (
    Announcement,
    Halted,
    Holding,
    NotFree,
    Overdue,
    Refusal,
    Reserving,
    Settled,
    Trouble,
    Waiting,
)

PAGE = (Path(__file__).parents[3] / "docs" / "conditions.md").read_text(encoding="utf-8")
CODE: tuple[type[StrEnum], ...] = (
    NotFree,
    Overdue,
    Refusal,
    Settled,
    Trouble,
    Waiting,
    Guardrail,
    Stage,
    Proof,
    Announcement,
    Halted,
    Holding,
    Reserving,
    ConditionType,
)
ELSEWHERE = {"SpecUnreadable"}  # written without a decision, as the object could not be read


@pytest.mark.parametrize("reason", [member.value for kind in CODE for member in kind])
def test_each_reason_is_on_the_page(reason: str) -> None:
    assert f"`{reason}`" in PAGE


def test_the_tables_name_no_reason_that_the_code_does_not_know() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE))
    known = {member.value for kind in CODE for member in kind} | ELSEWHERE
    assert named
    assert named <= known


STUCK = (Path(__file__).parents[3] / "docs" / "stuck.md").read_text(encoding="utf-8")
PROGRESS: tuple[type[StrEnum], ...] = (Stage, Waiting, Refusal, Trouble, Overdue, Halted)
NEVER_SHOWN = {Stage.DONE}


@pytest.mark.parametrize(
    "reason", sorted({m.value for kind in PROGRESS for m in kind if m not in NEVER_SHOWN})
)
def test_who_is_stuck_finds_what_is_shown_as_progress(reason: str) -> None:
    rows = [line.split("|")[1] for line in STUCK.splitlines() if line.startswith("| `")]
    assert sum(f"`{reason}`" in row for row in rows) == 1, "once, in the table of docs/stuck.md"


def test_the_page_for_who_is_stuck_knows_no_other_reason() -> None:
    rows = [line.split("|")[1] for line in STUCK.splitlines() if line.startswith("| `")]
    named = {reason for row in rows for reason in re.findall(r"`(\w+)`", row)} - {"PROGRESS"}
    known: tuple[type[StrEnum], ...] = (*PROGRESS, Settled)
    assert named <= {member.value for kind in known for member in kind}
