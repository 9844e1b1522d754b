"""Reservation: a device taint of ours that keeps strangers off a departed pod's devices until its successor has them.

A DeviceTaintRule (KEP-5055) per device, with effect NoSchedule, from the moment in which the pod leaves until its
successor's claim is allocated. Whoever does not tolerate it is not given the device; the workload's own claim template
has to. Where it does not, nothing is reserved: the successor itself would wait for ever.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final

from accelerator_rollout.api.models import ReservationKind
from accelerator_rollout.decide.actions import EndReservation, ReserveDevice
from accelerator_rollout.decide.allocatable import tolerates
from accelerator_rollout.decide.appraisal import Appraisal
from accelerator_rollout.decide.reasons import Reserving
from accelerator_rollout.decide.release import devices_of
from accelerator_rollout.decide.snapshot import ReserveAbility, Snapshot
from accelerator_rollout.names import RESERVED_TAINT
from accelerator_rollout.records import ClaimRecord, Device, DeviceRequest, Taint

_LONGEST: Final = 63  # characters of a taint's value
_ROLE: Final = "install the optional role (deploy/kustomize/components/reservation)"
_WHY_NOT: Final = {
    ReserveAbility.NOT_PERMITTED: (Reserving.NOT_PERMITTED, f"to keep strangers off freed devices, {_ROLE}"),
    ReserveAbility.NOT_SUPPORTED: (
        Reserving.NOT_SUPPORTED,
        "this cluster does not serve DeviceTaintRules (Kubernetes 1.36 and newer), so no device can be reserved",
    ),
}


def taint_of(rollout_name: str) -> Taint:
    """Return the taint on devices reserved for this AcceleratorRollout; a name that is too long stands as its digest."""
    fits = len(rollout_name) <= _LONGEST
    value = rollout_name if fits else sha256(rollout_name.encode()).hexdigest()[:40]
    return Taint(RESERVED_TAINT, value, "NoSchedule")


def rule_name(rollout_uid: str, device: Device) -> str:
    """Return the name of the rule on this device, so that what was created and not seen is not created twice."""
    return f"accelerator-rollout-{sha256(f'{rollout_uid}/{device}'.encode()).hexdigest()[:32]}"


def reserving(snapshot: Snapshot) -> bool:
    """Whether devices are to be reserved: asked for, and possible here."""
    asked = snapshot.rollout.spec.release.reservation is ReservationKind.DEVICE_TAINT
    return asked and snapshot.reserve is ReserveAbility.POSSIBLE and snapshot.rollout.deletion is None


def reservations(
    snapshot: Snapshot, appraisals: Iterable[Appraisal]
) -> tuple[ReserveDevice | EndReservation, ...]:
    """Return the reservations that are missing, and those that have done their work."""
    wanted: set[Device] = set()
    if reserving(snapshot):
        for a in appraisals:
            if a.left and not a.stranded and _awaited(a, snapshot) and _tolerates(a, snapshot):
                wanted |= set(devices_of(a.entry.claims))
    have = {Device(rule.driver, rule.pool, rule.device) for rule in snapshot.reservations}
    new = (ReserveDevice(d.driver, d.pool, d.name) for d in sorted(wanted - have, key=str))
    over = (
        EndReservation(rule.name, rule.uid)
        for rule in sorted(snapshot.reservations, key=lambda r: r.name)
        if Device(rule.driver, rule.pool, rule.device) not in wanted
    )
    return (*new, *over)


def told(snapshot: Snapshot) -> tuple[Reserving, str] | None:
    """Return whether reservations are in force and what to say about it; None where none are asked for."""
    if snapshot.rollout.spec.release.reservation is not ReservationKind.DEVICE_TAINT:
        return None
    if snapshot.reserve is not ReserveAbility.POSSIBLE:
        return _WHY_NOT[snapshot.reserve]
    taint = taint_of(snapshot.rollout.name)
    live = {p.uid for p in snapshot.pods if p.live}
    current = (c for c in snapshot.claims.values() if c.owner_pod_uid in live)
    if not all(_tolerant(request, taint) for request in _requests(current)):
        asked = snapshot.workload.template.claims if snapshot.workload else ()
        templates = sorted({entry.template for entry in asked if entry.template})
        which = (
            f"ResourceClaimTemplate {', '.join(templates)}" if templates else "the workload's claim template"
        )
        text = (
            f"{which} does not tolerate our taint, so its pods could not use a reserved device, and none is reserved. Add "
            f"to each of its requests: tolerations: [{{key: {taint.key}, operator: Equal, value: {taint.value}, "
            f"effect: {taint.effect}}}]"
        )
        return Reserving.NOT_TOLERATED, text
    return Reserving.IN_FORCE, "devices of departed pods are tainted until their successors have them"


def _awaited(a: Appraisal, snapshot: Snapshot) -> bool:
    """Whether the successor does not have its devices yet."""
    if a.verdict is not None:
        return True  # it has not been let in
    claims = [c for c in snapshot.claims.values() if a.successor and c.owner_pod_uid == a.successor.uid]
    return not claims or any(c.uses is None for c in claims)


def _tolerates(a: Appraisal, snapshot: Snapshot) -> bool:
    """Whether the successor's claims tolerate our taint; before they exist, those of the departed pod or its siblings."""
    taint = taint_of(snapshot.rollout.name)
    mine = {c.uid for c in a.entry.claims}
    successor = a.entry.replacement_pod_uid
    claims = tuple(snapshot.claims.values())
    next_ones = [c for c in claims if successor and c.owner_pod_uid == successor]
    own = [c for c in claims if c.uid in mine]
    asked = tuple(_requests(next_ones or own or claims))
    return bool(asked) and all(_tolerant(request, taint) for request in asked)


def _requests(claims: Iterable[ClaimRecord]) -> Iterator[DeviceRequest]:
    for claim in claims:
        yield from (request for request in claim.requests if not request.admin)


def _tolerant(request: DeviceRequest, taint: Taint) -> bool:
    return any(tolerates(toleration, taint) for toleration in request.tolerations)
