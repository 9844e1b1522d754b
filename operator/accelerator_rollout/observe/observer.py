"""Runs the watches and the resync side by side, for as long as the operator runs."""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import kopf

from accelerator_rollout.observe import handlers
from accelerator_rollout.observe.errors import ObserveError
from accelerator_rollout.observe.interests import Key
from accelerator_rollout.observe.kinds import Kind, Served
from accelerator_rollout.observe.login import LoadConfiguration, Patience, configuration_from, open_session
from accelerator_rollout.observe.reader import Reader
from accelerator_rollout.observe.resync import Resync, Verdict
from accelerator_rollout.observe.store import Store
from accelerator_rollout.observe.streams import Streams, counting

_log = logging.getLogger(__name__)

_KOPF: Final = str(Path(kopf.__file__).parent)
_ENDING: Final = 1.5  # seconds that Kopf's tasks get to end; nothing of theirs is worth more


@dataclass(frozen=True, slots=True)
class ObserverSettings:
    """How to reach the cluster; how often to compare the store with it, and when to begin all watches anew (seconds)."""

    load: LoadConfiguration = field(default_factory=configuration_from)
    resync_period: float = 60.0
    stuck_after: float = 60.0


class Observer:
    """Keeps `store` up to date and calls `enqueue` with every AcceleratorRollout to decide anew.

    `counted` is told the verb, the resource and the status code of every request, for metrics. `filled` is called when
    the first lists are in, and `compared` how each comparison with the cluster ended and how many seconds it took.
    """

    def __init__(
        self,
        store: Store,
        enqueue: Callable[[Key], None],
        settings: ObserverSettings | None = None,
        *,
        counted: Callable[[str, str, str], None] = lambda _verb, _resource, _code: None,
        filled: Callable[[], None] = lambda: None,
        compared: Callable[[str, float], None] = lambda _result, _seconds: None,
    ) -> None:
        self._store, self._enqueue = store, enqueue
        self._settings = settings or ObserverSettings()
        self._counted, self._filled, self._compared = counted, filled, compared
        self._resync: Resync | None = None
        self._streams: Streams | None = None
        self._served: tuple[Served, ...] = ()
        self._agreed_from = float("-inf")  # when the latest comparison that succeeded had begun
        self._agreed = asyncio.Event()
        self.events: dict[Kind, int] = dict.fromkeys(Kind, 0)

    @property
    def served(self) -> tuple[Served, ...]:
        """The kinds that are watched; empty until the cluster was asked."""
        return self._served

    @property
    def missed(self) -> int:
        """The number of changes that no watch brought and that a list repaired."""
        return self._resync.missed if self._resync else 0

    def watches(self) -> dict[Kind, bool]:
        """Return each kind that is to be watched, and whether a watch of it stands."""
        broken = (
            frozenset(self._streams.unwatched) if self._streams else frozenset(s.kind for s in self._served)
        )
        return {served.kind: served.kind not in broken for served in self._served}

    def heard(self) -> dict[Kind, datetime]:
        """Return when the watch of each kind last brought an event or was accepted."""
        return self._streams.heard if self._streams else {}

    def verdict(self) -> Verdict:
        """Return whether the store may be believed, for probes and metrics."""
        if self._resync is not None:
            return self._resync.verdict()
        return Verdict(self._store.freshness(self._store.now()), None, "the cluster was not asked yet")

    async def caught_up(self) -> None:
        """Return once the store agrees with lists that were all asked for after this call."""
        called = asyncio.get_running_loop().time()
        while self._agreed_from < called:
            self._agreed.clear()
            self._compare_soon()
            await self._agreed.wait()

    def _caught_up_with(self, began: float) -> None:
        self._agreed_from = began
        self._agreed.set()

    def saw(self, kind: Kind, event: kopf.RawEvent) -> None:
        """Take in one event."""
        self.events[kind] += 1
        if self._streams is not None:
            self._streams.hears(kind)
        try:
            keys = self._store.apply(kind, event["type"], event["object"])
        except Exception:  # noqa: BLE001 - whatever it was, the next comparison repairs it
            # Kopf would drop it silently; what we made of this object is in doubt until the next comparison.
            _log.exception("An event of %s could not be taken in; comparing the store with the cluster", kind)
            self._store.missed(kind)
            self._compare_soon()
            return
        self._wake(keys)

    async def run(self, stop: asyncio.Event, *, on_signal: Callable[[], None] | None = None) -> None:
        """Observe until `stop` is set. Raises ObserveError if observing cannot even begin.

        SIGINT and SIGTERM call `on_signal`, or set `stop` without one: Kopf takes both signals for itself, and this
        gives them back.
        """
        _take_signals(on_signal or stop.set)
        reader = Reader(self._settings.load, trace=counting(self._counted))
        try:
            self._served = await reader.discover()
            while await self._observe(stop, reader, on_signal or stop.set):
                self._store.doubt()  # until the new versions are listed and compared
        finally:
            await reader.close()

    async def _observe(self, stop: asyncio.Event, reader: Reader, on_signal: Callable[[], None]) -> bool:
        """Observe until `stop` is set or the cluster serves other versions; return whether it is the latter."""
        streams = self._streams = Streams(self._served, self._store.now)
        before = self._resync.missed if self._resync else 0
        self._resync = Resync(
            self._store,
            reader,
            self._served,
            self._wake,
            streams.all_watching,
            period=self._settings.resync_period,
            compared=self._compared,
            agreed=self._caught_up_with,
        )
        self._resync.missed = before
        streams.on_watching = self._store.watched_from
        streams.on_gap = self._lost_place
        streams.on_broken = lambda _: self._compare_soon()
        await self._resync.fill()
        self._filled()
        upgraded = asyncio.create_task(self._upgraded(reader), name="until other versions are served")
        tasks: set[asyncio.Task[Any]] = {
            asyncio.create_task(self._watch(streams, reader, on_signal), name="watches"),
            asyncio.create_task(self._resync.run(), name="resync"),
            asyncio.create_task(stop.wait(), name="until stopped"),
            upgraded,
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in done:
            task.result()
        return upgraded in done and not stop.is_set()

    async def _upgraded(self, reader: Reader) -> None:
        """Return once the cluster serves a kind in a better version, or no more in the one that we watch."""
        while True:
            await asyncio.sleep(self._settings.resync_period)
            try:
                found = await reader.discover()
            except ObserveError as error:
                _log.warning("What the cluster serves could not be found out: %s", error)
                continue
            if found != self._served:
                told = ", ".join(f"{s.kind} {s.version}" for s in found if s not in self._served)
                _log.info("The cluster serves other versions now: %s", told or "fewer kinds")
                self._served = found
                return

    def _wake(self, keys: Collection[Key]) -> None:
        for key in keys:
            self._enqueue(key)

    def _lost_place(self, kind: Kind) -> None:
        _log.info("The watch of %s starts anew; comparing the store with the cluster", kind)
        self._store.missed(kind)
        self._compare_soon()

    def _compare_soon(self) -> None:
        if self._resync:
            self._resync.soon()

    async def _watch(self, streams: Streams, reader: Reader, on_signal: Callable[[], None]) -> None:
        """Run Kopf, and again should it end or get stuck: it gives up on errors that it does not know."""
        again = Patience(1.0, 30.0)
        while True:
            await again.wait()
            await self._run_kopf(streams, reader, on_signal)

    async def _run_kopf(self, streams: Streams, reader: Reader, on_signal: Callable[[], None]) -> None:
        logins = Patience(1.0, 30.0)

        async def session() -> kopf.AiohttpSession:
            await logins.wait()  # a login that keeps being refused is repeated without pause by Kopf
            try:
                found = await self._settings.load()
            except ObserveError as error:
                raise kopf.TemporaryError(str(error), delay=5) from error
            opened = await open_session(found, trace=streams.trace(self._counted))
            return kopf.AiohttpSession(server=str(found.host), aiohttp_session=opened)

        # Not kopf.operator(): at its end that waits for, and then cancels, every task of the loop, ours included.
        tasks = await kopf.spawn_tasks(
            registry=handlers.registry(self._served, self.saw, session),
            settings=handlers.settings(),
            standalone=True,
            clusterwide=True,
        )
        _take_signals(on_signal)
        stuck = asyncio.create_task(self._stuck(streams, reader), name="a kind is not watched for too long")
        tasks = [*tasks, stuck]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = None if task.cancelled() else task.exception()
                _log.error("Watching ended (%s: %r); starting it again", task.get_name(), error)
        finally:
            await _end(tasks)
            await _end(_left_by_kopf())
            streams.all_end()

    async def _stuck(self, streams: Streams, reader: Reader) -> None:
        """Return when some kind was not watched for too long although the API server is there.

        Kopf stops watching a kind that was away for a moment. Through an outage it keeps its places, so we leave it.
        """
        loop = asyncio.get_running_loop()
        stood = loop.time()
        while loop.time() - stood < self._settings.stuck_after:
            await asyncio.sleep(min(5.0, self._settings.stuck_after / 4))
            if not streams.unwatched or not await _answers(reader):
                stood = loop.time()


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    _, pending = await asyncio.wait(tasks, timeout=_ENDING) if tasks else ((), ())
    for task in pending:
        _log.warning("%s did not end in time", task.get_name())


def _left_by_kopf() -> list[asyncio.Task[Any]]:
    """Return the watchers that still run: Kopf forgets the others when one of them fails.

    They would go on telling events beside those of the next run, and hold up the end of the process. Only whole
    watchers are cancelled: one whose pause-waiter is cancelled first takes its own cancellation for a pause.
    """
    return [task for task in asyncio.all_tasks() if _is_guarded_by_kopf(task)]


def _is_guarded_by_kopf(task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_name == "guard" and code.co_filename.startswith(_KOPF)


async def _answers(reader: Reader) -> bool:
    try:
        await reader.get("/version")
    except ObserveError:
        return False
    return True


def _take_signals(on_signal: Callable[[], None]) -> None:
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, on_signal)
