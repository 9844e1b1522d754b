"""Given watches that went silent, when the store is compared with lists, then it is repaired, after one short wait for all."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import pytest

from accelerator_rollout.observe import resync
from accelerator_rollout.observe.kinds import SOURCES, Kind, Served
from accelerator_rollout.observe.reader import Page, Reader
from accelerator_rollout.observe.resync import Resync
from accelerator_rollout.observe.store import Store

from . import objects as o

LAG: Final = 0.2  # seconds
LATER: Final = 10**9  # a resourceVersion after that of any object that a test of this run has made
SERVED: Final = [Served(source, source.versions[0]) for source in SOURCES.values()]
OBJECTS: Final[Mapping[Kind, dict[str, Any]]] = {
    Kind.PODS: o.pod("a"),
    Kind.CLAIMS: o.claim("ca", pod_uid="uid-a", device="lpu-0"),
    Kind.SLICES: o.resource_slice("s", devices=("lpu-0",)),
    Kind.NODES: o.node("node-1"),
    Kind.DEPLOYMENTS: o.deployment(),
    Kind.REPLICA_SETS: o.replica_set(),
}


class Cluster(Reader):
    """A cluster with one object of some kinds."""

    def __init__(self) -> None:
        pass

    async def pages(self, served: Served, *, metadata_only: bool = False) -> AsyncIterator[Page]:
        yield Page([OBJECTS[served.kind]] if served.kind in OBJECTS else [], LATER)

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> Any:
        return next(found for found in OBJECTS.values() if path.endswith("/" + found["metadata"]["name"]))


async def nothing_unwatched(_seconds: float) -> frozenset[Kind]:
    return frozenset()


@pytest.fixture(autouse=True)
def _short_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "_LAG", LAG)
    monkeypatch.setattr(resync, "_LAG_STEP", LAG / 10)


def over(store: Store) -> Resync:
    return Resync(store, Cluster(), SERVED, lambda _: None, nothing_unwatched)


async def took(compared: Resync) -> float:
    began = asyncio.get_running_loop().time()
    await compared.compare()
    return asyncio.get_running_loop().time() - began


async def test_several_kinds_that_are_silent_cost_one_wait(store: Store) -> None:
    compared = over(store)
    assert LAG <= await took(compared) < 3 * LAG
    assert compared.missed == len(OBJECTS)
    assert {kind for kind, count in store.counts().items() if count} == set(OBJECTS)


async def test_a_store_that_agrees_waits_for_nothing(store: Store) -> None:
    for kind, raw in OBJECTS.items():
        store.apply(kind, "ADDED", raw)
    compared = over(store)
    assert await took(compared) < LAG
    assert compared.missed == 0


async def test_an_event_that_comes_during_the_wait_was_not_missed(store: Store) -> None:
    compared = over(store)
    comparing = asyncio.create_task(compared.compare())
    await asyncio.sleep(LAG / 2)
    store.apply(Kind.PODS, "ADDED", OBJECTS[Kind.PODS])
    await comparing
    assert compared.missed == len(OBJECTS) - 1


async def test_what_a_list_lacks_is_removed(store: Store) -> None:
    for kind, raw in OBJECTS.items():
        store.apply(kind, "ADDED", raw)
    store.apply(Kind.PODS, "ADDED", o.pod("gone"))
    compared = over(store)
    await compared.compare()
    assert compared.missed == 1
    assert [found.name for found in store.pods] == ["a"]
