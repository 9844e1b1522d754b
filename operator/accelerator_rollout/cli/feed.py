"""The objects of a namespace as they change: a list and a watch for each kind, in threads that only read.

The store belongs to whoever calls `take`: threads hand raw objects over, and apply none. A watch that ends or breaks begins
anew with a list, and what the list lacks is gone.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from accelerator_rollout.cli.cluster import Cluster, Raw
from accelerator_rollout.errors import OperatorError
from accelerator_rollout.observe.kinds import Kind, Served
from accelerator_rollout.observe.store import Store

_AGAIN: Final = 2.0  # seconds before a list is tried again
_EVENTS: Final = ("ADDED", "MODIFIED", "DELETED")


@dataclass(frozen=True, slots=True)
class _List:
    """A whole kind as of `version`."""

    kind: Kind
    items: tuple[Raw, ...]
    version: int


@dataclass(frozen=True, slots=True)
class _Event:
    """One object that changed or went."""

    kind: Kind
    type: str
    raw: Raw


@dataclass(frozen=True, slots=True)
class _Failure:
    """A list or a watch that failed, and why."""

    kind: Kind
    why: str


def _lost(served: Served) -> OperatorError:
    return OperatorError(f"the watch of {served.kind} lost its place")


class Feed:
    """Keeps `store` up to date from the moment of `start`. `trouble` says which kinds cannot be read now, and why."""

    def __init__(
        self, connect: Callable[[], Cluster], served: Iterable[Served], namespace: str, store: Store
    ) -> None:
        """`connect` gives each thread a session of its own."""
        self._connect, self._served, self._namespace, self._store = connect, tuple(served), namespace, store
        self._news: queue.SimpleQueue[_List | _Event | _Failure] = queue.SimpleQueue()
        self._first: set[Kind] = set()
        self.trouble: dict[Kind, str] = {}

    @property
    def complete(self) -> bool:
        """Whether each kind was listed, or could not be."""
        return self._first >= {one.kind for one in self._served}

    def start(self) -> None:
        """Begin. The threads end with the process: there is nothing of theirs to be lost."""
        for one in self._served:
            threading.Thread(target=self._follow, args=(one,), name=f"watch {one.kind}", daemon=True).start()

    def take(self, seconds: float) -> bool:
        """Take in what has come, waiting so long for the first; return whether anything has."""
        try:
            news = self._news.get(timeout=seconds)
        except queue.Empty:
            return False
        while True:
            self._apply(news)
            try:
                news = self._news.get_nowait()
            except queue.Empty:
                return True

    def _apply(self, news: _List | _Event | _Failure) -> None:
        match news:
            case _List(kind, items, version):
                for raw in items:
                    self._store.apply(kind, None, raw)
                self._store.sweep(kind, {raw["metadata"]["uid"] for raw in items}, version)
                self.trouble.pop(kind, None)
            case _Event(kind, event, raw):
                self._store.apply(kind, event, raw)
            case _Failure(kind, why):
                self.trouble[kind] = why
        self._first.add(news.kind)

    def _follow(self, served: Served) -> None:
        cluster = None
        path = served.path(self._namespace)
        while True:
            try:
                cluster = cluster or self._connect()
                pages = list(cluster.pages(path))
                version = str(pages[-1]["metadata"]["resourceVersion"])
                items = tuple(raw for page in pages for raw in page.get("items") or ())
                self._news.put(_List(served.kind, items, int(version)))
                while True:
                    for event in cluster.watch(path, resourceVersion=version, allowWatchBookmarks="true"):
                        version = event["object"].get("metadata", {}).get("resourceVersion") or version
                        if event["type"] in _EVENTS:
                            self._news.put(_Event(served.kind, event["type"], event["object"]))
                        elif event["type"] != "BOOKMARK":
                            raise _lost(served)
            except OperatorError as error:
                self._news.put(_Failure(served.kind, str(error)))
                time.sleep(_AGAIN)
