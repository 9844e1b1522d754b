"""Where one replacement stands, and what it waits for, told from the pods and the verdict alone."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from accelerator_rollout.api.models import Stage
from accelerator_rollout.decide.budget import available
from accelerator_rollout.decide.departures import gated
from accelerator_rollout.decide.reasons import NotFree, Waiting
from accelerator_rollout.decide.release import Verdict
from accelerator_rollout.decide.trouble import trouble
from accelerator_rollout.records import Phase, PodRecord

_BEFORE: Final = {
    NotFree.POD_TERMINATING: Stage.TERMINATING,
    NotFree.TERMINATION_STUCK: Stage.TERMINATING,
    NotFree.DRIVER_UNAVAILABLE: Stage.TERMINATING,
    NotFree.SETTLING: Stage.SETTLING,
    # One stage, so that settleSeconds do not count anew.
    NotFree.CHECKS_RUNNING: Stage.SETTLING,
    NotFree.CHECK_FAILED: Stage.SETTLING,
    NotFree.HOLD_ENDING: Stage.SETTLING,
}


@dataclass(frozen=True, slots=True)
class Standing:
    """A stage with its reason, the sentence for people, and when time alone may change it."""

    stage: Stage
    reason: str = ""
    message: str = ""
    due: datetime | None = None


def before_release(verdict: Verdict) -> Standing | None:
    """Return the stage of a departure whose devices are not free; None once they are."""
    obstacle = verdict.obstacle
    if obstacle is None:
        return None
    stage = _BEFORE.get(obstacle.reason, Stage.RELEASING)
    return Standing(stage, obstacle.reason, obstacle.message, obstacle.due)


def after_release(successor: PodRecord | None, min_ready_seconds: int, now: datetime) -> Standing:
    """Return the stage of a released departure from its successor's state."""
    if successor is None:
        return Standing(
            Stage.GATED, Waiting.AWAITING_REPLACEMENT, "the workload's controller has not made the successor"
        )
    name = f"pod {successor.name}"
    if gated(successor):
        return Standing(Stage.GATED)
    if not successor.bound:
        if successor.gates:
            others = ", ".join(successor.gates)
            return Standing(
                Stage.SCHEDULING,
                Waiting.WAITING_FOR_ADMISSION,
                f"{name} is held by gates of others: {others}",
            )
        why = f": {successor.unschedulable_message}" if successor.unschedulable_message else ""
        return Standing(Stage.SCHEDULING, Waiting.AWAITING_SCHEDULER, f"{name} waits for the scheduler{why}")
    found = trouble(successor)
    reason, said = (found[0], f": {found[1]}") if found else (successor.waiting_reason, _waits(successor))
    if successor.phase is not Phase.RUNNING:
        message = f"{name} is being started on node {successor.node}{said}"
        return Standing(Stage.PREPARING, reason or Waiting.AWAITING_NODE, message)
    if not successor.ready:
        message = f"{name} runs on node {successor.node} and is not ready{said}"
        return Standing(Stage.WARMING_UP, reason or Waiting.AWAITING_READINESS, message)
    if not available(successor, min_ready_seconds, now):
        since = successor.ready_since or now
        due = since + timedelta(seconds=min_ready_seconds)
        message = f"{name} is ready and must stay so for minReadySeconds ({min_ready_seconds} s)"
        return Standing(Stage.SOAKING, Waiting.AWAITING_MIN_READY, message, due)
    return Standing(Stage.DONE)


def _waits(pod: PodRecord) -> str:
    if not pod.waiting_reason:
        return ""
    said = f" ({pod.waiting_message})" if pod.waiting_message else ""
    return f": {pod.waiting_reason}{said}"
