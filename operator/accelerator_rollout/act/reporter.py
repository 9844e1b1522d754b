"""Reports objects that this version cannot read, and takes gates, guards and holds away that nobody answers for."""

import logging

from accelerator_rollout.act.client import Client
from accelerator_rollout.act.events import Events, Subject
from accelerator_rollout.api.conditions import ConditionStatus, ConditionType, remove_condition, set_condition
from accelerator_rollout.api.models import RolloutObject, Unreadable
from accelerator_rollout.clock import Clock
from accelerator_rollout.decide.guards import guarded
from accelerator_rollout.decide.holds import is_hold
from accelerator_rollout.decide.outcome import EventType, Notice
from accelerator_rollout.decide.reasons import Announcement
from accelerator_rollout.decide.warnings import turns
from accelerator_rollout.errors import ActError, GoneError
from accelerator_rollout.names import GATE
from accelerator_rollout.observe.errors import ProjectionError
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.observe.project import pod as parse_pod
from accelerator_rollout.observe.project import rollout as parse_rollout
from accelerator_rollout.records import ClaimRecord, Owner, PodRecord, TaintRuleRecord

_log = logging.getLogger(__name__)


class Reporter:
    """For what has no AcceleratorRollout that could be decided on."""

    def __init__(self, client: Client, events: Events, clock: Clock) -> None:
        self._client, self._events, self._clock = client, events, clock

    async def report_unreadable(self, found: Unreadable) -> None:
        """Say in the object's conditions why it cannot be read. Of the rest of its status only the generation is told."""
        before = found.conditions
        told = before
        for kind, status in (
            (ConditionType.READY, ConditionStatus.FALSE),
            (ConditionType.STALLED, ConditionStatus.TRUE),
            (ConditionType.PROGRESSING, ConditionStatus.FALSE),
        ):
            told = set_condition(
                told,
                kind,
                status,
                reason="SpecUnreadable",
                message=found.message,
                now=self._clock(),
                observed_generation=found.generation,
            )
        told = remove_condition(told, ConditionType.RECONCILING)
        if told == before or not found.name:
            return
        raw = [condition.to_raw() for condition in told]
        await self._client.write_conditions(
            found.namespace, found.name, found.uid, found.resource_version, found.generation, raw
        )
        for notice in turns(before, told):
            await self._events.say(Subject.rollout(found), notice)

    async def release_stray(self, pod: PodRecord) -> bool:
        """Take gate and guard off a pod whose workload no AcceleratorRollout names; return whether that was done.

        The store may be wrong: our objects in its namespace are listed and the pod is read afresh. An object that
        cannot be read may name any workload, so it keeps every gate of its namespace closed.
        """
        try:
            found = [parse_rollout(raw) for raw in await self._client.read_all(Kind.ROLLOUTS, pod.namespace)]
            top = await self._workload(pod)
            if top is None and pod.owner is not None:
                return False  # the ReplicaSet is gone: who is to answer for its pod shows in a moment
            for rollout in found:
                if isinstance(rollout, RolloutObject):
                    ref: tuple[str, str] | None = (
                        rollout.spec.workload_ref.kind,
                        rollout.spec.workload_ref.name,
                    )
                elif rollout.workload_ref is not None:
                    ref = (rollout.workload_ref.kind, rollout.workload_ref.name)
                else:
                    return False
                if top is not None and ref == (top.kind, top.name):
                    return False
            raw = await self._client.read(Kind.PODS, pod.namespace, pod.name)
            seen = parse_pod(raw) if raw is not None else None
            if seen is None or seen.uid != pod.uid:
                return False
            if guarded(seen):
                await self._client.guard(pod.namespace, pod.name, pod.uid, on=False)
                _log.info(
                    "took our guard off %s/%s: no AcceleratorRollout names its workload",
                    pod.namespace,
                    pod.name,
                )
            if GATE not in seen.gates or not seen.live:
                return guarded(seen)
            await self._client.open_gate(pod.namespace, pod.name, pod.uid)
        except (ActError, ProjectionError) as error:
            _log.warning("%s/%s could not be released: %s", pod.namespace, pod.name, error)
            return False
        text = "no AcceleratorRollout names the workload of this pod, so nothing keeps it gated"
        _log.info(
            "opened the gate of %s/%s: %s",
            pod.namespace,
            pod.name,
            text,
            extra={"pod_name": pod.name, "pod_uid": pod.uid},
        )
        notice = Notice(EventType.NORMAL, Announcement.GATE_OPENED, text, "OpenGate")
        await self._events.say(Subject.pod(pod), notice)
        return True

    async def sweep_hold(self, claim: ClaimRecord, uid: str) -> bool:
        """Take a hold off a claim whose AcceleratorRollout (of this UID) is gone; return whether that was done.

        The store may be wrong: our objects of the namespace are listed afresh. The claim is written as it was seen.
        """
        try:
            found = await self._client.read_all(Kind.ROLLOUTS, claim.namespace)
            if any((raw.get("metadata") or {}).get("uid") == uid for raw in found):
                return False
            alone = all(is_hold(entry) for entry in claim.reserved_for)
            await self._client.end_hold(claim, uid, deallocate=alone and len(claim.reserved_for) == 1)
        except ActError as error:
            _log.warning(
                "the hold on claim %s/%s could not be taken off: %s", claim.namespace, claim.name, error
            )
            return False
        _log.info(
            "took the hold off claim %s/%s: its AcceleratorRollout is gone", claim.namespace, claim.name
        )
        return True

    async def sweep_reservation(self, rule: TaintRuleRecord) -> bool:
        """Delete a taint rule of ours whose AcceleratorRollout is gone; return whether that was done."""
        try:
            found = await self._client.read_all(Kind.ROLLOUTS, rule.reserved_in)
            if any((raw.get("metadata") or {}).get("uid") == rule.reserved_by for raw in found):
                return False
            await self._client.end_reservation(rule.name, rule.uid)
        except GoneError:
            return False
        except ActError as error:
            _log.warning("DeviceTaintRule %s could not be swept: %s", rule.name, error)
            return False
        _log.info("deleted DeviceTaintRule %s: its AcceleratorRollout is gone", rule.name)
        return True

    async def _workload(self, pod: PodRecord) -> Owner | None:
        """Return the workload at the top of the pod's owners; a ReplicaSet's own owner is read afresh.

        None for a pod without owner, and where the ReplicaSet is gone.
        """
        owner = pod.owner
        if owner is None or owner.kind != "ReplicaSet":
            return owner
        raw = await self._client.read(Kind.REPLICA_SETS, pod.namespace, owner.name)
        meta = (raw or {}).get("metadata") or {}
        if meta.get("uid") != owner.uid:
            return None
        for ref in meta.get("ownerReferences") or []:
            if ref.get("controller"):
                return Owner(ref["kind"], ref["name"], ref["uid"])
        return owner
