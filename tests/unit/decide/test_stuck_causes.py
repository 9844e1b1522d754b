"""Whatever a rollout is stuck for, the condition Stalled and `why` name the object, the cause and the next step."""

import re
from pathlib import Path

import pytest

from accelerator_rollout.api.conditions import ConditionType, find_condition, is_true
from accelerator_rollout.decide.explain import Verdict, explain
from accelerator_rollout.decide.reasons import Halted, Overdue, Refusal
from unit.decide.stuck import STUCK, Stuck

PAGE = (Path(__file__).parents[3] / "docs" / "stuck.md").read_text(encoding="utf-8")
EACH = pytest.mark.parametrize("cause", STUCK, ids=lambda cause: cause.title)


@EACH
def test_stalled_names_the_object_the_cause_and_the_next_step(cause: Stuck) -> None:
    told = cause.world().plan(cause.now).status.conditions
    stalled = find_condition(told, ConditionType.STALLED)
    assert stalled is not None
    assert stalled.reason == cause.reason
    assert not is_true(told, ConditionType.READY)
    assert not is_true(told, ConditionType.RECONCILING)
    for words in (*cause.names, cause.cause, cause.todo):
        assert words in stalled.message


@EACH
def test_why_names_them_too(cause: Stuck) -> None:
    world = cause.world()
    explained = explain(world.rollout(), world.plan(cause.now).status)
    assert explained.verdict is Verdict.STALLED
    waits = [wait for wait in explained.waits if wait.what != "the operator"]
    assert (waits[0].what, waits[0].reason) == ("Stalled", cause.reason)
    assert all(wait.cause and wait.todo for wait in waits)
    said = " ".join(f"{wait.message} {wait.todo}" for wait in waits)
    for words in (*cause.names, cause.cause, cause.todo):
        assert words in said


@EACH
def test_the_deeper_cause_has_a_reason_of_its_own(cause: Stuck) -> None:
    world = cause.world()
    status = world.plan(cause.now).status
    seen = {entry.reason for entry in status.replacements} | {c.reason for c in status.conditions}
    assert (cause.detail or cause.reason) in seen


@EACH
def test_nothing_is_written_again_while_it_is_stuck(cause: Stuck) -> None:
    world = cause.world()
    world.store(world.plan(cause.now))
    assert world.plan(cause.now).status.says_the_same(world.status)


def test_each_reason_to_be_stalled_is_in_the_table() -> None:
    told = {str(cause.reason) for cause in STUCK}
    assert told == {reason.value for kind in (Refusal, Overdue, Halted) for reason in kind}


def test_the_page_lists_the_causes() -> None:
    section = PAGE.partition("\n## What it can be stuck for\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\w[^|]*?) \| `(\w+)`(?:, `(\w+)`)? \| ", section, flags=re.MULTILINE)
    assert rows == [(cause.title, str(cause.reason), str(cause.detail)) for cause in STUCK]
