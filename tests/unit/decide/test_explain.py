"""Each reason that a rollout can be stuck for is explained: the cause and the next step, in the words of docs/conditions.md."""

import re
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import pytest

from accelerator_rollout.api.conditions import ConditionType, find_condition
from accelerator_rollout.api.models import Guardrail, Stage
from accelerator_rollout.decide.advice import TABLES
from accelerator_rollout.decide.explain import Verdict, explain, of_replacement
from accelerator_rollout.decide.reasons import Halted, NotFree, Overdue, Refusal, Trouble, Waiting
from builders import NEW, NOW, World, budget, entry, node, pod, running

PAGE = (Path(__file__).parents[3] / "docs" / "conditions.md").read_text(encoding="utf-8")


def plain(cell: str) -> str:
    """The cell of a table as it reads without markdown."""
    cell = re.sub(r"\[([\w-]+\.md)\]\(([\w-]+\.md)(#[\w-]*)?\)", r"docs/\2", cell.strip())
    cell = re.sub(r"\[([^\]]+)\]\(#[^)]*\)", r"\1", cell)
    cell = re.sub(r"\[([^\]]+)\]\(([\w/-]+\.md)(#[\w-]*)?\)", r"\1 (docs/\2)", cell)
    return cell.replace("`", "")


def rows(section: str) -> dict[str, tuple[str, ...]]:
    body = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `(\w+)` \| (.*) \|+$", body, flags=re.MULTILINE)
    cells = {reason: rest.split(" | ") for reason, rest in found}
    return {reason: (plain(told[0]), plain(told[1].removesuffix(" |"))) for reason, told in cells.items()}


@pytest.mark.parametrize("section", TABLES)
def test_the_advice_has_the_words_of_the_page(section: str) -> None:
    assert {str(r): (a.cause, a.todo) for r, a in TABLES[section].items()} == rows(section)


KINDS: tuple[type[StrEnum], ...] = (NotFree, Waiting, Refusal, Overdue, Halted, Trouble, Guardrail)


@pytest.mark.parametrize("reason", [member for kind in KINDS for member in kind])
def test_no_reason_is_without_advice(reason: StrEnum) -> None:
    assert any(reason in table for table in TABLES.values())


IN_FLIGHT = [(Stage.RELEASING, r) for r in NotFree] + [
    (Stage.PREPARING, r) for r in (*Trouble, Waiting.PREPARE_FAILED)
]


@pytest.mark.parametrize(("stage", "reason"), IN_FLIGHT)
def test_a_replacement_says_cause_and_next_step(stage: Stage, reason: StrEnum) -> None:
    wait = of_replacement(entry(pod("worker-0"), stage=stage, reason=str(reason), message="which"))
    assert (wait.reason, wait.message) == (reason, "which")
    assert wait.cause
    assert wait.todo


def paused(world: World) -> None:
    world.spec["paused"] = True


def blocked_by_pdb(world: World) -> None:
    world.budgets = [budget(0)]


def cordoned(world: World) -> None:
    world.nodes = {name: replace(node(name), unschedulable=True) for name in world.nodes}


def without_workload(world: World) -> None:
    world.workload, world.pods = None, {}


def surge(world: World) -> None:
    world.set_workload(max_surge=1)


def rolling_strategy(world: World) -> None:
    world.set_workload(strategy="Recreate")


def no_driver(world: World) -> None:
    world.slices = []


def unreadable(world: World) -> None:
    world.unreadable = {"ResourceClaim/x": "broken"}
    world.freshness = type(world.freshness).UNREADABLE


STUCK = [
    (paused, Waiting.PAUSED),
    (blocked_by_pdb, Waiting.BLOCKED_BY_PDB),
    (cordoned, Waiting.NODE_UNSCHEDULABLE),
    (without_workload, Refusal.WORKLOAD_NOT_FOUND),
    (surge, Refusal.SURGE_NOT_ALLOWED),
    (rolling_strategy, Refusal.STRATEGY_NOT_SUPPORTED),
    (no_driver, Waiting.DRIVER_UNAVAILABLE),
    (unreadable, Waiting.STATE_UNKNOWN),
]


@pytest.mark.parametrize(("happens", "reason"), STUCK, ids=lambda x: getattr(x, "__name__", str(x)))
def test_a_rollout_that_starts_nothing_says_cause_and_next_step(happens: object, reason: StrEnum) -> None:
    world = running("Deployment")
    assert callable(happens)
    happens(world)
    decided = world.plan()
    explained = explain(world.rollout(), decided.status)
    assert [w.reason for w in explained.waits if w.what != "the operator"] == [reason]
    assert all(w.cause and w.todo and w.message for w in explained.waits)


def test_what_nobody_looked_at_is_the_operators_matter() -> None:
    world = running("Deployment", digest=NEW)
    explained = explain(world.rollout(), world.status)
    assert explained.verdict is Verdict.UNKNOWN
    assert "doctor" not in explained.waits[0].message
    assert "Deployment runs" in explained.waits[0].todo


def test_what_is_complete_waits_for_nothing() -> None:
    world = running("StatefulSet", digest=NEW)
    decided = world.plan()
    assert find_condition(decided.status.conditions, ConditionType.READY) is not None
    explained = explain(world.rollout(), decided.status)
    assert explained.verdict is Verdict.COMPLETE
    assert explained.waits == ()


def test_a_stall_that_an_older_spec_was_in_is_no_verdict_on_the_new_one() -> None:
    world = running("Deployment")
    world.set_workload(max_surge=1)
    told = world.plan().status
    rollout = world.rollout()
    assert explain(rollout, told).verdict is Verdict.STALLED
    explained = explain(replace(rollout, generation=rollout.generation + 1), told)
    assert explained.verdict is Verdict.WAITING
    assert [w.reason for w in explained.waits] == ["NotObserved", Refusal.SURGE_NOT_ALLOWED]


def test_what_goes_before_anybody_looked_at_it_goes() -> None:
    world = running("Deployment", digest=NEW)
    going = replace(world.rollout(), deletion=NOW)
    assert explain(going, world.status).verdict is Verdict.DELETING
