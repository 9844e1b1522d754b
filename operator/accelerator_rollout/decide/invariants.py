"""The promises S1 to S10 as predicates over one decision: what `plan` may never ask for, whatever the world looks like.

Deliberately naive, and apart from the code that decides: everything is counted again from the records, slowly and
without its short cuts, so that one mistake cannot hide in both. Used by unit, model and cluster tests alike.

What one decision cannot show is not here: S7 (no write after the Lease's deadline) is the executor's, and of S2 the
predicate sees that a proof is new and well founded, or that it was stored before.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property

from accelerator_rollout.api.conditions import Condition, ConditionStatus, ConditionType
from accelerator_rollout.api.models import (
    Cause,
    GuardrailMode,
    HeldClaim,
    HeldDevice,
    Placement,
    Proof,
    Replacement,
    Stage,
    UnprovenPolicy,
)
from accelerator_rollout.decide.actions import (
    Action,
    AddFinalizer,
    AddGuard,
    CheckHealth,
    EndHold,
    EndReservation,
    EvictPod,
    HoldClaim,
    OpenGate,
    PreferVictim,
    ProbeGate,
    RemoveFinalizer,
    RemoveGuard,
    ReserveDevice,
    RestoreTemplate,
    RunChecks,
    UnmanageDeployment,
    UnpauseDeployment,
    victims_of,
)
from accelerator_rollout.decide.outcome import EventType, Plan
from accelerator_rollout.decide.snapshot import Freshness, GateSource, Snapshot
from accelerator_rollout.names import FINALIZER, GATE, GATE_LABEL, GATE_LABEL_VALUE, GROUP, GUARD_FINALIZER
from accelerator_rollout.records import (
    ClaimRecord,
    DaemonSetRecord,
    DeploymentRecord,
    Device,
    DeviceRequest,
    Phase,
    PodRecord,
    StatefulSetRecord,
    Taint,
    Template,
)

_MOST_AGROUND = 20  # departures on nodes that are gone, of a DaemonSet without holds


class Promise(StrEnum):
    """The promises of the design that hold so far."""

    DEVICES_FREE = "S1"
    RELEASE_PROVEN = "S2"
    WITHIN_BUDGET = "S3"
    OWN_OBJECTS_ONLY = "S4"
    NO_SECOND_DOWN = "S5"
    FAIL_CLOSED = "S6"
    NO_FALSE_SUCCESS = "S8"
    TAKE_BACK_OUR_OWN = "S9"
    SHARED_BUDGET = "S10"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise, in a sentence that names the object."""

    promise: Promise
    sentence: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.sentence}"


def violations(snapshot: Snapshot, plan: Plan, now: datetime) -> tuple[Violation, ...]:
    """Return every promise that carrying out `plan` in the world of `snapshot` at `now` would break."""
    case = _Case(snapshot, plan, now)
    checks = (
        _devices_free(case),
        _release_proven(case),
        _within_budget(case),
        _departures_remembered(case),
        _own_objects_only(case),
        _no_second_down(case),
        _fail_closed(case),
        _asked_once(case),
        _no_false_success(case),
        _take_back_our_own(case),
        _held_until_proven(case),
        _in_turn(case),
    )
    return tuple(violation for check in checks for violation in check)


@dataclass(frozen=True, slots=True)
class _Departure:
    """A pod that left, told from everything that is known: its stored entry, its object, its last known state."""

    uid: str  # "" where nobody saw the pod
    name: str
    entry: Replacement | None  # as stored before this decision
    pod: PodRecord | None  # present and leaving, or as it was when it vanished
    present: bool
    vanished_at: datetime | None
    claims: tuple[HeldClaim, ...]

    @property
    def label(self) -> str:
        return f"pod {self.name or self.uid or 'unknown'}"


class _Case:
    """One decision, with what the checks count from it."""

    def __init__(self, snapshot: Snapshot, plan: Plan, now: datetime) -> None:
        self.snapshot, self.plan, self.now = snapshot, plan, now
        self.rollout = snapshot.rollout
        self.workload = snapshot.workload
        self.pods = {p.uid: p for p in snapshot.pods}
        self.former = {p.uid: p for p in snapshot.former}

    @property
    def openings(self) -> tuple[OpenGate, ...]:
        return tuple(a for a in self.plan.actions if isinstance(a, OpenGate))

    @property
    def disruptions(self) -> tuple[EvictPod | UnpauseDeployment, ...]:
        """The actions that take a pod down. An unpause without a victim leaves a Deployment at rest."""
        return tuple(
            a
            for a in self.plan.actions
            if isinstance(a, EvictPod) or (isinstance(a, UnpauseDeployment) and a.victim_uids)
        )

    @property
    def victims(self) -> tuple[str, ...]:
        """The UIDs of the pods that the plan takes down."""
        return tuple(uid for action in self.disruptions for uid in victims_of(action))

    @cached_property
    def leaving_for_good(self) -> bool:
        """Whether our object is being deleted and has waited as long as it promised: gates then open anyway."""
        if self.rollout.deletion is None:
            return False
        wait = timedelta(seconds=self.rollout.spec.release.unproven.extra_seconds)
        return self.now >= self.rollout.deletion + wait

    @cached_property
    def departures(self) -> tuple[_Departure, ...]:
        """Every pod that left and was not settled before: the stored ones, those that leave now, those that vanished."""
        found: dict[str, _Departure] = {}
        vanished = {v.pod.uid: v for v in self.snapshot.vanished}
        for entry in self.rollout.status.replacements:
            pod = self.pods.get(entry.pod_uid) or self.former.get(entry.pod_uid)
            if pod is not None and not (pod.terminating or pod.terminal):
                continue
            gone = vanished.get(entry.pod_uid)
            found[entry.id] = _Departure(
                entry.pod_uid,
                entry.pod_name,
                entry,
                pod or (gone.pod if gone else None),
                pod is not None,
                entry.vanished_at or (gone.at if gone else None),
                entry.claims,
            )
        for pod in (*self.snapshot.pods, *self.snapshot.former):
            if pod.uid not in found and (pod.terminating or pod.terminal) and self._had_devices(pod):
                found[pod.uid] = self._unrecorded(pod, None)
        for gone in self.snapshot.vanished:
            if gone.pod.uid not in found and self._had_devices(gone.pod):
                found[gone.pod.uid] = self._unrecorded(gone.pod, gone.at)
        return tuple(found.values())

    def our_entries(self, claim: ClaimRecord) -> int:
        """Count what is ours in the claim's reservedFor."""
        return sum(r.api_group == GROUP and r.uid == self.rollout.uid for r in claim.reserved_for)

    def out_of_reach(self, departure: _Departure) -> bool:
        """Whether our hold keeps every device of the departed pod allocated."""
        with_devices = [c for c in departure.claims if c.devices]
        there = [self.snapshot.claims.get(c.name) for c in with_devices]
        return bool(there) and all(
            claim is not None
            and claim.uid == noted.uid
            and claim.uses is not None
            and self.our_entries(claim) > 0
            for claim, noted in zip(there, with_devices, strict=True)
        )

    def _unrecorded(self, pod: PodRecord, vanished_at: datetime | None) -> _Departure:
        claims = tuple(HeldClaim(name=c.name, uid=c.uid, devices=_noted(c)) for c in self._own_claims(pod))
        return _Departure(
            uid=pod.uid,
            name=pod.name,
            entry=None,
            pod=pod,
            present=vanished_at is None,
            vanished_at=vanished_at,
            claims=claims,
        )

    def _had_devices(self, pod: PodRecord) -> bool:
        return pod.bound or any(c.uses is not None for c in self._own_claims(pod))

    def _own_claims(self, pod: PodRecord) -> Iterator[ClaimRecord]:
        names = {c.claim_name for c in pod.claims} | {pod.extended_claim}
        for claim in self.snapshot.claims.values():
            if claim.name in names and claim.owner_pod_uid in ("", pod.uid):
                yield claim

    # S1

    def not_free(self, departure: _Departure, successor: str = "") -> str:
        """Return why the devices are not free for the pod of this UID, or nothing."""
        return self.allocated(departure) or self.not_allocatable(departure, successor)

    def allocated(self, departure: _Departure) -> str:
        """Return which claim of the departed pod still holds its devices, or nothing."""
        if departure.present and departure.pod is not None and not departure.pod.terminal:
            return f"{departure.label} is still terminating"
        for held in departure.claims:
            claim = self.snapshot.claims.get(held.name)
            if claim is not None and claim.uid == held.uid and claim.uses is not None:
                if self._stays_with_siblings(claim, departure):
                    continue
                return f"claim {held.name} of {departure.label} is allocated"
        return ""

    def _stays_with_siblings(self, claim: ClaimRecord, departure: _Departure) -> bool:
        """Whether the pods share the claim by name, and it is reserved for others of them alone."""
        shared = claim.name in {c.claim_name for p in self.pods.values() for c in p.claims if c.named}
        users = {entry.uid for entry in claim.reserved_for}
        return shared and not claim.owner_pod_uid and bool(users) and departure.uid not in users

    def not_allocatable(self, departure: _Departure, successor: str) -> str:
        """Return why the scheduler could not give the devices to a successor, or nothing."""
        node = self.node_of(departure)
        if node and node not in self.snapshot.nodes and self.rollout.spec.release.placement is Placement.ANY:
            return ""  # gone for good, and others will do
        own = {c.uid for c in departure.claims}
        wanted = [
            r for c in self.snapshot.claims.values() if c.owner_pod_uid == successor for r in c.requests
        ]
        for held in departure.claims:
            shared = self.snapshot.claims.get(held.name)
            if shared is not None and shared.uid == held.uid and self._stays_with_siblings(shared, departure):
                continue
            for use in held.devices:
                device = Device(use.driver, use.pool, use.device)
                others = []
                for claims in self.snapshot.holders.values():
                    # A sibling that took it is no stranger: S3 counts it, and leaves another device free. Nor is a
                    # pod of another managed workload, which its own rollout counts.
                    ours = {*self.pods, *self.snapshot.peers}
                    others += [c for c in claims if c.uid not in own and c.owner_pod_uid not in ours]
                why = self._held(device, others) or self._unpublished(device, wanted)
                why = why or self._short(device, others, wanted)
                if why:
                    return f"device {device} of {departure.label}: {why}"
        return ""

    @staticmethod
    def _held(device: Device, others: list[ClaimRecord]) -> str:
        whole = [
            c for c in others for u in c.uses or () if u.device == device and not u.admin and not u.share_id
        ]
        return "it is allocated to another claim" if whole else ""

    def _unpublished(self, device: Device, wanted: list[DeviceRequest]) -> str:
        pool = [s for s in self.snapshot.slices if s.driver == device.driver and s.pool == device.pool]
        newest = [s for s in pool if all(other.generation <= s.generation for other in pool)]
        if not newest or any(s.slice_count != len(newest) for s in newest):
            return "its pool is missing, incomplete or contradictory"
        published = [d for s in newest for d in s.devices if d.name == device.name]
        if len(published) != 1:
            return "it is not published once"
        taints = list(published[0].taints)
        ours = set() if wanted else {r.uid for r in self.snapshot.reservations}
        taints += [
            rule.taint
            for rule in self.snapshot.taint_rules
            if rule.uid not in ours
            and rule.driver in ("", device.driver)
            and rule.pool in ("", device.pool)
            and rule.device in ("", device.name)
        ]
        for taint in taints:
            if taint.effect in ("NoSchedule", "NoExecute") and not any(_accepts(r, taint) for r in wanted):
                return "it is tainted"
        return ""

    def _short(self, device: Device, others: list[ClaimRecord], wanted: list[DeviceRequest]) -> str:
        """Return that others leave too little of a counter or a capacity, or nothing. The pool is known to be whole."""
        pool = [s for s in self.snapshot.slices if s.driver == device.driver and s.pool == device.pool]
        newest = [s for s in pool if all(other.generation <= s.generation for other in pool)]
        (offered,) = (d for s in newest for d in s.devices if d.name == device.name)
        held = {
            u.device.name: [v for d in others for v in d.uses or () if v.device == u.device and not v.admin]
            for c in others
            for u in c.uses or ()
            if (u.device.driver, u.device.pool) == (device.driver, device.pool) and not u.admin
        }
        drawing = [d for s in newest for d in s.devices if d.name in held or d.name == device.name]
        for counter in (c for s in newest for c in s.counters):
            drawn = sum(
                draw.value
                for one in drawing
                for draw in one.draws
                if (draw.set, draw.name) == (counter.set, counter.name)
            )
            if drawn > counter.value and not (offered.shared and device.name in held):
                return f"counter {counter.name} is drawn by others"
        uses = {u.share_id: u for u in held.get(device.name, [])}.values()
        for capacity in offered.capacity:
            least = capacity.value if capacity.default is None else capacity.default
            asked = [dict(r.capacity).get(capacity.name, least) for r in wanted] or [least]
            taken = sum(amount for u in uses for name, amount in u.consumed if name == capacity.name)
            if taken + max(asked) > capacity.value:
                return f"capacity {capacity.name} is used by others"
        return ""

    # S2

    def unproven(self, departure: _Departure) -> str:
        """Return why nothing proves that the node let go, or nothing."""
        entry, pod = departure.entry, departure.pod
        if entry is not None and entry.proof is not None:
            return ""
        if pod is not None and not pod.bound:
            return ""
        if pod is not None and self._kubelet_ended(pod):
            return ""
        if entry is not None and self._rebooted(entry):
            return ""
        return "" if self._waited(departure) else f"nothing proves that the node of {departure.label} let go"

    def unsettled(self, departure: _Departure) -> str:
        """Return that the devices were not left alone for as long as asked, or nothing."""
        seconds = self.rollout.spec.release.settle_seconds
        entry = departure.entry
        successor = entry.replacement_pod_uid if entry else ""
        if not seconds or (entry is not None and entry.released_at is not None):
            return ""
        if self.not_free(departure, successor):
            return ""
        if self.empty_handed(departure):
            return ""
        if entry is None and departure.present:
            return (
                ""  # what has ended in order may lie about for days, long after its devices were left alone
            )
        settled = entry is not None and entry.stage is Stage.SETTLING
        if entry is not None and settled and self.now >= entry.stage_started_at + timedelta(seconds=seconds):
            return ""
        return f"the devices of {departure.label} were not left alone for {seconds} s"

    def empty_handed(self, departure: _Departure) -> bool:
        """Whether the pod never had a node or a device: it was replaced, or deleted, before it could get any."""
        if departure.pod is None or departure.pod.bound or any(c.devices for c in departure.claims):
            return False
        return all(c.uses is None for c in self._own_claims(departure.pod))

    def unchecked(self, departure: _Departure) -> str:
        """Return that spec.release.checks were not all true of the devices, or nothing."""
        entry = departure.entry
        asked = self.rollout.spec.release.checks
        if not asked or entry is None or entry.released_at is not None or self.empty_handed(departure):
            return ""
        if self.not_free(departure, entry.replacement_pod_uid):
            return ""
        run = self.snapshot.checked.get(entry.id)
        if run is None or run.failures or run.generation != self.rollout.generation:
            return f"the checks on the devices of {departure.label} were not all true"
        return ""

    @staticmethod
    def _kubelet_ended(pod: PodRecord) -> bool:
        ended = pod.phase in (Phase.SUCCEEDED, Phase.FAILED)
        return ended and pod.kubelet_terminal and pod.containers_terminated and not pod.by_pod_gc

    def _rebooted(self, entry: Replacement) -> bool:
        node = self.snapshot.nodes.get(entry.node_name)
        return bool(node and node.boot_id and entry.boot_id and node.boot_id != entry.boot_id)

    def _waited(self, departure: _Departure) -> bool:
        if departure.vanished_at is None or departure.present:
            return False
        if self.rollout.spec.release.unproven.policy is not UnprovenPolicy.WAIT:
            return False
        entry, pod = departure.entry, departure.pod
        graces = [entry.grace_seconds or 0] if entry else []
        graces += [pod.grace_seconds] if pod and not entry else []
        since = departure.vanished_at
        name = (entry.node_name if entry else "") or (pod.node if pod else "")
        if name:
            node = self.snapshot.nodes.get(name)
            if node is None or not node.ready or node.ready_since is None:
                return False
            since = max(since, node.ready_since)
        wait = max(graces, default=0) + self.rollout.spec.release.unproven.extra_seconds
        # Stored times have whole seconds: the stored moment may be up to one second early.
        return self.now >= since.replace(microsecond=0) + timedelta(seconds=wait)

    def surely_new(self, pod: PodRecord | None) -> bool:
        """Whether no departure before this pod's creation can have been missed."""
        if pod is None:
            return False
        watched, adopted = self.snapshot.watched_since, self.rollout.status.adopted_at
        return (watched is not None and pod.created > watched) or (
            adopted is not None and pod.created <= adopted
        )

    # S3 and S5

    @cached_property
    def owed(self) -> tuple[_Departure, ...]:
        """The departures that may still hold devices."""
        return tuple(
            d for d in self.departures if not self.empty_handed(d) and (self.allocated(d) or self.unproven(d))
        )

    @cached_property
    def unreleased(self) -> tuple[_Departure, ...]:
        """Of those, the ones that somebody has to wait for."""
        return tuple(d for d in self.owed if not self.aground(d))

    def aground(self, departure: _Departure) -> bool:
        """Whether the node is gone, nothing is proven, and the devices cannot be given to the workload's other pods."""
        name = self.node_of(departure)
        if departure.present or departure.vanished_at is None or not name or name in self.snapshot.nodes:
            return False
        if not self.unproven(departure):
            return False
        if isinstance(self.workload, DaemonSetRecord):
            return True
        return self.rollout.spec.release.placement is Placement.ANY and self.out_of_reach(departure)

    def place(self, pod: PodRecord) -> str:
        """The node that the pod is on, or (of a DaemonSet) made for."""
        return pod.node or (pod.aimed_at if isinstance(self.workload, DaemonSetRecord) else "")

    def node_of(self, departure: _Departure) -> str:
        """The node that the departed pod was on: as noted, or as its devices are local to; "" if nobody knows."""
        entry, pod = departure.entry, departure.pod
        noted = (entry.node_name if entry else "") or (self.place(pod) if pod else "")
        pools = {(d.driver, d.pool) for c in departure.claims for d in c.devices}
        local = {s.access.node for s in self.snapshot.slices if (s.driver, s.pool) in pools}
        return noted or (local.pop() if len(local) == 1 else "")

    def elsewhere(self, departure: _Departure, pod: PodRecord | None) -> bool:
        """Whether the pod is made for another node than those that the departed pod's devices are published for."""
        if not isinstance(self.workload, DaemonSetRecord) or pod is None:
            return False
        here, there = self.place(pod), self.node_of(departure)
        if not here or not there or here == there:
            return False
        pools = {(d.driver, d.pool) for c in departure.claims for d in c.devices}
        slices = [s for s in self.snapshot.slices if not pools or (s.driver, s.pool) in pools]
        if pools and any(s.access.node == here for s in slices):
            return False
        return all(s.access.node for s in slices)

    @property
    def live(self) -> list[PodRecord]:
        return [p for p in self.snapshot.pods if not (p.terminating or p.terminal)]

    def down(self, pod: PodRecord) -> bool:
        """Whether the pod is unavailable."""
        if not pod.ready or pod.terminating or pod.terminal:
            return True
        minimum = self.rollout.spec.health.min_ready_seconds
        if self.workload and self.workload.min_ready_seconds > minimum:
            minimum = self.workload.min_ready_seconds
        if not minimum:
            return False
        return pod.ready_since is None or self.now < pod.ready_since + timedelta(seconds=minimum)

    def soaking(self, pod: PodRecord) -> bool:
        """Whether the pod is a successor at the target that is to be watched still."""
        health = self.rollout.spec.health
        followers = {e.replacement_pod_uid for e in self.rollout.status.replacements}
        if not health.soak_seconds or pod.uid not in followers or not self.at_target(pod) or self.down(pod):
            return False
        run = self.snapshot.health.get(pod.uid)
        if health.checks and (run is None or run.failures or run.generation != self.rollout.generation):
            return True
        own = self.workload.min_ready_seconds if self.workload else 0
        watched = max(own, health.min_ready_seconds) + health.soak_seconds
        return pod.ready_since is None or self.now < pod.ready_since + timedelta(seconds=watched)

    def at_target(self, pod: PodRecord) -> bool:
        """Whether the pod is of the workload's newest revision."""
        match self.workload:
            case DeploymentRecord() as deployment:
                sets = {r.uid: r for r in self.snapshot.replica_sets}
                owner = sets.get(pod.owner.uid) if pod.owner else None
                return owner is not None and owner.template_digest == deployment.template.digest
            case StatefulSetRecord() as stateful_set:
                return pod.revision == stateful_set.update_revision
            case DaemonSetRecord() as daemon_set:
                same = [r for r in self.snapshot.revisions if r.template_digest == daemon_set.template.digest]
                newest = [r for r in same if all(o.number <= r.number for o in same)]
                return pod.revision in {r.revision for r in newest}
            case None:
                return False

    def outdated(self, pod: PodRecord) -> bool:
        """Whether the pod is to be replaced: it is of another revision, or older than a restart that is due."""
        asked = self.rollout.spec.restarted_at
        old = asked is not None and self.now >= asked and pod.created < asked
        return old or not self.at_target(pod)

    def finished(self, entry: Replacement) -> bool:
        """Whether the successor is healthy, or none is wanted."""
        successor = self.pods.get(entry.replacement_pod_uid)
        if successor is None and isinstance(self.workload, StatefulSetRecord):
            successor = next((p for p in self.live if p.name == entry.pod_name), None)
        if successor is None and isinstance(self.workload, DaemonSetRecord):
            successor = next((p for p in self.live if self.place(p) == entry.node_name), None)
        if successor is not None and not self.down(successor):
            return True
        wanted = self.workload.replicas if self.workload else 0
        released = not any(d.uid == entry.pod_uid for d in self.unreleased if d.uid)
        linked = successor is not None and not (successor.terminating or successor.terminal)
        return released and not linked and len(self.live) >= wanted


def _noted(claim: ClaimRecord) -> tuple[HeldDevice, ...]:
    """Return the devices that the claim holds now, as an entry would note them."""
    uses = (u for u in claim.uses or () if not u.admin)
    return tuple(HeldDevice(driver=u.device.driver, pool=u.device.pool, device=u.device.name) for u in uses)


def _devices_free(case: _Case) -> Iterator[Violation]:
    """S1: a gate opens only if its predecessor's devices are unallocated, taken by nobody, and allocatable."""
    if case.leaving_for_good:
        return
    for opening in case.openings:
        for departure in _predecessors(case, opening):
            why = case.not_free(departure, opening.pod_uid)
            if why:
                yield Violation(Promise.DEVICES_FREE, f"the gate of pod {opening.pod_name} opens, but {why}")


def _release_proven(case: _Case) -> Iterator[Violation]:
    """S2: …and only with proof; nor while any device that looks free is not proven so. A new proof has a ground."""
    stored = {e.id: e for e in case.rollout.status.replacements}
    departures = {d.entry.id if d.entry else d.uid: d for d in case.departures}
    for entry in case.plan.status.replacements:
        before = stored.get(entry.id)
        if entry.proof is None or (before is not None and before.proof is entry.proof):
            continue
        departure = departures.get(entry.id)
        changed = before is not None and before.proof is not None
        if changed or departure is None or not _ground(case, departure, entry.proof):
            text = f"{entry.proof} is recorded for pod {entry.pod_name or entry.id} without a ground"
            yield Violation(Promise.RELEASE_PROVEN, text)
    if case.leaving_for_good:
        unproven = any(case.unproven(d) for o in case.openings for d in _predecessors(case, o))
        if unproven and not any(n.type is EventType.WARNING for n in case.plan.notices):
            yield Violation(Promise.RELEASE_PROVEN, "a gate opens without proof, and nobody is told")
        return
    for opening in case.openings:
        mine = {id(d) for d in _predecessors(case, opening)}
        if not mine and not case.surely_new(case.pods.get(opening.pod_uid)):
            text = f"the gate of pod {opening.pod_name} opens, but its predecessor may have left unseen"
            yield Violation(Promise.RELEASE_PROVEN, text)
        for departure in case.departures:
            safe = _keeps_its_claim(departure) or case.out_of_reach(departure)
            safe = safe or case.elsewhere(departure, case.pods.get(opening.pod_uid))
            if id(departure) not in mine and safe:
                continue  # the scheduler cannot hand it out
            why = case.unproven(departure) or case.unsettled(departure) or case.unchecked(departure)
            if why:
                yield Violation(
                    Promise.RELEASE_PROVEN, f"the gate of pod {opening.pod_name} opens, but {why}"
                )


def _accepts(request: DeviceRequest, taint: Taint) -> bool:
    return any(
        t.key in ("", taint.key)
        and t.effect in ("", taint.effect)
        and (t.operator == "Exists" or t.value == taint.value)
        for t in request.tolerations
    )


def _keeps_its_claim(departure: _Departure) -> bool:
    """Whether the pod is still there and has not ended: until then its claim stays allocated."""
    return departure.present and departure.pod is not None and not departure.pod.terminal


def _ground(case: _Case, departure: _Departure, proof: Proof) -> bool:
    if proof is Proof.NEVER_BOUND:
        return departure.pod is not None and not departure.pod.node
    return not case.unproven(departure)


def _predecessors(case: _Case, opening: OpenGate) -> Iterator[_Departure]:
    """Yield who the pod succeeds: by name in a StatefulSet, by node in a DaemonSet, and whoever the plan names.

    Nobody takes the place of one whose node is gone, as long as it is.
    """
    named = isinstance(case.workload, StatefulSetRecord)
    placed = isinstance(case.workload, DaemonSetRecord)
    pod = case.pods.get(opening.pod_uid)
    here = case.place(pod) if pod is not None else ""
    linked = {e.id for e in case.plan.status.replacements if e.replacement_pod_uid == opening.pod_uid}
    for departure in case.departures:
        identity = departure.entry.id if departure.entry else departure.uid
        if (
            (named and departure.name == opening.pod_name and not _settled(case, departure))
            or (placed and here and case.node_of(departure) == here and not _settled(case, departure))
            or identity in linked
            or (departure.uid and departure.uid == opening.predecessor_uid)
        ):
            yield departure


def _settled(case: _Case, departure: _Departure) -> bool:
    return _passed_on(case, departure) or case.aground(departure)


def _passed_on(case: _Case, departure: _Departure) -> bool:
    """Whether the devices were free for an earlier successor, whose gate opened: what became of them is its story."""
    entry = departure.entry
    if entry is None or entry.released_at is None or not entry.replacement_pod_uid:
        return False
    went = [v.pod for v in case.snapshot.vanished if v.pod.uid == entry.replacement_pod_uid]
    went += [p for p in case.snapshot.pods if p.uid == entry.replacement_pod_uid]
    if went:
        return all(GATE not in p.gates for p in went)
    return entry.stage in (Stage.SCHEDULING, Stage.PREPARING, Stage.WARMING_UP, Stage.SOAKING, Stage.DONE)


def _within_budget(case: _Case) -> Iterator[Violation]:
    """S3: holders and unproven departures stay within max(replicas, live pods), counted after all openings."""
    if not case.openings or case.leaving_for_good:
        return
    holding = {
        p.uid
        for p in case.snapshot.pods
        if p.phase not in (Phase.SUCCEEDED, Phase.FAILED) and (p.node or GATE not in p.gates)
    }
    if isinstance(case.workload, DaemonSetRecord):
        yield from _one_each(case, holding)
        return
    owed = {d.uid or (d.entry.id if d.entry else "") for d in case.unreleased}
    used = len(holding | owed | {o.pod_uid for o in case.openings})
    limit = max(case.workload.replicas if case.workload else 0, len(case.live))
    if used > limit:
        names = ", ".join(o.pod_name for o in case.openings)
        text = f"after the gates of {names} open, {used} device sets may be in use and {limit} are allowed"
        yield Violation(Promise.WITHIN_BUDGET, text)


def _one_each(case: _Case, holding: set[str]) -> Iterator[Violation]:
    """S3 of a DaemonSet: one device set on each node, and an unproven departure from nobody knows where counts on all."""
    users = {uid: case.place(case.pods[uid]) for uid in holding}
    users |= {d.uid or (d.entry.id if d.entry else ""): case.node_of(d) for d in case.unreleased}
    for opening in case.openings:
        here = case.place(case.pods[opening.pod_uid]) if opening.pod_uid in case.pods else ""
        others = [u for u, node in users.items() if node in ("", here) and u != opening.pod_uid]
        others += [
            o.pod_uid
            for o in case.openings
            if o is not opening and o.pod_uid in case.pods and case.place(case.pods[o.pod_uid]) == here
        ]
        if others:
            text = f"the gate of pod {opening.pod_name} opens while {len(others)} may use devices of its node"
            yield Violation(Promise.WITHIN_BUDGET, text)


def _departures_remembered(case: _Case) -> Iterator[Violation]:
    """S3 counts every departure: none is dropped from the status before its devices are proven free."""
    kept = {e.id for e in case.plan.status.replacements}
    reads = case.snapshot.freshness is Freshness.FRESH and FINALIZER in case.rollout.finalizers
    if not reads or case.workload is None or _conflict(case) or _leaves(case):
        return
    aground = [d for d in case.owed if case.aground(d) and not case.out_of_reach(d)]
    for departure in case.owed:
        identity = departure.entry.id if departure.entry else departure.uid
        if departure in aground and len(aground) > _MOST_AGROUND:
            continue  # of nodes that come and go, the list keeps the latest
        if identity not in kept:
            text = f"{departure.label} left, its devices are not proven free, and the status forgets it"
            yield Violation(Promise.WITHIN_BUDGET, text)
    stored = {e.pod_uid for e in case.rollout.status.replacements}
    for victim in case.victims:
        first = case.plan.record_first and victim in {e.pod_uid for e in case.plan.status.replacements}
        if victim not in stored and not first:
            text = f"pod {victim} is replaced before that is recorded: a crash would forget it"
            yield Violation(Promise.WITHIN_BUDGET, text)


def _own_objects_only(case: _Case) -> Iterator[Violation]:
    """S4: only the workload, its pods and our object are written to, by the UID decided on."""
    workload = case.workload
    owners = {workload.uid} if isinstance(workload, StatefulSetRecord | DaemonSetRecord) else set()
    if isinstance(workload, DeploymentRecord):
        owners = {r.uid for r in case.snapshot.replica_sets if r.owner_uid == workload.uid}
    for action in case.plan.actions:
        match action:
            case AddFinalizer(uid) | RemoveFinalizer(uid):
                if uid != case.rollout.uid:
                    yield Violation(Promise.OWN_OBJECTS_ONLY, f"AcceleratorRollout {uid} is another one")
            case ProbeGate() | RunChecks() | CheckHealth():
                pass
            case HoldClaim(name, uid) | EndHold(name, uid, _):
                claim = case.snapshot.claims.get(name)
                if claim is None or claim.uid != uid or not _has_to_do_with_us(case, claim):
                    text = f"ResourceClaim {name} ({uid}) is not of the workload's pods"
                    yield Violation(Promise.OWN_OBJECTS_ONLY, text)
            case RemoveGuard(name, uid) if uid in case.former:
                pass
            case ReserveDevice():
                device = Device(action.driver, action.pool, action.device)
                left = {
                    Device(d.driver, d.pool, d.device)
                    for entry in case.plan.status.replacements
                    for c in entry.claims
                    for d in c.devices
                }
                if device not in left:
                    text = f"device {device} is reserved, and no departed pod had it"
                    yield Violation(Promise.OWN_OBJECTS_ONLY, text)
            case EndReservation(name, uid):
                if (name, uid) not in {(r.name, r.uid) for r in case.snapshot.reservations}:
                    yield Violation(Promise.TAKE_BACK_OUR_OWN, f"taint rule {name} ({uid}) is not ours")
            case (
                EvictPod(name, uid)
                | OpenGate(name, uid, _, _, _)
                | PreferVictim(name, uid, _)
                | AddGuard(name, uid)
                | RemoveGuard(name, uid)
            ):
                pod = case.pods.get(uid)
                if pod is None or pod.name != name or pod.owner is None or pod.owner.uid not in owners:
                    yield Violation(Promise.OWN_OBJECTS_ONLY, f"pod {name} ({uid}) is not the workload's")
            case _:
                if workload is None or (action.name, action.uid) != (workload.name, workload.uid):
                    text = f"Deployment {action.name} ({action.uid}) is not the referenced one"
                    yield Violation(Promise.OWN_OBJECTS_ONLY, text)


def _has_to_do_with_us(case: _Case, claim: ClaimRecord) -> bool:
    return claim.owner_pod_uid in case.pods or case.our_entries(claim) > 0


def _held_until_proven(case: _Case) -> Iterator[Violation]:
    """S2, S6 and S9 of holds: put on what lives, and with the last one go only pods whose release is proven."""
    told = {e.pod_uid: e for e in case.plan.status.replacements}
    departures = {d.uid: d for d in case.departures if d.uid}
    for action in case.plan.actions:
        if not isinstance(action, HoldClaim | EndHold):
            continue
        claim = case.snapshot.claims.get(action.claim_name)
        if claim is None:
            continue
        if case.snapshot.freshness is not Freshness.FRESH or case.snapshot.unreadable:
            yield Violation(
                Promise.FAIL_CLOSED, f"hold of {claim.name} is touched while the state is unknown"
            )
        owner = case.pods.get(claim.owner_pod_uid)
        if isinstance(action, HoldClaim):
            ended = owner is None or owner.phase in (Phase.SUCCEEDED, Phase.FAILED)
            if ended or claim.uses is None or case.our_entries(claim):
                text = (
                    f"claim {claim.name} is held, but its pod has ended, or it is unallocated or held already"
                )
                yield Violation(Promise.TAKE_BACK_OUR_OWN, text)
            continue
        if not case.our_entries(claim):
            yield Violation(Promise.TAKE_BACK_OUR_OWN, f"claim {claim.name} carries no hold of ours to end")
        others = {r.uid for r in claim.reserved_for if r.api_group != GROUP}
        if not action.deallocate:
            if not others:
                text = f"the last hold of {claim.name} goes, and its allocation stays with nobody"
                yield Violation(Promise.TAKE_BACK_OUR_OWN, text)
            continue
        for uid in others | {claim.owner_pod_uid}:
            departure, entry = departures.get(uid), told.get(uid)
            proven = (departure is not None and not case.unproven(departure)) or (
                entry is not None and entry.proof is not None
            )
            left = departure is not None or (entry is not None and uid not in case.pods)
            warned = case.leaving_for_good and any(n.type is EventType.WARNING for n in case.plan.notices)
            if not left or not (proven or warned):
                text = f"claim {claim.name} is deallocated, but pod {uid} is not proven finished"
                yield Violation(Promise.RELEASE_PROVEN, text)


def _no_second_down(case: _Case) -> Iterator[Violation]:
    """S5: healthy pods go only as long as fewer than maxUnavailable are down; of those that are down as many at a time."""
    most = _most_down(case)
    if len(case.victims) > most:
        yield Violation(Promise.NO_SECOND_DOWN, f"{len(case.victims)} pods are replaced at once")
    victims: list[PodRecord] = []
    for uid in case.victims:
        victim = case.pods.get(uid)
        if victim is None or victim.terminating or victim.terminal:
            yield Violation(Promise.NO_SECOND_DOWN, f"pod {uid} is replaced, but it is not there any more")
            continue
        if not case.outdated(victim):
            yield Violation(Promise.NO_SECOND_DOWN, f"pod {victim.name} is at the target, and is replaced")
        victims.append(victim)
    yield from _costs(case, victims, most)
    for action in case.disruptions:
        if isinstance(action, UnpauseDeployment):
            yield from _one_step(case, action)


def _most_down(case: _Case) -> int:
    """What we allow to be down by our own doing: spec.strategy.maxUnavailable, a percentage rounded down, at least 1."""
    replicas = case.workload.replicas if case.workload else 0
    return max(1, _pods(case.rollout.spec.strategy.max_unavailable, replicas))


def _costs(case: _Case, victims: list[PodRecord], most: int) -> Iterator[Violation]:
    healthy = [v for v in victims if not case.down(v)]
    broken = [v for v in victims if case.down(v)]
    others = [p for p in case.live if p not in healthy]
    wanted = case.workload.replicas if case.workload else 0
    down = sum(map(case.down, others)) + max(0, wanted - len(case.live))
    watched = [p.name for p in others if case.soaking(p)]
    unseen = [p.name for p in others if p.uid in case.snapshot.maybe_sent and not case.down(p)]
    names = ", ".join(v.name for v in healthy)
    if healthy and down + len(healthy) > most:
        text = f"healthy pod {names} is replaced while {down} are down already"
        yield Violation(Promise.NO_SECOND_DOWN, text)
    elif healthy and down + len(unseen) + len(healthy) > most:
        text = f"healthy pod {names} is replaced while {unseen[0]} may be leaving"
        yield Violation(Promise.NO_SECOND_DOWN, text)
    elif healthy and down + len(watched) + len(healthy) > most:
        text = f"healthy pod {names} is replaced while the soak of {watched[0]} is not over"
        yield Violation(Promise.NO_SECOND_DOWN, text)
    for victim in broken:
        flying = [d for d in case.departures if d.entry is None or not case.finished(d.entry)]
        flying = [d for d in flying if not case.aground(d)]
        # One that cannot end by itself is no second replacement: its successor is down and to be replaced as well, or
        # is only made once the pods before it are healthy (an ordered StatefulSet).
        flying = [d for d in flying if not _to_be_replaced(case, d) and not _waits_for(case, d, victim)]
        flying = [d for d in flying if _awaited(case, d) or case.allocated(d) or case.unproven(d)]
        if len(flying) + len(victims) > most:
            labels = ", ".join(d.label for d in flying)
            text = f"pod {victim.name} is replaced while the replacement of {labels} is in flight"
            yield Violation(Promise.NO_SECOND_DOWN, text)


def _awaited(case: _Case, departure: _Departure) -> bool:
    """Whether a successor may still come: not if the one that got the devices has left in its turn, nor for nothing."""
    entry = departure.entry
    if entry is None or (departure.pod is not None and not departure.pod.bound):
        return False
    passed_on = entry.released_at is not None and bool(entry.replacement_pod_uid)
    return not passed_on or entry.replacement_pod_uid in {p.uid for p in case.live}


def _to_be_replaced(case: _Case, departure: _Departure) -> bool:
    identity = departure.entry.id if departure.entry else departure.uid
    known = (*case.rollout.status.replacements, *case.plan.status.replacements)
    successors = {e.replacement_pod_uid for e in known if e.id == identity}
    if isinstance(case.workload, StatefulSetRecord):
        successors |= {p.uid for p in case.live if p.name == departure.name}
    if isinstance(case.workload, DaemonSetRecord):
        successors |= {p.uid for p in case.live if case.place(p) == case.node_of(departure)}
    return any(p.uid in successors and case.down(p) and case.outdated(p) for p in case.live)


def _waits_for(case: _Case, departure: _Departure, victim: PodRecord) -> bool:
    if not isinstance(case.workload, StatefulSetRecord) or case.allocated(departure):
        return False
    made = any(p.name == departure.name for p in case.live)
    mine, its = victim.name.rpartition("-")[2], departure.name.rpartition("-")[2]
    return not made and mine.isdigit() and its.isdigit() and int(mine) < int(its)


def _in_turn(case: _Case) -> Iterator[Violation]:
    """S10: no healthy pod goes while others of the group have as many in replacement as they may have together."""
    shared = case.snapshot.shared
    if shared is None:
        return
    successors = {e.replacement_pod_uid for e in case.rollout.status.replacements}
    victims = [case.pods[uid] for uid in case.victims if uid in case.pods]
    # One that is down is out of service anyhow, and a successor in flight has its place.
    healthy = [v for v in victims if not case.down(v) and v.uid not in successors]
    if healthy:
        own = [d for d in case.departures if d.entry is not None and d.entry.cause is Cause.ROLLOUT]
        flying = [
            d for d in own if d.entry is not None and not case.finished(d.entry) and not case.aground(d)
        ]
        counted = 0
        for peer in shared.peers:
            stalled = (case.now - peer.stalled_since).total_seconds() if peer.stalled_since else 0.0
            if not peer.stalled_since or stalled < shared.patience_seconds:
                counted += peer.in_flight + len(peer.choices)
        if counted + len(flying) + len(healthy) > shared.limit:
            text = f"pod {healthy[0].name} is replaced while others of budget {shared.group} replace {counted} of {shared.limit}"
            yield Violation(Promise.SHARED_BUDGET, text)


def _one_step(case: _Case, action: UnpauseDeployment) -> Iterator[Violation]:
    """The Deployment's controller must have leave for these deletions only: counted in closed form, for maxSurge 0."""
    deployment = case.workload
    if not isinstance(deployment, DeploymentRecord):
        yield Violation(Promise.NO_SECOND_DOWN, "something else than a Deployment is unpaused")
        return
    allowed = max(1, _pods(deployment.max_unavailable, deployment.replicas))
    new = [r for r in case.snapshot.replica_sets if r.template_digest == deployment.template.digest]
    old = [r for r in case.snapshot.replica_sets if r not in new]
    made, up = sum(r.replicas for r in new), sum(r.available for r in (*new, *old))
    missing = max(0, deployment.replicas - made - sum(r.replicas for r in old))
    waiting = made - sum(r.available for r in new) + missing
    broken = sum(r.replicas - r.available for r in old)
    spare = max(0, up - (deployment.replicas - allowed))
    step = min(allowed - waiting, broken + spare, sum(r.replicas for r in old))
    if step > len(action.victim_uids):
        text = f"unpausing Deployment {deployment.name} lets its controller delete {step} pods"
        yield Violation(Promise.NO_SECOND_DOWN, text)


def _pods(value: int | str, replicas: int) -> int:
    return value if isinstance(value, int) else int(value.rstrip("%")) * replicas // 100


def _fail_closed(case: _Case) -> Iterator[Violation]:
    """S6: paused, refused or unknown: no disruption; unknown: no opening either."""
    unknown = case.snapshot.freshness is not Freshness.FRESH or bool(case.snapshot.unreadable)
    if unknown and (case.openings or case.disruptions):
        yield Violation(Promise.FAIL_CLOSED, "something is opened or disrupted while the state is unknown")
    if not case.disruptions:
        return
    for forbids, sentence in _forbidden(case):
        if forbids:
            yield Violation(Promise.FAIL_CLOSED, f"a pod is replaced although {sentence}")


def _asked_once(case: _Case) -> Iterator[Violation]:
    """S4 and S6 of intents: what was asked for is stored before it is done, and no halt ends by itself."""
    before, after = case.rollout.status, case.plan.status
    asked = case.rollout.spec.action
    for action in case.plan.actions:
        if not isinstance(action, RestoreTemplate):
            continue
        if case.snapshot.freshness is not Freshness.FRESH or case.snapshot.unreadable:
            yield Violation(Promise.FAIL_CLOSED, "a template is restored while the state is unknown")
        told = after.undo
        if told is None or (told.revision_uid, told.restores) != (action.revision_uid, action.restores):
            yield Violation(
                Promise.OWN_OBJECTS_ONLY, "a template is restored that the status does not tell of"
            )
        if before.undo != told and not case.plan.record_first:
            yield Violation(Promise.OWN_OBJECTS_ONLY, "a template is restored before the status tells of it")
        if case.workload is None or case.workload.template.digest != action.leaves:
            text = f"the template of {action.name} is not the one that was to be undone"
            yield Violation(Promise.OWN_OBJECTS_ONLY, text)
    if before.halt is None or after.halt is not None or case.rollout.deletion is not None:
        return
    retried = asked is not None and asked.id == after.observed_action_id != before.observed_action_id
    another = after.update_revision != before.halt.revision
    restarted = before.halt.restarted_at is not None
    done = not [p for p in case.live if case.outdated(p) or case.down(p)]
    if not (retried or another or restarted or done):
        yield Violation(Promise.FAIL_CLOSED, f"the halt of revision {before.halt.revision} ends by itself")


def _forbidden(case: _Case) -> Iterable[tuple[bool, str]]:
    workload, rollout = case.workload, case.rollout
    yield rollout.spec.paused, "spec.paused is true"
    yield case.plan.status.halt is not None, "the rollout is halted"
    yield case.plan.status.undo is not None, "the template is being restored"
    yield rollout.deletion is not None, "our object is being deleted"
    yield FINALIZER not in rollout.finalizers, "our finalizer is not there"
    yield _conflict(case), "an older object names the workload"
    yield workload is None, "the workload does not exist"
    if workload is None:
        return
    yield workload.observed_generation < workload.generation, "its controller is behind"
    extended = any(p.extended_claim for p in case.snapshot.pods)
    yield not workload.template.claims and not extended, "its pods have no claims"
    yield any(c.named for c in workload.template.claims), "its pods share a named claim"
    yield _unmet(case, workload.template), "a guardrail is enforced and not met"
    yield not _gated_source(case, workload.template), "nothing says that its pods are gated"
    match workload:
        case DeploymentRecord():
            yield workload.strategy != "RollingUpdate", f"its strategy is {workload.strategy}"
            yield workload.max_surge not in (0, "0%"), f"its maxSurge is {workload.max_surge}"
            yield workload.paused and workload.parked is None, "somebody else paused the Deployment"
        case StatefulSetRecord() | DaemonSetRecord():
            yield workload.update_strategy != "OnDelete", f"its strategy is {workload.update_strategy}"


def _unmet(case: _Case, template: Template) -> bool:
    asked = case.rollout.spec.guardrails
    exempt = {str(e.rule) for e in asked.exempt}
    return asked.mode is GuardrailMode.ENFORCE and (
        (not template.pre_stop and "PreStopMissing" not in exempt)
        or (template.grace_seconds <= 30 and "GracePeriodTooShort" not in exempt)
        or (not case.snapshot.budgets and "PodDisruptionBudgetMissing" not in exempt)
    )


def _gated_source(case: _Case, template: Template) -> bool:
    if GATE in template.gates:
        return True
    probe = case.snapshot.gate_probe
    return (
        template.labels.get(GATE_LABEL) == GATE_LABEL_VALUE
        and probe is not None
        and probe.template_digest == template.digest
        and probe.source is GateSource.POLICY
    )


def _conflict(case: _Case) -> bool:
    me = case.rollout
    mine = (
        me.created,
        FINALIZER not in me.finalizers,
        me.uid,
    )  # of one age: the one that has begun, then the UID
    return any((r.created, not r.adopted, r.uid) < mine for r in case.snapshot.rivals)


def _leaves(case: _Case) -> bool:
    return any(isinstance(a, RemoveFinalizer) for a in case.plan.actions)


def _no_false_success(case: _Case) -> Iterator[Violation]:
    """S8: no condition speaks of a generation ahead of the object's; Ready says only what is observed now."""
    generation = case.rollout.generation
    told = {c.type: c for c in case.plan.status.conditions}
    for condition in told.values():
        if condition.observed_generation > generation:
            text = f"condition {condition.type} speaks of generation {condition.observed_generation}, not there yet"
            yield Violation(Promise.NO_FALSE_SUCCESS, text)
    if case.plan.status.observed_generation > generation:
        yield Violation(Promise.NO_FALSE_SUCCESS, "status.observedGeneration is ahead of the object")
    ready = told.get(ConditionType.READY)
    if _holds(ready):
        for kind in (ConditionType.STALLED, ConditionType.RECONCILING):
            if _holds(told.get(kind)):
                yield Violation(Promise.NO_FALSE_SUCCESS, f"Ready and {kind} are both true")
    untold = case.snapshot.freshness is Freshness.SYNCING or case.rollout.deletion is not None
    if _holds(ready) and not (untold and case.plan.status.conditions == case.rollout.status.conditions):
        why = _unfinished(case)
        if why:
            yield Violation(Promise.NO_FALSE_SUCCESS, f"Ready is true, but {why}")


def _holds(condition: Condition | None) -> bool:
    return condition is not None and condition.status is ConditionStatus.TRUE


def _unfinished(case: _Case) -> str:
    workload = case.workload
    if case.snapshot.freshness is not Freshness.FRESH:
        return "the state is unknown"
    if workload is None:
        return "the workload does not exist"
    if workload.observed_generation < workload.generation:
        return "its controller has not observed the newest generation"
    if case.plan.status.observed_generation != case.rollout.generation:
        return "the object's newest generation was not observed"
    if len(case.live) != workload.replicas:
        return f"{len(case.live)} of {workload.replicas} pods exist"
    kept = _kept_by_partition(case)
    wrong = [
        p.name
        for p in case.live
        if case.down(p) or (case.outdated(p) and p.uid not in kept) or GATE in p.gates
    ]
    if wrong:
        return f"pods {', '.join(wrong)} are not healthy at the target revision"
    return f"{case.unreleased[0].label} still holds devices" if case.unreleased else ""


def _kept_by_partition(case: _Case) -> set[str]:
    """Return the pods, by UID, of which spec.strategy.partition asks that they stay as they are."""
    partition = case.rollout.spec.strategy.partition
    another = [p for p in case.live if not case.at_target(p)]
    if isinstance(case.workload, StatefulSetRecord):
        return {p.uid for p in another if int(p.name.rsplit("-", 1)[-1]) < partition}
    return {p.uid for p in another} if len(another) <= partition else set()


def _take_back_our_own(case: _Case) -> Iterator[Violation]:
    """S9: only our gate, pause, label and finalizer are taken away, and the finalizer last."""
    workload = case.workload
    for action in case.plan.actions:
        match action:
            case OpenGate(name, uid, _, _, _):
                pod = case.pods.get(uid)
                if pod is None or GATE not in pod.gates:
                    yield Violation(Promise.TAKE_BACK_OUR_OWN, f"pod {name} has no gate of ours to open")
            case UnpauseDeployment(name):
                if not isinstance(workload, DeploymentRecord) or workload.parked is None:
                    yield Violation(Promise.TAKE_BACK_OUR_OWN, f"the pause of Deployment {name} is not ours")
            case UnmanageDeployment(name):
                ours = isinstance(workload, DeploymentRecord) and (
                    workload.managed or workload.parked is not None
                )
                if not ours:
                    yield Violation(
                        Promise.TAKE_BACK_OUR_OWN, f"nothing on Deployment {name} is ours to remove"
                    )
            case RemoveGuard(name, uid):
                yield from _unguarded(case, name, case.pods.get(uid) or case.former.get(uid))
            case RemoveFinalizer():
                yield from _left_behind(case, action)
            case _:
                pass


def _unguarded(case: _Case, name: str, pod: PodRecord | None) -> Iterator[Violation]:
    if pod is None or GUARD_FINALIZER not in pod.finalizers:
        yield Violation(Promise.TAKE_BACK_OUR_OWN, f"pod {name} has no guard of ours to take away")
    elif pod.terminating and not pod.terminal and pod.bound and not case.leaving_for_good:
        text = f"the guard of pod {name} goes before its kubelet has reported the end"
        yield Violation(Promise.RELEASE_PROVEN, text)


def _left_behind(case: _Case, action: Action) -> Iterator[Violation]:
    if case.rollout.deletion is None:
        yield Violation(Promise.TAKE_BACK_OUR_OWN, "the finalizer goes, but the object is not being deleted")
    held = [c.name for c in case.snapshot.claims.values() if case.our_entries(c)]
    if held:
        text = f"the finalizer goes while our hold is on {', '.join(sorted(held))}"
        yield Violation(Promise.TAKE_BACK_OUR_OWN, text)
    guarded = [
        p.name for p in (*case.pods.values(), *case.former.values()) if GUARD_FINALIZER in p.finalizers
    ]
    if guarded:
        text = f"the finalizer goes while our guard is on {', '.join(sorted(guarded))}"
        yield Violation(Promise.TAKE_BACK_OUR_OWN, text)
    if case.snapshot.reservations:
        names = ", ".join(r.name for r in case.snapshot.reservations)
        yield Violation(
            Promise.TAKE_BACK_OUR_OWN, f"the finalizer goes while devices are reserved by {names}"
        )
    workload = case.workload
    if workload is None or _conflict(case):
        return
    gated = [p.name for p in case.live if GATE in p.gates]
    if gated:
        text = f"the finalizer goes while {', '.join(gated)} wait at our gate"
        yield Violation(Promise.TAKE_BACK_OUR_OWN, text)
    marked = isinstance(workload, DeploymentRecord) and (workload.managed or workload.parked is not None)
    before = case.plan.actions[: case.plan.actions.index(action)]
    if marked and not any(isinstance(a, UnmanageDeployment) for a in before):
        text = f"the finalizer goes while Deployment {workload.name} carries our label or pause"
        yield Violation(Promise.TAKE_BACK_OUR_OWN, text)
