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
