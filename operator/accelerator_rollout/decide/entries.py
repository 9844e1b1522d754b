"""What a decision remembers of replacements: all that a restarted operator cannot see again."""

from collections.abc import Mapping

from accelerator_rollout.api.models import Cause, Replacement, Stage
from accelerator_rollout.decide.appraisal import restage
from accelerator_rollout.decide.departures import record
from accelerator_rollout.decide.disruption import Blocked, Step
from accelerator_rollout.decide.judgement import Judgement
from accelerator_rollout.decide.ordering import first
from accelerator_rollout.decide.reasons import Waiting
from accelerator_rollout.decide.stages import Standing
from accelerator_rollout.decide.stranded import remembered
from accelerator_rollout.records import PodRecord


def remember(j: Judgement) -> tuple[tuple[Replacement, ...], tuple[Replacement, ...]]:
    """Return the entries to keep, and those that are finished with this decision."""
    kept: list[Replacement] = []
    finished: list[Replacement] = []
    memory = remembered((a.entry for a in j.appraisals if a.stranded), j.snapshot)
    for a in j.appraisals:
        if not a.left or (a.stranded and a.entry.id not in memory):
            continue
        if a.done or j.superfluous(a):
            finished.append(restage(a.entry, Standing(Stage.DONE), j.now))
        else:
            kept.append(restage(_anew(j, a.entry), j.standing(a), j.now))
    kept.extend(_selected(j))
    return tuple(kept), tuple(finished)


def _anew(j: Judgement, entry: Replacement) -> Replacement:
    """Return the entry without its failures so far, if somebody asked to try again."""
    retried = j.intent.retried_at != j.snapshot.rollout.status.retried_at
    return entry.model_copy(update={"relapses": None}) if retried and entry.relapses else entry


def _selected(j: Judgement) -> tuple[Replacement, ...]:
    """Return the entry of the chosen pod: recorded before it is touched, kept while a step is under way."""
    chosen = _choice(j)
    if j.step is None or (j.snapshot.shared is None and not _evicts(j)):
        return chosen
    # What may be leaving already must not be forgotten before it shows: its place would be given away, and whoever
    # decides after a crash would choose another pod beside it.
    known = {e.id for e in chosen}
    sent = (a.entry for a in j.appraisals if not a.left and a.entry.pod_uid in j.snapshot.maybe_sent)
    return (*chosen, *(e for e in sent if e.id not in known))


def _evicts(j: Judgement) -> bool:
    """Whether pods are told to go one by one. A Deployment is set free instead, and what it may do shows on itself."""
    return j.driver is not None and (not j.driver.steps_alone() or j.restarting())


def _choice(j: Judgement) -> tuple[Replacement, ...]:
    stored = {a.entry.pod_uid: a.entry for a in j.appraisals if not a.left}
    # While its controller is free to move, whoever was recorded for that may go any moment.
    kept = stored if j.driver is not None and j.driver.stepping() else {}
    if isinstance(j.step, Step):
        victims = {p.uid: _chosen(j, p, stored, Standing(Stage.SELECTED)) for p in j.step.victims}
        return tuple((kept | victims).values())
    if isinstance(j.step, Blocked) and j.step.victim is not None:
        entry = stored.get(j.step.victim.uid)
        if entry is not None:
            why = j.step.why
            waiting = restage(entry, Standing(Stage.EVICTING, why.reason, why.message), j.now)
            return tuple((kept | {entry.pod_uid: waiting}).values())
    if kept:
        return tuple(kept.values())
    # Ahead of time, in the write that tells of the opening: the step itself then waits for none.
    # Not where others may have the next turn: a recorded choice takes up a place of the shared budget.
    following = j.next_in_line() if j.snapshot.shared is None else ()
    if j.driver is None or not following or not any(a.in_flight for a in j.appraisals):
        return ()
    victim = next((p for p in following if p.uid in stored), None) or first(following, j.snapshot, j.driver)
    text = f"pod {victim.name} is replaced once the last replacement is healthy"
    return (_chosen(j, victim, stored, Standing(Stage.SELECTED, Waiting.NEXT_IN_LINE, text)),)


def _chosen(
    j: Judgement, victim: PodRecord, stored: Mapping[str, Replacement], standing: Standing
) -> Replacement:
    entry = stored.get(victim.uid)
    if entry is None:
        entry = record(victim, j.snapshot, Cause.ROLLOUT, Stage.SELECTED, j.now)
    return restage(entry, standing, j.now)
