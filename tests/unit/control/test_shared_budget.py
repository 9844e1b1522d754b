"""Several rollouts under one budget, through the real loop, store, executor and decisions: never more than it allows.

The cluster answers when it likes: each request takes a random moment, and an eviction shows in the store only later.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from accelerator_rollout.act.client import Client
from accelerator_rollout.act.confirming import Confirming
from accelerator_rollout.act.events import Events
from accelerator_rollout.act.executor import Executor
from accelerator_rollout.act.reporter import Reporter
from accelerator_rollout.control.loop import Loop
from accelerator_rollout.control.queue import KeyedQueue
from accelerator_rollout.decide.plan import plan
from accelerator_rollout.decide.snapshot import Freshness
from accelerator_rollout.errors import UnavailableError
from accelerator_rollout.names import FINALIZER
from accelerator_rollout.observe.interests import Key
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.observe.shared_budgets import SharedBudgets
from accelerator_rollout.observe.store import Store
from unit.observe import objects as o

NAMES = ("a", "b", "c", "d", "e", "f")


def now() -> datetime:
    return datetime.now(UTC)


class AlwaysFresh(Store):
    def freshness(self, now: datetime) -> Freshness:
        return Freshness.FRESH


@dataclass
class Cluster:
    """StatefulSets of one pod each on devices of their own, as the Client shows them; and who is out of service by us."""

    chance: random.Random
    objects: dict[tuple[Kind, str], dict[str, Any]] = field(default_factory=dict)
    out: set[str] = field(default_factory=set)
    most_out: int = 0
    replaced: list[str] = field(default_factory=list)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    writes: int = 0  # of any status
    wrote: asyncio.Event = field(default_factory=asyncio.Event)
    lost_answers: float = 0.0  # share of evictions and status writes that are done, and whose answer is lost
    heard: Callable[[Kind, str, dict[str, Any]], None] = lambda _kind, _type, _raw: None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def populate(self) -> None:
        for n in NAMES:
            workload = o.stateful_set(n)
            workload["spec"] |= {"replicas": 1}
            workload["status"] = {"observedGeneration": 1, "currentRevision": "1", "updateRevision": "2"}
            self.put(Kind.STATEFUL_SETS, workload)
            self.put(Kind.NODES, o.node(f"node-{n}"))
            self.put(Kind.SLICES, o.resource_slice(f"s-{n}", pool=f"node-{n}"))
            self.make_pod(n, "1")
            self.put(Kind.ROLLOUTS, o.rollout(n, kind="StatefulSet", workload=n, finalizers=[FINALIZER]))

    def make_pod(self, n: str, revision: str, *, gated: bool = False) -> None:
        uid = f"uid-{n}-{revision}"
        ready = {
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z"}]
        }
        pod = o.pod(
            f"{n}-0",
            uid=uid,
            owner=("StatefulSet", n, f"uid-{n}"),
            node="" if gated else f"node-{n}",
            phase="Pending" if gated else "Running",
            gated=gated,
            claims={"lpu": f"claim-{n}-{revision}"},
            labels={"controller-revision-hash": revision},
            status={} if gated else ready,
        )
        self.put(Kind.PODS, pod)
        device = None if gated else "lpu-0"
        claim = o.claim(f"claim-{n}-{revision}", uid=f"c-{uid}", pod_uid=uid, device=device, pool=f"node-{n}")
        self.put(Kind.CLAIMS, claim)

    def put(self, kind: Kind, raw: dict[str, Any]) -> None:
        self.objects[kind, raw["metadata"]["name"]] = raw
        self.heard(kind, "ADDED", raw)

    def drop(self, kind: Kind, name: str) -> None:
        raw = self.objects.pop((kind, name))
        raw["metadata"]["resourceVersion"] = o.next_version()
        self.heard(kind, "DELETED", raw)

    async def until_writes(self, count: int) -> None:
        """Await so many writes of a status."""
        while self.writes < count:
            self.wrote.clear()
            await self.wrote.wait()

    async def moment(self) -> None:
        for _ in range(self.chance.randint(0, 6)):
            await asyncio.sleep(0)
        if self.chance.random() < 0.1:
            await asyncio.sleep(0.003)

    def answer(self) -> None:
        if self.chance.random() < self.lost_answers:
            raise UnavailableError("the answer was lost")

    def changed(self, kind: Kind, name: str) -> dict[str, Any]:
        found = dict(self.objects[kind, name])
        found["metadata"] = found["metadata"] | {"resourceVersion": o.next_version()}
        self.objects[kind, name] = found
        return found

    # What the executor asks for

    async def read(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        await self.moment()
        return self.objects.get((kind, name))

    async def read_all(self, kind: Kind, namespace: str = "", fields: str = "") -> list[Mapping[str, Any]]:
        await self.moment()
        return [raw for (known, _), raw in self.objects.items() if known is kind]

    async def write_status(
        self, namespace: str, name: str, uid: str, version: str, status: Mapping[str, Any]
    ) -> dict[str, Any]:
        await self.moment()
        raw = self.changed(Kind.ROLLOUTS, name) | {"status": dict(status)}
        self.objects[Kind.ROLLOUTS, name] = raw
        self.later(self.tell, Kind.ROLLOUTS, raw)
        self.writes += 1
        self.wrote.set()
        await self.moment()
        self.answer()
        return raw

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        await self.moment()
        n = name.removesuffix("-0")
        if uid == f"uid-{n}-1" and n not in self.out:
            assert self.objects[Kind.PODS, name]["metadata"]["uid"] == uid
            self.out.add(n)
            self.most_out = max(self.most_out, len(self.out))
            self.later(self.leave, n)
        await self.moment()
        self.answer()

    async def open_gate(
        self, namespace: str, name: str, uid: str, hostname: str = "", *, guard: bool = False
    ) -> dict[str, Any]:
        await self.moment()
        n = name.removesuffix("-0")
        pod = self.changed(Kind.PODS, name)
        pod["spec"] = pod["spec"] | {"schedulingGates": None}
        self.later(self.serve, n)
        return pod

    async def count_event(self, namespace: str, name: str, count: int, last: str) -> None:
        raise NotImplementedError

    async def record_event(self, namespace: str, event: Mapping[str, Any]) -> None:
        await self.moment()

    # What becomes of a pod

    def later(self, what: Callable[..., Any], *facts: Any) -> None:
        async def wait() -> None:
            await asyncio.sleep(self.chance.uniform(0.001, 0.03))
            done = what(*facts)
            if asyncio.iscoroutine(done):
                await done

        task = asyncio.create_task(wait())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def tell(self, kind: Kind, raw: dict[str, Any]) -> None:
        self.heard(kind, "MODIFIED", raw)

    async def leave(self, n: str) -> None:
        pod = self.changed(Kind.PODS, f"{n}-0")
        pod["metadata"] |= {"deletionTimestamp": "2026-01-31T12:00:30Z", "deletionGracePeriodSeconds": 30}
        self.tell(Kind.PODS, pod)
        await asyncio.sleep(self.chance.uniform(0.001, 0.02))
        pod = o.ended_by("kubelet", self.changed(Kind.PODS, f"{n}-0"))
        self.tell(Kind.PODS, pod)
        self.drop(Kind.CLAIMS, f"claim-{n}-1")
        self.drop(Kind.PODS, f"{n}-0")
        self.make_pod(n, "2", gated=True)

    def serve(self, n: str) -> None:
        self.replaced.append(n)
        self.out.discard(n)
        pod = self.changed(Kind.PODS, f"{n}-0")
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z"}]
        pod["spec"] = pod["spec"] | {"nodeName": f"node-{n}"}
        pod["status"] = pod["status"] | {"phase": "Running", "conditions": ready}
        self.tell(Kind.PODS, pod)
        if len(self.replaced) == len(NAMES):
            self.finished.set()


class Silent:
    def acted(self, *_: object) -> None:
        """Nobody counts."""

    took = decided = failed = gone = acted


async def run(cluster: Cluster, limit: int, deaths: Collection[int] = ()) -> None:
    """Let the loop work until every pod is replaced. At these status writes it dies, and another one goes on."""
    queue: KeyedQueue[Key] = KeyedQueue(first_delay=0.005, longest_delay=0.02, moved_delay=0.002)
    budgets = SharedBudgets({"default": limit}, troubled=queue.troubled)
    store = AlwaysFresh(shared_budgets=budgets)

    def heard(kind: Kind, event_type: str, raw: Mapping[str, Any]) -> None:
        for key in store.apply(kind, event_type, raw):
            queue.add(key)

    def written(kind: Kind, raw: Mapping[str, Any]) -> None:
        heard(kind, "MODIFIED", raw)

    cluster.heard = heard
    for kind in Kind:
        store.watched_from(kind, now())
    cluster.populate()
    client = cast("Client", cluster)
    executor = Executor(
        client,
        Confirming(client, watched=written),
        Events(client, now, "test"),
        written,
        Silent(),
        now,
        plan,
        shared=lambda snapshot: store.shared(snapshot.rollout),
    )

    async def lead() -> None:
        queue.restart()
        for (kind, _), raw in list(cluster.objects.items()):
            heard(kind, "MODIFIED", raw)  # whoever begins lists what there is
        known = store.keys()
        for key in known:
            queue.add(key)
        await Loop(store, queue, executor, cast("Reporter", None), Silent(), now, plan).run()

    working: set[asyncio.Task[None]] = set()

    def begin() -> None:
        working.add(asyncio.create_task(lead()))

    async def live() -> None:
        begin()
        for write in sorted(deaths):
            await cluster.until_writes(write)
            (former,) = working
            former.cancel()
            await asyncio.wait({former})
            working.clear()
            begin()
        await asyncio.wait({next(iter(working))})

    living = asyncio.create_task(live())
    done = asyncio.create_task(cluster.finished.wait())
    try:
        ended, _ = await asyncio.wait({living, done}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert done in ended, f"only {cluster.replaced} were replaced"
    finally:
        tasks = {living, done, *working}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        queue.close()
        for task in list(cluster.tasks):
            task.cancel()


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("seed", range(4))
async def test_workers_that_decide_at_the_same_moment_stay_within_the_budget(seed: int, limit: int) -> None:
    cluster = Cluster(random.Random(seed))
    await run(cluster, limit)
    assert sorted(cluster.replaced) == list(NAMES), "each pod once"
    assert cluster.most_out <= limit


@pytest.mark.parametrize("seed", range(3))
async def test_answers_that_are_lost_give_no_place_away(seed: int) -> None:
    cluster = Cluster(random.Random(seed), lost_answers=0.2)
    await run(cluster, 1)
    assert sorted(cluster.replaced) == list(NAMES)
    assert cluster.most_out == 1


@pytest.mark.parametrize("seed", range(12))
async def test_whoever_goes_on_after_a_death_among_choices_waits_for_none_of_them(seed: int) -> None:
    """It takes each choice for an eviction on its way: beyond the budget that would stop all of them for two minutes."""
    cluster = Cluster(random.Random(seed))
    await run(cluster, 2, deaths=range(1, 12))
    assert sorted(cluster.replaced) == list(NAMES), "each pod once"
    assert cluster.most_out <= 2
