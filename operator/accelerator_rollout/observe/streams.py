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

Counted = Callable[[str, str, str], None]


class Streams:
    """Since when each kind is watched without a gap, and which kinds are not watched right now."""

    def __init__(self, served: Iterable[Served], now: Callable[[], datetime]) -> None:
        self._kinds = {one.path(): one.kind for one in served}
        self._now = now
        self._listed: dict[Kind, datetime] = {}
        self._watched: set[Kind] = set()  # without a gap since the last list
        self._broken: set[Kind] = set(self._kinds.values())  # no watch stands
        self._all = asyncio.Event()
        self._heard: dict[Kind, datetime] = {}
        self.on_gap: Callable[[Kind], None] = lambda _: None
        self.on_broken: Callable[[Kind], None] = lambda _: None
        self.on_watching: Callable[[Kind, datetime], None] = lambda _kind, _since: None

    @property
    def unwatched(self) -> tuple[Kind, ...]:
        """The kinds of which no event would reach us now."""
        return tuple(kind for kind in self._kinds.values() if kind in self._broken)

    @property
    def heard(self) -> dict[Kind, datetime]:
        """When the watch of each kind last brought an event or was accepted; without those that never were."""
        return dict(self._heard)

    def hears(self, kind: Kind) -> None:
        """Take note of an event."""
        self._heard[kind] = self._now()

    async def all_watching(self, within: float) -> tuple[Kind, ...]:
        """Return once every kind is watched; after `within` seconds, return those that are not."""
        try:
            async with asyncio.timeout(within):
                await self._all.wait()
        except TimeoutError:
            return self.unwatched
        return ()

    def list_begins(self, path: str) -> None:
        """Take note that a list is asked for: the watch before it, if any, has lost its place."""
        kind = self._kinds.get(path)
        if kind is None:
            return
        self._breaks(kind)
        if kind in self._watched:
            self._watched.discard(kind)
            self.on_gap(kind)

    def listed(self, path: str) -> None:
        """Take note that the first chunk of a list is here: the watch will begin at a moment before now."""
        kind = self._kinds.get(path)
        if kind is not None:
            self._listed[kind] = self._now()

    def watch_stands(self, path: str) -> None:
        """Take note that a watch was accepted."""
        kind = self._kinds.get(path)
        if kind is None:
            return
        if kind not in self._watched:
            self._watched.add(kind)
            self.on_watching(kind, self._listed.get(kind, self._now()))
        self._broken.discard(kind)
        self.hears(kind)
        if not self._broken:
            self._all.set()

    def watch_fails(self, path: str) -> None:
        """Take note that a watch was refused, or that nobody answered. Its place is not lost by that."""
        kind = self._kinds.get(path)
        if kind is not None and kind not in self._broken:
            self._breaks(kind)
            self.on_broken(kind)

    def all_end(self) -> None:
        """Take note that nothing is watched any more."""
        for kind in self._kinds.values():
            self._breaks(kind)

    def _breaks(self, kind: Kind) -> None:
        self._broken.add(kind)
        self._all.clear()

    def trace(self, counted: Counted) -> aiohttp.TraceConfig:
        """Return what an HTTP session needs so that its requests come to our notice and are counted."""
        config = counting(counted)

        async def on_start(_: object, __: SimpleNamespace, params: aiohttp.TraceRequestStartParams) -> None:
            if "watch" not in params.url.query and "continue" not in params.url.query:
                self.list_begins(params.url.path)

        async def on_end(_: object, __: SimpleNamespace, params: aiohttp.TraceRequestEndParams) -> None:
            path, query, accepted = params.url.path, params.url.query, params.response.status == 200
            if "watch" in query:
                (self.watch_stands if accepted else self.watch_fails)(path)
            elif accepted and "continue" not in query:
                self.listed(path)

        async def on_exception(
            _: object, __: SimpleNamespace, params: aiohttp.TraceRequestExceptionParams
        ) -> None:
            if "watch" in params.url.query:
                self.watch_fails(params.url.path)

        config.on_request_start.append(on_start)
        config.on_request_end.append(on_end)
        config.on_request_exception.append(on_exception)
        return config


def counting(counted: Counted) -> aiohttp.TraceConfig:
    """Return what an HTTP session needs so that its requests are counted, by verb, resource and status code."""
    config = aiohttp.TraceConfig()

    def count(params: aiohttp.TraceRequestEndParams | aiohttp.TraceRequestExceptionParams, code: str) -> None:
        verb = "watch" if "watch" in params.url.query else params.method.lower()
        counted(verb, resource_in(params.url.path), code)

    async def on_end(_: object, __: SimpleNamespace, params: aiohttp.TraceRequestEndParams) -> None:
        count(params, str(params.response.status))

    async def on_exception(
        _: object, __: SimpleNamespace, params: aiohttp.TraceRequestExceptionParams
    ) -> None:
        count(params, "error")

    config.on_request_end.append(on_end)
    config.on_request_exception.append(on_exception)
    return config


def resource_in(path: str) -> str:
    """Return the plural that a path of the API names; "discovery" for a path that only lists what is served."""
    parts = path.strip("/").split("/")
    rest = parts[3:] if parts[0] == "apis" else parts[2:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return rest[0] if rest else "discovery"
