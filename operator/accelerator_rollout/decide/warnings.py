"""What people are warned of by an Event, once: what shows for a moment and would be gone from the conditions."""

from typing import Final

from accelerator_rollout.api.models import Replacement
from accelerator_rollout.decide import killed
from accelerator_rollout.decide.outcome import EventType, Notice
from accelerator_rollout.decide.reasons import Announcement, Trouble
from accelerator_rollout.decide.stages import Standing

_TROUBLES: Final = frozenset(str(t) for t in Trouble)


def troubles(entry: Replacement, standing: Standing, stored: Replacement | None) -> tuple[Notice, ...]:
    """Return the Events on what is new of one replacement: `stored` is its entry as the status has it."""
    notices = []
    if entry.killed_after_grace and not (stored is not None and stored.killed_after_grace):
        text = killed.told(entry.pod_name, entry.grace_seconds)
        notices.append(Notice(EventType.WARNING, Announcement.KILLED_AFTER_GRACE, text, "Terminate"))
    if standing.reason in _TROUBLES and not (stored is not None and stored.reason == standing.reason):
        notices.append(Notice(EventType.WARNING, str(standing.reason), standing.message, "Start"))
    return tuple(notices)
