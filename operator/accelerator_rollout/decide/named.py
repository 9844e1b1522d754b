"""ResourceClaims that pods share by name: allocated as long as any of them uses it, and taken over as they are.

Workloads that ask so are refused (replacing one pod frees nothing), and a refusal strands no pod: when one leaves all the
same, its successor uses the very claim that its siblings keep.
"""

from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.records import ClaimRecord


def taken_over(claim: ClaimRecord, pod_uid: str, snapshot: Snapshot) -> bool:
    """Whether an allocated claim stays with siblings of the departed pod, and is not reserved for that one any more (S1)."""
    if claim.owner_pod_uid or not claim.reserved_for:
        return False
    return claim.name in _by_name(snapshot) and all(entry.uid != pod_uid for entry in claim.reserved_for)


def _by_name(snapshot: Snapshot) -> set[str | None]:
    template = snapshot.workload.template.claims if snapshot.workload else ()
    pods = (claim for pod in snapshot.pods for claim in pod.claims)
    return {claim.claim_name for claim in (*template, *pods) if claim.named}
