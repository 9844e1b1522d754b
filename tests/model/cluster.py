"""A small cluster in plain Python: controllers, scheduler, kubelets and the people who get in their way. No I/O.

Everything that Kubernetes does here follows KUBERNETES' own controllers as far as devices, gates and pauses are
concerned; whoever is not called in a step lags. The facts are the operator's own frozen records, so a snapshot of an
older moment costs nothing. The ledger knows what no API object shows: which process holds which device.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from pydantic import ValidationError

from accelerator_rollout.api.models import (
    ActionType,
    RequestedAction,
    RolloutObject,
    RolloutSpec,
    RolloutStatus,
)
from accelerator_rollout.decide.holds import is_hold
from accelerator_rollout.names import FINALIZER, GATE, HOSTNAME_LABEL
from accelerator_rollout.records import (
    BudgetRecord,
    ClaimRecord,
    DaemonSetRecord,
    DeploymentRecord,
    Device,
    DeviceUse,
    NodeRecord,
    Owner,
    Phase,
    PodClaim,
    PodRecord,
    PublishedDevice,
    ReplicaSetRecord,
    Reservation,
    RevisionRecord,
    SliceRecord,
    StatefulSetRecord,
    Taint,
    Workload,
)
from accelerator_rollout.workloads.deployment import resolve
from builders import (
    DRIVER,
    NAME,
    NOW,
    SPACE,
    budget,
    daemon_set,
    deployment,
    node,
    pool,
    revision,
    stateful_set,
    template,
)
from model.rolling import RollingUpdate

GRACE, EXTRA = 3, 6  # seconds: of the pods, and of the wait for unproven releases
LEFTOVERS = GRACE + EXTRA - 1  # seconds after which the kubelet has stopped a pod whose object is gone
BROKEN = Taint("vendor.example.com/broken", "", "NoSchedule")
ZONE = "topology.kubernetes.io/zone"


@dataclass(frozen=True)
class Overlap:
    """One device prepared for two claims at once."""

    device: Device
    old_pod: str
    new_pod: str


@dataclass
class Process:
    """What runs on a node for a pod, whether the API still knows the pod or not."""

    pod_uid: str
    claim_uid: str
    node: str
    device: Device


@dataclass
class Cluster:
    """The truth. Methods in the imperative are what somebody does; `random` breaks their ties."""

    kind: str
    replicas: int
    devices: int
    ordered: bool = True
    gated: bool = True  # whether the first template has the gate
    hold: bool = False  # whether the operator may hold claims
    guard: bool = False  # whether our object asks for guards
    soak: int = 0  # seconds
    unavailable: int = 1  # pods that may be down by our doing
    random: Random = field(default_factory=lambda: Random(0))

    now: datetime = NOW
    moment: int = 0  # counts every change, to say what was before what
    pods: dict[str, PodRecord] = field(default_factory=dict)
    claims: dict[str, ClaimRecord] = field(default_factory=dict)
    sets: dict[str, ReplicaSetRecord] = field(default_factory=dict)
    desired: dict[str, int] = field(default_factory=dict)  # the desired-replicas annotation of ReplicaSets
    revisions: dict[str, RevisionRecord] = field(default_factory=dict)  # by digest
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    slices: dict[str, SliceRecord] = field(default_factory=dict)
    away: dict[str, tuple[NodeRecord, SliceRecord]] = field(default_factory=dict)  # nodes that were removed
    processes: dict[str, Process] = field(default_factory=dict)
    last_states: dict[str, PodRecord] = field(default_factory=dict)
    went: dict[str, tuple[datetime, int]] = field(default_factory=dict)  # pod UID: when its object went
    forced: dict[str, int] = field(default_factory=dict)  # pods ended without their kubelet: the moment
    forced_held: set[str] = field(default_factory=set)  # of those, whose claim was held then
    stuck_nodes: set[str] = field(default_factory=set)  # whose driver fails to unprepare
    pins: dict[str, str] = field(default_factory=dict)  # pod UID: the node that its selector names
    budget: BudgetRecord | None = None
    spare: int = 1  # pods that the budget allows to be down
    overlaps: list[Overlap] = field(default_factory=list)
    deletions: list[str] = field(default_factory=list)  # UIDs of pods that somebody asked to go
    rollout: RolloutObject | None = None
    serial: int = 0
    workload: Workload = field(init=False)

    def __post_init__(self) -> None:
        gates = (GATE,) if self.gated else ()
        first = template("good-0", gates=gates, grace_seconds=GRACE)
        make: Any = {"Deployment": deployment, "DaemonSet": daemon_set}.get(self.kind, stateful_set)
        facts: dict[str, Any] = {"template": first, "generation": 1, "observed_generation": 0}
        if self.kind == "Deployment":
            facts |= {"managed": False, "max_unavailable": self.unavailable}
        elif self.kind == "StatefulSet":
            facts |= {"update_revision": "", "current_revision": ""}
        self.workload = make(self.replicas, **facts)
        for number in range(self.devices):
            labels = {HOSTNAME_LABEL: f"node-{number}", ZONE: f"zone-{number % 2}"}
            self.nodes[f"node-{number}"] = node(f"node-{number}", labels=labels)
            self.slices[f"slice-{number}"] = pool(number)

    # Shared

    def tick(self, seconds: int = 1) -> None:
        self.now += timedelta(seconds=seconds)

    def changed(self) -> str:
        self.moment += 1
        return str(self.moment)

    def next_number(self) -> int:
        self.serial += 1
        return self.serial

    def set_workload(self, *, spec: bool, **over: Any) -> None:
        if spec:
            over["generation"] = self.workload.generation + 1
        self.workload = replace(self.workload, resource_version=self.changed(), **over)

    def put_pod(self, pod: PodRecord, **over: Any) -> None:
        self.pods[pod.uid] = replace(pod, resource_version=self.changed(), **over)

    def live(self) -> list[PodRecord]:
        return [p for p in self.pods.values() if p.live]

    def owned(self, uid: str) -> list[PodRecord]:
        return [p for p in self.pods.values() if p.owner and p.owner.uid == uid]

    def make_pod(
        self, name: str, owner: Owner, revision: str, gates: tuple[str, ...], aimed_at: str = ""
    ) -> None:
        uid = f"{name}.{self.next_number()}"
        self.pods[uid] = PodRecord(
            namespace=SPACE,
            name=name,
            uid=uid,
            resource_version=self.changed(),
            created=self.now.replace(microsecond=0),
            owner=owner,
            revision=revision,
            node="",
            phase=Phase.PENDING,
            gates=gates,
            ready=False,
            ready_since=None,
            deletion=None,
            deletion_grace=None,
            grace_seconds=GRACE,
            claims=(PodClaim("device", None, named=False),),
            extended_claim=None,
            kubelet_terminal=False,
            containers_terminated=False,
            by_pod_gc=False,
            aimed_at=aimed_at,
        )

    def delete_pod(self, pod: PodRecord, *, force: bool = False) -> None:
        """DELETE: an unbound pod and a forced deletion are gone at once; a terminal one is done with."""
        if pod.uid not in self.pods:
            return
        if pod.uid not in self.deletions:
            self.deletions.append(pod.uid)
        if force and pod.bound and not pod.finalizers:
            self.end_by_force(pod)
        if pod.finalizers:
            if not pod.terminating or force:
                grace = 0 if force else GRACE
                self.put_pod(
                    pod, deletion=self.now + timedelta(seconds=grace), deletion_grace=grace, ready=False
                )
        elif force or not pod.bound or pod.terminal:
            self.remove(pod)
        elif not pod.terminating:
            end = self.now + timedelta(seconds=GRACE)
            self.put_pod(pod, deletion=end, deletion_grace=GRACE, ready=False)

    def end_by_force(self, pod: PodRecord) -> None:
        """Note that from now on the API takes a pod for ended whose processes may run."""
        if pod.uid not in self.processes or pod.uid in self.forced:
            return
        self.forced[pod.uid] = self.moment
        claim = self.claims.get(pod.claims[0].claim_name or "")
        if claim is not None and any(map(is_hold, claim.reserved_for)):
            self.forced_held.add(pod.uid)

    def set_finalizers(self, pod: PodRecord, finalizers: tuple[str, ...]) -> None:
        """Change the finalizers; with the last one goes what waits for nothing else."""
        self.put_pod(pod, finalizers=finalizers)
        if not finalizers and pod.terminating and (pod.terminal or not pod.bound):
            self.remove(self.pods[pod.uid])

    def remove(self, pod: PodRecord) -> None:
        self.changed()
        self.last_states[pod.uid] = self.pods.pop(pod.uid)
        self.went[pod.uid] = (self.now, self.moment)

    # The Deployment's controller [deployment/sync.go, rolling.go]

    def run_deployment(self) -> None:
        spec = self.workload
        if not isinstance(spec, DeploymentRecord):
            return
        if spec.observed_generation != spec.generation:
            self.set_workload(spec=False, observed_generation=spec.generation)
        active = [r for r in self.sets.values() if r.replicas]
        scaled = any(self.desired[r.uid] != spec.replicas for r in active)
        if spec.paused or scaled:
            self._scale_all()
            return
        new = self._numbered(self._new_set() or self._create_set())
        old = sorted((r for r in active if r.uid != new.uid), key=lambda r: (r.created, r.name))
        step = RollingUpdate(
            spec.replicas,
            resolve(spec.max_unavailable, spec.replicas, round_up=False) or 1,
            (new.replicas, new.available),
            [(r.replicas, r.available) for r in old],
        )
        step.sync()
        self._resize(new, step.new[0])
        for one, (size, _) in zip(old, step.old, strict=True):
            self._resize(one, size)

    def _new_set(self) -> ReplicaSetRecord | None:
        digest = self.workload.template.digest
        return next((r for r in self.sets.values() if r.template_digest == digest), None)

    def _create_set(self) -> ReplicaSetRecord:
        wanted = self.workload.template
        made = ReplicaSetRecord(
            namespace=SPACE,
            name=f"{NAME}-{wanted.digest}",
            uid=f"rs-{wanted.digest}",
            resource_version=self.changed(),
            created=self.now,
            owner_uid=self.workload.uid,
            generation=1,
            observed_generation=0,
            replicas=0,
            status_replicas=0,
            available=0,
            revision=wanted.digest,
            template_digest=wanted.digest,
            template_gates=wanted.gates,
            template_labels=wanted.labels,
        )
        self.sets[made.uid] = made
        self.desired[made.uid] = self.workload.replicas
        return made

    def _numbered(self, new: ReplicaSetRecord) -> ReplicaSetRecord:
        """The present template's set has the highest number, also if it comes again."""
        last = max((r.number for r in self.sets.values() if r.uid != new.uid), default=0)
        if new.number <= last:
            new = self.sets[new.uid] = replace(new, number=last + 1, resource_version=self.changed())
        return new

    def _resize(self, one: ReplicaSetRecord, size: int) -> None:
        self.desired[one.uid] = self.workload.replicas
        if self.sets[one.uid].replicas != size:
            changed = replace(one, replicas=size, generation=one.generation + 1)
            self.sets[one.uid] = replace(changed, resource_version=self.changed())

    def _scale_all(self) -> None:
        """Scale: the only active ReplicaSet to what is asked for, several in proportion, the largest first."""
        wanted = self.workload.replicas
        new = self._new_set()
        active = [r for r in self.sets.values() if r.replicas]
        if len(active) <= 1:
            one = (
                active[0] if active else new or max(self.sets.values(), key=lambda r: r.created, default=None)
            )
            if one is not None:
                self._resize(one, wanted)
            return
        if new is not None and new.replicas == new.available == wanted:
            for one in active:
                if one.uid != new.uid:
                    self._resize(one, 0)
            return
        left = wanted - sum(r.replicas for r in active)
        newest_first = -1 if left > 0 else 1
        ranked = sorted(active, key=lambda r: (-r.replicas, newest_first * r.created.timestamp()))
        sizes: dict[str, int] = {}
        for one in ranked:
            before = self.desired[one.uid] or wanted
            share = round(one.replicas * wanted / before) - one.replicas if before else left
            share = max(0, min(share, left)) if left > 0 else min(0, max(share, left))
            sizes[one.uid] = one.replicas + share
            left -= share
        if left:
            sizes[ranked[0].uid] = max(0, sizes[ranked[0].uid] + left)
        for one in ranked:
            self._resize(one, sizes[one.uid])

    # The ReplicaSets' controller [controller_utils.go ActivePodsWithRanks]

    def run_sets(self) -> None:
        for one in tuple(self.sets.values()):
            pods = [p for p in self.owned(one.uid) if p.live]
            owner = Owner("ReplicaSet", one.name, one.uid)
            for _ in range(one.replicas - len(pods)):
                self.make_pod(f"{NAME}-{self.next_number()}", owner, one.revision, one.template_gates)
            for victim in sorted(pods, key=_rank)[: max(0, len(pods) - one.replicas)]:
                self.delete_pod(victim)
            pods = [p for p in self.owned(one.uid) if p.live]
            now = replace(
                one,
                observed_generation=one.generation,
                status_replicas=len(pods),
                available=sum(p.ready for p in pods),
            )
            if now != one:
                self.sets[one.uid] = replace(now, resource_version=self.changed())

    # The StatefulSet's controller, OnDelete [stateful_set_control.go]

    def run_stateful_set(self) -> None:
        spec = self.workload
        if not isinstance(spec, StatefulSetRecord):
            return
        self._note_revision()
        if spec.observed_generation != spec.generation:
            self.set_workload(
                spec=False, observed_generation=spec.generation, update_revision=spec.template.digest
            )
        by_number = {int(p.name.rpartition("-")[2]): p for p in self.owned(spec.uid)}
        for number in range(spec.replicas):
            pod = by_number.get(number)
            if pod is not None and pod.terminal and not pod.terminating:
                self.delete_pod(pod)
                pod = None
            if pod is None:
                owner = Owner("StatefulSet", spec.name, spec.uid)
                self.make_pod(f"{NAME}-{number}", owner, spec.template.digest, spec.template.gates)
                if self.ordered:
                    return
            elif self.ordered and not pod.ready:
                return
        down = [p for _, p in sorted(by_number.items()) if not p.ready]
        for number in sorted((n for n in by_number if n >= spec.replicas), reverse=True):
            pod = by_number[number]
            if pod.terminating:
                if self.ordered:
                    return
                continue
            if self.ordered and not pod.ready and pod is not down[0]:
                return
            self.delete_pod(pod)
            if self.ordered:
                return

    # The DaemonSet's controller, OnDelete [daemon_controller.go podsShouldBeOnNode]

    def run_daemon_set(self) -> None:
        spec = self.workload
        if not isinstance(spec, DaemonSetRecord):
            return
        digest = spec.template.digest
        if self._note_revision():
            return  # its status tells of it in the next write
        if (spec.observed_generation, spec.replicas) != (spec.generation, len(self.nodes)):
            self.set_workload(spec=False, observed_generation=spec.generation, replicas=len(self.nodes))
        owner = Owner("DaemonSet", spec.name, spec.uid)
        for name in sorted(self.nodes):
            pods = [p for p in self.owned(spec.uid) if p.place == name]
            if not pods:
                number = name.rpartition("-")[2]
                made_name = f"{NAME}-{number}-{self.next_number()}"
                self.make_pod(made_name, owner, digest, spec.template.gates, aimed_at=name)
            for pod in pods:
                if pod.terminal and not pod.terminating:
                    self.delete_pod(pod)
        for pod in self.owned(spec.uid):
            if not pod.bound and pod.place not in self.nodes:
                self.delete_pod(pod)

    def _note_revision(self) -> bool:
        """Keep the present template as the newest revision; whether that was news."""
        digest = self.workload.template.digest
        last = max((r.number for r in self.revisions.values()), default=0)
        known = self.revisions.get(digest)
        if known is not None and known.number == last:
            return False
        gated = GATE in self.workload.template.gates
        self.revisions[digest] = revision(digest, last + 1, resource_version=self.changed(), gated=gated)
        return True

    # The garbage collector of pods whose node is gone

    def run_pod_gc(self) -> None:
        for pod in tuple(self.pods.values()):
            if pod.bound and pod.node not in self.nodes:
                if not pod.terminal:  # its claim may go from here on, a guard or not
                    self.end_by_force(pod)
                    self.put_pod(pod, phase=Phase.FAILED, by_pod_gc=True, ready=False)
                self.delete_pod(self.pods[pod.uid], force=True)

    # The ResourceClaims' controller

    def run_claims(self) -> None:
        for pod in tuple(self.pods.values()):
            if pod.live and pod.claims and pod.claims[0].claim_name is None:
                name = f"{pod.name}-device-{self.next_number()}"
                self.claims[name] = ClaimRecord(
                    namespace=SPACE,
                    name=name,
                    uid=f"c-{name}",
                    resource_version=self.changed(),
                    owner_pod_uid=pod.uid,
                    deletion=None,
                    reserved_for=(),
                    uses=None,
                )
                self.put_pod(pod, claims=(PodClaim("device", name, named=False),))
        for claim in tuple(self.claims.values()):
            owner = self.pods.get(claim.owner_pod_uid)
            if owner is not None and not owner.terminal:
                continue
            stays = tuple(filter(is_hold, claim.reserved_for))  # entries of others are left alone
            if owner is not None and not owner.terminating and stays and self.random.random() < 0.5:
                continue  # an ended pod without a deletion is reserved for again and again
            if stays:
                self._put_claim(claim, reserved_for=stays, deletion=self.now if owner is None else None)
            elif claim.uses is not None or claim.reserved_for:
                self._put_claim(claim, uses=None, reserved_for=())
            elif owner is None:
                self.changed()
                del self.claims[claim.name]

    def _put_claim(self, claim: ClaimRecord, **over: Any) -> None:
        if over.get("deletion") is not None and claim.deletion is not None:
            over["deletion"] = claim.deletion
        if replace(claim, **over) != claim:
            self.claims[claim.name] = replace(claim, resource_version=self.changed(), **over)

    # The scheduler

    def run_scheduler(self) -> None:
        waiting = [p for p in self.pods.values() if p.live and not p.bound and not p.gates]
        self.random.shuffle(waiting)
        for pod in waiting:
            claim = self.claims.get(pod.claims[0].claim_name or "")
            if claim is None:
                continue
            if claim.uses is not None:
                if self.takes(claim.uses[0].device.pool, pod):
                    self.put_pod(pod, node=claim.uses[0].device.pool)
                continue
            free = [d for d in self.free_devices() if self.takes(d.pool, pod)]
            if free:
                chosen = self.random.choice(free)
                reserved = (Reservation("", "pods", pod.name, pod.uid),)
                self.claims[claim.name] = replace(
                    claim,
                    uses=(DeviceUse(chosen),),
                    reserved_for=reserved,
                    resource_version=self.changed(),
                )
                if self.random.random() < 0.7:
                    self.put_pod(self.pods[pod.uid], node=chosen.pool)

    def takes(self, name: str, pod: PodRecord) -> bool:
        """Whether the pod may go to the node: a DaemonSet's goes to its own, cordoned or not."""
        if pod.aimed_at:
            return pod.aimed_at == name
        there = self.nodes.get(name)
        return (there is None or not there.unschedulable) and self.pins.get(pod.uid, name) == name

    def free_devices(self) -> list[Device]:
        taken = {u.device for c in self.claims.values() for u in c.uses or ()}
        return [d for d in self.published() if d not in taken]

    def published(self) -> Iterator[Device]:
        for one in self.slices.values():
            if one.slice_count == 1 and self.nodes[one.node].ready:
                for made in one.devices:
                    if not made.taints:
                        yield Device(DRIVER, one.pool, made.name)

    # The controller of PodDisruptionBudgets

    def run_budget(self) -> None:
        if self.budget is not None:
            ready = sum(p.ready for p in self.live() if p.name.startswith(NAME))
            allowed = max(0, ready - (self.workload.replicas - self.spare))
            if self.budget.disruptions_allowed != allowed:
                self.budget = replace(
                    self.budget, disruptions_allowed=allowed, resource_version=self.changed()
                )

    # The kubelets

    def run_kubelet(self, name: str) -> None:
        """One look at each pod of the node: each takes one step per call."""
        if name not in self.nodes or not self.nodes[name].ready:
            return
        for pod in [p for p in self.pods.values() if p.node == name]:
            if pod.terminal:
                if pod.terminating and not pod.finalizers:
                    self.remove(pod)
            elif pod.terminating:
                self._stop(pod)
            elif pod.uid not in self.processes:
                self._start(pod)
            elif not pod.ready and not pod.revision.startswith("bad"):
                since = self.now.replace(microsecond=0)
                self.put_pod(pod, phase=Phase.RUNNING, ready=True, ready_since=since, waiting_reason="")
        for process in tuple(self.processes.values()):
            if process.node == name and process.pod_uid in self.went and name not in self.stuck_nodes:
                late = self.now >= self.went[process.pod_uid][0] + timedelta(seconds=LEFTOVERS)
                if late or self.random.random() < 0.2:
                    del self.processes[process.pod_uid]

    def sweep_leftovers(self) -> None:
        """The wait for unproven releases rests on this: on a Ready node no process outlives its pod for longer."""
        for process in tuple(self.processes.values()):
            went, there = self.went.get(process.pod_uid), self.nodes.get(process.node)
            if went and there and there.ready:
                since = max(went[0], there.ready_since or went[0])
                if self.now >= since + timedelta(seconds=LEFTOVERS):
                    del self.processes[process.pod_uid]

    def _start(self, pod: PodRecord) -> None:
        claim = self.claims.get(pod.claims[0].claim_name or "")
        if claim is None or claim.uses is None:
            return
        device = claim.uses[0].device
        for other in self.processes.values():
            if other.device == device:
                self.overlaps.append(Overlap(device, other.pod_uid, pod.uid))
        self.processes[pod.uid] = Process(pod.uid, claim.uid, pod.node, device)
        bad = pod.revision.startswith("bad")
        self.put_pod(pod, waiting_reason="ErrImagePull" if bad else "")

    def _stop(self, pod: PodRecord) -> None:
        if pod.node in self.stuck_nodes:
            return
        self.processes.pop(pod.uid, None)
        self.put_pod(
            pod,
            phase=Phase.SUCCEEDED,
            kubelet_terminal=True,
            containers_terminated=True,
            ready=False,
            ended_at=self.now.replace(microsecond=0),
        )

    # People, and bad luck

    def change_template(self, digest: str) -> None:
        """A change of the template; our admission policy parks a Deployment that carries our label."""
        if digest == self.workload.template.digest and GATE in self.workload.template.gates:
            return
        changed = replace(self.workload.template, digest=digest, gates=(GATE,))
        over: dict[str, Any] = {"template": changed}
        if isinstance(self.workload, DeploymentRecord) and self.workload.managed:
            over |= {"paused": True, "parked": "template-changed"}
        self.set_workload(spec=True, **over)

    def scale(self, replicas: int) -> None:
        if isinstance(self.workload, DaemonSetRecord):
            return  # as many as there are nodes
        if replicas != self.workload.replicas:
            self.set_workload(spec=True, replicas=replicas)

    def pause_by_hand(self) -> None:
        if isinstance(self.workload, DeploymentRecord) and not self.workload.paused:
            self.set_workload(spec=True, paused=True)

    def resume_by_hand(self) -> None:
        if isinstance(self.workload, DeploymentRecord) and self.workload.paused:
            self.set_workload(spec=True, paused=False)

    def set_budget(self, spare: int | None) -> None:
        """Let a PodDisruptionBudget allow so many pods to be down; None takes it away."""
        self.spare = spare or 0
        self.budget = None if spare is None else budget(0, resource_version=self.changed())
        self.run_budget()

    def forbidden(self, pod: PodRecord) -> bool:
        """Whether the eviction API answers 429: a pod that is not ready may always go."""
        return pod.ready and self.budget is not None and self.budget.disruptions_allowed < 1

    def cordon(self, name: str, *, on: bool) -> None:
        if self.nodes[name].unschedulable != on:
            self.nodes[name] = replace(self.nodes[name], unschedulable=on, resource_version=self.changed())

    def drain(self, name: str) -> None:
        """Cordon the node, and evict its pods; a DaemonSet's are left where they are."""
        self.cordon(name, on=True)
        for pod in [p for p in self.live() if p.node == name and not p.aimed_at]:
            self.run_budget()
            if not self.forbidden(pod):
                self.delete_pod(pod)

    def some_pod(self, wanted: Iterable[PodRecord]) -> PodRecord | None:
        pods = sorted(wanted, key=lambda p: p.uid)
        return self.random.choice(pods) if pods else None

    def evict_by_kubelet(self) -> None:
        """The kubelet ends a pod under pressure: no deletionTimestamp, and the object stays."""
        pod = self.some_pod(p for p in self.live() if p.uid in self.processes and p.owner)
        there = self.nodes.get(pod.node) if pod is not None else None
        if pod is not None and there is not None and pod.node not in self.stuck_nodes and there.ready:
            del self.processes[pod.uid]
            self.put_pod(
                pod,
                phase=Phase.FAILED,
                kubelet_terminal=True,
                containers_terminated=True,
                ready=False,
                ended_at=self.now.replace(microsecond=0),
            )

    def crash(self) -> None:
        """A container ends by itself, and is started again when its kubelet looks next."""
        pod = self.some_pod(p for p in self.live() if p.ready and p.uid in self.processes)
        if pod is not None:
            self.put_pod(
                pod,
                ready=False,
                ready_since=None,
                waiting_reason="CrashLoopBackOff",
                exit_code=1,
                exit_reason="Error",
            )

    def stranger_comes(self) -> None:
        number = self.next_number()
        name = f"stranger-{number}"
        self.make_pod(name, Owner("ReplicaSet", "other", "rs-other"), "good", ())

    def strangers_leave(self) -> None:
        for pod in tuple(self.pods.values()):
            if pod.name.startswith("stranger"):
                self.delete_pod(pod)

    def set_node(self, name: str, *, ready: bool) -> None:
        old = self.nodes[name]
        if old.ready != ready:
            since = self.now if ready else None
            self.nodes[name] = replace(old, ready=ready, ready_since=since, resource_version=self.changed())

    def remove_node(self, name: str) -> None:
        """The Node object goes, its slices after it; what runs there runs on."""
        number = name.rpartition("-")[2]
        self.changed()
        self.away[name] = (self.nodes.pop(name), self.slices.pop(f"slice-{number}"))

    def return_node(self, name: str, *, rebooted: bool) -> None:
        """The machine registers anew, with another UID; a reboot has ended all that ran there."""
        old, offered = self.away.pop(name)
        serial = self.next_number()
        boot = f"boot-{name}-{serial}" if rebooted else old.boot_id
        if rebooted:
            self.processes = {u: p for u, p in self.processes.items() if p.node != name}
        since = self.now.replace(microsecond=0)
        self.nodes[name] = replace(
            old,
            uid=f"n-{name}-{serial}",
            boot_id=boot,
            ready=True,
            ready_since=since,
            resource_version=self.changed(),
        )
        self.slices[offered.name] = replace(offered, resource_version=self.changed())

    def set_slice(self, name: str, **over: Any) -> None:
        if name not in self.slices:
            return
        self.slices[name] = replace(self.slices[name], resource_version=self.changed(), **over)

    def taint(self, number: int, *, on: bool) -> None:
        made = PublishedDevice(f"dev-{number}", (BROKEN,) if on else ())
        self.set_slice(f"slice-{number}", devices=(made,))

    # Our object

    def create_rollout(self) -> None:
        number = self.next_number()
        raw = {
            "health": {"soakSeconds": self.soak},
            "strategy": {"maxUnavailable": self.unavailable},
            "workloadRef": {"apiVersion": "apps/v1", "kind": self.kind, "name": NAME},
            "release": {"unproven": {"extraSeconds": EXTRA}, "guard": "Finalizer" if self.guard else "None"},
        }
        self.rollout = RolloutObject(
            namespace=SPACE,
            name=NAME,
            uid=f"arol-{number}",
            resource_version=self.changed(),
            generation=1,
            created=self.now.replace(microsecond=0),
            deletion=None,
            finalizers=(),
            spec=RolloutSpec.from_raw(raw),
            status=RolloutStatus(),
        )

    def set_rollout(self, *, renew: bool = False, **over: Any) -> None:
        assert self.rollout is not None
        if renew:
            over["generation"] = self.rollout.generation + 1
        self.rollout = replace(self.rollout, resource_version=self.changed(), **over)

    def edit(self, patch: dict[str, Any]) -> None:
        """A merge patch of spec. What the API server refuses changes nothing."""
        if self.rollout is None:
            return
        try:
            spec = RolloutSpec.from_raw(_merged(self.rollout.spec.to_raw(), patch))
        except ValidationError:
            return
        if spec != self.rollout.spec:
            self.set_rollout(renew=True, spec=spec)

    def pause_rollout(self, *, paused: bool) -> None:
        self.edit({"paused": paused})

    def ask(self, action: ActionType) -> None:
        if self.rollout is not None and self.rollout.deletion is None:
            asked = RequestedAction(type=action, id=str(self.next_number()))
            spec = self.rollout.spec.model_copy(update={"action": asked})
            self.set_rollout(renew=True, spec=spec)

    def restart(self, seconds: int = 0) -> None:
        if self.rollout is not None and self.rollout.deletion is None:
            when = self.now.replace(microsecond=0) + timedelta(seconds=seconds)
            spec = self.rollout.spec.model_copy(update={"restarted_at": when})
            self.set_rollout(renew=True, spec=spec)

    def delete_rollout(self) -> None:
        if self.rollout is not None and self.rollout.deletion is None:
            if FINALIZER in self.rollout.finalizers:
                self.set_rollout(renew=True, deletion=self.now.replace(microsecond=0))
            else:
                self.changed()
                self.rollout = None

    def heal(self, spec: dict[str, Any]) -> None:
        """End every fault and every stop; `spec` is what ends those that stand there."""
        self.edit(spec)
        self.set_budget(None)
        self.stuck_nodes.clear()
        self.strangers_leave()
        for name in sorted(self.away):
            self.return_node(name, rebooted=self.random.random() < 0.5)
        for number in range(self.devices):
            self.set_node(f"node-{number}", ready=True)
            self.cordon(f"node-{number}", on=False)
            self.taint(number, on=False)
            self.set_slice(f"slice-{number}", slice_count=1)
        workload = self.workload
        if isinstance(workload, DeploymentRecord) and workload.paused and workload.parked is None:
            self.resume_by_hand()

    def run_all(self) -> None:
        """Everybody but the operator takes one step."""
        self.run_deployment()
        self.run_sets()
        self.run_stateful_set()
        self.run_daemon_set()
        self.run_pod_gc()
        self.run_budget()
        self.run_claims()
        self.run_scheduler()
        for name in tuple(self.nodes):
            self.run_kubelet(name)
        self.run_claims()


def _merged(old: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return what an RFC 7386 merge patch makes of the value."""
    merged = dict(old)
    for key, value in patch.items():
        deeper = value if not isinstance(value, dict) else _merged(old.get(key) or {}, value)
        merged[key] = deeper
    return merged


def _rank(pod: PodRecord) -> tuple[object, ...]:
    """Order in which a ReplicaSet takes its pods down, the first first."""
    phase = {Phase.PENDING: 0, Phase.UNKNOWN: 1}.get(pod.phase, 2)
    ready = pod.ready_since.timestamp() if pod.ready_since else 0.0
    return (pod.bound, phase, pod.ready, pod.deletion_cost, -ready, -pod.created.timestamp(), pod.uid)
