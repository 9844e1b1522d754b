"""Whether a departed pod's grace period was too short for it: its containers were killed when it ended."""

from datetime import timedelta
from typing import Final

from accelerator_rollout.records import PodRecord

_EARLY: Final = timedelta(seconds=2)  # clocks differ, and times of the API are cut to seconds


def killed_after_grace(pod: PodRecord | None) -> bool:
    """Whether a container ended by SIGKILL when the pod's grace period was over.

    deletionTimestamp is when it is over, so a kill well before that had another cause.
    """
    if pod is None or pod.killed_at is None or pod.deletion is None or not pod.deletion_grace:
        return False
    return pod.killed_at >= pod.deletion - _EARLY


def told(pod_name: str, grace_seconds: int | None) -> str:
    """Return the sentence on it."""
    return (
        f"pod {pod_name} did not end within its grace period ({grace_seconds or 0} s), and its containers were killed "
        "(exit code 137): requests in flight were lost. Raise terminationGracePeriodSeconds, or have it drain sooner"
    )
