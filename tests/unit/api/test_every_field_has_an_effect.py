"""No accepted field without effect: each field of the spec has a row here, with a test that shows what it changes.

The generated CRD says which fields there are. The tests are read and not run here: each must be there, and what it is made
of (its parameters, and what it uses of its own file) must name the field.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelerator_rollout.api import crd

ROOT = Path(__file__).parents[3]
DECIDE, ACT, OBSERVE = "tests/unit/decide/test_", "tests/unit/act/test_", "tests/unit/observe/test_"
RELEASE_QUERY = ACT + "queries_as_asked.py::test_of_the_devices_of_a_departed_pod"
HEALTH_QUERY = ACT + "queries_as_asked.py::test_of_a_successor_that_soaks"
STAGE_IS_LATE = DECIDE + "deadlines.py::test_a_stage_that_takes_too_long_stalls_with_its_own_reason"

EFFECTS = {
    "workloadRef.apiVersion": OBSERVE + "workload_ref.py::test_no_workload_of_another_api_is_driven",
    "workloadRef.kind": OBSERVE + "workload_ref.py::test_it_is_the_one_of_that_kind_and_name",
    "workloadRef.name": OBSERVE + "workload_ref.py::test_it_is_the_one_of_that_kind_and_name",
    "paused": DECIDE + "disruption.py::test_a_pause_starts_nothing",
    "action.type": DECIDE + "intent.py::test_an_abort_stops_what_would_be_done_now_and_is_stored_first",
    "action.id": DECIDE + "intent.py::test_an_id_that_was_seen_is_not_done_again_whatever_its_type",
    "restartedAt": DECIDE + "restart.py::test_an_older_pod_is_evicted_and_its_workload_left_as_it_is",
    "strategy.maxUnavailable": DECIDE
    + "max_unavailable.py::test_a_second_pod_goes_while_the_first_is_in_flight",
    "guardrails.mode": DECIDE + "guardrails.py::test_enforced_it_stops_replacements",
    "guardrails.exempt[].rule": DECIDE + "guardrails.py::test_an_exemption_covers_no_other_rule",
    "guardrails.exempt[].reason": DECIDE
    + "guardrails.py::test_what_is_exempt_is_told_with_its_reason_and_stops_nothing",
    "strategy.partition": DECIDE + "extent.py::test_a_partition_keeps_so_many_pods_as_they_are",
    "strategy.steps[].replicas": DECIDE + "extent.py::test_a_step_stops_at_its_pods_and_waits_for_a_person",
    "strategy.steps[].pause.type": DECIDE
    + "extent.py::test_a_timed_step_goes_on_by_itself_also_after_a_restart",
    "strategy.steps[].pause.durationSeconds": DECIDE
    + "extent.py::test_a_timed_step_goes_on_by_itself_also_after_a_restart",
    "strategy.order.policy": DECIDE + "extent.py::test_the_order_is_as_asked",
    "strategy.order.topologyKey": DECIDE + "extent.py::test_one_domain_is_finished_before_the_next_is_begun",
    "release.timeoutSeconds": DECIDE
    + "response.py::test_a_release_that_is_late_is_answered_by_a_policy_of_its_own",
    "release.onTimeout": DECIDE
    + "response.py::test_a_release_that_is_late_is_answered_by_a_policy_of_its_own",
    "release.hold": DECIDE + "holds.py::test_who_is_not_held",
    "release.guard": DECIDE + "guards.py::test_each_pod_with_a_node_is_guarded_once",
    "release.unproven.policy": DECIDE + "waits_as_asked.py::test_or_never_by_time_alone",
    "release.unproven.extraSeconds": DECIDE
    + "waits_as_asked.py::test_an_unproven_release_counts_after_the_grace_period_and_so_many_seconds",
    "release.reservation": DECIDE + "reservations.py::test_a_device_is_reserved_when_its_pod_leaves_and_once",
    "release.placement": DECIDE + "openings.py::test_a_successor_is_pinned_to_the_node_of_its_predecessor",
    "release.settleSeconds": DECIDE
    + "openings.py::test_nothing_opens_while_devices_settle_and_the_gate_opens_afterwards",
    "release.checks[].name": RELEASE_QUERY,
    "release.checks[].cel": ACT + "checks.py::test_what_is_not_plainly_true_says_why",
    "release.checks[].prometheus.address": RELEASE_QUERY,
    "release.checks[].prometheus.query": RELEASE_QUERY,
    "release.checks[].prometheus.condition": RELEASE_QUERY,
    "windows[].type": DECIDE + "windows.py::test_a_deny_window_is_the_other_way_round",
    "windows[].schedule": DECIDE
    + "windows.py::test_a_window_opens_on_the_minute_and_closes_after_its_duration",
    "windows[].durationSeconds": DECIDE + "windows.py::test_durations_are_of_time_and_not_of_the_clock",
    "windows[].timeZone": DECIDE
    + "windows.py::test_a_time_that_is_skipped_counts_as_the_moment_of_the_change",
    "disruption.timeoutSeconds": DECIDE
    + "deadlines.py::test_a_budget_that_keeps_the_next_pod_too_long_is_named",
    "health.minReadySeconds": DECIDE + "health.py::test_the_longer_of_both_min_ready_seconds_counts",
    "health.scheduleTimeoutSeconds": STAGE_IS_LATE,
    "health.prepareTimeoutSeconds": STAGE_IS_LATE,
    "health.readyTimeoutSeconds": STAGE_IS_LATE,
    "health.soakSeconds": DECIDE + "health.py::test_the_next_pod_goes_only_after_the_soak",
    "health.failureThreshold": DECIDE + "health.py::test_a_pod_that_keeps_becoming_unready_fails",
    "health.checks[].name": HEALTH_QUERY,
    "health.checks[].prometheus.address": HEALTH_QUERY,
    "health.checks[].prometheus.query": HEALTH_QUERY,
    "health.checks[].prometheus.condition": HEALTH_QUERY,
    "failurePolicy": DECIDE + "response.py::test_abort_halts_the_revision_for_good",
    "progressDeadlineSeconds": DECIDE
    + "waits_as_asked.py::test_a_rollout_without_any_movement_stalls_after_so_many_seconds",
}


def _fields(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The leaves: what holds a value, and no further fields."""
    if "items" in schema:
        yield from _fields(schema["items"], f"{path}[]")
    elif "properties" in schema:
        for name, child in schema["properties"].items():
            yield from _fields(child, f"{path}.{name}" if path else name)
    else:
        yield path


def _committed() -> tuple[str, ...]:
    versions = yaml.safe_load(crd.COMMITTED.read_text(encoding="utf-8"))["spec"]["versions"]
    return tuple(
        field
        for version in versions
        for field in _fields(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    )


FIELDS = _committed()


def _endings(field: str) -> list[tuple[str, ...]]:
    """The field's name, and with more and more of what stands before it."""
    parts = tuple(field.replace("[]", "").split("."))
    return [parts[at:] for at in range(len(parts) - 1, -1, -1)]


_SHARED = Counter(ending for field in FIELDS for ending in _endings(field))


def _telling(field: str) -> tuple[str, ...]:
    """The shortest ending that no other field has: `timeoutSeconds` alone would not say of what."""
    return next(ending for ending in _endings(field) if _SHARED[ending] == 1)


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def _defined(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield statement.name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case _:
            pass


@cache
def _definitions(path: Path) -> dict[str, ast.stmt]:
    """What a file defines at its top level, by name; a test in a class as Class::test."""
    found: dict[str, ast.stmt] = {}
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        found |= dict.fromkeys(_defined(statement), statement)
        if isinstance(statement, ast.ClassDef):
            found |= {f"{statement.name}::{name}": s for s in statement.body for name in _defined(s)}
    return found


def _words(tree: ast.AST) -> set[str]:
    """The names in this code, and the words in its strings; what it says about itself does not count."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name))
            ):
                found.add(name)
            case ast.Constant(value=str(text)) if node not in _docstrings(tree):
                found |= set(re.findall(r"\w+", text))
            case _:
                pass
    return found


def _docstrings(tree: ast.AST) -> list[ast.AST]:
    """Strings that stand for themselves."""
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]


@cache
def _mentioned(test: str) -> frozenset[str]:
    """The words of the test and of all that it uses of its own file."""
    file, _, name = test.partition("::")
    definitions = _definitions(ROOT / file)
    words, reached, due = set[str](), set[str](), [name]
    while due:
        current = due.pop()
        reached.add(current)
        said = _words(definitions[current])
        words |= said
        due += [word for word in said if word in definitions and word not in reached]
    return frozenset(words)


def test_each_field_has_a_row_and_each_row_a_field() -> None:
    assert sorted(EFFECTS) == sorted(FIELDS), "a field comes in with the test that shows what it changes"
    assert len(set(FIELDS)) == len(FIELDS)


@pytest.mark.parametrize("test", sorted(set(EFFECTS.values())))
def test_the_test_of_a_row_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert (ROOT / file).is_file()
    assert name.rpartition("::")[2].startswith("test_")
    assert name in _definitions(ROOT / file)


@pytest.mark.parametrize("field", sorted(EFFECTS))
def test_the_test_of_a_row_names_the_field(field: str) -> None:
    words = _mentioned(EFFECTS[field])
    missing = [part for part in _telling(field) if not {part, _snake(part)} & words]
    assert not missing, f"{EFFECTS[field]} says nothing of {missing}"


def test_a_test_that_is_about_something_else_is_found_out() -> None:
    other = _mentioned(EFFECTS["strategy.partition"])
    assert "partition" in other
    assert not {"settleSeconds", "settle_seconds", "timeZone", "topologyKey"} & other
