"""Are the devices of a departed pod free, and if not, why not: each "no" names the object that it hangs on.

The rules are the scheduler's own (KEP-4381): only `status.allocation` counts, an admin access result does not; a pool
is its highest generation, complete with as many slices as each of them announces; taints of the slice and of
DeviceTaintRules (KEP-5055) keep a device from being allocated.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from accelerator_rollout.api.models import HeldClaim, Proof, Replacement, Stage
from accelerator_rollout.decide.proof import find_proof
from accelerator_rollout.decide.reasons import NotFree
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.records import ClaimRecord, Device, PodRecord, SliceRecord, Taint, TaintRuleRecord

# What may become of a device that was let go: a matter for whoever wants it next, and for nobody else.
_SINCE_THEN: Final = frozenset(
    (
        NotFree.DEVICE_TAKEN,
        NotFree.POOL_MISSING,
        NotFree.POOL_INCOMPLETE,
        NotFree.POOL_CONTRADICTORY,
        NotFree.DEVICE_MISSING,
        NotFree.DEVICE_TAINTED,
    )
)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why devices are not free: the cause, the sentence for people, and when time alone may change it."""

    reason: NotFree
    message: str
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """`obstacle` is None exactly if the devices are released with `proof` and allocatable.

    `exposed` is true while the scheduler could hand out a device that nobody should have yet: the pod is gone without
    proof, and its claim unallocated, or about to be; or the device settles. Nothing may be opened then that could take it.
    """

    obstacle: Obstacle | None
    proof: Proof | None
    exposed: bool

    @property
    def released(self) -> bool:
        """Whether a successor may have the devices."""
        return self.obstacle is None

    @property
    def let_go(self) -> bool:
        """Whether the departed pod itself holds nothing any more, whatever became of the devices since."""
        return self.proof is not None and (self.obstacle is None or self.obstacle.reason in _SINCE_THEN)


def last_known(snapshot: Snapshot, pod_uid: str) -> PodRecord | None:
    """Return the pod's last known state: as it is, or as it was when it vanished."""
    for pod in snapshot.pods:
        if pod.uid == pod_uid:
            return pod
    return next((v.pod for v in snapshot.vanished if v.pod.uid == pod_uid), None)


def judge(replacement: Replacement, snapshot: Snapshot, now: datetime) -> Verdict:
    """Return whether the devices that `replacement`'s pod held are free for its successor."""
    pod = next((p for p in snapshot.pods if p.uid == replacement.pod_uid), None)
    state = find_proof(
        replacement,
        last_known(snapshot, replacement.pod_uid),
        snapshot.nodes.get(replacement.node_name),
        now,
        snapshot.rollout.spec.release.unproven.extra_seconds,
    )
    if pod is not None and not pod.terminal:
        obstacle = Obstacle(NotFree.POD_TERMINATING, f"pod {pod.name} is terminating on node {pod.node}")
        return Verdict(obstacle, state.proof, exposed=False)
    allocated = _allocated(replacement, snapshot)
    if allocated is not None:
        # Race: the pod is gone, so its claim may be deallocated at any moment, before we hear of it.
        return Verdict(allocated, state.proof, exposed=state.proof is None)
    if state.proof is None:
        return Verdict(Obstacle(NotFree.RELEASE_UNPROVEN, state.message, state.due), None, exposed=True)
    unavailable = _unavailable(replacement, snapshot)
    if unavailable is not None:
        return Verdict(unavailable, state.proof, exposed=False)
    settling = _settling(replacement, snapshot.rollout.spec.release.settle_seconds, now)
    # Whoever opens now could be given the device that is to be left alone.
    return Verdict(settling, state.proof, exposed=settling is not None)


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


def _allocated(replacement: Replacement, snapshot: Snapshot) -> Obstacle | None:
    for held in replacement.claims:
        why = snapshot.unreadable.get(f"ResourceClaim/{held.name}")
        if why is not None:
            return Obstacle(NotFree.STATE_UNKNOWN, f"ResourceClaim {held.name} cannot be read: {why}")
        claim = snapshot.claims.get(held.name)
        if claim is not None and claim.uid == held.uid and claim.uses is not None:
            return Obstacle(
                NotFree.CLAIM_ALLOCATED, f"ResourceClaim {held.name} is still allocated{_by(claim)}"
            )
    return None


def _by(claim: ClaimRecord) -> str:
    who = ", ".join(f"{r.resource} {r.name}" for r in claim.reserved_for)
    return f" and reserved for {who}" if who else ""


def _unavailable(replacement: Replacement, snapshot: Snapshot) -> Obstacle | None:
    """Return what keeps a new claim from the devices, in the order in which it would be repaired."""
    for device in devices_of(replacement.claims):
        taken = _taken(device, replacement, snapshot)
        if taken is not None:
            return taken
        obstacle = _unpublished(device, snapshot.slices, snapshot.taint_rules)
        if obstacle is not None:
            return obstacle
    return None


def lost(replacement: Replacement, snapshot: Snapshot) -> Obstacle | None:
    """Return who has a device that was free when the successor's gate opened; None if nobody but the successor.

    Race: an open pod and a stranger that waits as well are equals to the scheduler.
    """
    taken = (_taken(device, replacement, snapshot) for device in devices_of(replacement.claims))
    return next((obstacle for obstacle in taken if obstacle is not None), None)


def devices_of(claims: Iterable[HeldClaim]) -> tuple[Device, ...]:
    """Return the devices of the claims, each once."""
    return tuple(dict.fromkeys(Device(d.driver, d.pool, d.device) for c in claims for d in c.devices))


def _taken(device: Device, replacement: Replacement, snapshot: Snapshot) -> Obstacle | None:
    own = {c.uid for c in replacement.claims}
    # The workload's own pods swap devices when two of them left: S3 counts whoever holds one, and another is free then.
    # Waiting for the sibling that was quicker would be for ever.
    siblings = {p.uid for p in snapshot.pods}
    for claim in snapshot.holders.get(device, ()):
        if claim.uid in own or claim.owner_pod_uid in siblings:
            continue
        if not any(use.device == device and not use.admin for use in claim.uses or ()):
            continue
        same = claim.namespace == snapshot.rollout.namespace
        # Names of other namespaces are nobody's business here.
        who = f"ResourceClaim {claim.name}" if same else "a claim of another namespace"
        return Obstacle(NotFree.DEVICE_TAKEN, f"device {device} was allocated to {who} meanwhile")
    return None


def _unpublished(
    device: Device, slices: Iterable[SliceRecord], rules: Iterable[TaintRuleRecord]
) -> Obstacle | None:
    pool = [s for s in slices if (s.driver, s.pool) == (device.driver, device.pool)]
    name = f"pool {device.pool} of driver {device.driver}"
    if not pool:
        return Obstacle(
            NotFree.POOL_MISSING, f"{name} has no ResourceSlice: is the driver running on that node?"
        )
    generation = max(s.generation for s in pool)
    newest = [s for s in pool if s.generation == generation]
    counts = {s.slice_count for s in newest}
    where = f"{name} at generation {generation}"
    if len(counts) > 1:
        said = " and ".join(str(n) for n in sorted(counts))
        return Obstacle(
            NotFree.POOL_CONTRADICTORY, f"{where} has slices that disagree on their count: {said}"
        )
    (count,) = counts
    if len(newest) < count:
        return Obstacle(NotFree.POOL_INCOMPLETE, f"{where} shows {len(newest)} of {count} ResourceSlices")
    published = [d for s in newest for d in s.devices]
    if len(newest) > count or len({d.name for d in published}) < len(published):
        return Obstacle(
            NotFree.POOL_CONTRADICTORY, f"{where} has more slices than {count}, or a device twice"
        )
    found = next((d for d in published if d.name == device.name), None)
    if found is None:
        return Obstacle(NotFree.DEVICE_MISSING, f"device {device.name} is not in {where}")
    taint = next((t for t in (*found.taints, *_ruled(device, rules)) if t.blocks), None)
    if taint is not None:
        return Obstacle(NotFree.DEVICE_TAINTED, f"device {device} is tainted {taint.key}:{taint.effect}")
    return None


def _ruled(device: Device, rules: Iterable[TaintRuleRecord]) -> Iterable[Taint]:
    for rule in rules:
        wanted = ((rule.driver, device.driver), (rule.pool, device.pool), (rule.device, device.name))
        if all(not asked or asked == have for asked, have in wanted):
            yield rule.taint
