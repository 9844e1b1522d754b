"""Carries out one plan: confirm each action by fresh reads and a second decision, act, store the status.

What if the process dies right here? Every action is one request, so it is either done or not, and the next decision
reads which:

- AddFinalizer: an object without it is new, and nothing of its workload has been touched yet.
- RemoveFinalizer: the last act; undone, it is decided again, and by then nothing else is left to do.
- ManageDeployment: labels, and no pod moves. UnmanageDeployment: label, annotation and pause go in one request.
- PauseDeployment: a paused Deployment with our annotation is at rest; the next decision unpauses it if a step is due.
- UnpauseDeployment: its victim stands in the status before it is sent (`record_first`). Whatever pod the controller then
  deletes is seen as a departure, and the Deployment as moving: it is paused again.
- PreferVictim: a cost without a step steers nothing, and the next step sets another.
- EvictPod: stands in the status before it is sent; afterwards the pod's deletionTimestamp shows that it was done.
- OpenGate: the pod shows it; a stage that is not stored yet is found out again from the pods.
- HoldClaim: the claim shows it; its devices then wait for a proof, which the next decision finds or waits for.
- EndHold: our entry and the allocation go in one request; a gate that was to follow opens with the next decision.
- AddGuard, RemoveGuard: the pod shows it. A pod that ended under its guard and is gone proves its end by its last state, if
  that was seen or the proof stored; else it costs the wait.
- RestoreTemplate: stands in the status before it is sent; afterwards the workload's template shows that it was done. It
  parks a Deployment in the same request, so that none of its pods moves before the next decision.
- ProbeGate: a dry run leaves nothing.

Two processes at once: every write carries the UID, and where it hangs on more than that the resourceVersion, so the
second one gets a conflict and decides anew.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol, assert_never

from accelerator_rollout.act.checks import run_checks, run_health_checks
from accelerator_rollout.act.client import Client, Raw
from accelerator_rollout.act.confirming import Confirming
from accelerator_rollout.act.events import Events
from accelerator_rollout.api.models import RolloutObject, RolloutStatus
from accelerator_rollout.clock import Clock
from accelerator_rollout.decide.actions import (
    Action,
    AddFinalizer,
    AddGuard,
    CheckHealth,
    EndHold,
    EndReservation,
    EvictPod,
    HoldClaim,
    ManageDeployment,
    OpenGate,
    ParkReason,
    PauseDeployment,
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
from accelerator_rollout.decide.confirm import merge
from accelerator_rollout.decide.outcome import EventType, Notice, Plan
from accelerator_rollout.decide.patience import AT_MOST, patience
from accelerator_rollout.decide.reasons import Announcement
from accelerator_rollout.decide.reservations import rule_name, taint_of
from accelerator_rollout.decide.shared_budget import SharedBudget
from accelerator_rollout.decide.snapshot import CheckRun, GateProbe, GateSource, HealthRun, Refused, Snapshot
from accelerator_rollout.errors import (
    ActError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotLeadingError,
    RefusedError,
)
from accelerator_rollout.names import FINALIZER, GATE, RESERVED_BY_LABEL, RESERVED_IN_LABEL
from accelerator_rollout.observe.kinds import OF_WORKLOAD, Kind
from accelerator_rollout.observe.project import held_template
from accelerator_rollout.observe.project import rollout as parse_rollout
from accelerator_rollout.observe.project import template as parse_template
from accelerator_rollout.records import ClaimRecord, DeploymentRecord, Device

_log = logging.getLogger(__name__)

Planner = Callable[[Snapshot, datetime], Plan]

_OnWorkload = (
    ManageDeployment
    | UnmanageDeployment
    | PauseDeployment
    | UnpauseDeployment
    | PreferVictim
    | EvictPod
    | OpenGate
    | HoldClaim
    | EndHold
    | AddGuard
    | RemoveGuard
    | ReserveDevice
    | EndReservation
    | RestoreTemplate
)


class Watched(Protocol):
    """Who is told each new state of an object that a write brought, so that the next decision sees it."""

    def __call__(self, kind: Kind, raw: Raw) -> None:
        """Take in the state."""
        ...


class Observed(Protocol):
    """Who counts what happens."""

    def acted(self, action: Action, result: str) -> None:
        """Count an action by what came of it: done, dropped, refused, conflict."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a plan. `refused` and `probe` are for the next snapshot.

    `again`: there is something new to decide with, at once. `moved`: the world is not the one that was decided on; decide
    anew as soon as the store has heard of it.
    """

    again: bool = False
    moved: bool = False
    refused: Refused | None = None
    probe: GateProbe | None = None
    checked: Mapping[str, CheckRun] = field(default_factory=dict)  # by id of the replacement
    health: Mapping[str, HealthRun] = field(default_factory=dict)  # by UID of the successor
    held: tuple[str, ...] = ()  # UIDs of claims that were held
    stored: bool = True  # the status in the cluster is the plan's
    patience: float = 0.0  # what the plan's status has, if it is not stored
    untold: float = 0.0  # seconds of that which are left


@dataclass(frozen=True, slots=True)
class Backlog:
    """What earlier decisions found out and did not store: the snapshot's own object carries it as if they had.

    `stored` is the status in the cluster, and `notices` are the Events that belong to what was not stored. `patience` is
    what that had, of which `left` seconds are left, and `at_most` are left whatever else becomes known.
    """

    stored: RolloutStatus
    notices: tuple[Notice, ...] = ()
    patience: float = 0.0
    left: float = 0.0
    at_most: float = AT_MOST

    def wait(self, wanted: RolloutStatus) -> tuple[float, float]:
        """Return what patience `wanted` has, and for how many seconds from now; none if that is not above 0.

        A proof that comes while news wait has its own moment: the opening that follows must not wait for a write.
        """
        has = patience(self.stored, wanted)
        return has, self.left if has == self.patience else min(has, self.at_most)


class Executor:
    """Acts for all AcceleratorRollouts; keeps nothing of them between two plans."""

    def __init__(
        self,
        client: Client,
        confirming: Confirming,
        events: Events,
        watched: Watched,
        observed: Observed,
        clock: Clock,
        planner: Planner,
        shared: Callable[[Snapshot], SharedBudget | None] = lambda snapshot: snapshot.shared,
    ) -> None:
        self._shared = shared
        self._client, self._confirming, self._events = client, confirming, events
        self._watched, self._observed = watched, observed
        self._clock, self._planner = clock, planner
        self._choosing: defaultdict[str, asyncio.Lock] = defaultdict(
            asyncio.Lock
        )  # by group of a shared budget

    async def run(
        self,
        snapshot: Snapshot,
        plan: Plan,
        backlog: Backlog | None = None,
        sending: Callable[[str], None] = lambda _pod_uid: None,
    ) -> Outcome:
        """Carry out `plan`, which was decided over `snapshot`. Without a backlog the status is stored in any case.

        `sending` is told each pod that is about to be disrupted, before the request goes out.

        Raises ActError if the cluster cannot be reached or does not let us: nothing is half done then, the next
        decision starts from the world as it is.
        """
        if plan.record_first:
            recorded = await self._record(snapshot, plan, backlog)
            if recorded is None:
                return Outcome(moved=True, stored=False)
            snapshot = recorded
        outcome = Outcome(stored=plan.record_first)
        trouble: ActError | None = None
        for action in plan.actions:
            if (outcome.moved or trouble) and not isinstance(action, OpenGate):
                continue  # it may hang on the one that was not done; one pod's trouble keeps no other pod gated
            try:
                snapshot, outcome = await self._act(action, snapshot, outcome, sending)
            except (ConflictError, GoneError) as error:
                self._tell(action, snapshot, "conflict", str(error))
                outcome = replace(outcome, moved=True)
            except RefusedError as error:
                self._tell(action, snapshot, "refused", str(error))
                uid = action.pod_uid if isinstance(action, EvictPod) else ""
                refused = Refused(uid, "Refused", str(error), self._clock())
                return replace(outcome, again=True, refused=refused)
            except (ForbiddenError, InvalidError) as error:
                self._tell(action, snapshot, "failed", str(error))
                failed = Notice(
                    EventType.WARNING, Announcement.ACTION_FAILED, str(error), type(action).__name__
                )
                await self._events.tell(snapshot.rollout, failed)
                trouble = error
        left = any(isinstance(a, RemoveFinalizer) for a in plan.actions)
        if not plan.record_first and not outcome.moved and not left:
            has, wait = backlog.wait(plan.status) if backlog else (0.0, 0.0)
            if wait <= 0:
                await self._store_status(snapshot, plan.status, backlog)
            outcome = replace(outcome, stored=wait <= 0, patience=has, untold=max(0.0, wait))
        if trouble is not None:
            raise trouble
        owed = (*(backlog.notices if backlog else ()), *plan.notices)
        for notice in owed if outcome.stored or left else ():
            await self._events.tell(snapshot.rollout, notice)
        return outcome

    async def _record(self, snapshot: Snapshot, plan: Plan, backlog: Backlog | None) -> Snapshot | None:
        """Store the choice before it is acted on; None if others of a shared budget have chosen meanwhile.

        Of a budget one choice is recorded at a time, and the next one sees it. Choices beyond the budget would do no harm
        here, since none is acted on while it is exceeded and the youngest is dropped; but whoever finds them after our
        death must take each for one whose eviction is still on its way, and would wait for that before any goes on.
        """
        if snapshot.shared is None:
            return await self._store_status(snapshot, plan.status, backlog)
        async with self._choosing[snapshot.shared.group]:
            shared = self._shared(snapshot)
            if shared != snapshot.shared:
                again = self._planner(replace(snapshot, shared=shared), self._clock())
                if again.actions != plan.actions:
                    _log.debug("%s: others have chosen meanwhile", snapshot.rollout.name)
                    return None
            return await self._store_status(snapshot, plan.status, backlog)

    async def _act(
        self, action: Action, snapshot: Snapshot, outcome: Outcome, sending: Callable[[str], None]
    ) -> tuple[Snapshot, Outcome]:
        fresh = snapshot
        if not isinstance(action, AddFinalizer | RemoveFinalizer | ProbeGate | RunChecks | CheckHealth):
            reads = await self._confirming.read(action, snapshot)
            now = self._clock()
            # Nothing is awaited between this look at the others and the decision: see `decide.shared_budget`.
            fresh = replace(merge(snapshot, reads, now), shared=self._shared(snapshot))
            if action not in self._planner(fresh, now).actions:
                self._tell(action, snapshot, "dropped", "fresh reads say otherwise")
                return snapshot, replace(outcome, moved=True)
        if isinstance(action, AddFinalizer | RemoveFinalizer):
            # The status that follows carries the resourceVersion that this write brings.
            own = await self._finalizer(fresh, add=isinstance(action, AddFinalizer))
            snapshot = replace(snapshot, rollout=own)
        elif isinstance(action, ProbeGate):
            probe = await self._probe(fresh, action.template_digest)
            outcome = replace(outcome, probe=probe, again=True)
        elif isinstance(action, RunChecks):
            run = await self._check(fresh, action.replacement_id)
            news = {action.replacement_id: run} if run is not None else {}
            outcome = replace(outcome, checked={**outcome.checked, **news}, again=True)
        elif isinstance(action, CheckHealth):
            asked = await self._health(fresh, action.pod_uid)
            told = {action.pod_uid: asked} if asked is not None else {}
            outcome = replace(outcome, health={**outcome.health, **told}, again=True)
        else:
            for victim in victims_of(action):
                sending(victim)
            await self._send(action, fresh)
            if isinstance(action, HoldClaim):
                outcome = replace(outcome, held=(*outcome.held, action.claim_uid))
        self._tell(action, snapshot, "done", "")
        return snapshot, outcome

    def _tell(self, action: Action, snapshot: Snapshot, result: str, why: str) -> None:
        self._observed.acted(action, result)
        facts = {name: str(value) for name in action.__slots__ if (value := getattr(action, name)) != ""}
        rollout = f"{snapshot.rollout.namespace}/{snapshot.rollout.name}"
        what = ", ".join(f"{name}={value}" for name, value in facts.items())
        _log.info(
            "%s: %s(%s) %s%s",
            rollout,
            type(action).__name__,
            what,
            result,
            f": {why}" if why else "",
            extra={"rollout": rollout, "action": type(action).__name__, "result": result, **_renamed(facts)},
        )

    async def _send(self, action: _OnWorkload, fresh: Snapshot) -> None:
        space, client = fresh.rollout.namespace, self._client
        version = fresh.workload.resource_version if fresh.workload else ""
        match action:
            case ManageDeployment(name, uid):
                self._watched(Kind.DEPLOYMENTS, await client.label_managed(space, name, uid))
            case UnmanageDeployment(name, uid):
                ours = getattr(fresh.workload, "parked", None) is not None
                raw = await client.unmanage(space, name, uid, version, unpause=ours)
                self._watched(Kind.DEPLOYMENTS, raw)
            case PauseDeployment(name, uid, reason):
                self._watched(Kind.DEPLOYMENTS, await client.pause(space, name, uid, version, reason))
            case UnpauseDeployment(name, uid, _):
                self._watched(Kind.DEPLOYMENTS, await client.unpause(space, name, uid, version))
            case PreferVictim(name, uid, cost):
                self._watched(Kind.PODS, await client.set_cost(space, name, uid, cost))
            case EvictPod(name, uid):
                await client.evict(space, name, uid)
            case OpenGate(name, uid, _, hostname, guard):
                raw = await client.open_gate(space, name, uid, hostname, guard=guard)
                self._watched(Kind.PODS, raw)
            case AddGuard(name, uid) | RemoveGuard(name, uid):
                raw = await client.guard(space, name, uid, on=isinstance(action, AddGuard))
                self._watched(Kind.PODS, raw)
            case HoldClaim(name, uid):
                claim = _claim(fresh, name, uid)
                raw = await client.hold_claim(claim, fresh.rollout.name, fresh.rollout.uid)
                self._watched(Kind.CLAIMS, raw)
            case EndHold(name, uid, deallocate):
                claim = _claim(fresh, name, uid)
                raw = await client.end_hold(claim, fresh.rollout.uid, deallocate=deallocate)
                self._watched(Kind.CLAIMS, raw)
            case ReserveDevice(driver, pool, name):
                device, own = Device(driver, pool, name), fresh.rollout
                labels = {RESERVED_BY_LABEL: own.uid, RESERVED_IN_LABEL: own.namespace}
                raw = await client.reserve_device(
                    device, rule_name(own.uid, device), taint_of(own.name), labels
                )
                self._watched(Kind.TAINT_RULES, raw)
            case EndReservation(name, uid):
                await client.end_reservation(name, uid)
            case RestoreTemplate():
                await self._restore(action, fresh)
            case _:
                assert_never(action)

    async def _restore(self, action: RestoreTemplate, fresh: Snapshot) -> None:
        """Write the former template as the object has it that keeps it, with fields that we do not know.

        Raises GoneError or ConflictError where that object is not the one that was decided on.
        """
        workload, space = fresh.workload, fresh.rollout.namespace
        if workload is None:
            raise GoneError(f"the workload {space}/{action.name} is gone")
        kind = Kind.REPLICA_SETS if isinstance(workload, DeploymentRecord) else Kind.REVISIONS
        raw = await self._client.read(kind, space, action.revision_name)
        if raw is None or raw["metadata"].get("uid") != action.revision_uid:
            raise GoneError(f"{kind} {space}/{action.revision_name} is gone")
        template = held_template(raw)
        if parse_template(template).digest != action.restores:
            raise ConflictError(f"{kind} {space}/{action.revision_name} has another template now")
        # A person's own pause stays exactly that.
        park = isinstance(workload, DeploymentRecord) and (not workload.paused or workload.parked is not None)
        written = await self._client.write_template(
            OF_WORKLOAD[workload.kind],
            space,
            workload.name,
            workload.uid,
            workload.resource_version,
            template,
            parked=str(ParkReason.TEMPLATE_CHANGED) if park else "",
        )
        self._watched(OF_WORKLOAD[workload.kind], written)

    async def _finalizer(self, fresh: Snapshot, *, add: bool) -> RolloutObject:
        """Write our finalizer on, or off, the object that was decided on; return it as it is then.

        Finalizers are a list that others write too, so it is read afresh and goes back with its resourceVersion.
        """
        decided = fresh.rollout
        raw = await self._client.read(Kind.ROLLOUTS, decided.namespace, decided.name)
        own = self._own(fresh, raw)
        if own.finalizers != decided.finalizers or own.deletion != decided.deletion:
            raise ConflictError(f"AcceleratorRollout {decided.namespace}/{decided.name} has changed")
        wanted = [f for f in own.finalizers if f != FINALIZER] + ([FINALIZER] if add else [])
        raw = await self._client.write_finalizers(
            own.namespace, own.name, own.uid, own.resource_version, wanted
        )
        self._watched(Kind.ROLLOUTS, raw)
        return self._own(fresh, raw)

    @staticmethod
    def _own(fresh: Snapshot, raw: Raw | None) -> RolloutObject:
        """Return our object from a response. Raises GoneError, or ConflictError if something else was decided on."""
        decided = fresh.rollout
        name = f"AcceleratorRollout {decided.namespace}/{decided.name}"
        if raw is None:
            raise GoneError(f"{name} is gone")
        own = parse_rollout(raw)
        if not isinstance(own, RolloutObject):
            raise ConflictError(f"{name} cannot be read any more: {own.message}")
        if (own.uid, own.generation) != (decided.uid, decided.generation):
            raise ConflictError(f"{name} has changed")
        return own

    async def _store_status(
        self, snapshot: Snapshot, status: RolloutStatus, backlog: Backlog | None
    ) -> Snapshot:
        """Store the status if it says something new; return the snapshot with the object as it is then."""
        rollout = snapshot.rollout
        stored = backlog.stored if backlog else rollout.status
        if status.says_the_same(stored):
            return snapshot
        raw = await self._client.write_status(
            rollout.namespace, rollout.name, rollout.uid, rollout.resource_version, status.to_raw()
        )
        self._watched(Kind.ROLLOUTS, raw)
        return replace(snapshot, rollout=self._own(snapshot, raw))

    async def _check(self, fresh: Snapshot, replacement_id: str) -> CheckRun | None:
        """Ask the checks about the devices of a departed pod; what cannot be read is not true.

        None if the status does not tell of the departure yet, as the next decision's will.
        """
        rollout = fresh.rollout
        entry = next((r for r in rollout.status.replacements if r.id == replacement_id), None)
        if entry is None:
            return None
        checks = rollout.spec.release.checks
        try:
            failures = await run_checks(self._client, checks, entry, rollout.namespace)
        except ActError as error:
            failures = (f"the checks could not be made: {error}",)
        return CheckRun(rollout.generation, self._clock(), failures)

    async def _health(self, fresh: Snapshot, pod_uid: str) -> HealthRun | None:
        """Ask the checks of a successor that soaks, and count those in a row that were not true."""
        pod = next((p for p in fresh.pods if p.uid == pod_uid), None)
        if pod is None:
            return None
        checks = fresh.rollout.spec.health.checks
        failures = await run_health_checks(checks, pod, fresh.devices_of(pod))
        before = fresh.health.get(pod_uid)
        known = before is not None and before.generation == fresh.rollout.generation
        in_a_row = (before.in_a_row if known and before is not None else 0) + 1 if failures else 0
        return HealthRun(fresh.rollout.generation, self._clock(), failures, in_a_row)

    async def _probe(self, fresh: Snapshot, digest: str) -> GateProbe:
        """Find out whether a pod of the workload's template comes back with our gate."""
        ref = fresh.rollout.spec.workload_ref
        raw = await self._client.read(OF_WORKLOAD[ref.kind], fresh.rollout.namespace, ref.name)
        template = ((raw or {}).get("spec") or {}).get("template") or {}
        if raw is None or parse_template(template).digest != digest:
            raise ConflictError(f"{ref.kind} {ref.name} has another template now")
        try:
            pod = await self._client.try_pod(fresh.rollout.namespace, template)
        except (ConflictError, GoneError, NotLeadingError):
            raise
        except ActError as error:
            return GateProbe(digest, GateSource.UNKNOWN, str(error))
        gates = [g.get("name") for g in (pod.get("spec") or {}).get("schedulingGates") or []]
        return GateProbe(digest, GateSource.POLICY if GATE in gates else GateSource.NONE)


def _claim(fresh: Snapshot, name: str, uid: str) -> ClaimRecord:
    """Return the claim as it was decided on. Raises GoneError."""
    claim = fresh.claims.get(name)
    if claim is None or claim.uid != uid:
        raise GoneError(f"ResourceClaim {fresh.rollout.namespace}/{name} is gone")
    return claim


def _renamed(facts: dict[str, str]) -> dict[str, str]:
    """Return the facts under names that a log record does not use itself."""
    return {"object" if name == "name" else name: value for name, value in facts.items()}
