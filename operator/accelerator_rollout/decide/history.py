"""The last rollouts and their replacements, bounded, newest first; the one in progress is the first."""

from datetime import datetime

from accelerator_rollout.api.models import (
    MAX_HISTORY,
    MAX_HISTORY_REPLACEMENTS,
    Cause,
    Outcome,
    PastReplacement,
    PastRollout,
    Replacement,
    StageDuration,
)


def begin(
    history: tuple[PastRollout, ...], revision: str, now: datetime, restarted_at: datetime | None = None
) -> tuple[PastRollout, ...]:
    """Return the history with a rollout to `revision` in progress; another one in progress is superseded.

    A restart of the same revision goes on in the rollout that is in progress.
    """
    if history and history[0].outcome is Outcome.IN_PROGRESS:
        if history[0].revision == revision:
            if restarted_at is None or history[0].restarted_at == restarted_at:
                return history
            return (history[0].model_copy(update={"restarted_at": restarted_at}), *history[1:])
        history = _end(history, Outcome.SUPERSEDED, now)
    entry = PastRollout(
        revision=revision, outcome=Outcome.IN_PROGRESS, started_at=now, restarted_at=restarted_at
    )
    return (entry, *history)[:MAX_HISTORY]


def complete(
    history: tuple[PastRollout, ...], now: datetime, *, halted: bool = False
) -> tuple[PastRollout, ...]:
    """Return the history with the rollout in progress, if any, completed; a halted one too, if it is what completes."""
    ended = (Outcome.IN_PROGRESS, Outcome.ABORTED) if halted else (Outcome.IN_PROGRESS,)
    if history and history[0].outcome in ended:
        return _end(history, Outcome.COMPLETED, now)
    return history


def halt(history: tuple[PastRollout, ...], now: datetime) -> tuple[PastRollout, ...]:
    """Return the history with the rollout in progress, if any, aborted."""
    if history and history[0].outcome is Outcome.IN_PROGRESS:
        return _end(history, Outcome.ABORTED, now)
    return history


def note(history: tuple[PastRollout, ...], done: Replacement, now: datetime) -> tuple[PastRollout, ...]:
    """Return the history with a finished replacement added to the rollout in progress, or to the halted one it is of."""
    if not history or history[0].outcome not in (Outcome.IN_PROGRESS, Outcome.ABORTED):
        return history
    if history[0].outcome is Outcome.ABORTED and done.cause is not Cause.ROLLOUT:
        return history
    past = PastReplacement(
        pod_name=done.pod_name,
        replaced_by=done.replacement_pod_name,
        started_at=done.stage_times[0].at if done.stage_times else None,
        proof=done.proof,
        killed_after_grace=done.killed_after_grace,
        stages=durations(done, now),
    )
    replacements = (*history[0].replacements, past)[-MAX_HISTORY_REPLACEMENTS:]
    return (history[0].model_copy(update={"replacements": replacements}), *history[1:])


def durations(entry: Replacement, now: datetime) -> tuple[StageDuration, ...]:
    """Return how long each stage took, the last one until `now`."""
    ends = [*(t.at for t in entry.stage_times[1:]), now]
    return tuple(
        StageDuration(stage=t.stage, seconds=max(0, round((end - t.at).total_seconds())))
        for t, end in zip(entry.stage_times, ends, strict=True)
    )


def _end(history: tuple[PastRollout, ...], outcome: Outcome, now: datetime) -> tuple[PastRollout, ...]:
    return (history[0].model_copy(update={"outcome": outcome, "finished_at": now}), *history[1:])
