"""Undo: which of the workload's former pod templates is restored, from its own revision history, and whether it is yet.

A Deployment's ReplicaSets hold its former templates, a StatefulSet's and a DaemonSet's ControllerRevisions theirs. What
is to be restored stands in the status before anything is written; from then on every decision looks at the workload
alone: it has the template that is to go (restore it), the former one (done), or a third one (somebody else was faster,
and has the last word).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from accelerator_rollout.api.models import Undo
from accelerator_rollout.decide.actions import RestoreTemplate
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.records import DaemonSetRecord, DeploymentRecord, StatefulSetRecord, comes_gated
from accelerator_rollout.workloads.base import Driver
from accelerator_rollout.workloads.deployment import REVISION_LENGTH


@dataclass(frozen=True, slots=True)
class Former:
    """A template of the past, and the object that keeps it."""

    name: str
    uid: str
    digest: str
    number: int  # as its controller counts: the newest has the highest
    revision: str  # as status.currentRevision names it
    gated: bool  # whether its pods come with our gate, by name or by label


class Course(StrEnum):
    """Where an undo stands."""

    OPEN = "Open"  # the workload has the template that is to go
    DONE = "Done"
    OVERTAKEN = "Overtaken"  # the workload has a third template, or is gone
    LOST = "Lost"  # the former template is gone, or must not be written any more


def target(snapshot: Snapshot) -> Former | None:
    """Return what to go back to: where the pods were last all at, else the newest before the present one.

    A template whose pods come without our gate is none: nothing could be replaced with it.
    """
    workload = snapshot.workload
    if workload is None:
        return None
    others = [f for f in former(snapshot) if f.digest != workload.template.digest and f.gated]
    last = [f for f in others if f.revision == snapshot.rollout.status.current_revision]
    return max(last or others, key=lambda f: (f.number, f.name), default=None)


def former(snapshot: Snapshot) -> Iterator[Former]:
    """Yield what the workload's revision history has, the present template too."""
    match snapshot.workload:
        case DeploymentRecord():
            for one in snapshot.replica_sets:
                gated = comes_gated(one.template_gates, one.template_labels)
                revision = one.template_digest[:REVISION_LENGTH]
                yield Former(one.name, one.uid, one.template_digest, one.number, revision, gated)
        case StatefulSetRecord() | DaemonSetRecord():
            for kept in snapshot.revisions:
                if kept.template_digest:
                    yield Former(
                        kept.name, kept.uid, kept.template_digest, kept.number, kept.revision, kept.gated
                    )
        case None:
            return


def impossible(snapshot: Snapshot, driver: Driver | None) -> str:
    """Return why no template may be written, whichever; "" if one may."""
    if not snapshot.restore:
        return (
            "the operator may not write pod templates. Install its optional role: "
            "kubectl apply --server-side -k deploy/kustomize/overlays/undo"
        )
    refused = driver.refusal() if driver is not None else None
    return refused.message if refused is not None else ""


def record(to: Former, snapshot: Snapshot, now: datetime) -> Undo:
    """Return the undo of the present template in favour of `to`."""
    leaves = snapshot.workload.template.digest if snapshot.workload else ""
    return Undo(revision_name=to.name, revision_uid=to.uid, leaves=leaves, restores=to.digest, at=now)


def course(undo: Undo, snapshot: Snapshot, driver: Driver | None) -> Course:
    """Return where the undo stands, told from the workload alone."""
    workload = snapshot.workload
    if workload is None or driver is None or workload.deletion is not None:
        return Course.OVERTAKEN
    if workload.template.digest != undo.leaves:
        return Course.DONE if workload.template.digest == undo.restores else Course.OVERTAKEN
    # Another update strategy lets its own controller replace pods as soon as the template changes.
    there = any((f.uid, f.digest) == (undo.revision_uid, undo.restores) for f in former(snapshot))
    return Course.OPEN if there and driver.refusal() is None else Course.LOST


def restoring(undo: Undo, snapshot: Snapshot) -> tuple[RestoreTemplate, ...]:
    """Return the write that restores the template."""
    workload = snapshot.workload
    if workload is None:
        return ()
    return (
        RestoreTemplate(
            workload.name,
            workload.uid,
            undo.revision_name,
            undo.revision_uid,
            leaves=undo.leaves,
            restores=undo.restores,
        ),
    )


def warning(snapshot: Snapshot) -> str:
    """Return what to say about a tool that owns the template, and will put it back; "" if none is known."""
    workload = snapshot.workload
    if workload is None or not workload.managed_by:
        return ""
    return (
        f". {workload.kind} {workload.name} is managed by {workload.managed_by}, which will put the template back unless "
        "the change is reverted there, too"
    )
