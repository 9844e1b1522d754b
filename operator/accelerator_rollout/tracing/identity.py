"""Which trace a rollout is, and which span of it something: from what its status says, so that every process agrees.

A restarted operator comes to the same ids, and whoever receives a span a second time knows it by its id.
"""

import hashlib

from accelerator_rollout.api.models import PastRollout, RolloutStatus


def trace_id(rollout_uid: str, past: PastRollout) -> str:
    """Return the trace of this rollout: 32 hexadecimal digits, as W3C Trace Context wants them."""
    return _digest(rollout_uid, past.revision, f"{past.started_at:%Y-%m-%dT%H:%M:%SZ}")[:32]


def span_id(trace: str, *parts: str) -> str:
    """Return the span of this trace that the parts name: 16 hexadecimal digits."""
    return _digest(trace, *parts)[:16]


def current_trace(rollout_uid: str, status: RolloutStatus) -> str:
    """Return the trace of the newest rollout; "" if there has been none."""
    return trace_id(rollout_uid, status.history[0]) if status.history else ""


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
