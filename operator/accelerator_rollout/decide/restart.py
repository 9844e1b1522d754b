"""Restarts: which pods are older than spec.restartedAt, and are to be replaced at the revision they have.

Nothing of this stands in the template, so that no tool that owns the template puts it back. Only once no pod is of
another revision than the target do old ones of the target's own have their turn: those that a rollout replaces are
young enough afterwards. Those that spec.strategy.partition keeps at another revision have no turn: they would come back
at the target.
"""

from datetime import datetime

from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.records import PodRecord


def due(snapshot: Snapshot, now: datetime) -> datetime | None:
    """Return the time before which no pod may have been created; None if there is none, or if it is still to come."""
    asked = snapshot.rollout.spec.restarted_at
    return asked if asked is not None and now >= asked else None


def to_come(snapshot: Snapshot, now: datetime) -> datetime | None:
    """Return when a restart is due that is not due yet."""
    asked = snapshot.rollout.spec.restarted_at
    return asked if asked is not None and now < asked else None


def older(pod: PodRecord, snapshot: Snapshot, now: datetime) -> bool:
    """Whether a restart that is due has the pod replaced. API times have whole seconds: one of the same is not older."""
    since = due(snapshot, now)
    return since is not None and pod.created < since
