"""One replacement judged: its entry brought up to date, its verdict and where it stands."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from accelerator_rollout.api.models import Replacement, Stage, StageEntry
from accelerator_rollout.decide.actions import EndHold
from accelerator_rollout.decide.allocatable import Obstacle
from accelerator_rollout.decide.departures import departed, gated
from accelerator_rollout.decide.holds import ends
from accelerator_rollout.decide.killed import killed_after_grace
from accelerator_rollout.decide.outcome import ReleaseTime
from accelerator_rollout.decide.reasons import Waiting
from accelerator_rollout.decide.release import Verdict, judge, last_known, lost, stalled_after
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.decide.stages import Standing, after_release, before_release
from accelerator_rollout.decide.stranded import stranded
from accelerator_rollout.records import PodRecord

MAX_STAGE_TIMES = 12  # as bounded in the schema


@dataclass(frozen=True, slots=True)
class Appraisal:
    """`verdict` is None where none is due: the pod has not left, or its successor's gate is open.

    `lost` says who took the devices after that, while the successor still waits for the scheduler. `stranded` departures
    are on a node that is gone: kept, and waited for by nobody.
    """

    entry: Replacement
    standing: Standing
    verdict: Verdict | None
    successor: PodRecord | None
    left: bool
    lost: Obstacle | None = None
    stranded: bool = False

    @property
    def unreleased(self) -> bool:
        """Whether the pod has left and its devices are not proven free, while somebody may still wait for them."""
        return self.verdict is not None and not self.verdict.released and not self.stranded

    @property
    def done(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self.standing.stage is Stage.DONE

    @property
    def in_flight(self) -> bool:
        """Whether it is past the point of no return and not done; what is stranded flies no more."""
        return self.left and not self.done and not self.stranded


def appraise(entry: Replacement, snapshot: Snapshot, min_ready_seconds: int, now: datetime) -> Appraisal:
    """Judge one entry of the list."""
    pod = next((p for p in (*snapshot.pods, *snapshot.former) if p.uid == entry.pod_uid), None)
    if pod is not None and not departed(pod):
        return Appraisal(entry, Standing(Stage.SELECTED, entry.reason, entry.message), None, None, left=False)
    successor = next((p for p in snapshot.pods if p.uid == entry.replacement_pod_uid and p.live), None)
    opened = successor is not None and not gated(successor) and entry.released_at is not None
    verdict = None if opened else judge(entry, snapshot, now)
    standing = (before_release(verdict) if verdict else None) or after_release(
        successor, min_ready_seconds, now
    )
    standing = _unbound(standing, successor, snapshot)
    standing = _unprepared(standing, entry, successor, snapshot, now)
    taken = lost(entry, snapshot) if opened and standing.reason == Waiting.AWAITING_SCHEDULER else None
    if taken is not None:
        standing = replace(standing, reason=taken.reason, message=f"{standing.message}; {taken.message}")
    if not entry.killed_after_grace and killed_after_grace(pod or last_known(snapshot, entry.pod_uid)):
        entry = entry.model_copy(update={"killed_after_grace": True})
    if verdict is not None:
        released = (entry.released_at or now) if verdict.released else None
        entry = entry.model_copy(update={"proof": verdict.proof, "released_at": released})
    aground = verdict is not None and verdict.proof is None and stranded(entry, snapshot)
    return Appraisal(entry, standing, verdict, successor, left=True, lost=taken, stranded=aground)


def _unbound(standing: Standing, successor: PodRecord | None, snapshot: Snapshot) -> Standing:
    """Return the standing of a successor that has its devices, and that the scheduler binds once they are attached."""
    if successor is None or standing.reason != Waiting.AWAITING_SCHEDULER:
        return standing
    own = [c for c in snapshot.claims.values() if c.owner_pod_uid == successor.uid]
    awaited = sorted({name for c in own for use in c.uses or () for name in use.binding})
    if not awaited or any(c.uses is None for c in own):
        return standing
    return replace(
        standing,
        reason=Waiting.AWAITING_BINDING,
        message=f"pod {successor.name} has its devices, and is not bound before they say {', '.join(awaited)}: see "
        f"status.devices of ResourceClaim {own[0].name}, which their driver writes",
    )


def _unprepared(
    standing: Standing, entry: Replacement, successor: PodRecord | None, snapshot: Snapshot, now: datetime
) -> Standing:
    """Return the standing of a successor that its node does not begin to start, for long: nothing else shows that."""
    if standing.stage is not Stage.PREPARING or entry.stage is not Stage.PREPARING:
        return standing
    # Once the sandbox stands, the devices are prepared: an image may still take its time.
    if successor is None or successor.sandboxed:
        return standing
    late = entry.stage_started_at + stalled_after(snapshot)
    if now < late:
        return replace(standing, due=late)
    devices = ", ".join(map(str, snapshot.devices_of(successor))) or "its devices"
    return replace(
        standing,
        reason=Waiting.PREPARE_FAILED,
        message=f"pod {successor.name} has not begun to start on node {successor.node} since "
        f"{entry.stage_started_at:%H:%M:%S} UTC: most likely its driver fails to prepare {devices}. See the pod's Events "
        "(FailedPrepareDynamicResources) and the driver's log",
    )


def restage(entry: Replacement, standing: Standing, now: datetime) -> Replacement:
    """Return the entry at the stage of `standing`, with the time of the change if there is one."""
    update: dict[str, object] = {
        "reason": standing.reason,
        "message": standing.message,
        "stage": standing.stage,
    }
    if entry.stage is not standing.stage:
        update["stage_started_at"] = now
        if entry.stage is Stage.SOAKING and standing.stage is Stage.WARMING_UP:
            update["relapses"] = (entry.relapses or 0) + 1
        times = (*entry.stage_times, StageEntry(stage=standing.stage, at=now))
        update["stage_times"] = times[-MAX_STAGE_TIMES:]
    return entry.model_copy(update=update)


def endings(
    snapshot: Snapshot, appraisals: Iterable[Appraisal], *, late: bool = False
) -> tuple[EndHold, ...]:
    """Return the holds that are to go; `late` are those whose departures have been waited for long enough."""
    ended: set[str] = set()
    proven: set[str] = set()
    for a in appraisals:
        if a.verdict is not None and (a.verdict.hold_ended or late):
            ended |= {c.uid for c in a.entry.claims}
            proven.add(a.entry.pod_uid)
    return ends(snapshot, ended, proven)


def release_times(
    before: tuple[Replacement, ...], appraisals: tuple[Appraisal, ...], now: datetime
) -> tuple[ReleaseTime, ...]:
    """Return the releases that were proven in this decision, once per driver."""
    known = {e.id for e in before if e.released_at is not None}
    times: list[ReleaseTime] = []
    for a in appraisals:
        if a.entry.released_at is None or a.entry.id in known:
            continue
        seconds = (now - a.entry.started_at).total_seconds()
        drivers = sorted({d.driver for c in a.entry.claims for d in c.devices})
        times.extend(ReleaseTime(driver, seconds, str(a.entry.proof)) for driver in drivers)
    return tuple(times)
