"""What the watches are doing, as their HTTP requests show: a second LIST means that a watch had lost its place.

Handlers see neither the LIST nor the end of a watch; the requests tell both. Between the state that a broken watch
reached and the one that a new LIST shows, an object may have come and gone without an event.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from types import SimpleNamespace

import aiohttp

from accelerator_rollout.observe.kinds import Kind, Served

Counted = Callable[[str, str], None]


class Streams:
    """Since when each kind is watched without a gap."""

    def __init__(self, served: Iterable[Served], now: Callable[[], datetime]) -> None:
        self._kinds = {one.path(): one.kind for one in served}
        self._now = now
        self._listed: dict[Kind, datetime] = {}
        self._watching: dict[Kind, datetime] = {}
        self._all = asyncio.Event()
        self.on_gap: Callable[[Kind], None] = lambda _: None
        self.on_watching: Callable[[Kind, datetime], None] = lambda _kind, _since: None

    async def all_watching(self) -> None:
        """Return once every kind is watched."""
        await self._all.wait()

    def waiting(self) -> tuple[Kind, ...]:
        """Return the kinds that are not watched yet."""
        return tuple(kind for kind in self._kinds.values() if kind not in self._watching)

    def started(self, path: str, *, watch: bool, more: bool) -> None:
        """Take note that a request for a collection goes out; `more` means not the first chunk of a list."""
        kind = self._kinds.get(path)
        if kind is None or watch or more:
            return
        self._listed[kind] = self._now()
        if self._watching.pop(kind, None) is not None:
            self._all.clear()
            self.on_gap(kind)

    def answered(self, path: str, *, watch: bool) -> None:
        """Take note that a watch was accepted."""
        kind = self._kinds.get(path)
        if kind is None or not watch or kind in self._watching:
            return
        self._watching[kind] = since = self._listed.get(kind, self._now())
        self.on_watching(kind, since)
        if not self.waiting():
            self._all.set()

    def trace(self, counted: Counted) -> aiohttp.TraceConfig:
        """Return what an HTTP session needs so that its requests come to our notice and are counted."""
        config = counting(counted)

        async def on_start(_: object, __: SimpleNamespace, params: aiohttp.TraceRequestStartParams) -> None:
            query = params.url.query
            self.started(params.url.path, watch="watch" in query, more="continue" in query)

        async def on_end(_: object, __: SimpleNamespace, params: aiohttp.TraceRequestEndParams) -> None:
            if params.response.status == 200:
                self.answered(params.url.path, watch="watch" in params.url.query)

        config.on_request_start.append(on_start)
        config.on_request_end.append(on_end)
        return config


def counting(counted: Counted) -> aiohttp.TraceConfig:
    """Return what an HTTP session needs so that its requests are counted, by verb and status code."""
    config = aiohttp.TraceConfig()

    async def on_end(_: object, __: SimpleNamespace, params: aiohttp.TraceRequestEndParams) -> None:
        verb = "watch" if "watch" in params.url.query else params.method.lower()
        counted(verb, str(params.response.status))

    async def on_exception(
        _: object, __: SimpleNamespace, params: aiohttp.TraceRequestExceptionParams
    ) -> None:
        counted("watch" if "watch" in params.url.query else params.method.lower(), "error")

    config.on_request_end.append(on_end)
    config.on_request_exception.append(on_exception)
    return config
