"""Tells traces beside metrics: what ended with each decision goes to whoever sends it."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from accelerator_rollout.api.models import RolloutStatus
from accelerator_rollout.clock import Clock
from accelerator_rollout.control.loop import Told
from accelerator_rollout.decide.outcome import Plan
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.observe.interests import Key
from accelerator_rollout.tracing.spans import Span, ended

Send = Callable[[Sequence[Span]], bool]  # in a thread; whether they have arrived

_log = logging.getLogger(__name__)

# What ended shortly before this process began to act may have been stored by one that died before it could send it. It is sent (again)
# under the same ids.
_UNSURE: Final = timedelta(minutes=5)
_AT_MOST: Final = 10_000  # spans that wait; the oldest go first
_BATCH: Final = 500
_PATIENCE: Final = 10.0  # seconds until a collector that did not answer is asked again
_LAST: Final = 3.0  # seconds for what is left when we stop


class Traces:
    """Collects spans and sends them. Without a `send`, nothing is collected."""

    def __init__(self, send: Send | None, clock: Clock) -> None:
        self._send, self._clock, self._began = send, clock, clock()
        self._seen: dict[Key, tuple[str, RolloutStatus]] = {}
        self._waiting: deque[Span] = deque(maxlen=_AT_MOST)
        self._news = asyncio.Event()
        self._under_way: tuple[asyncio.Future[bool], frozenset[str]] | None = None

    def decided(self, snapshot: Snapshot, plan: Plan) -> None:
        """Take in what a decision said whose status stands."""
        if self._send is None:
            return
        rollout = snapshot.rollout
        key = Key(rollout.namespace, rollout.name)
        uid, before = self._seen.get(key, ("", None))
        known = before.history if before is not None and uid == rollout.uid else None
        self._seen[key] = (rollout.uid, plan.status)
        spans = ended(rollout, known, plan.status.history, self._began - _UNSURE)
        if spans:
            self._waiting.extend(spans)
            self._news.set()

    def gone(self, key: Key) -> None:
        """Forget an object."""
        self._seen.pop(key, None)

    def restart(self) -> None:
        """Begin to act: what ended before was told by whoever acted then, but for the latest."""
        self._seen.clear()
        self._began = self._clock()

    async def run(self) -> None:
        """Send for ever what there is, in order; what does not arrive is sent again."""
        while self._send is not None:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                if not await self._sent(self._send):
                    await asyncio.sleep(_PATIENCE)

    async def close(self) -> None:
        """Send what is left, if that does not take long."""
        if self._send is None or not self._waiting:
            return
        try:
            async with asyncio.timeout(_LAST):
                while self._waiting and await self._sent(self._send):
                    pass
        except TimeoutError:
            pass
        if self._waiting:
            _log.warning("%d spans could not be sent", len(self._waiting))

    async def _sent(self, send: Send) -> bool:
        """Send a batch; return whether it arrived. Whoever asks after a cancellation is told of the one under way."""
        if self._under_way is None:
            batch = [self._waiting[number] for number in range(min(_BATCH, len(self._waiting)))]
            self._under_way = (_in_thread(send, batch), frozenset(span.id for span in batch))
        answer, there = self._under_way
        arrived = await asyncio.shield(answer)
        self._under_way = None
        while arrived and self._waiting and self._waiting[0].id in there:
            self._waiting.popleft()  # not by their number: the oldest may have been dropped meanwhile
        return arrived


def _in_thread(send: Send, batch: Sequence[Span]) -> asyncio.Future[bool]:
    """Send in a thread that the end of the process does not wait for."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bool] = loop.create_future()

    def work() -> None:
        arrived = False
        try:
            arrived = send(batch)
        except Exception:  # noqa: BLE001 - traces are a courtesy: no defect of theirs may end the work
            _log.exception("a defect: %d spans could not be sent", len(batch))
        with suppress(RuntimeError):  # the loop is over
            loop.call_soon_threadsafe(answer.set_result, arrived)

    threading.Thread(target=work, name="traces", daemon=True).start()
    return answer


class AlsoTraced:
    """Tells others what was decided, and the traces."""

    def __init__(self, told: Told, traces: Traces) -> None:
        self._told, self._traces = told, traces

    def took(self, seconds: float) -> None:
        """A decision was made and carried out in so many seconds."""
        self._told.took(seconds)

    def decided(self, snapshot: Snapshot, plan: Plan) -> None:
        """A decision stands."""
        self._told.decided(snapshot, plan)
        self._traces.decided(snapshot, plan)

    def failed(self, error: Exception) -> None:
        """A decision could not be carried out."""
        self._told.failed(error)

    def gone(self, key: Key) -> None:
        """The object is gone."""
        self._told.gone(key)
        self._traces.gone(key)
