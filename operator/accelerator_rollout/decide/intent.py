"""What people ask for once (spec.action), and what comes of it: a halt, its end, an undo.

An id that stands in the status has been seen, and its effect is stored in the same write: whatever dies when, each
action happens once. An action without effect is seen too, and an Event says so. A halt outlasts its cause: it ends when
somebody asks for more (Retry), when the workload gets another template (an Undo is one), or when nothing is left to
replace.

A failure policy has the same means: `halt` and `undo` change an Intent as an Abort and an Undo do.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from accelerator_rollout.api.models import (
    ActionType,
    Halt,
    Promotion,
    RequestedAction,
    RolloutStatus,
    Undo,
)
from accelerator_rollout.decide.outcome import EventType, Notice
from accelerator_rollout.decide.reasons import Announcement, Halted, Waiting
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.decide.undo import Course, course, impossible, record, target, warning
from accelerator_rollout.workloads.base import Driver, NotNow

NEXT = "To go on, set spec.action to Retry with an id of its own; to go back, to Undo; or change the pod template again"


@dataclass(frozen=True, slots=True)
class Intent:
    """What the status is to say about it after this decision, and what to tell."""

    observed_action_id: str = ""
    halt: Halt | None = None
    retried_at: datetime | None = None
    promoted: Promotion | None = None
    undo: Undo | None = None
    notices: tuple[Notice, ...] = ()

    def stored(self) -> dict[str, object]:
        """Return the fields of the status."""
        return {
            "observed_action_id": self.observed_action_id,
            "halt": self.halt,
            "retried_at": self.retried_at,
            "promoted": self.promoted,
            "undo": self.undo,
        }

    def stops(self) -> NotNow | None:
        """Return why no replacement is started, if so."""
        if self.undo is not None:
            return NotNow(
                Waiting.UNDOING,
                f"the pod template of {self.undo.revision_name} is being restored: no replacement is started before that",
            )
        return NotNow(Waiting.HALTED, self.halt.message) if self.halt is not None else None

    def says(self, reason: str, message: str, *, warn: bool = False) -> "Intent":
        """Return the same with one Event more."""
        kind = EventType.WARNING if warn else EventType.NORMAL
        return replace(self, notices=(*self.notices, Notice(kind, reason, message, "Act")))


@dataclass(frozen=True, slots=True)
class Scene:
    """What an action is judged by. `unfinished`: pods are still to be replaced, or a replacement of ours is in flight.

    `restarting`: what is still to be replaced is older than spec.restartedAt, and of the target revision. `paused_at` is the
    index of the step that the rollout waits at.
    """

    snapshot: Snapshot
    driver: Driver | None
    unfinished: bool
    restarting: bool
    now: datetime
    paused_at: int | None = None

    @property
    def target(self) -> str | None:
        """The revision that pods are being brought to; None while it is unknown."""
        if self.driver is None or self.driver.behind() is not None:
            return None
        return self.driver.revision()

    @property
    def workload(self) -> str:
        """What the workload is called in messages."""
        ref = self.snapshot.rollout.spec.workload_ref
        return f"{ref.kind} {ref.name}"


def intent(scene: Scene) -> Intent:
    """Return what holds now: what was stored and is not over, and a new action's effect."""
    status = scene.snapshot.rollout.status
    held = Intent(status.observed_action_id, status.halt, status.retried_at, status.promoted, status.undo)
    held = _undo_so_far(held, scene)
    held = _not_over(held, scene)
    asked = scene.snapshot.rollout.spec.action
    if asked is None or asked.id == held.observed_action_id:
        return held
    if _lost(status):
        return replace(held, observed_action_id=asked.id)
    if scene.driver is None:
        seen = replace(held, observed_action_id=asked.id)
        return _without_effect(seen, asked, f"{scene.workload} does not exist")
    if scene.target is None:
        return held  # what it would act on is not known yet
    return _act(replace(held, observed_action_id=asked.id), asked, scene)


def first_seen(asked: RequestedAction | None) -> str:
    """Return the id that an object which is new has seen: what it came with is not for us."""
    return asked.id if asked is not None else ""


def halt(held: Intent, scene: Scene, reason: str, message: str) -> Intent:
    """Return the intent with the present revision halted. `message` says why; what to do is added.

    An unknown revision is not halted: nothing of it is replaced anyway.
    """
    if scene.target is None:
        return held
    made = Halt(
        revision=scene.target,
        reason=str(reason),
        message=f"{message}. {NEXT}",
        at=scene.now,
        restarted_at=scene.snapshot.rollout.spec.restarted_at if scene.restarting else None,
    )
    return replace(held, halt=made).says(reason, made.message, warn=True)


def undo(held: Intent, scene: Scene) -> Intent | None:
    """Return the intent with the present template about to be undone; None where there is nothing to go back to."""
    to = target(scene.snapshot)
    if to is None or impossible(scene.snapshot, scene.driver):
        return None
    text = (
        f"the pod template of {scene.workload} is set back to that of {to.name} (revision {to.number})"
        f"{warning(scene.snapshot)}"
    )
    made = replace(held, undo=record(to, scene.snapshot, scene.now))
    return made.says(Announcement.UNDOING, text, warn=bool(warning(scene.snapshot)))


def promote(held: Intent, scene: Scene, *, all_steps: bool) -> Intent:
    """Return the intent with the step promoted at which the present revision waits, or all of them."""
    if scene.target is None:
        return held
    step = scene.paused_at or 0
    made = Promotion(revision=scene.target, step=step, all_steps=all_steps, at=scene.now)
    what = "past all steps" if all_steps else f"past step {step + 1}"
    return replace(held, promoted=made).says(
        Announcement.PROMOTED, f"the rollout of {scene.workload} goes on {what}"
    )


# The effect of a new action


def _act(held: Intent, asked: RequestedAction, scene: Scene) -> Intent:
    match asked.type:
        case ActionType.ABORT:
            return _abort(held, asked, scene)
        case ActionType.RETRY:
            return _retry(held, asked, scene)
        case ActionType.UNDO:
            return _undo(held, asked, scene)
        case ActionType.PROMOTE:
            if scene.paused_at is None:
                return _without_effect(held, asked, "the rollout waits at no step")
            return promote(held, scene, all_steps=False)
        case ActionType.PROMOTE_ALL:
            if not scene.unfinished or not scene.snapshot.rollout.spec.strategy.steps:
                return _without_effect(held, asked, "no rollout in steps is under way")
            return promote(held, scene, all_steps=True)
    assert_never(asked.type)


def _abort(held: Intent, asked: RequestedAction, scene: Scene) -> Intent:
    if held.halt is None and held.undo is None and not scene.unfinished:
        return _without_effect(held, asked, "no replacement is due or in flight")
    if held.halt is not None and held.undo is None:
        return _without_effect(held, asked, f"the rollout is halted already ({held.halt.reason})")
    held = replace(held, undo=None)
    if held.halt is not None:
        return held
    what = (
        f"the restart of {scene.workload} was aborted: pods created before spec.restartedAt stay"
        if scene.restarting
        else f"the rollout of revision {scene.target} of {scene.workload} was aborted: the pod in flight is finished, "
        "the others stay as they are"
    )
    return halt(held, scene, Halted.ABORTED, what)


def _retry(held: Intent, asked: RequestedAction, scene: Scene) -> Intent:
    if held.halt is None and held.undo is None:
        return _without_effect(held, asked, "nothing is halted")
    why = held.halt.reason if held.halt is not None else Waiting.UNDOING
    text = f"the rollout of {scene.workload} goes on (it was stopped: {why})"
    return replace(held, halt=None, undo=None, retried_at=scene.now).says(Announcement.RETRIED, text)


def _undo(held: Intent, asked: RequestedAction, scene: Scene) -> Intent:
    if held.undo is not None:
        return _without_effect(held, asked, "an undo is under way")
    none = f"the revision history of {scene.workload} has no other template whose pods come gated"
    why = impossible(scene.snapshot, scene.driver) or none
    return undo(held, scene) or _without_effect(held, asked, why)


def _without_effect(held: Intent, asked: RequestedAction, why: str) -> Intent:
    return held.says(Announcement.NO_EFFECT, f"{asked.type} (id {asked.id}) has no effect: {why}", warn=True)


# What is over by itself


def _undo_so_far(held: Intent, scene: Scene) -> Intent:
    if held.undo is None:
        return held
    match course(held.undo, scene.snapshot, scene.driver):
        case Course.OPEN:
            return held
        case Course.DONE:
            return _undone(held, scene)
        case Course.OVERTAKEN:
            return replace(held, undo=None)
        case Course.LOST:
            return _undo_lost(held, scene)


def _undone(held: Intent, scene: Scene) -> Intent:
    name = held.undo.revision_name if held.undo is not None else ""
    text = f"{scene.workload} has the pod template of {name} again{warning(scene.snapshot)}"
    return replace(held, undo=None).says(Announcement.UNDONE, text)


def _undo_lost(held: Intent, scene: Scene) -> Intent:
    """Fail closed: who wanted to leave this revision does not want more pods of it."""
    if scene.target is None or held.undo is None:
        return held
    name = held.undo.revision_name
    held = replace(held, undo=None)
    if held.halt is not None:
        return held
    why = (
        f"the former pod template of {scene.workload} cannot be restored any more: {name} is gone from its revision "
        "history, or the update strategy has changed"
    )
    return halt(held, scene, Halted.UNDO_FAILED, why)


def _not_over(held: Intent, scene: Scene) -> Intent:
    target_now = scene.target
    if target_now is None:
        return held
    if held.promoted is not None and held.promoted.revision != target_now:
        held = replace(held, promoted=None)
    stop = held.halt
    if stop is None:
        return held
    another_restart = (
        stop.restarted_at is not None and stop.restarted_at != scene.snapshot.rollout.spec.restarted_at
    )
    if stop.revision != target_now or another_restart:
        return replace(held, halt=None)
    return held


def _lost(status: RolloutStatus) -> bool:
    """Whether nothing was ever stored: what was asked for may have been done before the status was lost."""
    return status.adopted_at is None and not status.observed_generation
