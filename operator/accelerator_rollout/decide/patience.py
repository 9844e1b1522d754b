"""How long a status may stay untold: what a restarted operator could not see again is stored at once, news in good time.

A replacement passes a dozen small changes within a second. Each would cost a write, and a release that comes meanwhile
would wait for it. What hangs on each field, should the process die before it is stored:

- an entry, what its pod held, and that its successor's gate is open: safety; no delay;
- that Ready is no longer true: a moment, in which the first step usually comes and is stored with it;
- a proof: only the wait for an unproven release; a moment, in which the opening usually comes and is stored with it;
- everything else is told from live objects again.
"""

from typing import Final

from accelerator_rollout.api.conditions import ConditionStatus, ConditionType
from accelerator_rollout.api.models import Replacement, RolloutStatus, Stage

PROOF: Final = 0.1  # seconds
NEWS: Final = 0.5
AT_MOST: Final = 1.0  # however news and proofs take turns

_OPENED: Final = frozenset((Stage.SCHEDULING, Stage.PREPARING, Stage.WARMING_UP, Stage.SOAKING, Stage.DONE))


def patience(stored: RolloutStatus, wanted: RolloutStatus) -> float:
    """Return for how many seconds `stored` may stay as it is although `wanted` is what is true; 0 if nothing differs."""
    if stored.says_the_same(wanted) or _matters(stored, wanted):
        return 0.0
    before = {e.id: e for e in stored.replacements}
    proven = any(before[e.id].proof is not e.proof for e in wanted.replacements)
    return PROOF if proven or _told(stored) != _told(wanted) else NEWS


def _matters(stored: RolloutStatus, wanted: RolloutStatus) -> bool:
    if (stored.observed_generation, stored.adopted_at) != (wanted.observed_generation, wanted.adopted_at):
        return True
    if _asked(stored) != _asked(wanted):
        return True
    if _told(wanted) - _told(stored):
        return True
    before = {e.id: e for e in stored.replacements}
    return any(e.id not in before or _irretrievable(before[e.id], e) for e in wanted.replacements)


def _asked(status: RolloutStatus) -> object:
    """Return what people asked for and has been seen: each action happens once."""
    return (status.observed_action_id, status.halt, status.retried_at, status.promoted, status.undo)


def _told(status: RolloutStatus) -> set[str]:
    """Return what programs wait for, as far as it is true."""
    kinds = (ConditionType.READY, ConditionType.STALLED)
    return {c.type for c in status.conditions if c.type in kinds and c.status is ConditionStatus.TRUE}


def _irretrievable(old: Replacement, new: Replacement) -> bool:
    held = (old.pod_uid, old.node_name, old.node_uid, old.boot_id, old.grace_seconds, old.claims)
    holds = (new.pod_uid, new.node_name, new.node_uid, new.boot_id, new.grace_seconds, new.claims)
    relinked = old.replacement_pod_uid not in ("", new.replacement_pod_uid)
    opened = new.stage in _OPENED and old.stage not in _OPENED
    return held != holds or relinked or opened
