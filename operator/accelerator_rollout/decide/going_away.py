"""Our object is being deleted: leave the workload to its own controller, with nothing of ours left behind.

We wait for the proof of what is in flight, at most the wait for unproven releases counted from the deletion; then the
gates open anyway, with a warning. A workload that is gone keeps nobody.
"""

from datetime import datetime, timedelta

from accelerator_rollout.decide.actions import OpenGate, RemoveFinalizer
from accelerator_rollout.decide.admission import conflict
from accelerator_rollout.decide.appraisal import appraise, restage
from accelerator_rollout.decide.departures import gated, match, track
from accelerator_rollout.decide.openings import openings
from accelerator_rollout.decide.outcome import EventType, Notice, Plan
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.names import FINALIZER
from accelerator_rollout.workloads.base import Driver


def going_away(snapshot: Snapshot, driver: Driver | None, now: datetime) -> Plan:
    """Return the next act of leaving."""
    rollout = snapshot.rollout
    if FINALIZER not in rollout.finalizers:
        return Plan((), rollout.status, record_first=False, next_due=None)
    leave = RemoveFinalizer(rollout.uid)
    if driver is None or snapshot.workload is None or conflict(snapshot) is not None:
        return Plan((leave,), rollout.status, record_first=False, next_due=None)
    min_ready = snapshot.workload.min_ready_seconds
    entries = match(track(snapshot, now), snapshot, now)
    appraisals = tuple(a for a in (appraise(e, snapshot, min_ready, now) for e in entries) if a.left)
    waiting = [p for p in snapshot.pods if p.live and gated(p)]
    unreleased = [a for a in appraisals if a.unreleased and a.entry.replacement_pod_uid]
    due = _due(snapshot, max((a.entry.grace_seconds or 0 for a in appraisals), default=0))
    status = rollout.status.model_copy(
        update={"replacements": tuple(restage(a.entry, a.standing, now) for a in appraisals)}
    )
    if not waiting:
        return Plan((*driver.let_go(), leave), status, record_first=False, next_due=None)
    notices: tuple[Notice, ...] = ()
    if now >= due:
        by_successor = {a.entry.replacement_pod_uid: a.entry for a in appraisals}
        acts = tuple(
            OpenGate(p.name, p.uid, by_successor[p.uid].pod_uid if p.uid in by_successor else "")
            for p in waiting
        )
        if unreleased:
            names = ", ".join(sorted(a.entry.replacement_pod_name for a in unreleased))
            text = f"the object is being deleted: gates of {names} open without proof that devices are free"
            notices = (Notice(EventType.WARNING, "OpenedWithoutProof", text, "OpenGate"),)
    else:
        acts = openings(snapshot, driver, appraisals, doomed="").actions
    return Plan(acts, status, record_first=False, next_due=None if now >= due else due, notices=notices)


def _due(snapshot: Snapshot, grace_seconds: int) -> datetime:
    """Return when the wait ends: the wait for unproven releases, from the deletion of our object."""
    began = snapshot.rollout.deletion
    if began is None:
        raise ValueError(f"AcceleratorRollout {snapshot.rollout.name} is not being deleted")
    return began + timedelta(seconds=grace_seconds + snapshot.rollout.spec.release.unproven.extra_seconds)
