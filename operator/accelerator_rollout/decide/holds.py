"""Hold: our own entry in a claim's `status.reservedFor`, which keeps its devices allocated until the release is proven.

Kubernetes deallocates a claim when the last entry goes (KEP-4381), whatever the node still does. An entry that is not
a pod's is left alone by its controller from 1.36 on, also after the pod is gone and the claim is being deleted. So a
held device cannot be given to anyone, whoever deletes its pod and however, and what carries our entry after a restart
tells what departed meanwhile. The price: departed devices stay allocated while no operator runs.
"""

from collections.abc import Iterable
from typing import Final

from accelerator_rollout.api.models import Hold, Replacement
from accelerator_rollout.decide.actions import EndHold, HoldClaim
from accelerator_rollout.decide.reasons import Holding
from accelerator_rollout.decide.snapshot import HoldAbility, Snapshot
from accelerator_rollout.names import GROUP, PLURAL
from accelerator_rollout.records import ClaimRecord, PodRecord, Reservation

_ROLE: Final = "install the optional role (deploy/kustomize/components/hold)"
WHY_NOT: Final = {
    HoldAbility.NOT_PERMITTED: (
        Holding.NOT_PERMITTED,
        f"to hold devices until their release is proven, {_ROLE}",
    ),
    HoldAbility.NOT_SUPPORTED: (
        Holding.NOT_SUPPORTED,
        "this cluster is older than Kubernetes 1.36, whose claim controller stumbles over a hold",
    ),
}
_MOST: Final = 256  # entries that the API allows in reservedFor


def is_hold(entry: Reservation) -> bool:
    """Whether an entry is a hold, of whichever AcceleratorRollout."""
    return (entry.api_group, entry.resource) == (GROUP, PLURAL)


def held(claim: ClaimRecord, rollout_uid: str) -> bool:
    """Whether the claim carries the hold of this AcceleratorRollout."""
    return any(is_hold(entry) and entry.uid == rollout_uid for entry in claim.reserved_for)


def holding(snapshot: Snapshot) -> bool:
    """Whether claims are to be held: asked for, and possible here."""
    asked = snapshot.rollout.spec.release.hold is not Hold.NEVER
    return asked and snapshot.hold is HoldAbility.POSSIBLE and snapshot.rollout.deletion is None


def kept(replacement: Replacement, snapshot: Snapshot) -> bool:
    """Whether holds keep all devices of a departed pod from everybody else."""
    claims = [c for c in replacement.claims if c.devices]
    return bool(claims) and all(_kept(c.name, c.uid, snapshot) for c in claims)


def _kept(name: str, uid: str, snapshot: Snapshot) -> bool:
    claim = snapshot.claims.get(name)
    return (
        claim is not None
        and claim.uid == uid
        and claim.uses is not None
        and held(claim, snapshot.rollout.uid)
    )


def holds(snapshot: Snapshot) -> tuple[HoldClaim, ...]:
    """Return the holds that are missing: on the claims of pods that hold devices and have not ended."""
    if snapshot.workload is None or not holding(snapshot):
        return ()
    # Of an ended pod the claim goes at once, or its controller would reserve it for the pod again and again.
    pods = sorted((p for p in snapshot.pods if p.bound and not p.terminal), key=lambda p: (p.created, p.name))
    claims = (claim for pod in pods for claim in _own(pod, snapshot) if _holdable(claim, snapshot))
    return tuple(HoldClaim(claim.name, claim.uid) for claim in claims)


def told(snapshot: Snapshot) -> tuple[Holding, str] | None:
    """Return whether holds are in force and what to say about it; None where none are asked for."""
    if snapshot.rollout.spec.release.hold is Hold.NEVER:
        return None
    if snapshot.hold is not HoldAbility.POSSIBLE:
        return WHY_NOT[snapshot.hold]
    names = sorted(c.name for c in snapshot.claims.values() if c.uid in snapshot.disputed)
    if names:
        text = (
            f"somebody keeps taking our entry out of status.reservedFor of ResourceClaim {names[0]}: it is not put "
            "back. See its managedFields for who writes that field"
        )
        return Holding.DISPUTED, text
    return Holding.IN_FORCE, "the devices of departed pods stay allocated until their release is proven"


def _own(pod: PodRecord, snapshot: Snapshot) -> Iterable[ClaimRecord]:
    names = set(pod.claim_names)
    return (c for c in snapshot.claims.values() if c.name in names and c.owner_pod_uid == pod.uid)


def _holdable(claim: ClaimRecord, snapshot: Snapshot) -> bool:
    return (
        any(not use.admin for use in claim.uses or ())
        and claim.deletion is None  # the API takes no new entries then
        and claim.uid not in snapshot.disputed
        and len(claim.reserved_for) < _MOST
        and not held(claim, snapshot.rollout.uid)
    )


def ends(snapshot: Snapshot, ended: Iterable[str], proven: Iterable[str]) -> tuple[EndHold, ...]:
    """Return the holds that are to go.

    `ended` are the UIDs of claims whose hold has done its work, `proven` those of pods whose release is proven. A hold
    on a pod that lives goes where none is wanted any more, and leaves the allocation alone.
    """
    done, let_go = set(ended), set(proven)
    wanted = holding(snapshot)
    live = {p.uid for p in snapshot.pods if p.live}
    former = {p.uid for p in snapshot.former if p.live}
    going = []
    for claim in sorted(snapshot.claims.values(), key=lambda c: c.name):
        if not held(claim, snapshot.rollout.uid):
            continue
        others = [r for r in claim.reserved_for if not (is_hold(r) and r.uid == snapshot.rollout.uid)]
        if claim.uid in done:
            # With the last entry the devices go; an entry of somebody who is not proven finished keeps them.
            whole = all(not r.api_group and r.resource == "pods" and r.uid in let_go for r in others)
            going.append(EndHold(claim.name, claim.uid, deallocate=whole))
        elif others and (claim.owner_pod_uid in former or (claim.owner_pod_uid in live and not wanted)):
            going.append(EndHold(claim.name, claim.uid, deallocate=False))
    return tuple(going)
