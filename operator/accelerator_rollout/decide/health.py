"""When a successor counts as healthy: available for spec.health.soakSeconds, with its checks true at the end.

Checks are asked outside, as those of devices are (`checks`): an action of one decision, whose answer the next one sees.
The soak itself is told from the pod, so a restart of the operator does not prolong it; the count of checks that were not
true in a row lives in the process, and begins anew with it.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from accelerator_rollout.api.models import Stage
from accelerator_rollout.decide.actions import CheckHealth
from accelerator_rollout.decide.appraisal import Appraisal
from accelerator_rollout.decide.reasons import Waiting
from accelerator_rollout.decide.snapshot import HealthRun, Snapshot
from accelerator_rollout.decide.stages import Standing

ASK_SECONDS: Final = 10  # between two times of asking the checks of one successor
_SOAKS: Final = frozenset((Waiting.AWAITING_SOAK, Waiting.HEALTH_CHECK_FAILING))


def soaked(a: Appraisal, snapshot: Snapshot, min_ready_seconds: int, now: datetime) -> Appraisal:
    """Return the appraisal, in which an available successor is done only after its soak."""
    health = snapshot.rollout.spec.health
    pod = a.successor
    if not health.soak_seconds or pod is None or a.standing.stage is not Stage.DONE:
        return a
    since = (pod.ready_since or now) + timedelta(seconds=min_ready_seconds)
    end = since + timedelta(seconds=health.soak_seconds)
    run = _run(pod.uid, snapshot)
    ask = run.at + timedelta(seconds=ASK_SECONDS) if run is not None else None
    if run is not None and run.failures:
        message = f"pod {pod.name} soaks on node {pod.node}, and is not healthy: {'; '.join(run.failures)}"
        return replace(a, standing=Standing(Stage.SOAKING, Waiting.HEALTH_CHECK_FAILING, message, ask))
    unasked = bool(health.checks) and (run is None or run.at < end)
    if now >= end and not unasked:
        return a
    with_checks = " while its checks stay true" if health.checks else ""
    message = (
        f"pod {pod.name} is available, and watched for soakSeconds ({health.soak_seconds} s){with_checks}"
    )
    due = end if not health.checks or ask is None or end <= ask else ask
    return replace(a, standing=Standing(Stage.SOAKING, Waiting.AWAITING_SOAK, message, due))


def soaks(a: Appraisal) -> bool:
    """Whether the successor is available, and only watched."""
    return a.standing.reason in _SOAKS


def due_health_checks(
    appraisals: Iterable[Appraisal], snapshot: Snapshot, now: datetime
) -> tuple[CheckHealth, ...]:
    """Return the successors whose checks are to be asked now."""
    if not snapshot.rollout.spec.health.checks:
        return ()
    return tuple(
        CheckHealth(a.successor.name, a.successor.uid)
        for a in appraisals
        if a.successor is not None and soaks(a) and _due(a, _run(a.successor.uid, snapshot), now)
    )


def _due(a: Appraisal, run: HealthRun | None, now: datetime) -> bool:
    # `due` of the standing is when to ask next, or (at the latest) the end of the soak, at which they are asked once more.
    return run is None or (a.standing.due is not None and now >= a.standing.due)


def unhealthy(a: Appraisal, snapshot: Snapshot) -> str:
    """Return why the successor has failed, or nothing: health.failureThreshold failures in a row, of either kind."""
    pod = a.successor
    if pod is None or a.done or a.standing.stage not in (Stage.WARMING_UP, Stage.SOAKING):
        return ""
    most = snapshot.rollout.spec.health.failure_threshold
    run = _run(pod.uid, snapshot)
    failing = run.in_a_row if run is not None and run.failures else 0
    relapses = a.entry.relapses or 0
    if relapses + failing < most:
        return ""
    why = []
    if relapses:
        why.append(f"it has become unready again (failureThreshold is {most})")
    if failing and run is not None:
        why.append(f"{'; '.join(run.failures)} (failureThreshold is {most})")
    return " and ".join(why)


def _run(pod_uid: str, snapshot: Snapshot) -> HealthRun | None:
    run = snapshot.health.get(pod_uid)
    return run if run is not None and run.generation == snapshot.rollout.generation else None
