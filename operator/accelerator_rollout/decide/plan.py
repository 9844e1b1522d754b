"""From one snapshot to one plan: the whole decision, as a pure function.

The order of thought:

1. Unknown state: do nothing. A younger rival: do nothing. A new object: note when it was seen, add the finalizer, stop.
2. Bring the list of departures up to date, link successors, judge each release.
3. Choose the next pod to replace, or say why none (`disruption`).
4. Open the gates that S1 to S3 allow (`openings`), refused or paused or not.
5. Keep the workload under control between steps (`workloads`).
6. Tell it in the status, from live pods and never from counters, so that a scale, a rollback or a second change in the
   middle just changes the target.

The executor calls `plan` again over fresh reads before each action and acts only if the action comes out again.
"""

from datetime import datetime

from accelerator_rollout.api.models import RolloutStatus
from accelerator_rollout.decide.actions import Action, AddFinalizer, EvictPod, ProbeGate, UnpauseDeployment
from accelerator_rollout.decide.admission import conflict, gate_unknown
from accelerator_rollout.decide.announcing import announce
from accelerator_rollout.decide.appraisal import endings, release_times
from accelerator_rollout.decide.checks import due_checks
from accelerator_rollout.decide.conditions import Picture, conditions, unknown
from accelerator_rollout.decide.disruption import Step
from accelerator_rollout.decide.entries import remember
from accelerator_rollout.decide.going_away import going_away
from accelerator_rollout.decide.guards import guards, unguarded
from accelerator_rollout.decide.health import due_health_checks
from accelerator_rollout.decide.holds import holds
from accelerator_rollout.decide.intent import first_seen
from accelerator_rollout.decide.judgement import Judgement
from accelerator_rollout.decide.ordering import first
from accelerator_rollout.decide.outcome import Plan
from accelerator_rollout.decide.progress import next_due, stage_times
from accelerator_rollout.decide.reservations import reservations
from accelerator_rollout.decide.snapshot import Freshness, Snapshot
from accelerator_rollout.decide.telling import tell
from accelerator_rollout.decide.undo import restoring
from accelerator_rollout.decide.warnings import turns
from accelerator_rollout.names import FINALIZER
from accelerator_rollout.workloads import driver_for
from accelerator_rollout.workloads.base import Refused


def plan(snapshot: Snapshot, now: datetime) -> Plan:
    """Return what to do now, the status to store, and when to look again even if nothing happens."""
    rollout = snapshot.rollout
    status = rollout.status
    if snapshot.freshness is Freshness.SYNCING:
        return Plan((), status, record_first=False, next_due=None)
    if snapshot.freshness is not Freshness.FRESH:
        why = "; ".join(f"{what}: {why}" for what, why in sorted(snapshot.unreadable.items()))
        told = unknown(status.conditions, rollout.generation, why or "the last full read is too old", now)
        return Plan((), _with(status, conditions=told), record_first=False, next_due=None)
    driver = driver_for(snapshot)
    if rollout.deletion is not None:
        return going_away(snapshot, driver, now)
    rival = conflict(snapshot)
    if rival is not None:
        return _refused_only(snapshot, rival, now)
    if driver is not None and FINALIZER not in rollout.finalizers:
        return _adopt(snapshot, now)
    return _decided(Judgement(snapshot, driver, now))


def _adopt(snapshot: Snapshot, now: datetime) -> Plan:
    """First sight. A status without this note beside a finalizer means that a status was lost."""
    status = snapshot.rollout.status
    if status.adopted_at is None:
        seen = first_seen(snapshot.rollout.spec.action)
        status = _with(status, adopted_at=now, observed_action_id=seen)
    actions = (AddFinalizer(snapshot.rollout.uid),)
    return Plan(actions, status, record_first=True, next_due=None)


def _refused_only(snapshot: Snapshot, refused: Refused, now: datetime) -> Plan:
    rollout = snapshot.rollout
    picture = Picture(
        generation=rollout.generation,
        complete=False,
        settled=None,
        paused=rollout.spec.paused,
        summary="",
        refused=refused,
        halted=None,
        late=None,
        idle=None,
        waits=None,
        appraisals=(),
        stranded=(),
        findings=(),
        guardrails=rollout.spec.guardrails,
        hold=None,
        reservation=None,
    )
    told = conditions(rollout.status.conditions, picture, now)
    status = _with(rollout.status, observed_generation=rollout.generation, conditions=told)
    turned = turns(rollout.status.conditions, told)
    return Plan((), status, record_first=False, next_due=None, notices=turned)


def _with(status: RolloutStatus, **update: object) -> RolloutStatus:
    return status.model_copy(update=update)


def _decided(j: Judgement) -> Plan:
    actions = (
        *j.upkeep(),
        *_holds(j),
        *j.openings.actions,
        *_probe(j),
        *_checks(j),
        *_step_actions(j),
        *_restoring(j),
    )
    kept, finished = remember(j)
    told = tell(j, kept, finished)
    before = {e.id for e in j.snapshot.rollout.status.replacements}
    disrupts = any(isinstance(a, EvictPod | UnpauseDeployment) for a in actions)
    return Plan(
        actions=actions,
        status=told,
        record_first=_newly_asked(j) or (disrupts and any(e.id not in before for e in kept)),
        next_due=next_due(j, told),
        notices=announce(j, finished, told),
        stage_times=stage_times(j, kept, finished),
        release_times=release_times(j.snapshot.rollout.status.replacements, j.appraisals, j.now),
        acknowledged=tuple(v.pod.uid for v in j.snapshot.vanished),
    )


def _newly_asked(j: Judgement) -> bool:
    """Whether something is asked for that no status has yet: stored before anything is done, it is done once."""
    before = j.snapshot.rollout.status
    return (j.intent.observed_action_id, j.intent.undo) != (before.observed_action_id, before.undo)


def _restoring(j: Judgement) -> tuple[Action, ...]:
    return restoring(j.intent.undo, j.snapshot) if j.intent.undo is not None else ()


def _holds(j: Judgement) -> tuple[Action, ...]:
    # New ones first: what is about to be replaced is held before.
    taken: tuple[Action, ...] = (*endings(j.snapshot, j.appraisals), *unguarded(j.snapshot))
    kept = tuple(a for a in j.appraisals if not j.superfluous(a))
    reserved = reservations(j.snapshot, kept)
    return (*guards(j.snapshot), *holds(j.snapshot), *reserved, *taken)


def _probe(j: Judgement) -> tuple[Action, ...]:
    if j.workload is None or j.refused is not None or gate_unknown(j.snapshot) is None:
        return ()
    probe = j.snapshot.gate_probe
    if probe is not None and probe.template_digest == j.workload.template.digest:
        return ()  # asked, without an answer: the loop forgets it after a while
    return (ProbeGate(j.workload.template.digest),)


def _checks(j: Judgement) -> tuple[Action, ...]:
    verdicts = ((a.entry, a.verdict.obstacle) for a in j.appraisals if a.verdict is not None)
    return (*due_checks(verdicts, j.now), *due_health_checks(j.appraisals, j.snapshot, j.now))


def _step_actions(j: Judgement) -> tuple[Action, ...]:
    if isinstance(j.step, Step):
        return j.step.actions
    if j.driver is None:
        return ()
    following = j.next_in_line()
    return j.driver.prepare((first(following, j.snapshot, j.driver),)) if following else ()
