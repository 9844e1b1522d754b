"""May we drive this workload at all: what its owner must change first, if anything.

A refusal stops disruption, never an opening that safety allows: a pod that waits at our gate is ours to answer for.
"""

from accelerator_rollout.api.models import Hold
from accelerator_rollout.decide import windows
from accelerator_rollout.decide.holds import WHY_NOT
from accelerator_rollout.decide.reasons import Refusal, Waiting
from accelerator_rollout.decide.snapshot import GateSource, HoldAbility, Snapshot
from accelerator_rollout.guardrails.rules import Finding, enforced, findings
from accelerator_rollout.names import FINALIZER, GATE, GATE_LABEL, GATE_LABEL_VALUE
from accelerator_rollout.records import Template
from accelerator_rollout.workloads.base import Driver, NotNow, Refused


def conflict(snapshot: Snapshot) -> Refused | None:
    """Return that an older AcceleratorRollout names the same workload: the older acts, the younger does nothing."""
    me = snapshot.rollout
    # Of two that were created within one second, the one that has begun goes on: nothing may change hands in mid-step.
    mine = (me.created, FINALIZER not in me.finalizers, me.uid)
    older = [r for r in snapshot.rivals if (r.created, not r.adopted, r.uid) < mine]
    if not older:
        return None
    first = min(older, key=lambda r: (r.created, not r.adopted, r.uid))
    ref = me.spec.workload_ref
    return Refused(
        Refusal.WORKLOAD_CONFLICT,
        f"AcceleratorRollout {first.name} already manages {ref.kind} {ref.name}. Delete one of the two",
    )


def refusal(snapshot: Snapshot, driver: Driver | None) -> Refused | None:
    """Return why the workload cannot be driven as it is; None if it can, or if that is still being found out."""
    ref = snapshot.rollout.spec.workload_ref
    if snapshot.workload is None or driver is None:
        return Refused(
            Refusal.WORKLOAD_NOT_FOUND,
            f"{ref.kind} {ref.name} does not exist in namespace {snapshot.rollout.namespace}. "
            "Create it, or correct spec.workloadRef in a new object",
        )
    template = snapshot.workload.template
    what = f"{ref.kind} {ref.name}"
    return (
        driver.refusal()
        or _claims(template, what, snapshot)
        or _gates(template, what, snapshot)
        or _hold(snapshot)
        or _checks(snapshot)
        or windows.problem(snapshot.rollout.spec.windows)
        or _guardrails(snapshot, driver)
    )


def looked_at(snapshot: Snapshot, driver: Driver | None) -> tuple[Finding, ...]:
    """Return what the guideline asks for and the workload lacks."""
    if snapshot.workload is None or driver is None:
        return ()
    return findings(
        snapshot.workload,
        snapshot.budgets,
        driver.ungated_revisions(),
        snapshot.rollout.spec.guardrails,
        parked_by_policy=snapshot.policy_parks,
    )


def _guardrails(snapshot: Snapshot, driver: Driver) -> Refused | None:
    found = enforced(looked_at(snapshot, driver), snapshot.rollout.spec.guardrails)
    if not found:
        return None
    said = "; ".join(f"{f.rule}: {f.message}" for f in found)
    return Refused(
        Refusal.GUARDRAIL_NOT_MET,
        f"spec.guardrails.mode is Enforce, and {said}. Correct it, or exempt the rule with a reason in spec.guardrails.exempt",
    )


def _claims(template: Template, what: str, snapshot: Snapshot) -> Refused | None:
    # That an extended resource is served by DRA shows in the pods alone: the scheduler makes the claim (KEP-5004).
    if not template.claims and not any(p.extended_claim for p in snapshot.pods):
        return Refused(
            Refusal.NO_DEVICE_CLAIMS,
            f"the pod template of {what} has no resourceClaims: there are no devices whose release could be proven. "
            "Ask for devices by a ResourceClaimTemplate, or leave the update to the workload's own controller. (Extended "
            "resources that a DeviceClass names count as soon as a pod has them.)",
        )
    named = next((c for c in template.claims if c.named), None)
    if named is not None:
        return Refused(
            Refusal.NAMED_CLAIMS,
            f"the pod template of {what} uses the named ResourceClaim {named.claim_name} (entry {named.name}), which "
            "all its pods share: replacing one frees nothing. Use a resourceClaimTemplateName",
        )
    return None


def _gates(template: Template, what: str, snapshot: Snapshot) -> Refused | None:
    if GATE in template.gates:
        return None
    by_label = template.labels.get(GATE_LABEL) == GATE_LABEL_VALUE
    probe = snapshot.gate_probe
    if by_label and (probe is None or probe.template_digest != template.digest):
        return None  # being found out
    if by_label and probe is not None and probe.source is not GateSource.NONE:
        return None
    fix = f"Add schedulingGates: [{{name: {GATE}}}] to its pod template"
    if by_label:
        return Refused(
            Refusal.PODS_NOT_GATED,
            f"the pod template of {what} has the label {GATE_LABEL}, but a pod made from it carries no gate: the "
            f"admission policy is not installed or does not match. Install it (deploy/admission), or: {fix}",
        )
    return Refused(
        Refusal.PODS_NOT_GATED,
        f"the pods of {what} carry no gate, so a replacement would schedule before its predecessor's devices are "
        f"free. {fix}, or label the template {GATE_LABEL}={GATE_LABEL_VALUE} where the admission policy is installed",
    )


def _hold(snapshot: Snapshot) -> Refused | None:
    if snapshot.rollout.spec.release.hold is not Hold.ALWAYS or snapshot.hold is HoldAbility.POSSIBLE:
        return None
    text = f"spec.release.hold is Always, but {WHY_NOT[snapshot.hold][1]}"
    return Refused(Refusal.HOLD_NOT_POSSIBLE, text)


def _checks(snapshot: Snapshot) -> Refused | None:
    for name, why in sorted(snapshot.bad_checks.items()):
        return Refused(
            Refusal.CHECK_INVALID,
            f"check {name} can never be evaluated: {why}. Correct it, or take it out",
        )
    return None


def gate_unknown(snapshot: Snapshot) -> NotNow | None:
    """Return that nobody knows yet whether pods of the template come gated by our policy."""
    workload = snapshot.workload
    if workload is None or GATE in workload.template.gates:
        return None
    probe = snapshot.gate_probe
    if probe is not None and probe.template_digest == workload.template.digest:
        if probe.source is GateSource.UNKNOWN:
            return NotNow(
                Waiting.GATE_UNKNOWN, f"whether new pods are gated could not be found out: {probe.detail}"
            )
        return None
    return NotNow(Waiting.GATE_UNKNOWN, "whether new pods are gated is being found out by a dry-run pod")
