"""Our object is being deleted: leave the workload to its own controller, with nothing of ours left behind.

We wait for the proof of what is in flight, at most the wait for unproven releases counted from the deletion; then the
gates open and holds end anyway, with a warning. A workload that is gone keeps us only for what its pods still hold.
"""

from datetime import datetime, timedelta

from accelerator_rollout.decide.actions import Action, OpenGate, PauseDeployment, RemoveFinalizer
from accelerator_rollout.decide.admission import conflict
from accelerator_rollout.decide.appraisal import Appraisal, appraise, endings, restage
from accelerator_rollout.decide.budget import min_ready
from accelerator_rollout.decide.conditions import leaving
from accelerator_rollout.decide.departures import gated, match, track
from accelerator_rollout.decide.guards import guarded, unguarded
from accelerator_rollout.decide.holds import held
from accelerator_rollout.decide.openings import openings
from accelerator_rollout.decide.outcome import EventType, Notice, Plan
from accelerator_rollout.decide.reasons import Announcement
from accelerator_rollout.decide.reservations import reservations
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.names import FINALIZER
from accelerator_rollout.records import PodRecord
from accelerator_rollout.workloads.base import Driver


def going_away(snapshot: Snapshot, driver: Driver | None, now: datetime) -> Plan:
    """Return the next act of leaving."""
    rollout = snapshot.rollout
    if FINALIZER not in rollout.finalizers:
        return Plan((), rollout.status, record_first=False, next_due=None)
    leave = RemoveFinalizer(rollout.uid)
    ours = driver is not None and snapshot.workload is not None and conflict(snapshot) is None
    held_back = any(held(c, rollout.uid) for c in snapshot.claims.values())
    held_back = held_back or any(map(guarded, (*snapshot.pods, *snapshot.former)))
    held_back = held_back or bool(snapshot.reservations)
    if not ours and not held_back:
        return Plan((leave,), rollout.status, record_first=False, next_due=None)
    seconds = min_ready(snapshot)
    entries = match(track(snapshot, now), snapshot, now)
    appraisals = tuple(a for a in (appraise(e, snapshot, seconds, now) for e in entries) if a.left)
    waiting = [p for p in snapshot.pods if ours and p.live and gated(p)]
    # A departure whose successor does not exist yet counts too: once we are gone, its gate would open at first sight.
    unreleased = [a for a in appraisals if a.unreleased]
    # Nobody may be there to open a gate once we are gone: a successor that its controller is about to make is waited for.
    heirless = [a for a in appraisals if a.successor is None] if ours and _lacks_pods(snapshot) else []
    due = _due(snapshot, max((a.entry.grace_seconds or 0 for a in appraisals), default=0))
    late = now >= due
    owed = bool(unreleased or heirless) and ours
    if not waiting and not held_back and (late or not owed):
        left: tuple[Action, ...] = driver.let_go() if driver is not None and ours else ()
        return Plan((*left, leave), rollout.status, record_first=False, next_due=None)
    acts: tuple[Action, ...] = (*endings(snapshot, appraisals, late=late), *unguarded(snapshot, late=late))
    acts += reservations(snapshot, ())
    if driver is not None and ours:
        # Deleted between a step and its lock: without the lock no gate of a Deployment opens.
        locks = tuple(a for a in driver.upkeep(may_move=True) if isinstance(a, PauseDeployment))
        opened = openings(snapshot, driver, appraisals, doomed=frozenset()).actions
        acts += _open_all(waiting, appraisals) if late else (*locks, *opened)
    who = _names(unreleased)
    status = rollout.status.model_copy(
        update={
            "observed_generation": rollout.generation,
            "replacements": tuple(restage(a.entry, a.standing, now) for a in appraisals),
            "conditions": leaving(
                rollout.status.conditions,
                rollout.generation,
                _told(unreleased, heirless, due),
                now,
            ),
        }
    )
    notices: tuple[Notice, ...] = ()
    if late and unreleased:
        text = f"the object is being deleted: gates open and holds end without proof that the devices of {who} are free"
        notices = (Notice(EventType.WARNING, Announcement.OPENED_WITHOUT_PROOF, text, "OpenGate"),)
    return Plan(acts, status, record_first=False, next_due=None if late else due, notices=notices)


def _lacks_pods(snapshot: Snapshot) -> bool:
    """Whether the workload's controller still has a pod to make. One that is being deleted makes none."""
    workload = snapshot.workload
    if workload is None or workload.deletion is not None:
        return False
    return sum(p.live for p in snapshot.pods) < workload.replicas


def _told(unreleased: list[Appraisal], heirless: list[Appraisal], due: datetime) -> str:
    awaited = (
        f"the devices of {_names(unreleased)}"
        if unreleased
        else f"the pod that takes the place of {_names(heirless)}"
        if heirless
        else ""
    )
    until = f"; waiting for {awaited}, until {due:%H:%M:%S} UTC at most" if awaited else ""
    return f"the object is being deleted{until}"


def _names(appraisals: list[Appraisal]) -> str:
    return ", ".join(sorted(a.entry.pod_name or a.entry.replacement_pod_name for a in appraisals))


def _open_all(waiting: list[PodRecord], appraisals: tuple[Appraisal, ...]) -> tuple[OpenGate, ...]:
    pods_by_successor = {a.entry.replacement_pod_uid: a.entry.pod_uid for a in appraisals}
    return tuple(OpenGate(p.name, p.uid, pods_by_successor.get(p.uid, "")) for p in waiting)


def _due(snapshot: Snapshot, grace_seconds: int) -> datetime:
    """Return when the wait ends: the wait for unproven releases, from the deletion of our object."""
    began = snapshot.rollout.deletion
    if began is None:
        raise ValueError(f"AcceleratorRollout {snapshot.rollout.name} is not being deleted")
    return began + timedelta(seconds=grace_seconds + snapshot.rollout.spec.release.unproven.extra_seconds)
