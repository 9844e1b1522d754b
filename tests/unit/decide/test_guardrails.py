"""The published guideline's rules: what is told of a workload that breaks one, and when it stops a rollout."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from accelerator_rollout.api.models import Guardrail
from accelerator_rollout.decide.actions import victims_of
from accelerator_rollout.decide.reasons import Refusal
from builders import NEW, OLD, World, budget, replica_set, running, template


def _no_pre_stop(world: World) -> None:
    world.set_workload(template=template(pre_stop=False))


def _default_grace(world: World) -> None:
    world.set_workload(template=template(grace_seconds=30))


def _no_budget(world: World) -> None:
    world.budgets = []


def _budget_for_healthy_pods(world: World) -> None:
    world.budgets = [replace(budget(), unhealthy_policy="IfHealthyBudget")]


def _no_parking_policy(world: World) -> None:
    world.policy_parks = False


def _old_set_without_the_gate(world: World) -> None:
    world.sets = [replace(replica_set(OLD, 3), template_gates=())]


def _manifest_with_a_pause(world: World) -> None:
    world.set_workload(pause_written_by="kubectl apply")


BREAKS: dict[Guardrail, Callable[[World], None]] = {
    Guardrail.PRE_STOP_MISSING: _no_pre_stop,
    Guardrail.GRACE_TOO_SHORT: _default_grace,
    Guardrail.BUDGET_MISSING: _no_budget,
    Guardrail.BUDGET_BLOCKS_BROKEN: _budget_for_healthy_pods,
    Guardrail.NOT_PARKED: _no_parking_policy,
    Guardrail.UNGATED_REVISION: _old_set_without_the_gate,
    Guardrail.PAUSE_IN_MANIFEST: _manifest_with_a_pause,
}
EACH = pytest.mark.parametrize("rule", Guardrail)
ONLY_A_ROLLOUT_ENDS = {Guardrail.UNGATED_REVISION}


def broken(rule: Guardrail, **guardrails: Any) -> World:
    world = running("Deployment", digest=OLD)
    world.spec = {"guardrails": guardrails}
    BREAKS[rule](world)
    return world


def told(world: World, kind: str = "GuardrailsMet") -> tuple[str, str, str]:
    found = next(c for c in world.plan().status.conditions if c.type == kind)
    return found.status, found.reason, found.message


def replaces(world: World) -> bool:
    return any(victims_of(action) for action in world.actions())


@EACH
def test_by_default_it_is_told_and_stops_nothing(rule: Guardrail) -> None:
    world = broken(rule)
    status, reason, _ = told(world)
    assert (status, reason) == ("False", rule)
    assert replaces(world)


@EACH
def test_enforced_it_stops_replacements(rule: Guardrail) -> None:
    world = broken(rule, mode="Enforce")
    assert told(world)[:2] == ("False", rule)
    if rule in ONLY_A_ROLLOUT_ENDS:
        assert replaces(world), "else no rollout could ever end it"
        return
    assert not replaces(world)
    status, reason, message = told(world, "Stalled")
    assert (status, reason) == ("True", Refusal.GUARDRAIL_NOT_MET)
    assert rule in message
    assert "spec.guardrails.exempt" in message, "the way out"


@EACH
@pytest.mark.parametrize("mode", ["Warn", "Enforce"])
def test_what_is_exempt_is_told_with_its_reason_and_stops_nothing(rule: Guardrail, mode: str) -> None:
    exempt = [{"rule": str(rule), "reason": "flushed by a sidecar"}]
    world = broken(rule, mode=mode, exempt=exempt)
    status, reason, message = told(world)
    assert (status, reason) == ("True", "GuardrailsMet")
    assert f"{rule} (flushed by a sidecar)" in message
    assert replaces(world)


@EACH
def test_an_exemption_covers_no_other_rule(rule: Guardrail) -> None:
    other = next(r for r in Guardrail if r is not rule and r not in ONLY_A_ROLLOUT_ENDS)
    world = broken(rule, exempt=[{"rule": str(other), "reason": "none of this rule's business"}])
    assert told(world)[:2] == ("False", rule)


@EACH
def test_off_nothing_is_said_and_nothing_claimed(rule: Guardrail) -> None:
    world = broken(rule, mode="Off")
    assert told(world)[:2] == ("Unknown", "GuardrailsOff")
    assert replaces(world)


def test_a_workload_at_rest_that_breaks_an_enforced_rule_is_not_ready() -> None:
    world = running("Deployment", digest=NEW)
    world.spec = {"guardrails": {"mode": "Enforce"}}
    _no_pre_stop(world)
    assert told(world, "Ready")[:2] == ("False", Refusal.GUARDRAIL_NOT_MET)


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_the_parking_policy_is_missed_only_where_something_parks(kind: str) -> None:
    world = running(kind, digest=OLD)
    _no_parking_policy(world)
    assert told(world)[:2] == ("True", "GuardrailsMet")
    assert replaces(world)
