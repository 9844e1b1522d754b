"""The rules of the published guideline, as far as the objects in the cluster show them.

The guideline is "Deterministic Dynamic Resource Allocation (DRA) Eviction & Claim Deallocation Guardrail", agentrules.org,
CC-BY-4.0. A finding stops a rollout only where spec.guardrails asks for it: what must stop one is refused elsewhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from accelerator_rollout.api.models import Guardrail, GuardrailMode, Guardrails
from accelerator_rollout.records import BudgetRecord, DeploymentRecord, Workload

DEFAULT_GRACE_SECONDS = 30  # what Kubernetes gives a pod that asks for nothing


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that is not met, what it means here, and what to do."""

    rule: Guardrail
    message: str


def findings(
    workload: Workload,
    budgets: Iterable[BudgetRecord],
    ungated: Iterable[str],
    asked: Guardrails,
    *,
    parked_by_policy: bool,
) -> tuple[Finding, ...]:
    """Return what the guideline asks for and the workload lacks, the most harmful first, without what is exempt.

    `budgets` are the PodDisruptionBudgets that match its pods, `ungated` its revisions that can still make pods
    without our gate.
    """
    if asked.mode is GuardrailMode.OFF:
        return ()
    exempt = {e.rule for e in asked.exempt}
    found = _findings(workload, tuple(budgets), tuple(ungated), parked_by_policy=parked_by_policy)
    return tuple(f for f in found if f.rule not in exempt)


def enforced(found: Iterable[Finding], asked: Guardrails) -> tuple[Finding, ...]:
    """Return which of the findings keep replacements from starting: not the one that only a rollout can end."""
    if asked.mode is not GuardrailMode.ENFORCE:
        return ()
    return tuple(f for f in found if f.rule is not Guardrail.UNGATED_REVISION)


def settled(asked: Guardrails) -> str:
    """Return what to say where nothing is found."""
    if asked.mode is GuardrailMode.OFF:
        return "spec.guardrails.mode is Off: whether the workload follows the guideline was not looked at"
    if asked.exempt:
        exempt = ", ".join(f"{e.rule} ({e.reason})" for e in asked.exempt)
        return f"the workload follows the guideline, with exemptions: {exempt}"
    return "the workload follows the guideline"


def _findings(
    workload: Workload, budgets: tuple[BudgetRecord, ...], ungated: tuple[str, ...], *, parked_by_policy: bool
) -> Iterable[Finding]:
    template = workload.template
    if ungated:
        yield Finding(
            Guardrail.UNGATED_REVISION,
            f"{', '.join(ungated)} can still make pods without our gate: until the first gated rollout is complete, "
            "a pod that is replaced there is counted but cannot be held back",
        )
    # Pods of the other kinds wait for us: OnDelete.
    if isinstance(workload, DeploymentRecord) and not parked_by_policy:
        yield Finding(
            Guardrail.NOT_PARKED,
            "the parking policy is not installed: after a template change one pod may go before our checks. "
            "Install deploy/admission (Kubernetes 1.36 or newer)",
        )
    if isinstance(workload, DeploymentRecord) and workload.pause_written_by:
        yield Finding(
            Guardrail.PAUSE_IN_MANIFEST,
            f"what {workload.pause_written_by} applies to the Deployment has a spec.paused of its own: each time it undoes or "
            "keeps the pause between two steps. Leave the field out",
        )
    if not template.pre_stop:
        yield Finding(
            Guardrail.PRE_STOP_MISSING,
            "no container has a preStop hook that flushes and lets go of the device before SIGKILL can come",
        )
    if template.grace_seconds <= DEFAULT_GRACE_SECONDS:
        yield Finding(
            Guardrail.GRACE_TOO_SHORT,
            f"terminationGracePeriodSeconds is {template.grace_seconds}: fit it to the time the hardware takes to "
            "de-initialise (the guideline's example has 120)",
        )
    if not budgets:
        yield Finding(
            Guardrail.BUDGET_MISSING, "no PodDisruptionBudget matches the pods: add one with maxUnavailable 1"
        )
    for budget in budgets:
        if budget.unhealthy_policy != "AlwaysAllow":
            yield Finding(
                Guardrail.BUDGET_BLOCKS_BROKEN,
                f"PodDisruptionBudget {budget.name} can forbid the eviction of broken pods for ever: "
                "set unhealthyPodEvictionPolicy to AlwaysAllow",
            )
