"""A queue of keys: each key waits at most once, is worked on by at most one worker, and comes back when it is due.

A key that is added while it is worked on is worked on once more afterwards: what changed meanwhile was not seen.
Errors put a key back later and later, with jitter, so that many keys do not come back in step.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

_TROUBLED: Final = 3

K = TypeVar("K", bound=Hashable)


class KeyedQueue(Generic[K]):
    """Lives in one event loop. Times are seconds; `waited` is told how long each key waited for a worker."""

    def __init__(
        self,
        *,
        first_delay: float = 0.2,
        longest_delay: float = 30.0,
        moved_delay: float = 0.05,
        waited: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self._first, self._longest, self._moved, self._waited = (
            first_delay,
            longest_delay,
            moved_delay,
            waited,
        )
        self._ready: OrderedDict[K, float] = OrderedDict()
        self._busy: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()

    @property
    def depth(self) -> int:
        """How many keys wait for a worker."""
        return len(self._ready)

    def add(self, key: K) -> None:
        """Have `key` worked on as soon as possible."""
        if key in self._busy:
            self._again.add(key)
        elif key not in self._ready:
            self._ready[key] = asyncio.get_running_loop().time()
            self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Have `key` worked on in `seconds`, unless an earlier time is set already."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(0.0, seconds)
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._due, key)

    def _due(self, key: K) -> None:
        del self._timers[key]
        self.add(key)

    async def get(self) -> K:
        """Return the key that has waited longest; whoever gets it must call `done` or `failed`."""
        while not self._ready:
            self._wake.clear()
            await self._wake.wait()
        key, since = self._ready.popitem(last=False)
        self._busy.add(key)
        self._waited(asyncio.get_running_loop().time() - since)
        return key

    def done(self, key: K) -> None:
        """End the work on `key`: it succeeded."""
        self._failures.pop(key, None)
        self._release(key)

    def failed(self, key: K, at_least: float = 0.0) -> float:
        """End the work on `key`: it failed and comes back in the returned number of seconds."""
        delay = max(at_least, self._backoff(key, self._first))
        # What changed meanwhile does not make a failing call succeed: it waits for the same time.
        self._again.discard(key)
        self._release(key)
        self.add_after(key, delay)
        return delay

    def moved(self, key: K) -> None:
        """End the work on `key`: the world had moved. It comes back at once if that was heard of meanwhile, else soon."""
        delay = self._backoff(key, self._moved)
        self._release(key)
        if key not in self._ready:
            self.add_after(key, delay)

    def troubled(self, key: K) -> bool:
        """Return whether the work on `key` has failed several times in a row."""
        return self._failures.get(key, 0) >= _TROUBLED

    def forget(self, key: K) -> None:
        """Drop what is remembered of `key`: its object is gone."""
        self._failures.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def restart(self) -> None:
        """Forget all keys, also those that are worked on: whoever worked on them is gone."""
        self.close()
        for kept in (self._ready, self._busy, self._again, self._failures):
            kept.clear()

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _backoff(self, key: K, first: float) -> float:
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay = min(self._longest, first * 2.0 ** min(count, 20))
        return delay * random.uniform(0.75, 1.25)  # noqa: S311 - jitter, no secret

    def _release(self, key: K) -> None:
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)
