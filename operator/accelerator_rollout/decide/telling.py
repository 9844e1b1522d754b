"""What a decision tells in the status: from live pods and never from counters."""

from datetime import datetime

from accelerator_rollout.api.models import Replacement, RolloutStatus
from accelerator_rollout.decide import history, restart
from accelerator_rollout.decide.actions import UnpauseDeployment
from accelerator_rollout.decide.admission import looked_at
from accelerator_rollout.decide.budget import available
from accelerator_rollout.decide.conditions import Picture, conditions
from accelerator_rollout.decide.deadlines import late
from accelerator_rollout.decide.disruption import Blocked, Step
from accelerator_rollout.decide.holds import told
from accelerator_rollout.decide.judgement import Judgement
from accelerator_rollout.decide.openings import waiting_pods
from accelerator_rollout.decide.progress import course, last_progress
from accelerator_rollout.decide.reasons import Waiting
from accelerator_rollout.decide.reservations import told as reservation_told
from accelerator_rollout.decide.shared_budget import waiting_since
from accelerator_rollout.workloads.base import NotNow


def tell(j: Judgement, kept: tuple[Replacement, ...], finished: tuple[Replacement, ...]) -> RolloutStatus:
    """Return the status to store: `kept` are the entries to remember, `finished` goes to the history."""
    rollout = j.snapshot.rollout
    before = rollout.status
    counted = _counts(j, before)
    aground = {a.entry.id for a in j.appraisals if a.stranded}
    complete = _complete(j, tuple(e for e in kept if e.id not in aground))
    past = before.history
    revision = counted.update_revision
    if complete:
        for entry in finished:
            past = history.note(past, entry, j.now)
        past = history.complete(past, j.now, halted=before.halt is not None)
    elif j.intent.halt is not None:
        if j.intent.halt != before.halt:  # halted before it had begun, it was one all the same
            past = history.begin(past, revision, j.now, j.restart_due()) if j.rolling() else past
            past = history.halt(past, j.now)
        for entry in finished:
            past = history.note(past, entry, j.now)
    elif j.rolling() or (past and not past[0].finished_at):
        past = history.begin(past, revision, j.now, j.restart_due()) if revision else past
        for entry in finished:
            past = history.note(past, entry, j.now)
    status = counted.model_copy(
        update={
            "observed_generation": rollout.generation,
            "current_revision": revision if complete else before.current_revision,
            "budget_wait_since": _waits_for_budget(j, before),
            "replacements": kept,
            "history": past,
            "step": j.extent.step,
            **j.intent.stored(),
        }
    )
    if complete:  # nothing is left that a halt could keep from being replaced
        status = status.model_copy(update={"halt": None})
    status = status.model_copy(update={"last_progress_time": last_progress(j, before, status)})
    picture = Picture(
        generation=rollout.generation,
        complete=complete,
        settled=_settled(j, kept),
        paused=rollout.spec.paused,
        summary=_summary(j, status),
        refused=j.refused,
        halted=status.halt,
        late=None if complete or j.refused else late(course(j, status), j.now),
        idle=j.idle(),
        waits=j.waits(),
        appraisals=tuple(a for a in j.appraisals if a.in_flight and not j.superfluous(a)),
        stranded=tuple(a for a in j.appraisals if a.stranded),
        findings=looked_at(j.snapshot, j.driver),
        guardrails=rollout.spec.guardrails,
        hold=told(j.snapshot),
        reservation=reservation_told(j.snapshot),
    )
    return status.model_copy(update={"conditions": conditions(before.conditions, picture, j.now)})


def _waits_for_budget(j: Judgement, before: RolloutStatus) -> datetime | None:
    match j.step:
        case Step():
            return before.budget_wait_since  # whoever chooses at the same moment may yet come first
        case Blocked(why=why) if why.reason is Waiting.SHARED_BUDGET_USED_UP:
            return waiting_since(before.budget_wait_since, j.now)
    return None


def _counts(j: Judgement, before: RolloutStatus) -> RolloutStatus:
    live = [p for p in j.snapshot.pods if p.live]
    if j.workload is None or j.driver is None:
        gone = (
            "replicas",
            "updated_replicas",
            "ready_replicas",
            "available_replicas",
            "unavailable_replicas",
            "gated_replicas",
        )
        return before.model_copy(update=dict.fromkeys(gone, 0))
    up = sum(available(p, j.min_ready, j.now) for p in live)
    known = j.driver.behind() is None
    return before.model_copy(
        update={
            "observed_workload_generation": j.workload.generation
            if known
            else before.observed_workload_generation,
            "update_revision": j.driver.revision() if known else before.update_revision,
            "replicas": j.workload.replicas,
            "updated_replicas": sum(map(j.current, live)),
            "ready_replicas": sum(p.ready for p in live),
            "available_replicas": up,
            "unavailable_replicas": max(0, j.workload.replicas - up),
            "gated_replicas": waiting_pods(j.snapshot.pods),
        }
    )


def _complete(j: Judgement, kept: tuple[Replacement, ...]) -> bool:
    """S8: only what is observed now, at the newest generation, counts as success."""
    if j.driver is None or j.workload is None or j.refused is not None or kept:
        return False
    if any(isinstance(a, UnpauseDeployment) for a in j.upkeep()):
        return False  # that makes a new generation, and success would be taken back a moment later
    live = [p for p in j.snapshot.pods if p.live]
    return (
        j.driver.behind() is None
        and j.driver.complete()
        and len(live) == j.workload.replicas
        and all(j.current(p) and available(p, j.min_ready, j.now) for p in live)
    )


def _settled(j: Judgement, kept: tuple[Replacement, ...]) -> NotNow | None:
    """Return that all is done which the partition leaves to be done, if so."""
    if kept or j.workload is None or j.refused is not None or not j.extent.partitioned:
        return None
    live = [p for p in j.snapshot.pods if p.live]
    well = all(available(p, j.min_ready, j.now) for p in live)
    if _restarts_beside_partition(j):
        return None
    return j.extent.why if well and len(live) == j.workload.replicas else None


def _restarts_beside_partition(j: Judgement) -> bool:
    """Whether pods of the target revision are still to be replaced for their age."""
    return j.driver is not None and any(
        p.live and j.driver.updated(p) and not j.current(p) for p in j.snapshot.pods
    )


def _summary(j: Judgement, status: RolloutStatus) -> str:
    since = restart.due(j.snapshot, j.now)
    young = f" and created since {since:%Y-%m-%d %H:%M:%S} UTC" if since is not None else ""
    return (
        f"{status.updated_replicas} of {status.replicas} pods at revision {status.update_revision}{young}, "
        f"{status.available_replicas} available"
    )
