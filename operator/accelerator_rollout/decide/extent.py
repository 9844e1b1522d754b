"""How far a rollout may go now: spec.strategy's partition, and its steps one after the other.

Told from live pods each time, as all else is: a scale, a percentage of other replicas, or an edit of the steps in the
middle just changes the number. Only which step it is, and since when its pods are healthy, has to be remembered; both
belong to one revision.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from accelerator_rollout.api.models import CanaryStep, PauseType, Promotion, StepStatus
from accelerator_rollout.decide.budget import available, min_ready
from accelerator_rollout.decide.reasons import Waiting
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.records import PodRecord, Succession
from accelerator_rollout.workloads.base import Driver, NotNow


@dataclass(frozen=True, slots=True)
class Extent:
    """Which of the pods that are not updated may go, by UID, and why the others may not.

    `step` is for the status. `paused_at` is the index of the step whose wait a promotion would end; None if none waits.
    """

    due: frozenset[str]
    why: NotNow | None = None
    step: StepStatus | None = None
    until: datetime | None = None  # when time alone lets more pods go
    paused_at: int | None = None
    room: int | None = None  # how many of the healthy ones may go, where that is fewer than are due

    @property
    def most(self) -> int:
        """Return how many of those that are due may go."""
        return len(self.due) if self.room is None else min(self.room, len(self.due))

    @property
    def partitioned(self) -> bool:
        """Whether pods are left that the partition keeps."""
        return self.why is not None and self.why.reason in (
            Waiting.PARTITION_REACHED,
            Waiting.PARTITION_EXCEEDED,
        )


def extent(
    snapshot: Snapshot,
    driver: Driver,
    promoted: Promotion | None,
    now: datetime,
    *,
    in_flight: bool,
    unborn: int = 0,
) -> Extent:
    """Return how far the rollout may go. `in_flight`: a replacement is not finished; of `unborn` ones no successor exists yet."""
    live = [p for p in snapshot.pods if p.live]
    stale = [p for p in live if not driver.updated(p)]
    everyone = Extent(frozenset(p.uid for p in stale))
    strategy = snapshot.rollout.spec.strategy
    unknown = driver.behind() is not None and not driver.stepping()  # which revision is the target
    if not stale or snapshot.workload is None or unknown:
        return everyone
    if strategy.partition:
        return _partition(strategy.partition, snapshot, driver, live, stale)
    if strategy.steps:
        return _Steps(snapshot, driver, promoted, now, in_flight=in_flight, unborn=unborn).extent(stale)
    return everyone


def _kept(partition: int, snapshot: Snapshot, stale: Iterable[PodRecord]) -> frozenset[str]:
    """Return which of the pods that are not updated stay so, by UID."""
    if _by_ordinal(snapshot):
        return frozenset(p.uid for p in stale if p.ordinal < partition)
    # Which of them stay does not matter, as long as so many do: those that would go last anyhow.
    some = list(stale)
    return frozenset(p.uid for p in some) if len(some) <= partition else frozenset()


def _pods_of(step: CanaryStep, replicas: int) -> int:
    """Return how many pods a step asks for; percentages are rounded up."""
    if isinstance(step.replicas, int):
        return min(step.replicas, replicas)
    percent = int(step.replicas.removesuffix("%"))
    return -(-percent * replicas // 100)


def _by_ordinal(snapshot: Snapshot) -> bool:
    return snapshot.workload is not None and snapshot.workload.succession is Succession.BY_NAME


def _partition(
    partition: int, snapshot: Snapshot, driver: Driver, live: list[PodRecord], stale: list[PodRecord]
) -> Extent:
    kept = _kept(partition, snapshot, stale)
    due = frozenset(p.uid for p in stale) - kept
    if due:
        return Extent(due, room=len(stale) - partition if not _by_ordinal(snapshot) else None)
    names = ", ".join(sorted(p.name for p in stale))
    stay = f"{names} stay as they are, since spec.strategy.partition is {partition}. Lower it to update them, too"
    if _by_ordinal(snapshot):
        ahead = [p.name for p in live if driver.updated(p) and p.ordinal < partition]
        below = (
            f"{', '.join(sorted(ahead))} came back at the new revision below the partition" if ahead else ""
        )
    else:
        missing = min(partition, snapshot.workload.replicas if snapshot.workload else 0) - len(stale)
        below = (
            f"{missing} pods that the partition keeps came back at the new revision" if missing > 0 else ""
        )
    if below:
        return Extent(due, NotNow(Waiting.PARTITION_EXCEEDED, f"{below}; {stay}"))
    return Extent(due, NotNow(Waiting.PARTITION_REACHED, stay))


class _Steps:
    """The steps of one rollout at one moment."""

    def __init__(
        self,
        snapshot: Snapshot,
        driver: Driver,
        promoted: Promotion | None,
        now: datetime,
        *,
        in_flight: bool,
        unborn: int,
    ) -> None:
        self._steps = snapshot.rollout.spec.strategy.steps
        self._revision = driver.revision()
        self._promoted = promoted if promoted and promoted.revision == self._revision else None
        self._now = now
        self._in_flight = in_flight
        self._unborn = unborn
        self._replicas = snapshot.workload.replicas if snapshot.workload else 0
        live = [p for p in snapshot.pods if p.live and driver.updated(p)]
        self._updated = len(live)
        self._well = all(available(p, min_ready(snapshot), now) for p in live)
        stored = snapshot.rollout.status.step
        self._stored = stored if stored and stored.revision == self._revision else None

    def extent(self, stale: list[PodRecord]) -> Extent:
        """Return which pods may go at the step that the rollout is at."""
        index = self._stored.index if self._stored else 0
        reached_at = self._stored.reached_at if self._stored else None
        everyone = frozenset(p.uid for p in stale)
        while index < len(self._steps) and not (self._promoted and self._promoted.all_steps):
            step = self._steps[index]
            wanted = _pods_of(step, self._replicas)
            if self._updated < wanted:
                room = max(0, wanted - self._updated - self._unborn)
                return Extent(everyone, step=self._at(index, None), room=room)
            if self._in_flight or not self._well:
                return Extent(frozenset(), self._unwell(index, wanted), self._at(index, None))
            reached_at = reached_at or self._now.replace(microsecond=0)
            waits = self._waits(step, index, wanted, reached_at)
            if waits is not None:
                return waits
            index, reached_at = index + 1, None
        return Extent(everyone, step=self._at(len(self._steps), None))

    def _waits(self, step: CanaryStep, index: int, wanted: int, reached_at: datetime) -> Extent | None:
        if step.pause is None or (self._promoted and self._promoted.step >= index):
            return None
        here = f"step {index + 1} of {len(self._steps)}: {wanted} pods are at revision {self._revision}"
        at = self._at(index, reached_at)
        if step.pause.type is PauseType.DURATION:
            until = reached_at + timedelta(seconds=step.pause.duration_seconds)
            if self._now >= until:
                return None
            text = f"{here}; the next step follows at {until:%Y-%m-%d %H:%M:%S} UTC"
            return Extent(frozenset(), NotNow(Waiting.STEP_PAUSE, text), at, until, index)
        text = f"{here}. To go on, set spec.action to Promote (or PromoteAll) with an id of its own"
        return Extent(frozenset(), NotNow(Waiting.STEP_PAUSE, text), at, None, index)

    def _unwell(self, index: int, wanted: int) -> NotNow:
        return NotNow(
            Waiting.STEP_NOT_HEALTHY,
            f"step {index + 1} of {len(self._steps)}: {wanted} pods are at revision {self._revision}, and not all of them are "
            "healthy yet",
        )

    def _at(self, index: int, reached_at: datetime | None) -> StepStatus:
        return StepStatus(revision=self._revision, index=index, reached_at=reached_at)
