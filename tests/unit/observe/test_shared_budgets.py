"""Who shares a budget with whom, what the store tells of the others, and whom it wakes when one of them changes."""

from collections.abc import Callable
from typing import Any

import pytest

from accelerator_rollout.api.models import RolloutObject
from accelerator_rollout.decide.shared_budget import SharedBudget
from accelerator_rollout.names import BUDGET_LABEL, FINALIZER
from accelerator_rollout.observe.interests import Key
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.observe.shared_budgets import SharedBudgets
from accelerator_rollout.observe.store import Store

from . import objects as o
from .conftest import Clock

WAITING = {"budgetWaitSince": "2026-01-31T11:00:00Z"}


def entry(stage: str) -> dict[str, Any]:
    moment = "2026-01-31T11:30:00Z"
    found = {"id": "e", "stage": stage, "cause": "Rollout", "stageStartedAt": moment, "startedAt": moment}
    return {"replacements": [found]}


def rollout(
    name: str, group: str = "", status: dict[str, Any] | None = None, space: str = "team"
) -> dict[str, Any]:
    labels = {BUDGET_LABEL: group} if group else None
    return o.rollout(name, workload=name, status=status, labels=labels, namespace=space)


@pytest.fixture
def make(clock: Clock) -> Callable[..., Store]:
    def made(
        *raws: dict[str, Any], troubled: Callable[[Key], bool] = lambda _: False, **limits: int
    ) -> Store:
        store = Store(now=clock, shared_budgets=SharedBudgets(limits, troubled=troubled))
        for raw in raws:
            store.apply(Kind.ROLLOUTS, "ADDED", raw)
        return store

    return made


def budget_of(store: Store, name: str) -> SharedBudget | None:
    found = store.rollout(("team", name))
    assert isinstance(found, RolloutObject)
    return store.shared(found)


@pytest.mark.parametrize(
    ("group", "limits", "shares"),
    [
        ("", {}, None),
        ("lpu", {}, None),
        ("", {"lpu": 1}, None),
        ("lpu", {"lpu": 1, "default": 2}, ("lpu", 1)),
        ("", {"lpu": 1, "default": 2}, ("default", 2)),
        ("typo", {"lpu": 1, "default": 2}, ("default", 2)),
    ],
)
def test_which_budget_an_object_shares(
    make: Callable[..., Store], group: str, limits: dict[str, int], shares: tuple[str, int] | None
) -> None:
    found = budget_of(make(rollout("a", group), **limits), "a")
    assert (found and (found.group, found.limit)) == shares


def test_the_others_are_known_across_namespaces_and_without_their_names(make: Callable[..., Store]) -> None:
    store = make(
        rollout("a", "lpu"),
        rollout("b", "lpu", entry("Releasing"), space="elsewhere"),
        rollout("c", "other", entry("Releasing")),
        rollout("idle", "lpu"),
        lpu=1,
        other=1,
    )
    found = budget_of(store, "a")
    assert found is not None
    assert [(p.uid, p.in_flight) for p in found.peers] == [("uid-arol-b", 1)]
    assert "elsewhere" not in repr(found)


def test_who_waits_is_woken_when_another_is_done_and_nobody_else(make: Callable[..., Store]) -> None:
    busy = rollout("busy", "lpu", entry("Releasing"))
    store = make(
        busy,
        rollout("waits", "lpu", WAITING),
        rollout("idle", "lpu"),
        rollout("far", "x", WAITING),
        lpu=1,
        x=1,
    )
    assert store.apply(Kind.ROLLOUTS, "MODIFIED", changed(busy, entry("Gated"))) == {("team", "busy")}
    assert store.apply(Kind.ROLLOUTS, "MODIFIED", changed(busy, {})) == {("team", "busy"), ("team", "waits")}


def test_who_keeps_its_choice_is_woken_when_the_other_drops_its_own(make: Callable[..., Store]) -> None:
    younger = rollout("younger", "lpu", entry("Selected"))
    store = make(younger, rollout("older", "lpu", entry("Selected")), lpu=1)
    assert ("team", "older") in store.apply(Kind.ROLLOUTS, "MODIFIED", changed(younger, WAITING))


def test_who_waits_is_woken_when_another_goes_or_moves_away(make: Callable[..., Store]) -> None:
    busy = rollout("busy", "lpu", entry("Releasing"))
    waits = rollout("waits", "lpu", WAITING)
    moved = changed(busy, busy["status"])
    moved["metadata"]["labels"] = {BUDGET_LABEL: "x"}
    assert ("team", "waits") in make(busy, waits, lpu=1, x=1).apply(Kind.ROLLOUTS, "MODIFIED", moved)
    gone = changed(busy, busy["status"])
    assert ("team", "waits") in make(busy, waits, lpu=1).apply(Kind.ROLLOUTS, "DELETED", gone)


def test_one_whose_decisions_keep_failing_is_not_waited_for(make: Callable[..., Store]) -> None:
    raws = (rollout("a", "lpu"), rollout("b", "lpu", WAITING))
    for store, waiting in (
        (make(*raws, lpu=1), 1),
        (make(*raws, lpu=1, troubled=lambda k: k.name == "b"), 0),
    ):
        found = budget_of(store, "a")
        assert found is not None
        assert sum(p.waiting_since is not None for p in found.peers) == waiting


def test_an_object_that_cannot_be_read_is_counted_in_its_group(make: Callable[..., Store]) -> None:
    odd = rollout("odd", "lpu")
    odd["spec"] = {"unheardOf": 1}
    odd["metadata"]["finalizers"] = [FINALIZER]
    found = budget_of(make(rollout("a", "lpu"), odd, lpu=1), "a")
    assert found is not None
    assert [p.in_flight for p in found.peers] == [1]


def changed(raw: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    return raw | {"metadata": raw["metadata"] | {"resourceVersion": o.next_version()}, "status": status}


def test_how_far_each_budget_is_used(make: Callable[..., Store]) -> None:
    store = make(
        rollout("a", status=entry("Releasing")),
        rollout("b", status=entry("Selected"), space="other"),
        rollout("c", status=WAITING),
        rollout("d", "lpu", entry("Soaking")),
        lpu=1,
        default=4,
        idle=2,
    )
    assert store.shared_use() == {"default": 2, "lpu": 1, "idle": 0}
