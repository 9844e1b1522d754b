"""What is refused, with the fix in the message: disruption stops, and nothing else."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from accelerator_rollout.api.conditions import ConditionType, find_condition
from accelerator_rollout.decide.actions import EvictPod, UnpauseDeployment
from accelerator_rollout.decide.reasons import Refusal
from accelerator_rollout.decide.snapshot import GateProbe, GateSource, Rival
from accelerator_rollout.names import GATE_LABEL, GATE_LABEL_VALUE
from accelerator_rollout.records import PodClaim
from builders import NEW, World, at, of_type, running, template

D, S = "Deployment", "StatefulSet"
BY_LABEL = template(gates=(), labels={GATE_LABEL: GATE_LABEL_VALUE})


def _gone(world: World) -> None:
    world.workload = None


def _rival(world: World) -> None:
    world.rivals.append(Rival("elder", "e", at(-5000)))


def _workload(**over: object) -> Callable[[World], None]:
    return lambda world: world.set_workload(**over)


def _no_policy(world: World) -> None:
    world.set_workload(template=BY_LABEL)
    world.probe = GateProbe(NEW, GateSource.NONE)


def _held_by_all_means(world: World) -> None:
    world.spec = {"release": {"hold": "Always"}}


def _half_a_check(world: World) -> None:
    world.bad_checks = {"half": "syntax error"}


def _enforced_and_not_met(world: World) -> None:
    world.spec = {"guardrails": {"mode": "Enforce"}}
    world.budgets = []


def _window_at_25_hours(world: World) -> None:
    world.spec = {"windows": [{"type": "Allow", "schedule": "0 25 * * *", "durationSeconds": 60}]}


CASES: list[tuple[str, Callable[[World], None], Refusal, str]] = [
    (D, _gone, Refusal.WORKLOAD_NOT_FOUND, "Create it"),
    (S, _half_a_check, Refusal.CHECK_INVALID, "syntax error. Correct it"),
    (S, _window_at_25_hours, Refusal.WINDOW_INVALID, "Write minute, hour"),
    (S, _enforced_and_not_met, Refusal.GUARDRAIL_NOT_MET, "exempt the rule with a reason"),
    (S, _rival, Refusal.WORKLOAD_CONFLICT, "Delete one of the two"),
    (D, _workload(strategy="Recreate"), Refusal.STRATEGY_NOT_SUPPORTED, "Set spec.strategy to RollingUpdate"),
    (D, _workload(max_surge="x%"), Refusal.STRATEGY_NOT_SUPPORTED, "Set them to 0 and 1"),
    (S, _workload(update_strategy="RollingUpdate"), Refusal.STRATEGY_NOT_SUPPORTED, "to OnDelete"),
    (D, _workload(max_surge=1), Refusal.SURGE_NOT_ALLOWED, "maxSurge 0"),
    (D, _workload(max_surge="25%"), Refusal.SURGE_NOT_ALLOWED, "maxSurge 0"),
    (D, _workload(max_unavailable=2), Refusal.MAX_UNAVAILABLE_TOO_HIGH, "maxUnavailable to 1"),
    (S, _workload(template=template(gates=())), Refusal.PODS_NOT_GATED, "Add schedulingGates"),
    (D, _no_policy, Refusal.PODS_NOT_GATED, "Install it (deploy/admission)"),
    (
        S,
        _workload(template=template(claims=(PodClaim("device", "shared", named=True),))),
        Refusal.NAMED_CLAIMS,
        "Use a resourceClaimTemplateName",
    ),
    (D, _workload(template=template(claims=())), Refusal.NO_DEVICE_CLAIMS, "ResourceClaimTemplate"),
    (S, _held_by_all_means, Refusal.HOLD_NOT_POSSIBLE, "install the optional role"),
]


@pytest.mark.parametrize(("kind", "change", "reason", "fix"), CASES)
def test_what_cannot_be_driven_stalls_with_the_fix_and_nothing_goes_down(
    kind: str, change: Callable[[World], None], reason: Refusal, fix: str
) -> None:
    world = running(kind)
    change(world)
    decided = world.plan()
    stalled = find_condition(decided.status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert stalled.reason == reason
    assert fix in stalled.message
    assert not any(isinstance(a, EvictPod | UnpauseDeployment) for a in decided.actions)


def test_every_refusal_is_tried_here() -> None:
    assert {reason for _, _, reason, _ in CASES} == set(Refusal)


@pytest.mark.parametrize("value", [1, "25%", "0%", 0])
def test_up_to_one_pod_down_is_accepted(value: int | str) -> None:
    world = running(D, 4)
    world.set_workload(max_unavailable=value)
    assert any(isinstance(a, UnpauseDeployment) for a in world.actions())


def test_a_policy_that_gates_pods_by_label_is_as_good_as_a_gate_in_the_template() -> None:
    world = running(S)
    world.set_workload(template=BY_LABEL)
    world.probe = GateProbe(NEW, GateSource.POLICY)
    assert any(isinstance(a, EvictPod) for a in world.actions())


def test_a_probe_without_an_answer_is_no_refusal_and_no_leave() -> None:
    world = running(S)
    world.set_workload(template=BY_LABEL)
    world.probe = GateProbe(NEW, GateSource.UNKNOWN, "the server said 500")
    decided = world.plan()
    assert decided.actions == ()
    assert find_condition(decided.status.conditions, ConditionType.STALLED) is None
    ready = find_condition(decided.status.conditions, ConditionType.READY)
    assert ready is not None
    assert "the server said 500" in ready.message


def test_of_two_objects_of_one_age_the_one_that_has_begun_goes_on_and_then_the_uid_decides() -> None:
    world = running(S)
    created = world.rollout().created
    world.rivals = [Rival("a", "a-smaller-uid", created)]
    assert world.actions() != (), "we hold the finalizer, so nothing changes hands in mid-step"
    world.rivals = [Rival("a", "a-smaller-uid", created, adopted=True)]
    assert world.actions() == ()
    world.rivals = [replace(world.rivals[0], uid="z")]
    assert world.actions() != ()


def test_extended_resources_count_as_soon_as_a_pod_has_them() -> None:
    """KEP-5004: the scheduler makes the claim, and only the pod's status names it."""
    world = running(S, template=template(claims=()))
    for name in ("worker-0", "worker-1", "worker-2"):
        world.change(name, claims=(), extended_claim=f"{name}-device")
    assert of_type(world.actions(), EvictPod)
