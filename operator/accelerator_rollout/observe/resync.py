"""Compares the store with lists of the cluster, repairs it, and says whether it may be believed.

A watch that lost its place lists anew, and what was deleted meanwhile is in neither: so we list too, and remove what a
list lacks. Lists of metadata are enough for that. A quiet watch says nothing about itself, so trust comes from here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from accelerator_rollout.decide.snapshot import Freshness
from accelerator_rollout.observe.errors import NotFoundError, NotWatchedError, ObserveError
from accelerator_rollout.observe.interests import Key
from accelerator_rollout.observe.kinds import Kind, Served
from accelerator_rollout.observe.login import Patience
from accelerator_rollout.observe.reader import Reader
from accelerator_rollout.observe.store import NOBODY, Store

_log = logging.getLogger(__name__)

# An event takes milliseconds from the write to us, longer under load: a difference that young is no loss.
_LAG: Final = 3.0  # seconds
_LAG_STEP: Final = 0.25
_GET_AT_MOST: Final = 200  # objects; beyond that one list is cheaper
_SETTLING: Final = 5.0  # seconds that watches get to stand again after they broke


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the store may be believed, and since when."""

    freshness: Freshness
    agreed_at: datetime | None  # when store and cluster were last seen to agree
    problem: str  # why not, for people; "" where there is none


@dataclass(frozen=True, slots=True)
class _Listed:
    """One kind as a list shows it."""

    versions: Mapping[str, int]  # resourceVersion by UID
    names: Mapping[str, tuple[str, str]]  # namespace and name by UID
    resource_version: int


class Resync:
    """Fills the store once, then compares it every `period` seconds and whenever a watch breaks or starts anew.

    `wake` is told whom a repair concerns. `watching` returns, after at most so many seconds, the kinds that are not
    watched: a list shows one moment, and without a watch we would not see the next. `compared` is told how each comparison
    ended (agreed, repaired, failed) and how many seconds it took; `agreed` when one that did not fail had begun, by the event
    loop's clock.
    """

    def __init__(
        self,
        store: Store,
        reader: Reader,
        served: Collection[Served],
        wake: Callable[[Collection[Key]], None],
        watching: Callable[[float], Awaitable[Collection[Kind]]],
        *,
        period: float = 60.0,
        compared: Callable[[str, float], None] = lambda _result, _seconds: None,
        agreed: Callable[[float], None] = lambda _began: None,
    ) -> None:
        self._store, self._reader, self._served = store, reader, served
        self._wake, self._watching, self._period = wake, watching, period
        self._now = store.now
        self._compared, self._agreed = compared, agreed
        self._soon = asyncio.Event()
        self._agreed_at: datetime | None = None
        self._problem = "the first lists are not in yet"
        self.missed = 0  # changes that a watch never brought

    def soon(self) -> None:
        """Compare as soon as possible."""
        self._soon.set()

    def verdict(self) -> Verdict:
        """Return whether the store may be believed now."""
        freshness = self._store.freshness(self._now())
        overdue = freshness is Freshness.STALE and not self._problem
        problem = "the comparison with the cluster is overdue" if overdue else self._problem
        return Verdict(freshness, self._agreed_at, "" if freshness is Freshness.FRESH else problem)

    async def fill(self) -> None:
        """Put all there is into the store. Raises ObserveError if a kind cannot be listed."""
        for served in self._served:
            async for page in self._reader.pages(served):
                for raw in page.items:
                    self._store.apply(served.kind, None, raw)
                await asyncio.sleep(0)  # a chunk is some 20 ms of work; let others have their turn

    async def run(self) -> None:
        """Compare for ever."""
        patience = Patience(1.0, 10.0)
        failed = False
        clock = asyncio.get_running_loop().time
        while True:
            self._soon.clear()
            began, missed = clock(), self.missed
            try:
                # What went between our first list and the watches' own is in neither: only a list after both shows it.
                if unwatched := await self._watching(_SETTLING):
                    await self._reader.get("/version")  # if nobody answers, that is what to say
                    raise NotWatchedError(f"no watch stands of {', '.join(unwatched)}")
                await self.compare()
            except ObserveError as error:
                self._compared("failed", clock() - began)
                if failed or isinstance(error, NotWatchedError):  # one request may fail; two are an outage
                    self._doubt(str(error))
                failed = True
                await patience.wait()
            else:
                self._compared("agreed" if self.missed == missed else "repaired", clock() - began)
                failed = False
                await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._period):
                await self._soon.wait()
        except TimeoutError:
            pass

    async def compare(self) -> None:
        """Compare and repair every kind, once; raises ObserveError if that could not be finished."""
        began, moment = self._now(), asyncio.get_running_loop().time()
        woken = NOBODY
        lists = [(served, await self._list(served)) for served in self._served]
        for served, listed in await self._silent(lists):
            woken |= await self._repair(served, listed)
        believed = self._store.freshness(self._now()) is Freshness.FRESH
        self._agreed_at, self._problem = began, ""
        self._store.believe(began + timedelta(seconds=2.5 * self._period))
        self._wake(woken if believed else self._store.keys())
        self._agreed(moment)

    def _doubt(self, problem: str) -> None:
        """Say that the store may be wrong; every decision waits from now on."""
        was = self._store.freshness(self._now())
        if problem != self._problem:
            _log.warning("The store cannot be compared with the cluster, so nothing is decided: %s", problem)
        self._problem = problem
        self._store.doubt()
        if was is Freshness.FRESH:
            self._wake(self._store.keys())

    async def _repair(self, served: Served, listed: _Listed) -> frozenset[Key]:
        behind, extra = self._differences(served.kind, listed)
        if not behind and not extra:
            return NOBODY
        _log.warning(
            "A watch of %s had missed %d changes and %d deletions; repaired by a list",
            served.kind,
            len(behind),
            len(extra),
        )
        self.missed += len(behind) + len(extra)
        woken, _ = self._store.sweep(served.kind, listed.versions, listed.resource_version)
        self._store.missed(served.kind)
        return woken | await self._fetch(served, listed, behind)

    async def _list(self, served: Served) -> _Listed:
        versions: dict[str, int] = {}
        names: dict[str, tuple[str, str]] = {}
        moment = 0
        async for page in self._reader.pages(served, metadata_only=True):
            moment = page.resource_version
            for raw in page.items:
                meta = raw.get("metadata") or {}
                try:
                    uid = meta["uid"]
                    versions[uid] = int(meta["resourceVersion"])
                    names[uid] = (meta.get("namespace") or "", meta["name"])
                except (KeyError, TypeError, ValueError):
                    continue  # nothing can be said about it, and nothing that we have is it
            await asyncio.sleep(0)
        return _Listed(versions, names, moment)

    async def _silent(self, lists: Iterable[tuple[Served, _Listed]]) -> list[tuple[Served, _Listed]]:
        """Return the lists that the store does not agree with, and that their events had time to make true.

        Differences that vanish by themselves within moments are events on their way. All kinds wait at once: an outage
        that silenced several costs the wait of one.
        """
        deadline = asyncio.get_running_loop().time() + _LAG
        silent = list(lists)
        while True:
            waiting, silent = silent, []
            for served, listed in waiting:
                if any(self._differences(served.kind, listed)):
                    silent.append((served, listed))
                await asyncio.sleep(0)  # some milliseconds of work each; let others have their turn
            if not silent or asyncio.get_running_loop().time() >= deadline:
                return silent
            await asyncio.sleep(_LAG_STEP)

    def _differences(self, kind: Kind, listed: _Listed) -> tuple[list[str], list[str]]:
        """Return the UIDs that the store has too old or not at all, and those that it has too long."""
        have = self._store.versions(kind)
        behind = [
            uid
            for uid, version in listed.versions.items()
            if have.get(uid, -1) < version
            and not self._store.is_gone(uid)
            and self._store.cares_for(kind, listed.names[uid][0])
        ]
        extra = [
            uid
            for uid, version in have.items()
            if uid not in listed.versions and version <= listed.resource_version
        ]
        return behind, extra

    async def _fetch(self, served: Served, listed: _Listed, uids: Collection[str]) -> frozenset[Key]:
        woken = NOBODY
        if len(uids) > _GET_AT_MOST:
            async for page in self._reader.pages(served):
                for raw in page.items:
                    woken |= self._store.apply(served.kind, None, raw)
            return woken
        for uid in uids:
            try:
                found = await self._reader.get(served.path(*listed.names[uid]))
            except NotFoundError:
                continue  # it went since the list; its event, or the next list, will say so
            woken |= self._store.apply(served.kind, None, found)
        return woken
