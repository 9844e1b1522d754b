"""The rules of the published guideline, as far as the objects in the cluster show them.

The guideline is "Deterministic Dynamic Resource Allocation (DRA) Eviction & Claim Deallocation Guardrail", agentrules.org,
CC-BY-4.0. A finding never stops a rollout by itself: what must stop one is refused elsewhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from accelerator_rollout.records import BudgetRecord, Workload

DEFAULT_GRACE_SECONDS = 30  # what Kubernetes gives a pod that asks for nothing


class Rule(StrEnum):
    """One rule each; the value is the reason in the condition."""

    PRE_STOP_MISSING = "PreStopMissing"
    GRACE_TOO_SHORT = "GracePeriodTooShort"
    BUDGET_MISSING = "PodDisruptionBudgetMissing"
    BUDGET_BLOCKS_BROKEN = "PodDisruptionBudgetBlocksBrokenPods"
    UNGATED_REVISION = "UngatedRevision"
    NOT_PARKED = "ParkingPolicyMissing"


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that is not met, what it means here, and what to do."""

    rule: Rule
    message: str


def findings(
    workload: Workload,
    budgets: Iterable[BudgetRecord],
    ungated: Iterable[str],
    *,
    parked_by_policy: bool,
) -> tuple[Finding, ...]:
    """Return what the guideline asks for and the workload lacks, the most harmful first.

    `budgets` are the PodDisruptionBudgets that match its pods, `ungated` its revisions that can still make pods
    without our gate.
    """
    return tuple(_findings(workload, tuple(budgets), tuple(ungated), parked_by_policy=parked_by_policy))


def _findings(
    workload: Workload, budgets: tuple[BudgetRecord, ...], ungated: tuple[str, ...], *, parked_by_policy: bool
) -> Iterable[Finding]:
    template = workload.template
    if ungated:
        yield Finding(
            Rule.UNGATED_REVISION,
            f"{', '.join(ungated)} can still make pods without our gate: until the first gated rollout is complete, "
            "a pod that is replaced there is counted but cannot be held back",
        )
    if not parked_by_policy:
        yield Finding(
            Rule.NOT_PARKED,
            "the parking policy is not installed: after a template change one pod may go before our checks. "
            "Install deploy/admission (Kubernetes 1.36 or newer)",
        )
    if not template.pre_stop:
        yield Finding(
            Rule.PRE_STOP_MISSING,
            "no container has a preStop hook that flushes and lets go of the device before SIGKILL can come",
        )
    if template.grace_seconds <= DEFAULT_GRACE_SECONDS:
        yield Finding(
            Rule.GRACE_TOO_SHORT,
            f"terminationGracePeriodSeconds is {template.grace_seconds}: fit it to the time the hardware takes to "
            "de-initialise (the guideline's example has 120)",
        )
    if not budgets:
        yield Finding(
            Rule.BUDGET_MISSING, "no PodDisruptionBudget matches the pods: add one with maxUnavailable 1"
        )
    for budget in budgets:
        if budget.unhealthy_policy != "AlwaysAllow":
            yield Finding(
                Rule.BUDGET_BLOCKS_BROKEN,
                f"PodDisruptionBudget {budget.name} can forbid the eviction of broken pods for ever: "
                "set unhealthyPodEvictionPolicy to AlwaysAllow",
            )
