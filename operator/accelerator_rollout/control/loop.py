"""Keys in, decisions out: take a key, build its snapshot, decide, have it carried out, and say when to look again."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from accelerator_rollout.act.executor import Backlog, Executor, Planner
from accelerator_rollout.act.reporter import Reporter
from accelerator_rollout.api.models import RolloutObject, RolloutStatus, Unreadable
from accelerator_rollout.clock import Clock
from accelerator_rollout.control.queue import KeyedQueue
from accelerator_rollout.decide.disruption import RETRY_SECONDS
from accelerator_rollout.decide.holds import held
from accelerator_rollout.decide.outcome import Notice, Plan
from accelerator_rollout.decide.patience import AT_MOST
from accelerator_rollout.decide.snapshot import (
    CheckRun,
    Freshness,
    GateProbe,
    GateSource,
    HealthRun,
    HoldAbility,
    Refused,
    ReserveAbility,
    Snapshot,
)
from accelerator_rollout.errors import ActError, ConflictError, GoneError, UnavailableError
from accelerator_rollout.observe.errors import ProjectionError
from accelerator_rollout.observe.interests import Key
from accelerator_rollout.observe.store import Store

_log = logging.getLogger(__name__)

_REMEMBER_REFUSAL: Final = timedelta(seconds=RETRY_SECONDS)
_REMEMBER_PROBE: Final = timedelta(minutes=10)  # a policy may be installed, changed or removed meanwhile
# By then a full read has shown it, and the API server ends requests after one minute.
_REMEMBER_SENT: Final = timedelta(minutes=2)
_RETRY_PROBE: Final = timedelta(seconds=30)  # one without an answer
_HOLD_ATTEMPTS: Final = 3  # per claim
_SOONEST: Final = 1.0  # seconds; deadlines are no busy loops


class Told(Protocol):
    """Who is told what was decided, for metrics."""

    def took(self, seconds: float) -> None:
        """A decision was made and carried out in so many seconds."""
        ...

    def decided(self, snapshot: Snapshot, plan: Plan) -> None:
        """A decision stands: its status is stored, or will be."""
        ...

    def failed(self, error: Exception) -> None:
        """A decision could not be carried out."""
        ...

    def gone(self, key: Key) -> None:
        """The object is gone."""
        ...


@dataclass(frozen=True, slots=True)
class _Untold:
    """A status that is true and not stored yet, of which object, and what it took the place of.

    Times are of the event loop's clock.
    """

    uid: str
    status: RolloutStatus
    stored: RolloutStatus
    notices: tuple[Notice, ...]
    patience: float
    due: float
    at_most: float


@dataclass(slots=True)
class _Memory:
    """What the cluster answered to one object's acts, until it is out of date, and what it was not told yet."""

    untold: _Untold | None = None
    refused: tuple[Refused, ...] = ()
    probe: GateProbe | None = None
    probed_at: datetime | None = None
    checked: dict[str, CheckRun] = field(default_factory=dict)  # by id of the replacement
    health: dict[str, HealthRun] = field(default_factory=dict)  # by UID of the successor
    sent: dict[str, datetime] = field(default_factory=dict)  # by UID of the pod: when it may have gone
    holds: Counter[str] = field(default_factory=Counter)  # per claim UID: how often we held it
    inherited: bool = False  # whether the choices of whoever decided before us are among `sent`

    def inherit(self, status: RolloutStatus, now: datetime) -> None:
        """Take what stands in the status as chosen for maybe sent.

        Whoever acted before us, another process or this one in an earlier term, stored each choice before it acted on it. A
        request of theirs may have been held up, and an eviction is guarded by the pod's UID alone.
        """
        self.inherited = True
        for entry in status.replacements:
            self.sent.setdefault(entry.pod_uid, now)

    def unseen(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the pods that may have been disrupted and do not show it."""
        live = {pod.uid for pod in snapshot.pods if pod.live}
        self.sent = {uid: at for uid, at in self.sent.items() if uid in live}
        return frozenset(self.sent)

    def disputed(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the claims whose hold was put back so often that somebody must be taking it away."""
        there = {claim.uid for claim in snapshot.claims.values()}
        for uid in self.holds.keys() - there:
            del self.holds[uid]
        lacking = (c.uid for c in snapshot.claims.values() if not held(c, snapshot.rollout.uid))
        return frozenset(uid for uid in lacking if self.holds[uid] >= _HOLD_ATTEMPTS)


class Loop:
    """Some workers over one queue."""

    def __init__(
        self,
        store: Store,
        queue: KeyedQueue[Key],
        executor: Executor,
        reporter: Reporter,
        told: Told,
        clock: Clock,
        planner: Planner,
        policy_parks: Callable[[], bool] = lambda: True,
        hold: Callable[[], HoldAbility] = lambda: HoldAbility.NOT_PERMITTED,
        reserve: Callable[[], ReserveAbility] = lambda: ReserveAbility.NOT_PERMITTED,
        restore: Callable[[], bool] = lambda: False,
        bad_checks: Callable[[RolloutObject], Mapping[str, str]] = lambda _rollout: {},
        workers: int = 4,
    ) -> None:
        self._store, self._queue, self._executor, self._reporter = store, queue, executor, reporter
        self._told, self._clock, self._planner, self._workers = told, clock, planner, workers
        self._policy_parks, self._hold, self._reserve = policy_parks, hold, reserve
        self._restore = restore
        self._bad_checks = bad_checks
        self._memory: dict[Key, _Memory] = {}
        self._since: dict[Key, float] = {}

    def longest_running(self) -> float:
        """Return for how many seconds the oldest unfinished decision has been carried out; 0 if none is."""
        now = asyncio.get_running_loop().time()
        return max((now - since for since in self._since.values()), default=0.0)

    def restart(self) -> None:
        """Begin anew with every key: others may have decided since, so what was known of them is out of date.

        What was sent and does not show yet is kept: it may still be done, and so may what others chose meanwhile.
        """
        self._memory = {key: _Memory(sent=memory.sent) for key, memory in self._memory.items()}
        self._queue.restart()
        known = self._store.keys()
        for key in known:
            self._queue.add(key)

    async def run(self) -> None:
        """Work for ever; a worker that fails takes the others with it, and that ends the process."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"worker {number}")

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            started = asyncio.get_running_loop().time()
            self._since[key] = started
            try:
                settled = await self._handle(key, started)
            except (ConflictError, GoneError) as error:
                _log.info("%s/%s: deciding anew: %s", *key, error)
                self._queue.moved(key)
            except (ActError, ProjectionError) as error:
                self._told.failed(error)
                wait = error.retry_after if isinstance(error, UnavailableError) else None
                delay = self._queue.failed(key, wait or 0.0)
                _log.warning("%s/%s: %s; again in %.1f s", *key, error, delay)
            except Exception as error:  # noqa: BLE001 - one object's defect must not end the others'
                self._told.failed(error)
                delay = self._queue.failed(key)
                _log.exception("%s/%s: a defect; again in %.1f s", *key, delay)
            else:
                if settled:
                    self._queue.done(key)
                else:
                    self._queue.moved(key)
            finally:
                del self._since[key]

    async def _handle(self, key: Key, started: float) -> bool:
        """Return whether the world was the one that was decided on."""
        now = self._clock()
        snapshot = self._store.snapshot(key, now)
        match snapshot:
            case None:
                self._queue.forget(key)
                self._memory.pop(key, None)
                self._told.gone(key)
            case Unreadable():
                self._told.gone(key)
                await self._reporter.report_unreadable(snapshot)
            case _:
                return await self._decide(key, snapshot, now, started)
        return True

    async def _decide(self, key: Key, snapshot: Snapshot, now: datetime, started: float) -> bool:
        memory = self._memory.setdefault(key, _Memory())
        self._expire(memory, now)
        if not memory.inherited and snapshot.freshness is Freshness.FRESH:
            memory.inherit(snapshot.rollout.status, now)
        snapshot = replace(
            snapshot,
            refused=memory.refused,
            gate_probe=memory.probe,
            policy_parks=self._policy_parks(),
            hold=self._hold(),
            reserve=self._reserve(),
            restore=self._restore(),
            disputed=memory.disputed(snapshot),
            checked=dict(memory.checked),
            health=dict(memory.health),
            bad_checks=self._bad_checks(snapshot.rollout),
            maybe_sent=memory.unseen(snapshot),
        )
        backlog = self._backlog(memory, snapshot.rollout)
        if memory.untold is not None:
            snapshot = replace(snapshot, rollout=replace(snapshot.rollout, status=memory.untold.status))
        plan = self._planner(snapshot, now)
        sent: set[str] = set()

        def sending(uid: str) -> None:
            # Noted before, and taken back only by an answer: whatever else happens, it may have been done.
            if uid not in memory.sent:
                sent.add(uid)
                memory.sent[uid] = now

        outcome = await self._executor.run(snapshot, plan, backlog, sending)
        self._told.took(asyncio.get_running_loop().time() - started)
        # What was decided on a world that had moved is decided anew: told now, it would be counted twice.
        if outcome.stored or outcome.untold:
            self._told.decided(snapshot, plan)
        if outcome.moved or outcome.refused is not None:
            for uid in sent:
                del memory.sent[uid]
        if outcome.stored:
            for uid in plan.acknowledged:
                self._store.forget(uid)
        if outcome.untold:
            clock = asyncio.get_running_loop().time()
            memory.untold = _Untold(
                snapshot.rollout.uid,
                plan.status,
                backlog.stored,
                (*backlog.notices, *plan.notices),
                outcome.patience,
                due=clock + outcome.untold,
                at_most=memory.untold.at_most if memory.untold else clock + AT_MOST,
            )
            self._queue.add_after(key, outcome.untold)
        elif outcome.stored:
            memory.untold = None
        memory.holds.update(outcome.held)
        there = {r.id for r in plan.status.replacements}
        memory.checked = {
            id_: run for id_, run in {**memory.checked, **outcome.checked}.items() if id_ in there
        }
        followers = {r.replacement_pod_uid for r in plan.status.replacements}
        memory.health = {
            uid: run for uid, run in {**memory.health, **outcome.health}.items() if uid in followers
        }
        if outcome.refused is not None:
            memory.refused = (outcome.refused,)
        if outcome.probe is not None:
            memory.probe, memory.probed_at = outcome.probe, now
        if outcome.again:
            self._queue.add(key)
        due = [d for d in (plan.next_due, self._memory_due(memory)) if d is not None]
        due += [at + _REMEMBER_SENT for at in memory.sent.values()]
        if due:
            self._queue.add_after(key, max(_SOONEST, (min(due) - now).total_seconds()))
        return not outcome.moved

    @staticmethod
    def _backlog(memory: _Memory, rollout: RolloutObject) -> Backlog:
        """Return what is not stored yet. Should somebody else have written the status, theirs is what we go on from."""
        untold = memory.untold
        if untold is not None and (untold.uid, untold.stored) != (rollout.uid, rollout.status):
            untold = memory.untold = None
        if untold is None:
            return Backlog(rollout.status)
        clock = asyncio.get_running_loop().time()
        return Backlog(
            rollout.status, untold.notices, untold.patience, untold.due - clock, untold.at_most - clock
        )

    @staticmethod
    def _expire(memory: _Memory, now: datetime) -> None:
        memory.refused = tuple(r for r in memory.refused if now < r.at + _REMEMBER_REFUSAL)
        memory.sent = {uid: at for uid, at in memory.sent.items() if now < at + _REMEMBER_SENT}
        due = Loop._memory_due(memory)
        if due is not None and now >= due:
            memory.probe = memory.probed_at = None

    @staticmethod
    def _memory_due(memory: _Memory) -> datetime | None:
        """Return when the answer of a dry-run pod is too old to be believed."""
        if memory.probe is None or memory.probed_at is None:
            return None
        keep = _REMEMBER_PROBE if memory.probe.source is GateSource.POLICY else _RETRY_PROBE
        return memory.probed_at + keep
