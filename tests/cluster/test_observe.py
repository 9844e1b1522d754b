"""The store follows a real API server, through lost events, broken watches and outages, and never writes to it."""

import asyncio
import os
import secrets
import signal
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.aio.client.configuration import Configuration

from accelerator_rollout.api import crd
from accelerator_rollout.api.models import Unreadable
from accelerator_rollout.decide.snapshot import Freshness, Snapshot
from accelerator_rollout.names import GATE
from accelerator_rollout.observe.errors import NoClusterError, NotAllowedError, NotServedError
from accelerator_rollout.observe.interests import Key
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.observe.observer import Observer, ObserverSettings
from accelerator_rollout.observe.store import Store
from lab.client import Api
from lab.kubeconfig import Connection
from lab.namespaces import make_namespace
from lab.resources import ACCELERATOR_ROLLOUTS, DEPLOYMENTS, NAMESPACES, PODS, RESOURCE_CLAIMS
from lab.wire import TASK as TASK_OF_THE_WIRE
from lab.wire import Wire

Object = dict[str, Any]


class Watching:
    """An observer at work, and what it said."""

    def __init__(self, wire: Wire, *, period: float, stuck_after: float) -> None:
        self.store = Store()
        self.woken: list[Key] = []
        self.stop = asyncio.Event()
        self.calls: Counter[tuple[str, str]] = Counter()  # by verb and code
        self.observer = Observer(
            self.store,
            self.woken.append,
            ObserverSettings(
                load=lambda: _configuration(wire), resync_period=period, stuck_after=stuck_after
            ),
            counted=lambda verb, _, code: self.calls.update([(verb, code)]),
        )

    async def until(self, reached: Callable[[], object], what: str, seconds: float = 20.0) -> None:
        """Return once `reached` holds."""
        try:
            async with asyncio.timeout(seconds):
                while not reached():  # noqa: ASYNC110 - what is awaited is a state of the store, not an event
                    await asyncio.sleep(0.002)
        except TimeoutError:
            raise AssertionError(f"{what}: not within {seconds} s; {self.observer.verdict()}") from None

    async def fresh(self) -> None:
        await self.until(lambda: self.freshness is Freshness.FRESH, "the store is fresh")

    @property
    def freshness(self) -> Freshness:
        return self.observer.verdict().freshness

    def snapshot(self, namespace: str, name: str = "web") -> Snapshot:
        found = self.store.snapshot((namespace, name), self.store.now())
        assert isinstance(found, Snapshot)
        return found


async def _configuration(wire: Wire) -> Configuration:
    found = Configuration()
    found.host = wire.url
    return found


@asynccontextmanager
async def watching(wire: Wire, *, period: float = 30.0, stuck_after: float = 60.0) -> AsyncIterator[Watching]:
    """Run an observer; afterwards nothing of it is left."""
    found = Watching(wire, period=period, stuck_after=stuck_after)
    before = asyncio.all_tasks()
    run = asyncio.create_task(found.observer.run(found.stop))
    try:
        waiting = asyncio.create_task(found.fresh())
        await asyncio.wait({run, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if run.done():
            waiting.cancel()
            await run
        await waiting
        yield found
    finally:
        found.stop.set()
        await run
        left = {task for task in asyncio.all_tasks() - before if not _serves_the_wire(task)}
        assert not left, left


@pytest.fixture
async def wire(cluster: Connection, admin: Api) -> AsyncIterator[Wire]:
    await admin.apply_manifest(crd.COMMITTED)
    async with Wire(cluster) as found:
        yield found


@pytest.fixture
async def namespace(admin: Api) -> AsyncIterator[str]:
    """A namespace whose end nobody awaits: no test here looks at what another one left."""
    name = f"observe-{secrets.token_hex(4)}"
    await make_namespace(admin, name)
    yield name
    await admin.delete(NAMESPACES, name)


def pod(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "pause"}], "schedulingGates": [{"name": GATE}]}
        | spec,
    }


def deployment(name: str = "web", replicas: int = 2) -> Object:
    gated = pod("x")["spec"]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": gated},
        },
    }


def claim(name: str) -> Object:
    request = {"name": "r", "exactly": {"deviceClassName": "lpu"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }


def rollout(name: str = "web") -> Object:
    return {
        "apiVersion": "accelerator-rollout.dev/v1alpha1",
        "kind": "AcceleratorRollout",
        "metadata": {"name": name},
        "spec": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
    }


async def web_with_pods(admin: Api, namespace: str, seen: Watching) -> list[str]:
    """Create the workload with its AcceleratorRollout; return the names of its two pods once they are seen."""
    await admin.create(ACCELERATOR_ROLLOUTS, rollout(), namespace)
    await admin.create(DEPLOYMENTS, deployment(), namespace)
    await seen.until(lambda: seen.store.rollout((namespace, "web")), "the rollout is seen")
    await seen.until(lambda: len(seen.snapshot(namespace).pods) == 2, "both pods are seen")
    return [p.name for p in seen.snapshot(namespace).pods]


async def test_what_there_was_and_what_comes_is_in_the_store(wire: Wire, admin: Api, namespace: str) -> None:
    await admin.create(PODS, pod("before"), namespace)
    async with watching(wire) as seen:
        assert seen.store.pods.named(namespace, "before") is not None
        await admin.create(RESOURCE_CLAIMS, claim("after"), namespace)
        await seen.until(lambda: seen.store.claims.named(namespace, "after"), "the claim is seen")
        await admin.delete(PODS, "before", namespace, grace_seconds=0)
        await seen.until(lambda: not seen.store.pods.named(namespace, "before"), "the deletion is seen")


async def test_a_deployments_pods_belong_to_its_rollout(wire: Wire, admin: Api, namespace: str) -> None:
    async with watching(wire) as seen:
        names = await web_with_pods(admin, namespace, seen)
        found = seen.snapshot(namespace)
        assert found.workload is not None
        assert [s.template_digest for s in found.replica_sets] == [found.workload.template.digest]
        assert found.freshness is Freshness.FRESH
        assert found.watched_since is not None
        assert Key(namespace, "web") in seen.woken
        await admin.delete(PODS, names[0], namespace, grace_seconds=0)
        await seen.until(lambda: seen.snapshot(namespace).vanished, "the departure is noted")
        assert [v.pod.name for v in seen.snapshot(namespace).vanished] == [names[0]]


async def test_every_request_only_reads(wire: Wire, admin: Api, namespace: str) -> None:
    async with watching(wire, period=0.5) as seen:
        await web_with_pods(admin, namespace, seen)
        await admin.delete(ACCELERATOR_ROLLOUTS, "web", namespace)
        await seen.until(lambda: not seen.store.rollout((namespace, "web")), "the rollout's deletion is seen")
        await asyncio.sleep(1)
    assert {request.partition(" ")[0] for request in wire.requests} == {"GET"}


async def test_events_arrive_within_milliseconds(wire: Wire, admin: Api, namespace: str) -> None:
    async with watching(wire) as seen:
        await admin.create(RESOURCE_CLAIMS, claim("c"), namespace)
        delays = []
        for number in range(30):
            change = {"metadata": {"labels": {"number": str(number)}}}
            version = (await admin.patch(RESOURCE_CLAIMS, "c", change, namespace))["metadata"][
                "resourceVersion"
            ]
            began = time.perf_counter()
            await seen.until(
                lambda version=version: (  # type: ignore[misc]
                    (found := seen.store.claims.named(namespace, "c")) and found.resource_version == version
                ),
                "the change is seen",
            )
            delays.append(time.perf_counter() - began)
        median = statistics.median(delays)
        assert median < 0.05, f"{1000 * median:.1f} ms from the response of a write to its event"


async def test_what_was_deleted_while_a_watch_was_cut_off_is_found_out(
    wire: Wire, admin: Api, namespace: str
) -> None:
    async with watching(wire) as seen:
        gone, stays = await web_with_pods(admin, namespace, seen)
        before = seen.snapshot(namespace).watched_since
        wire.mute(PODS)
        # The ReplicaSet makes a successor: an event that is lost too, but that the new list shows.
        await admin.delete(PODS, gone, namespace, grace_seconds=0)
        cut_off = datetime.now(UTC)
        await wire.expire(PODS)
        await seen.until(lambda: seen.snapshot(namespace).vanished, "the departure is found out")
        found = seen.snapshot(namespace)
        assert [v.pod.name for v in found.vanished] == [gone]
        assert stays in {p.name for p in found.pods}
        assert len(found.pods) == 2
        assert before is not None
        assert found.watched_since is not None
        assert before < cut_off <= found.watched_since
        assert seen.freshness is Freshness.FRESH


async def test_events_lost_by_a_watch_that_seems_alive_are_found_out(
    wire: Wire, admin: Api, namespace: str
) -> None:
    async with watching(wire, period=1.0) as seen:
        gone, _ = await web_with_pods(admin, namespace, seen)
        wire.mute(PODS)
        await admin.delete(PODS, gone, namespace, grace_seconds=0)
        lost = datetime.now(UTC)
        await seen.until(lambda: seen.snapshot(namespace).vanished, "the departure is found out")
        await seen.until(lambda: len(seen.snapshot(namespace).pods) == 2, "the successor is found out")
        since = seen.snapshot(namespace).watched_since
        assert since is not None
        assert since >= lost
        assert seen.observer.missed >= 2


async def test_a_broken_connection_loses_nothing(wire: Wire, admin: Api, namespace: str) -> None:
    async with watching(wire) as seen:
        gone, _ = await web_with_pods(admin, namespace, seen)
        # Others leave the cluster while we start: what the first comparison repaired is no fault of the connection.
        before, missed = seen.snapshot(namespace).watched_since, seen.observer.missed
        wire.cut()
        await admin.delete(PODS, gone, namespace, grace_seconds=0)
        await seen.until(lambda: seen.snapshot(namespace).vanished, "the departure is seen")
        assert seen.snapshot(namespace).watched_since == before
        assert seen.observer.missed == missed


async def test_an_outage_is_noticed_and_survived(wire: Wire, admin: Api, namespace: str) -> None:
    async with watching(wire, period=1.0) as seen:
        wire.down = True
        wire.cut()
        await seen.until(lambda: seen.freshness is Freshness.STALE, "the outage is noticed")
        await seen.until(lambda: "does not answer" in seen.observer.verdict().problem, "it is told")
        await admin.create(PODS, pod("meanwhile"), namespace)
        wire.down = False
        await seen.fresh()
        assert seen.observer.verdict().problem == ""
        assert seen.store.pods.named(namespace, "meanwhile") is not None


async def test_a_token_that_is_refused_is_asked_for_anew(wire: Wire, admin: Api, namespace: str) -> None:
    async with watching(wire, period=1.0) as seen:
        wire.refused = {"": 401}
        wire.cut()
        await seen.until(lambda: seen.freshness is Freshness.STALE, "the refusal is noticed")
        refusals = seen.calls["watch", "401"] + seen.calls["get", "401"]
        await asyncio.sleep(1)
        assert (
            seen.calls["watch", "401"] + seen.calls["get", "401"] - refusals < 100
        )  # nobody hammers the server
        wire.refused = {}
        await seen.fresh()
        await admin.create(PODS, pod("p"), namespace)
        await seen.until(lambda: seen.store.pods.named(namespace, "p"), "events come again", 40)


async def test_a_kind_that_is_not_watched_is_no_ground_to_act_on(
    wire: Wire, admin: Api, namespace: str
) -> None:
    """Lists are answered, so the store could be filled; but of the next change we would hear too late."""
    async with watching(wire, period=1.0) as seen:
        wire.unwatchable.add("resourceclaims")
        wire.cut()
        await seen.until(lambda: seen.freshness is Freshness.STALE, "the missing watch is noticed")
        told = "no watch stands of resourceclaims"
        await seen.until(lambda: seen.observer.verdict().problem == told, "it is told")
        wire.unwatchable.clear()
        await seen.fresh()
        await admin.create(RESOURCE_CLAIMS, claim("c"), namespace)
        await seen.until(lambda: seen.store.claims.named(namespace, "c"), "events come again")


async def test_a_kind_that_was_away_for_a_while_is_watched_again(
    wire: Wire, admin: Api, namespace: str
) -> None:
    async with watching(wire, period=1.0, stuck_after=3.0) as seen:
        wire.hidden, wire.refused = {"acceleratorrollouts"}, {"/acceleratorrollouts": 404}
        wire.cut()
        await seen.until(lambda: seen.freshness is Freshness.STALE, "its absence is noticed")
        await asyncio.sleep(3)  # long enough for a first attempt, in vain
        wire.hidden, wire.refused = set(), {}
        await seen.until(lambda: seen.freshness is Freshness.FRESH, "it is watched again", 30)
        await admin.create(ACCELERATOR_ROLLOUTS, rollout(), namespace)
        await seen.until(lambda: seen.store.rollout((namespace, "web")), "its events come again")


async def test_it_does_without_taint_rules(wire: Wire, admin: Api, namespace: str) -> None:
    wire.hidden = {"devicetaintrules"}
    async with watching(wire) as seen:
        assert Kind.TAINT_RULES not in {served.kind for served in seen.observer.served}
        await admin.create(PODS, pod("p"), namespace)
        await seen.until(lambda: seen.store.pods.named(namespace, "p"), "the pod is seen")


async def test_it_ends_quickly_and_leaves_the_tasks_of_others_alone(wire: Wire) -> None:
    others = asyncio.create_task(asyncio.sleep(60))
    async with watching(wire) as seen:
        began = time.perf_counter()
        seen.stop.set()
    assert time.perf_counter() - began < 2.0
    assert not others.done()
    others.cancel()


def _serves_the_wire(task: asyncio.Task[Any]) -> bool:
    return task.get_name() == TASK_OF_THE_WIRE or "RequestHandler" in repr(task.get_coro())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it(wire: Wire, number: int) -> None:
    async with watching(wire) as seen:
        os.kill(os.getpid(), number)
        async with asyncio.timeout(2):
            await seen.stop.wait()


async def _fails(wire: Wire) -> None:
    async with watching(wire):
        raise AssertionError("it should not even have begun")


async def test_a_cluster_that_does_not_know_our_kind_is_told_in_one_sentence(wire: Wire) -> None:
    wire.hidden = {"acceleratorrollouts"}
    with pytest.raises(NotServedError, match="install the CustomResourceDefinition"):
        await _fails(wire)


async def test_a_missing_right_is_told_in_one_sentence(wire: Wire) -> None:
    wire.refused = {"/resourceclaims": 403}
    with pytest.raises(NotAllowedError, match=r"refuses GET .*/resourceclaims: because of the test"):
        await _fails(wire)


async def test_a_cluster_that_is_not_there_is_told_in_one_sentence(wire: Wire) -> None:
    wire.down = True
    with pytest.raises(NoClusterError, match="does not answer"):
        await _fails(wire)


async def test_one_object_that_cannot_be_read_does_not_hide_the_others(
    wire: Wire, admin: Api, namespace: str
) -> None:
    """So looks an object that a later version stored."""
    await admin.create(ACCELERATOR_ROLLOUTS, rollout("odd"), namespace)
    await admin.create(ACCELERATOR_ROLLOUTS, rollout("even"), namespace)
    wire.rewritten["odd"] = lambda found: (
        found | {"spec": found["spec"] | {"telepathy": True}} if "spec" in found else found
    )
    async with watching(wire) as seen:
        assert isinstance(seen.snapshot(namespace, "even"), Snapshot)
        odd = seen.store.snapshot((namespace, "odd"), seen.store.now())
        assert isinstance(odd, Unreadable)
        assert "telepathy" in odd.message
