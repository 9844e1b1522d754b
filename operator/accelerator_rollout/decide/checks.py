"""What spec.release.checks came to: asked outside, judged here."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from accelerator_rollout.api.models import Replacement
from accelerator_rollout.decide.actions import RunChecks
from accelerator_rollout.decide.allocatable import Obstacle
from accelerator_rollout.decide.reasons import NotFree
from accelerator_rollout.decide.snapshot import CheckRun, Snapshot

RETRY_SECONDS: Final = 10  # after a check that was not true
_GOOD_FOR: Final = 60  # seconds, of checks that were all true while something else keeps the gate closed


def checking(replacement: Replacement, snapshot: Snapshot, now: datetime) -> Obstacle | None:
    """Return what keeps devices that are free otherwise; None where all checks are true, or were when it counted."""
    if not snapshot.rollout.spec.release.checks or replacement.released_at is not None:
        return None
    run = _run(replacement.id, snapshot)
    if run is not None and run.failures:
        due = run.at + timedelta(seconds=RETRY_SECONDS)
        return Obstacle(NotFree.CHECK_FAILED, run.failures[0], due)
    if run is None or now >= run.at + timedelta(seconds=_GOOD_FOR):
        return Obstacle(NotFree.CHECKS_RUNNING, "spec.release.checks are being asked about the devices")
    return None


def due_checks(found: Iterable[tuple[Replacement, Obstacle | None]], now: datetime) -> tuple[RunChecks, ...]:
    """Return the checks that are to be asked now, of departures with what keeps their devices."""
    return tuple(
        RunChecks(entry.id)
        for entry, obstacle in found
        if obstacle is not None
        and obstacle.reason in (NotFree.CHECKS_RUNNING, NotFree.CHECK_FAILED)
        and (obstacle.due is None or now >= obstacle.due)
    )


def _run(replacement_id: str, snapshot: Snapshot) -> CheckRun | None:
    run = snapshot.checked.get(replacement_id)
    return run if run is not None and run.generation == snapshot.rollout.generation else None
