"""Keep the list of replacements true: who left, what they held, and who succeeds whom.

Every departure counts, whatever caused it: a deletion of ours, a crash, a drain, a scale-down. A departed pod stays on
the list until its devices are proven free and its successor (if the workload wants one) is healthy.

What if the process dies, or an event was missed? The list is stored before anything is touched, so a restarted operator
finds what was in flight; a gated pod whose predecessor nobody saw gets an entry without a pod, whose release is
unproven from first sight. Nothing is concluded from an absent entry.
"""

from collections.abc import Iterable, Set
from datetime import datetime, timedelta

from accelerator_rollout.api.models import (
    Cause,
    HeldClaim,
    HeldDevice,
    Proof,
    Replacement,
    Stage,
    StageEntry,
)
from accelerator_rollout.decide.holds import held
from accelerator_rollout.decide.proof import ended_in_order
from accelerator_rollout.decide.reasons import Waiting
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.decide.stranded import by_node, stranded
from accelerator_rollout.names import GATE
from accelerator_rollout.records import ClaimRecord, PodRecord, Succession

UNKNOWN_GRACE = 300  # seconds, of a pod nobody saw whose workload is gone, too: more than most ask for
UNKNOWN_PREFIX = "unknown-"  # id of an entry without a known pod: this and the UID of the gated pod


def gated(pod: PodRecord) -> bool:
    """Whether our gate keeps the pod from the scheduler."""
    return GATE in pod.gates


def departed(pod: PodRecord) -> bool:
    """Whether the pod has left its workload, or is leaving."""
    return pod.terminating or pod.terminal


def record(pod: PodRecord, snapshot: Snapshot, cause: Cause, stage: Stage, now: datetime) -> Replacement:
    """Return a new entry for `pod`, with all that cannot be seen again once it is gone."""
    place = pod.place if by_node(snapshot) else pod.node
    node = snapshot.nodes.get(place)
    return Replacement(
        id=pod.uid,
        pod_uid=pod.uid,
        pod_name=pod.name,
        node_name=place,
        node_uid=node.uid if node else "",
        boot_id=node.boot_id if node else "",
        grace_seconds=pod.grace_seconds,
        stage=stage,
        cause=cause,
        stage_started_at=now,
        started_at=now,
        claims=_held(pod, snapshot),
        stage_times=(StageEntry(stage=stage, at=now),),
    )


def _held(pod: PodRecord, snapshot: Snapshot) -> tuple[HeldClaim, ...]:
    """Return the pod's claims with the devices they hold now; administrative access holds nothing (KEP-5018)."""
    held = []
    for name in pod.claim_names:
        claim = snapshot.claims.get(name)
        if claim is None or (claim.owner_pod_uid and claim.owner_pod_uid != pod.uid):
            continue
        held.append(HeldClaim(name=claim.name, uid=claim.uid, devices=_devices(claim)))
    return tuple(held)


def _devices(claim: ClaimRecord) -> tuple[HeldDevice, ...]:
    return tuple(
        HeldDevice(
            driver=use.device.driver,
            pool=use.device.pool,
            device=use.device.name,
            share_id=use.share_id,
            request=use.request,
        )
        for use in claim.uses or ()
        if not use.admin
    )


def track(snapshot: Snapshot, now: datetime) -> tuple[Replacement, ...]:
    """Return the stored entries brought up to date, and an entry for every departure that has none.

    Entries of pods that have not left (Selected) are kept as they are; `plan` decides about those anew.
    """
    present = (*snapshot.pods, *snapshot.former)
    pods = {p.uid: p for p in present}
    vanished = {v.pod.uid: v for v in snapshot.vanished}
    entries = {e.id: e for e in snapshot.rollout.status.replacements}
    for leaving in sorted(filter(departed, present), key=_age):
        if leaving.uid not in entries and _matters(leaving, snapshot):
            entries[leaving.uid] = record(leaving, snapshot, Cause.DEPARTURE, Stage.TERMINATING, now)
    for gone in snapshot.vanished:
        if gone.pod.uid not in entries and (
            _matters(gone.pod, snapshot) or _to_be_left_alone(gone.pod, snapshot)
        ):
            entry = record(gone.pod, snapshot, Cause.DEPARTURE, Stage.RELEASING, now)
            entries[entry.id] = entry.model_copy(update={"vanished_at": _up(gone.at)})
    for claim in _orphaned(snapshot, entries):
        entries[claim.owner_pod_uid] = _told_by_hold(claim, snapshot, now)
    updated = []
    for entry in entries.values():
        pod = pods.get(entry.pod_uid)
        if pod is None and not entry.node_name:
            entry = _placed(entry, snapshot)  # noqa: PLW2901
        if pod is not None:
            updated.append(_refreshed(entry, pod, snapshot))
        elif entry.vanished_at is None:
            at = vanished[entry.pod_uid].at if entry.pod_uid in vanished else now
            updated.append(entry.model_copy(update={"vanished_at": _up(at)}))
        else:
            updated.append(entry)
    return _attribute(updated, snapshot, pods)


def _orphaned(snapshot: Snapshot, known: Iterable[str]) -> tuple[ClaimRecord, ...]:
    """Return the claims with our hold whose pod is gone and has no entry: it departed while nobody watched."""
    there = {p.uid for p in (*snapshot.pods, *snapshot.former)} | set(known)
    return tuple(
        claim
        for claim in sorted(snapshot.claims.values(), key=lambda c: c.name)
        if claim.owner_pod_uid and claim.owner_pod_uid not in there and held(claim, snapshot.rollout.uid)
    )


def _told_by_hold(claim: ClaimRecord, snapshot: Snapshot, now: datetime) -> Replacement:
    """Return the entry of a pod that nobody saw go: what its held claim still tells. Its end counts from now on."""
    entry = Replacement(
        id=claim.owner_pod_uid,
        pod_uid=claim.owner_pod_uid,
        pod_name=claim.owner_pod_name,
        grace_seconds=snapshot.workload.template.grace_seconds if snapshot.workload else UNKNOWN_GRACE,
        stage=Stage.RELEASING,
        cause=Cause.DEPARTURE,
        stage_started_at=now,
        started_at=now,
        vanished_at=_up(now),
        claims=(HeldClaim(name=claim.name, uid=claim.uid, devices=_devices(claim)),),
        stage_times=(StageEntry(stage=Stage.RELEASING, at=now),),
    )
    return _placed(entry, snapshot)


def _placed(entry: Replacement, snapshot: Snapshot) -> Replacement:
    """Return the entry of a pod that nobody saw go with the node that its devices are local to, once they tell it."""
    pools = {(d.driver, d.pool) for c in entry.claims for d in c.devices}
    nodes = sorted({s.node for s in snapshot.slices if (s.driver, s.pool) in pools and s.node})
    if not nodes:
        return entry
    node = snapshot.nodes.get(nodes[0])
    return entry.model_copy(update={"node_name": nodes[0], "node_uid": node.uid if node else ""})


def _matters(pod: PodRecord, snapshot: Snapshot) -> bool:
    """Whether a leaving pod may hold a device, or have held one that nothing proves free: a gated pod never does."""
    names = set(pod.claim_names)
    holds = any(name in names and claim.uses is not None for name, claim in snapshot.claims.items())
    # What an ended pod held and let go in order is nobody's concern any more: its object may lie about for days.
    return holds or (pod.bound and not ended_in_order(pod))


def _to_be_left_alone(pod: PodRecord, snapshot: Snapshot) -> bool:
    """Whether devices that a pod let go in order, before we looked, are still to settle, or to be checked.

    Race: a StatefulSet's or DaemonSet's controller deletes a pod that its kubelet evicted, and the claim goes as quickly.
    """
    release = snapshot.rollout.spec.release
    return (
        pod.bound
        and bool(pod.claims or pod.extended_claim)
        and bool(release.settle_seconds or release.checks)
    )


def _refreshed(entry: Replacement, pod: PodRecord, snapshot: Snapshot) -> Replacement:
    """Note what a pod got after it was recorded: a node, claims, devices. What was noted is never forgotten."""
    known = {c.uid: c for c in entry.claims}
    for claim in _held(pod, snapshot):
        if claim.devices or claim.uid not in known:
            known[claim.uid] = claim
    update: dict[str, object] = {"claims": tuple(known.values())}
    node = snapshot.nodes.get(pod.node)
    if pod.bound and not entry.node_name:
        update["node_name"] = pod.node
    # A pod that lives on after a reboot runs under the new boot; one that is leaving is not started again.
    if node is not None and (not entry.boot_id or not departed(pod)):
        update |= {"node_uid": node.uid, "boot_id": node.boot_id}
    changed = {key: value for key, value in update.items() if getattr(entry, key) != value}
    return entry.model_copy(update=changed) if changed else entry


def _attribute(
    entries: list[Replacement], snapshot: Snapshot, pods: dict[str, PodRecord]
) -> tuple[Replacement, ...]:
    """Attribute departures during our step to the step: a Deployment may choose other pods than we expected."""

    def waits(entry: Replacement) -> bool:
        pod = pods.get(entry.pod_uid)
        chosen = entry.stage is Stage.SELECTED and entry.reason != Waiting.NEXT_IN_LINE
        return chosen and pod is not None and not departed(pod)

    expected = [e for e in entries if waits(e)]
    if not expected or _succession(snapshot) is not Succession.BY_AGE:
        return tuple(entries)
    stored = {e.id for e in snapshot.rollout.status.replacements}
    surprises = (e for e in entries if e.id not in stored)
    instead = {surprise.id: other for surprise, other in zip(surprises, expected, strict=False)}
    spared = {other.id for other in instead.values()}
    return tuple(
        e.model_copy(update={"cause": Cause.ROLLOUT, "started_at": instead[e.id].started_at})
        if e.id in instead
        else e
        for e in entries
        if e.id not in spared
    )


def match(entries: Iterable[Replacement], snapshot: Snapshot, now: datetime) -> tuple[Replacement, ...]:
    """Return the entries linked to their successors, and one more for each gated pod of unknown descent.

    A StatefulSet's pod succeeds its namesake, a DaemonSet's whoever was on its node, a Deployment's oldest gated pod
    the oldest departure. A link stays as long as the successor lives. Nobody has to wait for a stranded departure.
    """
    pods = {p.uid: p for p in snapshot.pods}
    linked: list[Replacement] = []
    for entry in entries:
        successor = pods.get(entry.replacement_pod_uid)
        if entry.replacement_pod_uid and (
            successor is None or departed(successor) or stranded(entry, snapshot)
        ):
            if entry.released_at is not None and _was_open(entry, snapshot):
                continue  # its successor got the devices and has an entry of its own
            entry = entry.model_copy(update={"replacement_pod_uid": "", "replacement_pod_name": ""})  # noqa: PLW2901
        linked.append(entry)
    free = _unclaimed(linked, snapshot)
    present = pods | {p.uid: p for p in snapshot.former}
    result: list[Replacement] = []
    for entry in sorted(linked, key=lambda e: (e.started_at, e.id)):
        if entry.replacement_pod_uid or not _has_left(entry, present) or stranded(entry, snapshot):
            result.append(entry)
            continue
        heir = _heir(entry, free, snapshot)
        if heir is None:
            if not _held_nothing(entry, snapshot):
                result.append(entry)
        else:
            free.remove(heir)
            result.append(_linked(entry, heir))
    result += _ended_before(free, {e.id for e in linked}, snapshot, now)
    orphans = [pod for pod in free if gated(pod) and not _known_to_be_new(pod, snapshot)]
    return (*(e for e in result if not _moot(e, pods)), *(_unknown(pod, snapshot, now) for pod in orphans))


def _ended_before(
    free: list[PodRecord], known: Set[str], snapshot: Snapshot, now: datetime
) -> list[Replacement]:
    """Return entries for gated pods that succeed one that ended in order before we looked, and take those from `free`.

    Race: what a kubelet evicts stays as an object, for days, and its claim goes at once. Only a successor of its own makes
    it a departure again, and only as long as its devices may have to be left alone: else each look would note it anew.
    """
    found: list[Replacement] = []
    for pod in sorted(snapshot.pods, key=_age):
        if pod.uid in known or not pod.terminal or not _to_be_left_alone(pod, snapshot):
            continue
        if pod.ended_at is None or now >= pod.ended_at + _left_alone_for(snapshot):
            continue
        entry = record(pod, snapshot, Cause.DEPARTURE, Stage.RELEASING, now)
        heir = _heir(entry, free, snapshot)
        if heir is not None and gated(heir):
            free.remove(heir)
            found.append(_linked(entry, heir))
    return found


def _left_alone_for(snapshot: Snapshot) -> timedelta:
    """Return for how long after a pod's end its devices may have to be left alone; whole seconds are cut, so one more."""
    release = snapshot.rollout.spec.release
    seconds = max(release.settle_seconds, release.timeout_seconds if release.checks else 0)
    return timedelta(seconds=seconds + 1)


def _was_open(entry: Replacement, snapshot: Snapshot) -> bool:
    """Whether the former successor may have taken devices, as far as we can know."""
    seen = [p for p in snapshot.pods if p.uid == entry.replacement_pod_uid]
    seen += [v.pod for v in snapshot.vanished if v.pod.uid == entry.replacement_pod_uid]
    if seen:
        return any(not gated(p) for p in seen)
    return entry.stage in (Stage.SCHEDULING, Stage.PREPARING, Stage.WARMING_UP, Stage.SOAKING, Stage.DONE)


def _held_nothing(entry: Replacement, snapshot: Snapshot) -> bool:
    """Whether nothing hangs on the entry: a gated pod that we replaced, whose predecessor waits for the next one."""
    if any(claim.devices for claim in entry.claims):
        return False
    # Allocated and never bound: between those two it may go, and its devices are free only when its claim is.
    there = ((held, snapshot.claims.get(held.name)) for held in entry.claims)
    if any(claim is not None and claim.uid == held.uid and claim.uses is not None for held, claim in there):
        return False
    gone = next((v.pod for v in snapshot.vanished if v.pod.uid == entry.pod_uid), None)
    return entry.proof is Proof.NEVER_BOUND or (gone is not None and not gone.bound)


def _has_left(entry: Replacement, pods: dict[str, PodRecord]) -> bool:
    pod = pods.get(entry.pod_uid)
    return pod is None or departed(pod)


def _unclaimed(entries: Iterable[Replacement], snapshot: Snapshot) -> list[PodRecord]:
    """Return the live pods that succeed nobody yet, oldest first; one that was chosen to go may be a successor too."""
    taken = {e.replacement_pod_uid for e in entries}
    return sorted((p for p in snapshot.pods if p.live and p.uid not in taken), key=_age)


def _heir(entry: Replacement, free: list[PodRecord], snapshot: Snapshot) -> PodRecord | None:
    match _succession(snapshot):
        case Succession.BY_NAME:
            return next((p for p in free if p.name == entry.pod_name), None)
        case Succession.BY_NODE:
            return next((p for p in free if p.place == entry.node_name), None)
        case Succession.BY_AGE:
            return next((p for p in free if gated(p)), None)


def _succession(snapshot: Snapshot) -> Succession:
    return snapshot.workload.succession if snapshot.workload else Succession.BY_AGE


def _moot(entry: Replacement, pods: dict[str, PodRecord]) -> bool:
    """Whether an entry of unknown descent has lost the pod it was made for, with nothing left to prove.

    Unproven, it stays: a gated pod that is deleted and made again has the same unknown predecessor.
    """
    if not entry.id.startswith(UNKNOWN_PREFIX) or entry.replacement_pod_uid:
        return False
    return entry.proof is not None and entry.id.removeprefix(UNKNOWN_PREFIX) not in pods


def _known_to_be_new(pod: PodRecord, snapshot: Snapshot) -> bool:
    """Whether a gated pod certainly succeeds nobody whose departure we missed.

    Either we watched without a gap since before it was created (then its predecessor would have an entry), or it is
    older than our first sight of the workload. API times have whole seconds, so "after" asks for a later second.
    """
    watched = snapshot.watched_since
    if watched is not None and pod.created > watched:
        return True
    adopted = snapshot.rollout.status.adopted_at
    return adopted is not None and pod.created <= adopted


def _unknown(pod: PodRecord, snapshot: Snapshot, now: datetime) -> Replacement:
    grace = snapshot.workload.template.grace_seconds if snapshot.workload else pod.grace_seconds
    place = pod.place if by_node(snapshot) else ""
    node = snapshot.nodes.get(place)
    entry = Replacement(
        id=UNKNOWN_PREFIX + pod.uid,
        pod_name=pod.name if _succession(snapshot) is Succession.BY_NAME else "",
        node_name=place,  # whoever it was ran there, so that a reboot from now on proves its end
        node_uid=node.uid if node else "",
        boot_id=node.boot_id if node else "",
        grace_seconds=max(grace, pod.grace_seconds),
        stage=Stage.RELEASING,
        cause=Cause.DEPARTURE,
        stage_started_at=now,
        started_at=now,
        vanished_at=_up(now),
        stage_times=(StageEntry(stage=Stage.RELEASING, at=now),),
    )
    return _linked(entry, pod)


def _up(moment: datetime) -> datetime:
    """Return the next whole second: stored times are cut, and a wait must not end early for it."""
    return moment if not moment.microsecond else moment.replace(microsecond=0) + timedelta(seconds=1)


def _linked(entry: Replacement, pod: PodRecord) -> Replacement:
    return entry.model_copy(update={"replacement_pod_uid": pod.uid, "replacement_pod_name": pod.name})


def _age(pod: PodRecord) -> tuple[datetime, str]:
    return pod.created, pod.name
