"""What one decision makes of its snapshot, before anything is done, remembered or told of it.

Each decision makes a new one; nothing in it changes afterwards.
"""

from datetime import datetime

from accelerator_rollout.api.models import Cause, Promotion, Stage
from accelerator_rollout.decide import restart
from accelerator_rollout.decide.actions import Action
from accelerator_rollout.decide.admission import refusal
from accelerator_rollout.decide.appraisal import Appraisal, appraise
from accelerator_rollout.decide.budget import available, min_ready
from accelerator_rollout.decide.deadlines import failure, late_release
from accelerator_rollout.decide.departures import match, track
from accelerator_rollout.decide.disruption import Blocked, Step, next_step, without_cordoned
from accelerator_rollout.decide.extent import Extent, extent
from accelerator_rollout.decide.health import soaked
from accelerator_rollout.decide.intent import Intent, Scene, intent
from accelerator_rollout.decide.openings import Openings, openings
from accelerator_rollout.decide.reasons import Waiting
from accelerator_rollout.decide.response import respond
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.decide.stages import Standing, after_release
from accelerator_rollout.records import PodRecord
from accelerator_rollout.workloads.base import Driver, NotNow


class Judgement:
    """What is asked for, where each departure stands, which step comes next, and which gates may open."""

    def __init__(self, snapshot: Snapshot, driver: Driver | None, now: datetime) -> None:
        self.snapshot = snapshot
        self.driver = driver
        self.now = now
        self.workload = snapshot.workload
        self.min_ready = min_ready(snapshot)
        self.refused = refusal(snapshot, driver)
        entries = match(track(snapshot, now), snapshot, now)
        judged = (appraise(e, snapshot, self.min_ready, now) for e in entries)
        self.appraisals = tuple(soaked(a, snapshot, self.min_ready, now) for a in judged)
        promoted = snapshot.rollout.status.promoted
        self.extent = self._extent(promoted)
        self.intent = self._intent()
        if self.intent.promoted != promoted:
            self.extent = self._extent(self.intent.promoted)
        self.step = self._step()
        self.openings = self._openings()

    def _intent(self) -> Intent:
        stale = any(p.live and not self.current(p) for p in self.snapshot.pods)
        flying = any(a.in_flight and a.entry.cause is Cause.ROLLOUT for a in self.appraisals)
        scene = Scene(
            self.snapshot, self.driver, stale or flying, self.restarting(), self.now, self.extent.paused_at
        )
        held = intent(scene)
        if self.driver is None or held.retried_at == self.now:
            return held
        failed = failure(self.snapshot, self.appraisals, self.driver, self.now)
        return respond(held, scene, failed, late_release(self.snapshot, self.appraisals, self.now))

    def _extent(self, promoted: Promotion | None) -> Extent:
        if self.driver is None:
            return Extent(frozenset())
        flying = [a for a in self.appraisals if a.in_flight]
        unborn = sum(a.successor is None for a in flying)
        return extent(self.snapshot, self.driver, promoted, self.now, in_flight=bool(flying), unborn=unborn)

    def _step(self) -> Step | Blocked | None:
        if self.refused is not None or self.driver is None:
            return None
        wanted = tuple(a for a in self.appraisals if not a.left or not self.superfluous(a))
        step = next_step(self.snapshot, self.driver, wanted, self.extent, self.now)
        stopped = self.intent.stops()
        return Blocked(stopped) if step is not None and stopped is not None else step

    def _openings(self) -> Openings:
        if self.driver is None:
            return Openings((), {})
        doomed = frozenset(p.uid for p in self.step.victims) if isinstance(self.step, Step) else frozenset()
        return openings(self.snapshot, self.driver, self.appraisals, doomed)

    def current(self, pod: PodRecord) -> bool:
        """Whether the pod is of the target revision, and no restart has it replaced."""
        if self.driver is None or not self.driver.updated(pod):
            return False
        return not restart.older(pod, self.snapshot, self.now)

    def superfluous(self, a: Appraisal) -> bool:
        """Whether a departure that holds nothing will have no successor: the workload has all the pods it wants."""
        if a.successor is not None or (a.verdict is not None and not a.verdict.let_go):
            return False
        wanted = self.workload.replicas if self.workload else 0
        return sum(p.live for p in self.snapshot.pods) >= wanted

    def standing(self, a: Appraisal) -> Standing:
        """Return where a departure stands; with a gated successor, what keeps its gate closed."""
        if a.standing.stage is not Stage.GATED or a.successor is None:
            return a.standing
        why = self.openings.blocked.get(a.successor.uid)
        if why is None:
            return a.standing
        return Standing(Stage.GATED, why.reason, f"pod {a.successor.name} stays gated: {why.message}")

    def rolling(self) -> bool:
        """Whether pods of another revision than the target, or older than a restart, are still to be replaced."""
        if self.driver is None or self.driver.behind() is not None:
            return False
        return any(p.live and not self.current(p) for p in self.snapshot.pods)

    def restarting(self) -> bool:
        """Whether pods of the target revision, and no others, are to be replaced for their age."""
        stale = [p for p in self.snapshot.pods if p.live and not self.current(p)]
        return bool(stale) and self.driver is not None and all(map(self.driver.updated, stale))

    def restart_due(self) -> datetime | None:
        """Return which restart is being carried out."""
        return restart.due(self.snapshot, self.now) if self.restarting() else None

    def next_in_line(self) -> tuple[PodRecord, ...]:
        """Return the pods of which one is replaced once the successor in flight is healthy; empty before it starts.

        Before that, an opening would wait for the write.
        """
        if self.driver is None or not isinstance(self.step, Blocked):
            return ()
        flying = [a for a in self.appraisals if a.left]
        if self.step.why.reason != Waiting.PODS_UNAVAILABLE or any(a.verdict is not None for a in flying):
            return ()
        healthy = (p for p in self.snapshot.pods if p.live and available(p, self.min_ready, self.now))
        due = [p for p in healthy if p.uid in self.extent.due]
        return tuple(without_cordoned(due, self.snapshot, self.now)[0])

    def idle(self) -> NotNow | None:
        """Return why no pod is replaced; of pods that are down already with what the oldest of them waits for."""
        if not isinstance(self.step, Blocked):
            return None
        why = self.step.why
        waits = self.waits() if why.reason is Waiting.PODS_UNAVAILABLE else None
        if waits is None or not waits.message:
            return why
        return NotNow(why.reason, f"{why.message}: {waits.message}")

    def waits(self) -> Standing | None:
        """Return what the oldest pod that is not available waits for: outside a replacement, nothing else tells."""
        live = sorted((p for p in self.snapshot.pods if p.live), key=lambda p: (p.created, p.name))
        pod = next((p for p in live if not available(p, self.min_ready, self.now)), None)
        if pod is None:
            return None
        why = self.openings.blocked.get(pod.uid)
        if why is not None:
            return Standing(Stage.GATED, why.reason, f"pod {pod.name} stays gated: {why.message}")
        return after_release(pod, self.min_ready, self.now)

    def upkeep(self) -> tuple[Action, ...]:
        """Return what keeps the workload under control between steps."""
        if self.driver is None:
            return ()
        # A recorded choice counts: the Deployment was set free for it, and may not have been looked at since.
        under_way = any(a.in_flight or not a.left for a in self.appraisals)
        moving = isinstance(self.step, Step) or under_way
        return self.driver.upkeep(may_move=moving)
