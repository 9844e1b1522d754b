"""What spec.failurePolicy and spec.release.onTimeout answer to a rollout that goes wrong: the means of an Abort and an Undo.

Pause needs no answer: S5 lets no healthy pod go while a replacement is not well, and it goes on when that recovers.
Only a rollout is answered. A pod that left by itself says nothing about the revision, which had been healthy before.
"""

from accelerator_rollout.api.models import FailurePolicy, OnTimeout
from accelerator_rollout.decide.conditions import Late
from accelerator_rollout.decide.intent import Intent, Scene, halt, undo
from accelerator_rollout.decide.reasons import Overdue


def respond(held: Intent, scene: Scene, failed: Late | None, late: Late | None) -> Intent:
    """Return the intent after a failure of the revision (`failed`), or a release that is late (`late`)."""
    if held.halt is not None or held.undo is not None or not scene.unfinished:
        return held
    spec = scene.snapshot.rollout.spec
    if failed is not None and spec.failure_policy is not FailurePolicy.PAUSE:
        back = undo(held, scene) if spec.failure_policy is FailurePolicy.UNDO and _was_well(scene) else None
        return back or halt(held, scene, failed.reason, failed.message)
    if late is not None and late.reason is Overdue.RELEASE and spec.release.on_timeout is OnTimeout.ABORT:
        return halt(held, scene, late.reason, late.message)
    return held


def _was_well(scene: Scene) -> bool:
    """Whether there is a revision that all pods were healthy at, other than this one.

    Without it, two revisions that fail would be undone by turns for ever.
    """
    good = scene.snapshot.rollout.status.current_revision
    return bool(good) and good != scene.target
