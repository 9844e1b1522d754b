"""Are the devices of a departed pod free, and if not, why not: each "no" names the object that it hangs on.

Two questions: has the old holder let go, with proof (here); and could the successor be allocated the devices
(`allocatable`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from accelerator_rollout.api.models import HeldClaim, Proof, Replacement, Stage
from accelerator_rollout.decide.allocatable import (
    Obstacle,
    Pool,
    holders_of,
    obstacle_to,
    taken,
    unpublished,
)
from accelerator_rollout.decide.checks import checking
from accelerator_rollout.decide.holds import kept
from accelerator_rollout.decide.named import taken_over
from accelerator_rollout.decide.proof import ProofState, find_proof
from accelerator_rollout.decide.reasons import SINCE_RELEASED, NotFree
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.records import ClaimRecord, Device, DeviceRequest, PodRecord

_LEAST_SLACK: Final = 30  # seconds beyond its grace period before a pod counts as stuck
_PARTS: Final = 5  # of spec.release.timeoutSeconds


@dataclass(frozen=True, slots=True)
class Verdict:
    """`obstacle` is None exactly if the devices are released with `proof` and allocatable.

    `hold_ended` is true once nothing is left for a hold to wait for. `exposed` is true while the scheduler could hand out a device that nobody should have yet: the pod is gone without
    proof, and its claim unallocated, or about to be; or the device settles. Nothing may be opened then that could take it.
    """

    obstacle: Obstacle | None
    proof: Proof | None
    exposed: bool
    hold_ended: bool = False

    @property
    def released(self) -> bool:
        """Whether a successor may have the devices."""
        return self.obstacle is None

    @property
    def let_go(self) -> bool:
        """Whether the departed pod itself holds nothing any more, whatever became of the devices since."""
        return self.proof is not None and (self.obstacle is None or self.obstacle.reason in SINCE_RELEASED)


def last_known(snapshot: Snapshot, pod_uid: str) -> PodRecord | None:
    """Return the pod's last known state: as it is, or as it was when it vanished."""
    for pod in (*snapshot.pods, *snapshot.former):
        if pod.uid == pod_uid:
            return pod
    return next((v.pod for v in snapshot.vanished if v.pod.uid == pod_uid), None)


def judge(replacement: Replacement, snapshot: Snapshot, now: datetime) -> Verdict:
    """Return whether the devices that `replacement`'s pod held are free for its successor."""
    pod = next((p for p in (*snapshot.pods, *snapshot.former) if p.uid == replacement.pod_uid), None)
    last = last_known(snapshot, replacement.pod_uid)
    node = snapshot.nodes.get(replacement.node_name)
    state = find_proof(replacement, last, node, now, snapshot.rollout.spec.release.unproven)
    if state.proof is not replacement.proof and last is None and not _whereabouts(replacement, snapshot):
        text = "nobody knows on which node its pod ran, and the devices are not published now: nothing can be waited for"
        state = ProofState(None, message=text)
    if pod is not None and not pod.terminal:
        return Verdict(_terminating(pod, replacement, snapshot, now), state.proof, exposed=False)
    settling = _settling(replacement, snapshot.rollout.spec.release.settle_seconds, now)
    check = checking(replacement, snapshot, now)
    if kept(replacement, snapshot):
        return _judge_held(state, settling or check)
    allocated = _allocated(replacement, snapshot, now)
    if allocated is not None:
        # Race: the pod is gone, so its claim may be deallocated at any moment, before we hear of it.
        return Verdict(
            allocated, state.proof, exposed=state.proof is None, hold_ended=state.proof is not None
        )
    if state.proof is None:
        return Verdict(Obstacle(NotFree.RELEASE_UNPROVEN, state.message, state.due), None, exposed=True)
    unavailable = _unavailable(replacement, snapshot)
    if unavailable is not None:
        return Verdict(unavailable, state.proof, exposed=False, hold_ended=True)
    # Whoever opens now could be given the device that is to be left alone.
    left_alone = settling or check
    return Verdict(left_alone, state.proof, exposed=left_alone is not None, hold_ended=True)


def _whereabouts(replacement: Replacement, snapshot: Snapshot) -> bool:
    """Whether it is known where the departed pod ran, or that its devices are of no node in particular."""
    pools = {(d.driver, d.pool) for d in devices_of(replacement.claims)}
    published = {(s.driver, s.pool) for s in snapshot.slices}
    return bool(replacement.node_name) or pools <= published


def _judge_held(state: ProofState, left_alone: Obstacle | None) -> Verdict:
    """Return the verdict on devices that our hold keeps from everybody: nothing is exposed, whatever is missing."""
    if state.proof is None:
        obstacle = Obstacle(NotFree.RELEASE_UNPROVEN, f"{state.message}. They are held meanwhile", state.due)
        return Verdict(obstacle, None, exposed=False)
    if left_alone is not None:
        return Verdict(left_alone, state.proof, exposed=False)
    text = "the node let go of the devices, and our hold on them is being taken away"
    return Verdict(Obstacle(NotFree.HOLD_ENDING, text), state.proof, exposed=False, hold_ended=True)


def _settling(replacement: Replacement, seconds: int, now: datetime) -> Obstacle | None:
    """Return that free devices are to be left alone; the moment since when they are is the stage's."""
    if not seconds or replacement.released_at is not None:
        return None
    since = replacement.stage_started_at if replacement.stage is Stage.SETTLING else now
    if replacement.stage is Stage.SETTLING and not since.microsecond:
        since += timedelta(seconds=1)  # stored times are cut to whole seconds
    due = since + timedelta(seconds=seconds)
    if now >= due:
        return None
    text = f"the devices are free since {since:%H:%M:%S} UTC, and left alone for settleSeconds ({seconds} s)"
    return Obstacle(NotFree.SETTLING, text, due)


def _terminating(pod: PodRecord, replacement: Replacement, snapshot: Snapshot, now: datetime) -> Obstacle:
    """Return what a pod that has not ended waits for."""
    where = f"pod {pod.name} is terminating on node {pod.node}"
    for device in devices_of(replacement.claims):
        silent = unpublished(device, pool_of(device, snapshot))
        if silent is not None and silent.reason is NotFree.POOL_MISSING:
            return Obstacle(
                NotFree.DRIVER_UNAVAILABLE,
                f"{where}, and cannot end before its devices are unprepared: {silent.message}",
            )
    if pod.deletion is None:
        return Obstacle(NotFree.POD_TERMINATING, where)
    # deletionTimestamp is when the grace period ends, so this is twice the period; and at least some time for the driver.
    slack = min(timedelta(seconds=_LEAST_SLACK), stalled_after(snapshot))
    late = pod.deletion + max(timedelta(seconds=pod.deletion_grace or 0), slack)
    if now < late:
        return Obstacle(NotFree.POD_TERMINATING, where, late)
    return Obstacle(
        NotFree.TERMINATION_STUCK,
        f"{where} since long after its grace period ({pod.deletion_grace or 0} s): a process that cannot die, or a driver "
        "that fails to unprepare. See the kubelet's and the driver's log there; deleting it by force would hand on "
        "devices that are in use",
    )


def stalled_after(snapshot: Snapshot) -> timedelta:
    """Return after which time a step that others take in seconds counts as stuck: a part of the time for a release."""
    return timedelta(seconds=snapshot.rollout.spec.release.timeout_seconds / _PARTS)


def _allocated(replacement: Replacement, snapshot: Snapshot, now: datetime) -> Obstacle | None:
    for held in replacement.claims:
        why = snapshot.unreadable.get(f"ResourceClaim/{held.name}")
        if why is not None:
            return Obstacle(NotFree.STATE_UNKNOWN, f"ResourceClaim {held.name} cannot be read: {why}")
        claim = snapshot.claims.get(held.name)
        if claim is None or claim.uid != held.uid or claim.uses is None:
            continue
        if not taken_over(claim, replacement.pod_uid, snapshot):
            return _still_allocated(claim, replacement, snapshot, now)
    return None


def _still_allocated(
    claim: ClaimRecord, replacement: Replacement, snapshot: Snapshot, now: datetime
) -> Obstacle:
    text = f"ResourceClaim {claim.name} is still allocated{_by(claim)}"
    since = replacement.stage_started_at if replacement.stage is Stage.RELEASING else now
    late = since + stalled_after(snapshot)
    present = {p.uid for p in (*snapshot.pods, *snapshot.former) if not p.terminal}
    # An entry that is not a pod's is somebody's own business.
    if any(entry.resource != "pods" or entry.uid in present for entry in claim.reserved_for):
        return Obstacle(NotFree.CLAIM_ALLOCATED, text)
    if now < late:
        return Obstacle(NotFree.CLAIM_ALLOCATED, text, late)
    if claim.reserved_for:
        reason, why = NotFree.ORPHANED_CLAIM, "that do not exist any more, or have ended"
    else:
        reason, why = NotFree.DEALLOCATION_STALLED, ", though nobody reserves it"
        if claim.finalizers:
            why += f"; its finalizers are {', '.join(claim.finalizers)}"
    return Obstacle(
        reason,
        f"{text}{why if why[0] in ',;' else ' ' + why}, since {since:%H:%M:%S} UTC. Is the controller manager running?",
    )


def _by(claim: ClaimRecord) -> str:
    who = ", ".join(f"{r.resource} {r.name}" for r in claim.reserved_for)
    return f" and reserved for {who}" if who else ""


def _unavailable(replacement: Replacement, snapshot: Snapshot) -> Obstacle | None:
    """Return what keeps the successor's claims from the devices; nothing where they went with their node for good.

    They were let go before: the successor takes others then, or (pinned to the node) waits for the node.
    """
    if replacement.node_name and replacement.node_name not in snapshot.nodes:
        return None
    asked = _requests(replacement, snapshot)
    for held in replacement.claims:
        claim = snapshot.claims.get(held.name)
        if claim is not None and claim.uid == held.uid and claim.uses is not None:
            continue  # taken over as it is: nothing is to be allocated
        for use in held.devices:
            device = Device(use.driver, use.pool, use.device)
            named = tuple(r for r in asked if r.name == use.request)
            # So do pods of workloads that others of our kind manage: each is counted by its own, and two that wait for
            # what the other one got would wait for ever, while just as many devices are free.
            pool = _pool(device, replacement, snapshot, but=snapshot.peers)
            if (
                not asked
            ):  # whether a successor that has no claims yet tolerates our own taint is not its obstacle
                ours = {rule.uid for rule in snapshot.reservations}
                pool = replace(pool, rules=tuple(rule for rule in pool.rules if rule.uid not in ours))
            obstacle = obstacle_to(device, pool, named or asked)
            if obstacle is not None:
                return obstacle
    return None


def _requests(replacement: Replacement, snapshot: Snapshot) -> tuple[DeviceRequest, ...]:
    """Return what the successor's claims ask for; nothing while they have not been made."""
    claims = (c for c in snapshot.claims.values() if c.owner_pod_uid == replacement.replacement_pod_uid)
    return tuple(request for claim in claims if claim.owner_pod_uid for request in claim.requests)


def _pool(
    device: Device, replacement: Replacement, snapshot: Snapshot, *, but: frozenset[str] = frozenset()
) -> Pool:
    """Return the device's pool as others hold it; `but` are UIDs of pods that do not count.

    The workload's own pods swap devices when two of them left: S3 counts whoever holds one, and another is free then.
    Waiting for the sibling that was quicker would be for ever.
    """
    local = all(s.node for s in snapshot.slices if (s.driver, s.pool) == (device.driver, device.pool))
    own = {c.uid for c in replacement.claims}
    siblings = {p.uid for p in snapshot.pods}
    beside = {
        claim.uid: claim
        for held, claims in snapshot.holders.items()
        if (held.driver, held.pool) == (device.driver, device.pool)
        for claim in claims
        if claim.uid not in own and claim.owner_pod_uid not in siblings | but
    }
    pool = pool_of(device, snapshot, beside.values())
    # The snapshot has every node that a slice names, and not those that a selector would find.
    return replace(pool, nodes=tuple(snapshot.nodes.values())) if local else pool


def pool_of(device: Device, snapshot: Snapshot, claims: Iterable[ClaimRecord] = ()) -> Pool:
    """Return the pool that the device is of, as these claims hold it."""
    name = (device.driver, device.pool)
    return Pool(
        *name,
        tuple(s for s in snapshot.slices if (s.driver, s.pool) == name),
        snapshot.taint_rules,
        tuple(
            h
            for h in holders_of(claims, snapshot.rollout.namespace)
            if (h.use.device.driver, h.use.device.pool) == name
        ),
    )


def lost(replacement: Replacement, snapshot: Snapshot) -> Obstacle | None:
    """Return who has a device that was free when the successor's gate opened; None if nobody but the successor.

    Race: an open pod and a stranger that waits as well are equals to the scheduler.
    """
    found = (taken(device, _pool(device, replacement, snapshot)) for device in devices_of(replacement.claims))
    return next((obstacle for obstacle in found if obstacle is not None), None)


def devices_of(claims: Iterable[HeldClaim]) -> tuple[Device, ...]:
    """Return the devices of the claims, each once."""
    return tuple(dict.fromkeys(Device(d.driver, d.pool, d.device) for c in claims for d in c.devices))
