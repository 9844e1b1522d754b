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

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from accelerator_rollout.api.models import Cause, Promotion, Replacement, RolloutStatus, Stage
from accelerator_rollout.decide import history, restart, windows
from accelerator_rollout.decide.actions import Action, AddFinalizer, EvictPod, ProbeGate, UnpauseDeployment
from accelerator_rollout.decide.admission import conflict, gate_unknown, looked_at, refusal
from accelerator_rollout.decide.appraisal import Appraisal, appraise, endings, release_times, restage
from accelerator_rollout.decide.budget import available, min_ready
from accelerator_rollout.decide.checks import due_checks
from accelerator_rollout.decide.conditions import Picture, conditions, unknown
from accelerator_rollout.decide.deadlines import Course, failure, late, late_release
from accelerator_rollout.decide.deadlines import due as deadlines
from accelerator_rollout.decide.departures import match, record, track
from accelerator_rollout.decide.disruption import Blocked, Step, next_step, without_cordoned
from accelerator_rollout.decide.extent import Extent, extent
from accelerator_rollout.decide.going_away import going_away
from accelerator_rollout.decide.guards import guards, unguarded
from accelerator_rollout.decide.health import due_health_checks, soaked
from accelerator_rollout.decide.holds import holds, told
from accelerator_rollout.decide.intent import Intent, Scene, first_seen, intent
from accelerator_rollout.decide.openings import Openings, openings, waiting_pods
from accelerator_rollout.decide.ordering import first
from accelerator_rollout.decide.outcome import EventType, Notice, Plan, StageTime
from accelerator_rollout.decide.reasons import Announcement, Refusal, Waiting
from accelerator_rollout.decide.reservations import reservations
from accelerator_rollout.decide.reservations import told as reservation_told
from accelerator_rollout.decide.response import respond
from accelerator_rollout.decide.shared_budget import waiting_since
from accelerator_rollout.decide.snapshot import Freshness, Snapshot
from accelerator_rollout.decide.stages import Standing, after_release
from accelerator_rollout.decide.stranded import remembered
from accelerator_rollout.decide.undo import restoring
from accelerator_rollout.decide.warnings import troubles
from accelerator_rollout.names import FINALIZER
from accelerator_rollout.records import PodRecord
from accelerator_rollout.workloads import driver_for
from accelerator_rollout.workloads.base import Driver, NotNow, Refused

_REFUSALS: Final = frozenset(str(r) for r in Refusal)
_STILL: Final = frozenset(
    (
        Waiting.PAUSED,
        Waiting.PAUSED_BY_USER,
        Waiting.OUTSIDE_WINDOW,
        Waiting.HALTED,
        Waiting.SHARED_BUDGET_USED_UP,
        Waiting.STEP_PAUSE,
        Waiting.PARTITION_REACHED,
        Waiting.PARTITION_EXCEEDED,
    )
)  # time spent so counts towards no deadline


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
    return _Decision(snapshot, driver, now).plan()


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
    return Plan((), status, record_first=False, next_due=None)


def _with(status: RolloutStatus, **update: object) -> RolloutStatus:
    return status.model_copy(update=update)


class _Decision:
    """The working state of one decision; lives only while `plan` runs."""

    def __init__(self, snapshot: Snapshot, driver: Driver | None, now: datetime) -> None:
        self.snapshot = snapshot
        self.driver = driver
        self.now = now
        self.workload = snapshot.workload
        self.min_ready = min_ready(snapshot)
        self.refused = refusal(snapshot, driver)
        entries = match(track(snapshot, now), snapshot, now)
        judged = (appraise(e, snapshot, self.min_ready, now) for e in entries)
        self.appraisals = tuple(soaked(a, snapshot, self.min_ready, now) for a in judged)
        promoted = snapshot.rollout.status.promoted
        self.extent = self._extent(promoted)
        self.intent = self._intent()
        if self.intent.promoted != promoted:
            self.extent = self._extent(self.intent.promoted)
        self.step = self._step()
        self.openings = self._openings()

    def plan(self) -> Plan:
        """Return the plan."""
        actions = (
            *self._upkeep(),
            *self._holds(),
            *self.openings.actions,
            *self._probe(),
            *self._checks(),
            *self._step_actions(),
            *self._restoring(),
        )
        kept, finished = self._entries()
        status = self._status(kept, finished)
        before = {e.id for e in self.snapshot.rollout.status.replacements}
        disrupts = any(isinstance(a, EvictPod | UnpauseDeployment) for a in actions)
        return Plan(
            actions=actions,
            status=status,
            record_first=self._newly_asked() or (disrupts and any(e.id not in before for e in kept)),
            next_due=self._next_due(status),
            notices=self._notices(finished),
            stage_times=self._stage_times(kept, finished),
            release_times=release_times(self.snapshot.rollout.status.replacements, self.appraisals, self.now),
            acknowledged=tuple(v.pod.uid for v in self.snapshot.vanished),
        )

    # What people asked for

    def _intent(self) -> Intent:
        stale = any(p.live and not self._current(p) for p in self.snapshot.pods)
        flying = any(a.in_flight and a.entry.cause is Cause.ROLLOUT for a in self.appraisals)
        scene = Scene(
            self.snapshot, self.driver, stale or flying, self._restarting(), self.now, self.extent.paused_at
        )
        held = intent(scene)
        if self.driver is None or held.retried_at == self.now:
            return held
        failed = failure(self.snapshot, self.appraisals, self.driver, self.now)
        return respond(held, scene, failed, late_release(self.snapshot, self.appraisals, self.now))

    def _extent(self, promoted: Promotion | None) -> Extent:
        if self.driver is None:
            return Extent(frozenset())
        flying = [a for a in self.appraisals if a.in_flight]
        unborn = sum(a.successor is None for a in flying)
        return extent(self.snapshot, self.driver, promoted, self.now, in_flight=bool(flying), unborn=unborn)

    def _newly_asked(self) -> bool:
        """Whether something is asked for that no status has yet: stored before anything is done, it is done once."""
        before = self.snapshot.rollout.status
        return (self.intent.observed_action_id, self.intent.undo) != (before.observed_action_id, before.undo)

    def _restoring(self) -> tuple[Action, ...]:
        return restoring(self.intent.undo, self.snapshot) if self.intent.undo is not None else ()

    def _current(self, pod: PodRecord) -> bool:
        """Whether the pod is of the target revision, and no restart has it replaced."""
        if self.driver is None or not self.driver.updated(pod):
            return False
        return not restart.older(pod, self.snapshot, self.now)

    # What to do

    def _step(self) -> Step | Blocked | None:
        if self.refused is not None or self.driver is None:
            return None
        wanted = tuple(a for a in self.appraisals if not a.left or not self._superfluous(a))
        step = next_step(self.snapshot, self.driver, wanted, self.extent, self.now)
        stopped = self.intent.stops()
        return Blocked(stopped) if step is not None and stopped is not None else step

    def _openings(self) -> Openings:
        if self.driver is None:
            return Openings((), {})
        doomed = frozenset(p.uid for p in self.step.victims) if isinstance(self.step, Step) else frozenset()
        return openings(self.snapshot, self.driver, self.appraisals, doomed)

    def _upkeep(self) -> tuple[Action, ...]:
        if self.driver is None:
            return ()
        # A recorded choice counts: the Deployment was set free for it, and may not have been looked at since.
        under_way = any(a.in_flight or not a.left for a in self.appraisals)
        moving = isinstance(self.step, Step) or under_way
        return self.driver.upkeep(may_move=moving)

    def _holds(self) -> tuple[Action, ...]:
        # New ones first: what is about to be replaced is held before.
        taken: tuple[Action, ...] = (*endings(self.snapshot, self.appraisals), *unguarded(self.snapshot))
        kept = tuple(a for a in self.appraisals if not self._superfluous(a))
        reserved = reservations(self.snapshot, kept)
        return (*guards(self.snapshot), *holds(self.snapshot), *reserved, *taken)

    def _probe(self) -> tuple[Action, ...]:
        if self.workload is None or self.refused is not None or gate_unknown(self.snapshot) is None:
            return ()
        probe = self.snapshot.gate_probe
        if probe is not None and probe.template_digest == self.workload.template.digest:
            return ()  # asked, without an answer: the loop forgets it after a while
        return (ProbeGate(self.workload.template.digest),)

    def _checks(self) -> tuple[Action, ...]:
        verdicts = ((a.entry, a.verdict.obstacle) for a in self.appraisals if a.verdict is not None)
        return (*due_checks(verdicts, self.now), *due_health_checks(self.appraisals, self.snapshot, self.now))

    def _step_actions(self) -> tuple[Action, ...]:
        if isinstance(self.step, Step):
            return self.step.actions
        if self.driver is None:
            return ()
        following = self._next()
        return self.driver.prepare((first(following, self.snapshot, self.driver),)) if following else ()

    def _next(self) -> tuple[PodRecord, ...]:
        """Return the pods of which one is replaced once the successor in flight is healthy; empty before it starts.

        Before that, an opening would wait for the write.
        """
        if self.driver is None or not isinstance(self.step, Blocked):
            return ()
        flying = [a for a in self.appraisals if a.left]
        if self.step.why.reason != Waiting.PODS_UNAVAILABLE or any(a.verdict is not None for a in flying):
            return ()
        healthy = (p for p in self.snapshot.pods if p.live and available(p, self.min_ready, self.now))
        due = [p for p in healthy if p.uid in self.extent.due]
        return tuple(without_cordoned(due, self.snapshot, self.now)[0])

    # What to remember

    def _entries(self) -> tuple[tuple[Replacement, ...], tuple[Replacement, ...]]:
        """Return the entries to keep, and those that are finished with this decision."""
        kept: list[Replacement] = []
        finished: list[Replacement] = []
        memory = remembered((a.entry for a in self.appraisals if a.stranded), self.snapshot)
        for a in self.appraisals:
            if not a.left or (a.stranded and a.entry.id not in memory):
                continue
            if a.done or self._superfluous(a):
                finished.append(restage(a.entry, Standing(Stage.DONE), self.now))
            else:
                kept.append(restage(self._anew(a.entry), self._standing(a), self.now))
        kept.extend(self._selected())
        return tuple(kept), tuple(finished)

    def _anew(self, entry: Replacement) -> Replacement:
        """Return the entry without its failures so far, if somebody asked to try again."""
        retried = self.intent.retried_at != self.snapshot.rollout.status.retried_at
        return entry.model_copy(update={"relapses": None}) if retried and entry.relapses else entry

    def _superfluous(self, a: Appraisal) -> bool:
        """Whether a departure that holds nothing will have no successor: the workload has all the pods it wants."""
        if a.successor is not None or (a.verdict is not None and not a.verdict.let_go):
            return False
        wanted = self.workload.replicas if self.workload else 0
        return sum(p.live for p in self.snapshot.pods) >= wanted

    def _standing(self, a: Appraisal) -> Standing:
        if a.standing.stage is not Stage.GATED or a.successor is None:
            return a.standing
        why = self.openings.blocked.get(a.successor.uid)
        if why is None:
            return a.standing
        return Standing(Stage.GATED, why.reason, f"pod {a.successor.name} stays gated: {why.message}")

    def _selected(self) -> tuple[Replacement, ...]:
        """Return the entry of the chosen pod: recorded before it is touched, kept while a step is under way."""
        chosen = self._choice()
        if self.snapshot.shared is None or self.step is None:
            return chosen
        # What may be leaving already must not be forgotten before it shows: its place would be given away.
        known = {e.id for e in chosen}
        sent = (
            a.entry for a in self.appraisals if not a.left and a.entry.pod_uid in self.snapshot.maybe_sent
        )
        return (*chosen, *(e for e in sent if e.id not in known))

    def _choice(self) -> tuple[Replacement, ...]:
        stored = {a.entry.pod_uid: a.entry for a in self.appraisals if not a.left}
        # While its controller is free to move, whoever was recorded for that may go any moment.
        kept = stored if self.driver is not None and self.driver.stepping() else {}
        if isinstance(self.step, Step):
            victims = {p.uid: self._chosen(p, stored, Standing(Stage.SELECTED)) for p in self.step.victims}
            return tuple((kept | victims).values())
        if isinstance(self.step, Blocked) and self.step.victim is not None:
            entry = stored.get(self.step.victim.uid)
            if entry is not None:
                why = self.step.why
                waiting = restage(entry, Standing(Stage.EVICTING, why.reason, why.message), self.now)
                return tuple((kept | {entry.pod_uid: waiting}).values())
        if kept:
            return tuple(kept.values())
        # Ahead of time, in the write that tells of the opening: the step itself then waits for none.
        # Not where others may have the next turn: a recorded choice takes up a place of the shared budget.
        following = self._next() if self.snapshot.shared is None else ()
        if self.driver is None or not following or not any(a.in_flight for a in self.appraisals):
            return ()
        victim = next((p for p in following if p.uid in stored), None) or first(
            following, self.snapshot, self.driver
        )
        text = f"pod {victim.name} is replaced once the last replacement is healthy"
        return (self._chosen(victim, stored, Standing(Stage.SELECTED, Waiting.NEXT_IN_LINE, text)),)

    def _chosen(
        self, victim: PodRecord, stored: Mapping[str, Replacement], standing: Standing
    ) -> Replacement:
        entry = stored.get(victim.uid)
        if entry is None:
            entry = record(victim, self.snapshot, Cause.ROLLOUT, Stage.SELECTED, self.now)
        return restage(entry, standing, self.now)

    # What to tell

    def _status(self, kept: tuple[Replacement, ...], finished: tuple[Replacement, ...]) -> RolloutStatus:
        rollout = self.snapshot.rollout
        before = rollout.status
        counted = self._counts(before)
        aground = {a.entry.id for a in self.appraisals if a.stranded}
        complete = self._complete(tuple(e for e in kept if e.id not in aground))
        past = before.history
        revision = counted.update_revision
        if complete:
            for entry in finished:
                past = history.note(past, entry, self.now)
            past = history.complete(past, self.now, halted=before.halt is not None)
        elif self.intent.halt is not None:
            if self.intent.halt != before.halt:  # halted before it had begun, it was one all the same
                past = history.begin(past, revision, self.now, self._restart()) if self._rolling() else past
                past = history.halt(past, self.now)
            for entry in finished:
                past = history.note(past, entry, self.now)
        elif self._rolling() or (past and not past[0].finished_at):
            past = history.begin(past, revision, self.now, self._restart()) if revision else past
            for entry in finished:
                past = history.note(past, entry, self.now)
        status = counted.model_copy(
            update={
                "observed_generation": rollout.generation,
                "current_revision": revision if complete else before.current_revision,
                "budget_wait_since": self._waits_for_budget(before),
                "replacements": kept,
                "history": past,
                "step": self.extent.step,
                **self.intent.stored(),
            }
        )
        if complete:  # nothing is left that a halt could keep from being replaced
            status = _with(status, halt=None)
        status = status.model_copy(update={"last_progress_time": self._last_progress(before, status)})
        picture = Picture(
            generation=rollout.generation,
            complete=complete,
            settled=self._settled(kept),
            paused=rollout.spec.paused,
            summary=self._summary(status),
            refused=self.refused,
            halted=status.halt,
            late=None if complete or self.refused else late(self._course(status), self.now),
            idle=self.step.why if isinstance(self.step, Blocked) else None,
            waits=self._waits(),
            appraisals=tuple(a for a in self.appraisals if a.in_flight and not self._superfluous(a)),
            stranded=tuple(a for a in self.appraisals if a.stranded),
            findings=looked_at(self.snapshot, self.driver),
            guardrails=rollout.spec.guardrails,
            hold=told(self.snapshot),
            reservation=reservation_told(self.snapshot),
        )
        return status.model_copy(update={"conditions": conditions(before.conditions, picture, self.now)})

    def _waits_for_budget(self, before: RolloutStatus) -> datetime | None:
        match self.step:
            case Step():
                return before.budget_wait_since  # whoever chooses at the same moment may yet come first
            case Blocked(why=why) if why.reason is Waiting.SHARED_BUDGET_USED_UP:
                return waiting_since(before.budget_wait_since, self.now)
        return None

    def _counts(self, before: RolloutStatus) -> RolloutStatus:
        live = [p for p in self.snapshot.pods if p.live]
        if self.workload is None or self.driver is None:
            gone = {"replicas": 0, "updated_replicas": 0, "ready_replicas": 0}
            return _with(before, **gone, available_replicas=0, unavailable_replicas=0, gated_replicas=0)
        up = sum(available(p, self.min_ready, self.now) for p in live)
        known = self.driver.behind() is None
        return _with(
            before,
            observed_workload_generation=self.workload.generation
            if known
            else before.observed_workload_generation,
            update_revision=self.driver.revision() if known else before.update_revision,
            replicas=self.workload.replicas,
            updated_replicas=sum(map(self._current, live)),
            ready_replicas=sum(p.ready for p in live),
            available_replicas=up,
            unavailable_replicas=max(0, self.workload.replicas - up),
            gated_replicas=waiting_pods(self.snapshot.pods),
        )

    def _rolling(self) -> bool:
        """Whether pods of another revision than the target, or older than a restart, are still to be replaced."""
        if self.driver is None or self.driver.behind() is not None:
            return False
        return any(p.live and not self._current(p) for p in self.snapshot.pods)

    def _restart(self) -> datetime | None:
        """Return which restart is being carried out."""
        return restart.due(self.snapshot, self.now) if self._restarting() else None

    def _restarting(self) -> bool:
        """Whether pods of the target revision, and no others, are to be replaced for their age."""
        stale = [p for p in self.snapshot.pods if p.live and not self._current(p)]
        return bool(stale) and self.driver is not None and all(map(self.driver.updated, stale))

    def _complete(self, kept: tuple[Replacement, ...]) -> bool:
        """S8: only what is observed now, at the newest generation, counts as success."""
        if self.driver is None or self.workload is None or self.refused is not None or kept:
            return False
        if any(isinstance(a, UnpauseDeployment) for a in self._upkeep()):
            return False  # that makes a new generation, and success would be taken back a moment later
        live = [p for p in self.snapshot.pods if p.live]
        return (
            self.driver.behind() is None
            and self.driver.complete()
            and len(live) == self.workload.replicas
            and all(self._current(p) and available(p, self.min_ready, self.now) for p in live)
        )

    def _settled(self, kept: tuple[Replacement, ...]) -> NotNow | None:
        """Return that all is done which the partition leaves to be done, if so."""
        if kept or self.workload is None or self.refused is not None or not self.extent.partitioned:
            return None
        live = [p for p in self.snapshot.pods if p.live]
        well = all(available(p, self.min_ready, self.now) for p in live)
        if self._restarts_beside_partition():
            return None
        return self.extent.why if well and len(live) == self.workload.replicas else None

    def _restarts_beside_partition(self) -> bool:
        """Whether pods of the target revision are still to be replaced for their age."""
        return self.driver is not None and any(
            p.live and self.driver.updated(p) and not self._current(p) for p in self.snapshot.pods
        )

    def _waits(self) -> Standing | None:
        """Return what the oldest pod that is not available waits for: outside a replacement, nothing else tells."""
        live = sorted((p for p in self.snapshot.pods if p.live), key=lambda p: (p.created, p.name))
        pod = next((p for p in live if not available(p, self.min_ready, self.now)), None)
        if pod is None:
            return None
        why = self.openings.blocked.get(pod.uid)
        if why is not None:
            return Standing(Stage.GATED, why.reason, f"pod {pod.name} stays gated: {why.message}")
        return after_release(pod, self.min_ready, self.now)

    # When to look again, and what is late

    def _last_progress(self, before: RolloutStatus, after: RolloutStatus) -> datetime:
        if before.last_progress_time is None or self._stands_still():
            return before.last_progress_time or self.now
        if _movement(before) == _movement(after) and not _stood_still(before):
            return before.last_progress_time
        return self.now

    def _stands_still(self) -> bool:
        """Whether a person, a window or others' turn has stopped us, so that no deadline counts."""
        if self.refused is not None:
            return True
        flying = any(a.in_flight for a in self.appraisals)
        return isinstance(self.step, Blocked) and self.step.why.reason in _STILL and not flying

    def _course(self, status: RolloutStatus) -> Course:
        return Course(
            self.snapshot,
            self.appraisals,
            self.step,
            status.last_progress_time,
            self._stands_still(),
            self._waits_for(),
        )

    def _waits_for(self) -> str:
        for a in self.appraisals:
            if a.in_flight:
                standing = self._standing(a)
                return f"{standing.stage}: {standing.message}" if standing.message else str(standing.stage)
        if isinstance(self.step, Blocked):
            return self.step.why.message
        waits = self._waits()
        return waits.message or str(waits.stage) if waits is not None else "no pod is due"

    def _next_due(self, status: RolloutStatus) -> datetime | None:
        due = [a.standing.due for a in self.appraisals if a.standing.due is not None]
        if isinstance(self.step, Blocked) and self.step.due is not None:
            due.append(self.step.due)
        if self.step is not None:
            change = windows.next_change(self.snapshot.rollout.spec.windows, self.now)
            due += [change] if change is not None else []
        if any(c.type in ("Reconciling", "Stalled") for c in status.conditions):
            due += deadlines(self._course(status), self.now)
        to_come = restart.to_come(self.snapshot, self.now)
        due += [to_come] if to_come is not None else []
        if self.min_ready:
            soaking = (p.ready_since for p in self.snapshot.pods if p.live and p.ready_since is not None)
            due += [since + timedelta(seconds=self.min_ready) for since in soaking]
        return min((d for d in due if d > self.now), default=None)

    def _stage_times(
        self, kept: tuple[Replacement, ...], finished: tuple[Replacement, ...]
    ) -> tuple[StageTime, ...]:
        before = {e.id: e for e in self.snapshot.rollout.status.replacements}
        moved = [(before[e.id], e) for e in (*kept, *finished) if e.id in before]
        return tuple(
            StageTime(old.stage, (self.now - old.stage_started_at).total_seconds())
            for old, new in moved
            if old.stage is not new.stage
        )

    def _notices(self, finished: tuple[Replacement, ...]) -> tuple[Notice, ...]:
        notices: list[Notice] = [*self.intent.notices]
        stored = {e.id: e for e in self.snapshot.rollout.status.replacements}
        for victim in self.step.victims if isinstance(self.step, Step) else ():
            if victim.uid not in stored:
                text = f"replacing pod {victim.name} {self._what_for(victim)}"
                notices.append(Notice(EventType.NORMAL, Announcement.REPLACING, text, "Replace"))
        for a in self.appraisals:
            was = stored.get(a.entry.id)
            if a.entry.released_at is not None and (was is None or was.released_at is None):
                who = a.entry.pod_name or "an unknown predecessor"
                text = f"devices of pod {who} are free (proof: {a.entry.proof})"
                notices.append(Notice(EventType.NORMAL, Announcement.DEVICES_RELEASED, text, "Release"))
            notices += troubles(a.entry, a.standing, was)
            if (
                a.verdict is not None
                and a.verdict.exposed
                and (was is None or was.reason != a.standing.reason)
            ):
                notices.append(Notice(EventType.WARNING, a.standing.reason, a.standing.message, "Release"))
        for entry in finished:
            if entry.replacement_pod_name:
                text = f"pod {entry.replacement_pod_name} has replaced pod {entry.pod_name} and is healthy"
                notices.append(Notice(EventType.NORMAL, Announcement.REPLACED, text, "Replace"))
        return tuple(notices)

    def _what_for(self, victim: PodRecord) -> str:
        if self.driver is not None and not self.driver.updated(victim):
            return f"to bring it to revision {self.driver.revision()}"
        return f"that was created before spec.restartedAt ({self.snapshot.rollout.spec.restarted_at:%Y-%m-%d %H:%M:%S} UTC)"

    def _summary(self, status: RolloutStatus) -> str:
        since = restart.due(self.snapshot, self.now)
        young = f" and created since {since:%Y-%m-%d %H:%M:%S} UTC" if since is not None else ""
        return (
            f"{status.updated_replicas} of {status.replicas} pods at revision {status.update_revision}{young}, "
            f"{status.available_replicas} available"
        )


def _movement(status: RolloutStatus) -> object:
    """Return what changes whenever something moves."""
    return (
        status.update_revision,
        status.halt is None,
        status.undo is None,
        status.replicas,
        status.updated_replicas,
        status.available_replicas,
        status.gated_replicas,
        tuple(sorted((e.id, e.stage, e.replacement_pod_uid) for e in status.replacements)),
    )


def _stood_still(status: RolloutStatus) -> bool:
    """Whether the stored status tells of a stop by a person, whose end is itself a movement."""
    return any(
        c.type == "Progressing" and (c.reason in _REFUSALS or c.reason in _STILL) for c in status.conditions
    )


__all__ = ["NotNow", "plan"]
