"""Carries out one plan: confirm each action by fresh reads and a second decision, act, store the status.

What happens when the process dies right here? Before an action: the status holds what was about to happen (`record_first`)
or nothing happened. After an action and before the status: the world shows what was done, and the next decision reads
the world; an opened gate is seen on the pod, an eviction on its deletionTimestamp, an unpaused Deployment as stepping.
Two processes at once: every write carries the UID, and where it hangs on more than that the resourceVersion, so the
second one gets a conflict and decides anew.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from accelerator_rollout.act.client import Client, Raw
from accelerator_rollout.act.confirming import Confirming
from accelerator_rollout.act.events import Events, Subject
from accelerator_rollout.api.models import RolloutObject, RolloutStatus, WorkloadKind
from accelerator_rollout.clock import Clock
from accelerator_rollout.decide.actions import (
    Action,
    AddFinalizer,
    EvictPod,
    ManageDeployment,
    OpenGate,
    PauseDeployment,
    PreferVictim,
    ProbeGate,
    RemoveFinalizer,
    UnmanageDeployment,
    UnpauseDeployment,
)
from accelerator_rollout.decide.confirm import merge
from accelerator_rollout.decide.outcome import Plan
from accelerator_rollout.decide.snapshot import GateProbe, GateSource, Refused, Snapshot
from accelerator_rollout.errors import ActError, ConflictError, GoneError, InvalidError, RefusedError
from accelerator_rollout.names import FINALIZER, GATE
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.observe.project import rollout as parse_rollout
from accelerator_rollout.observe.project import template as parse_template

_log = logging.getLogger(__name__)

Planner = Callable[[Snapshot, datetime], Plan]


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
    """What came of a plan. `again`: decide anew at once; `refused` and `probe` are for the next snapshot."""

    again: bool = False
    refused: Refused | None = None
    probe: GateProbe | None = None
    stored: bool = True  # the status in the cluster is the plan's


class Executor:
    """Acts for all AcceleratorRollouts; keeps nothing between two plans."""

    def __init__(
        self,
        client: Client,
        confirming: Confirming,
        events: Events,
        watched: Watched,
        observed: Observed,
        clock: Clock,
        planner: Planner,
    ) -> None:
        self._client, self._confirming, self._events = client, confirming, events
        self._watched, self._observed = watched, observed
        self._clock, self._planner = clock, planner

    async def run(self, snapshot: Snapshot, plan: Plan) -> Outcome:
        """Carry out `plan`, which was decided over `snapshot`.

        Raises ActError if the cluster cannot be reached or does not let us: nothing is half done then, the next
        decision starts from the world as it is.
        """
        if plan.record_first:
            snapshot = await self._store_status(snapshot, plan.status)
        outcome = Outcome()
        for action in plan.actions:
            try:
                outcome = await self._act(action, snapshot, outcome)
            except (ConflictError, GoneError) as error:
                _log.info("%s: the world moved, deciding anew: %s", _title(action), error)
                self._observed.acted(action, "conflict")
                return replace(outcome, again=True, stored=plan.record_first)
            except RefusedError as error:
                self._observed.acted(action, "refused")
                uid = action.pod_uid if isinstance(action, EvictPod) else ""
                refused = Refused(uid, "Refused", str(error), self._clock())
                return replace(outcome, again=True, refused=refused, stored=plan.record_first)
        left = any(isinstance(a, RemoveFinalizer) for a in plan.actions)
        if not plan.record_first and not left:
            await self._store_status(snapshot, plan.status)
        for notice in plan.notices:
            await self._events.say(Subject.rollout(snapshot.rollout), notice)
        return outcome

    async def _act(self, action: Action, snapshot: Snapshot, outcome: Outcome) -> Outcome:
        fresh = snapshot
        if not isinstance(action, AddFinalizer | RemoveFinalizer | ProbeGate):
            now = self._clock()
            fresh = merge(snapshot, await self._confirming.read(action, snapshot), now)
            if action not in self._planner(fresh, now).actions:
                _log.info("%s: fresh reads say otherwise, not done", _title(action))
                self._observed.acted(action, "dropped")
                return replace(outcome, again=True)
        probe = await self._send(action, fresh)
        self._observed.acted(action, "done")
        _log.info("%s", _title(action), extra={"rollout": f"{fresh.rollout.namespace}/{fresh.rollout.name}"})
        return replace(outcome, probe=probe or outcome.probe, again=outcome.again or probe is not None)

    async def _send(self, action: Action, fresh: Snapshot) -> GateProbe | None:
        space, rollout, client = fresh.rollout.namespace, fresh.rollout, self._client
        version = fresh.workload.resource_version if fresh.workload else ""
        match action:
            case AddFinalizer():
                current = rollout.finalizers
                kept = [*current, *([] if FINALIZER in current else [FINALIZER])]
                await self._finalizers(fresh, kept)
            case RemoveFinalizer():
                await self._finalizers(fresh, [f for f in rollout.finalizers if f != FINALIZER])
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
            case OpenGate(name, uid, _):
                self._watched(Kind.PODS, await client.open_gate(space, name, uid))
            case ProbeGate(digest):
                return await self._probe(fresh, digest)
        return None

    async def _finalizers(self, fresh: Snapshot, finalizers: list[str]) -> None:
        own = await self._own(fresh)
        raw = await self._client.write_finalizers(
            own.namespace, own.name, own.uid, own.resource_version, finalizers
        )
        self._watched(Kind.ROLLOUTS, raw)

    async def _own(self, fresh: Snapshot) -> RolloutObject:
        """Return our object as it was decided on; finalizers are a list that others write too."""
        raw = await self._client.read(Kind.ROLLOUTS, fresh.rollout.namespace, fresh.rollout.name)
        if raw is None:
            raise GoneError(f"AcceleratorRollout {fresh.rollout.namespace}/{fresh.rollout.name} is gone")
        own = parse_rollout(raw)
        if not isinstance(own, RolloutObject) or own.uid != fresh.rollout.uid:
            raise ConflictError(f"AcceleratorRollout {own.namespace}/{own.name} is another one now")
        if own.finalizers != fresh.rollout.finalizers or own.deletion != fresh.rollout.deletion:
            raise ConflictError(f"AcceleratorRollout {own.namespace}/{own.name} has changed")
        return own

    async def _store_status(self, snapshot: Snapshot, status: RolloutStatus) -> Snapshot:
        rollout = snapshot.rollout
        if status.to_raw() == rollout.status.to_raw():
            return snapshot
        raw = await self._client.write_status(
            rollout.namespace, rollout.name, rollout.uid, rollout.resource_version, status.to_raw()
        )
        self._watched(Kind.ROLLOUTS, raw)
        stored = parse_rollout(raw)
        if not isinstance(stored, RolloutObject):
            raise InvalidError(
                f"the status of {rollout.namespace}/{rollout.name} came back unreadable: {stored.message}"
            )
        return replace(snapshot, rollout=stored)

    async def _probe(self, fresh: Snapshot, digest: str) -> GateProbe | None:
        """Find out whether a pod of the workload's template comes back with our gate."""
        ref = fresh.rollout.spec.workload_ref
        kind = Kind.DEPLOYMENTS if ref.kind is WorkloadKind.DEPLOYMENT else Kind.STATEFUL_SETS
        raw = await self._client.read(kind, fresh.rollout.namespace, ref.name)
        template = ((raw or {}).get("spec") or {}).get("template") or {}
        if raw is None or parse_template(template).digest != digest:
            raise ConflictError(f"{ref.kind} {ref.name} has another template now")
        try:
            pod = await self._client.try_pod(fresh.rollout.namespace, template)
        except (ConflictError, GoneError):
            raise
        except ActError as error:
            return GateProbe(digest, GateSource.UNKNOWN, str(error))
        gates = [g.get("name") for g in (pod.get("spec") or {}).get("schedulingGates") or []]
        return GateProbe(digest, GateSource.POLICY if GATE in gates else GateSource.NONE)


def _title(action: Action) -> str:
    fields = {name: getattr(action, name) for name in action.__slots__}
    named = ", ".join(f"{name}={value}" for name, value in fields.items() if value)
    return f"{type(action).__name__}({named})"
