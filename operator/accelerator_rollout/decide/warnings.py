"""What people are told by an Event, once: what shows for a moment, and turns of the conditions that somebody waits for."""

from collections.abc import Iterable
from typing import Final

from accelerator_rollout.api.conditions import Condition, ConditionStatus, ConditionType, find_condition
from accelerator_rollout.api.models import Replacement
from accelerator_rollout.decide import killed
from accelerator_rollout.decide.actions import Action, OpenGate
from accelerator_rollout.decide.outcome import EventType, Notice, PodRef
from accelerator_rollout.decide.reasons import Announcement, Settled, Trouble
from accelerator_rollout.decide.stages import Standing

_TROUBLES: Final = frozenset(str(t) for t in Trouble)


def departed(entry: Replacement) -> PodRef | None:
    """Return the pod that left, if it is known."""
    return PodRef(entry.pod_name, entry.pod_uid) if entry.pod_name and entry.pod_uid else None


def successor(entry: Replacement) -> PodRef | None:
    """Return the pod that takes its place, if it is known."""
    name, uid = entry.replacement_pod_name, entry.replacement_pod_uid
    return PodRef(name, uid) if name and uid else None


def troubles(entry: Replacement, standing: Standing, stored: Replacement | None) -> tuple[Notice, ...]:
    """Return the Events on what is new of one replacement: `stored` is its entry as the status has it."""
    notices = []
    if entry.killed_after_grace and not (stored is not None and stored.killed_after_grace):
        text = killed.told(entry.pod_name, entry.grace_seconds)
        about = departed(entry)
        notices.append(Notice(EventType.WARNING, Announcement.KILLED_AFTER_GRACE, text, "Terminate", about))
    if standing.reason in _TROUBLES and not (stored is not None and stored.reason == standing.reason):
        about = successor(entry)
        notices.append(Notice(EventType.WARNING, str(standing.reason), standing.message, "Start", about))
    return tuple(notices)


def turns(before: Iterable[Condition], after: Iterable[Condition]) -> tuple[Notice, ...]:
    """Return the Events on conditions that turned: Stalled for another cause than before, and success."""
    before, after = tuple(before), tuple(after)
    was, stalled = (find_condition(told, ConditionType.STALLED) for told in (before, after))
    if stalled is not None and (was is None or was.reason != stalled.reason):
        return (Notice(EventType.WARNING, stalled.reason, stalled.message, "Stall"),)
    unready, ready = (find_condition(told, ConditionType.READY) for told in (before, after))
    if ready is None or unready is None or ready.reason != Settled.COMPLETE:
        return ()  # what is ready at first sight is no news
    if unready.status is ConditionStatus.FALSE:
        return (Notice(EventType.NORMAL, Settled.COMPLETE, ready.message, "Complete"),)
    return ()


def opened(actions: Iterable[Action], entries: Iterable[Replacement]) -> tuple[Notice, ...]:
    """Return the Events for successors whose gates are about to open; they are told once that is done."""
    left = {e.pod_uid: e.pod_name for e in entries if e.pod_uid}
    return tuple(
        Notice(
            EventType.NORMAL,
            Announcement.GATE_OPENED,
            f"the devices of pod {left[a.predecessor_uid]} are free, so the scheduler may place this pod",
            "OpenGate",
            PodRef(a.pod_name, a.pod_uid),
        )
        for a in actions
        if isinstance(a, OpenGate) and a.predecessor_uid in left
    )
