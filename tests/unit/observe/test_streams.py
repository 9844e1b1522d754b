"""The requests of the watches tell since when nothing can have been missed."""

from datetime import datetime

import pytest

from accelerator_rollout.observe.kinds import SOURCES, Kind, Served
from accelerator_rollout.observe.streams import Streams, resource_in

from .conftest import Clock

PODS = Served(SOURCES[Kind.PODS], "v1")
CLAIMS = Served(SOURCES[Kind.CLAIMS], "v1")


class Told:
    """Streams of two kinds, and what they told."""

    def __init__(self, clock: Clock) -> None:
        self.streams = Streams([PODS, CLAIMS], clock)
        self.clock = clock
        self.since: dict[Kind, datetime] = {}
        self.gaps: list[Kind] = []
        self.broken: list[Kind] = []
        self.streams.on_watching = self.since.__setitem__
        self.streams.on_gap = self.gaps.append
        self.streams.on_broken = self.broken.append

    def begin(self, served: Served) -> None:
        self.streams.list_begins(served.path())
        self.clock.pass_seconds(1)
        self.streams.listed(served.path())
        self.clock.pass_seconds(1)
        self.streams.watch_stands(served.path())


@pytest.fixture
def told(clock: Clock) -> Told:
    return Told(clock)


async def test_all_are_watched_once_each_is(told: Told) -> None:
    assert await told.streams.all_watching(0.01) == (Kind.PODS, Kind.CLAIMS)
    told.begin(PODS)
    assert await told.streams.all_watching(0.01) == (Kind.CLAIMS,)
    told.begin(CLAIMS)
    assert await told.streams.all_watching(0.01) == ()
    assert told.gaps == []


def test_nothing_is_missed_from_the_moment_the_list_was_answered(told: Told) -> None:
    began = told.clock.now
    told.begin(PODS)
    assert (told.since[Kind.PODS] - began).total_seconds() == 1


def test_a_watch_that_goes_on_where_it_broke_has_missed_nothing(told: Told) -> None:
    told.begin(PODS)
    since = told.since.pop(Kind.PODS)
    told.streams.watch_fails(PODS.path())
    told.streams.watch_fails(PODS.path())
    assert told.broken == [Kind.PODS]
    assert Kind.PODS in told.streams.unwatched
    told.streams.watch_stands(PODS.path())
    assert told.since == {}
    assert told.gaps == []
    assert Kind.PODS not in told.streams.unwatched
    assert since


def test_a_new_list_is_a_gap(told: Told) -> None:
    told.begin(PODS)
    first = told.since[Kind.PODS]
    told.begin(PODS)
    assert told.gaps == [Kind.PODS]
    assert told.since[Kind.PODS] > first


def test_a_list_that_fails_and_is_repeated_is_one_gap(told: Told) -> None:
    told.begin(PODS)
    told.streams.list_begins(PODS.path())
    told.begin(PODS)
    assert told.gaps == [Kind.PODS]


def test_requests_for_other_things_tell_nothing(told: Told) -> None:
    for path in ("/apis", "/api/v1/pods/x", "/api/v1/namespaces/team/pods"):
        told.streams.list_begins(path)
        told.streams.listed(path)
        told.streams.watch_stands(path)
        told.streams.watch_fails(path)
    assert told.since == {}
    assert told.gaps == []


@pytest.mark.parametrize(
    ("served", "path"),
    [
        (PODS, "/api/v1/pods"),
        (CLAIMS, "/apis/resource.k8s.io/v1/resourceclaims"),
        (Served(SOURCES[Kind.NODES], "v1"), "/api/v1/nodes"),
    ],
)
def test_paths(served: Served, path: str) -> None:
    assert served.path() == path
    assert served.path("", "x") == f"{path}/x"


def test_the_path_of_an_object_in_a_namespace() -> None:
    assert PODS.path("team", "a") == "/api/v1/namespaces/team/pods/a"
    assert Served(SOURCES[Kind.SLICES], "v1").path("team") == "/apis/resource.k8s.io/v1/resourceslices"


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/pods", "pods"),
        ("/api/v1/namespaces/team", "namespaces"),
        ("/api/v1/namespaces/team/pods/a", "pods"),
        ("/apis/resource.k8s.io/v1/resourceclaims", "resourceclaims"),
        ("/apis/apps/v1/namespaces/team/deployments/a", "deployments"),
        ("/apis/apps/v1", "discovery"),
        ("/apis", "discovery"),
        ("/version", "discovery"),
    ],
)
def test_requests_are_counted_by_what_they_are_for(path: str, resource: str) -> None:
    assert resource_in(path) == resource
