"""Random walks on a real control plane: people do what they like, then all is healed, and the last spec is what stands there.

Each walk has a namespace, nodes and devices of its own, on a full pool, and strangers that want any device. Devices are held, so
that not even a forced deletion may have one prepared twice. `WALKS_SEED` repeats a run, `WALKS_RUNS` sets how many walks there are.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from lab.apart import world_apart
from lab.client import Api, ApiError, Object
from lab.install import Account
from lab.nodes import SimulatedNode
from lab.operator_process import OperatorProcess
from lab.resources import NODES, PODS
from lab.world import BROKEN, GOOD, NEWER, Shape, World, gated

SIDE_BY_SIDE: Final = 5
REPLICAS: Final = 4
KINDS: Final = ("Deployment", "StatefulSet", "DaemonSet")
SLOW: Final = {"teardown_seconds": 0.5, "unprepare_seconds": 1.0, "ready_seconds": 0.2}
# Longer than what the simulated nodes need to end what was left behind, also after a stop.
SPEC: Final = {"release": {"hold": "Always", "unproven": {"extraSeconds": 8}}}
LONGEST_STOP: Final = 3.0  # seconds without a kubelet
LAST: Final = "example.com/llm:last"
HEALED: Final[Mapping[str, Any]] = {"paused": False, "strategy": {"partition": 0}}


@dataclass
class Walk:
    """One world, whoever acts in it, and what they did."""

    world: World
    dice: random.Random
    log: list[str] = field(default_factory=list)
    cordoned: set[str] = field(default_factory=set)
    stops: list[asyncio.Task[None]] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    asked: int = 0

    async def take(self, title: str) -> None:
        self.log.append(title)
        with suppress(ApiError):  # what people meet as well: it is gone, it changed, it is forbidden
            await STEPS[title](self)

    async def image(self, image: str) -> None:
        await self.world.set_image(image)

    async def edit(self, spec: Mapping[str, Any]) -> None:
        await self.world.change_rollout(spec)

    async def ask(self, action: str) -> None:
        self.asked += 1
        await self.edit({"action": {"type": action, "id": str(self.asked)}})

    async def scale(self) -> None:
        if self.world.shape.kind != "DaemonSet":
            await self.world.scale(self.dice.randint(1, REPLICAS))

    async def restart(self) -> None:
        await self.edit({"restartedAt": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"})

    async def delete(self, *, grace: int | None = None) -> None:
        found = await self.world.pods()
        if found:
            name = self.dice.choice(found)["metadata"]["name"]
            await self.world.api.delete(PODS, name, self.world.namespace, grace_seconds=grace)

    async def stranger_comes(self) -> None:
        name = f"stranger-{len(self.log)}"
        self.strangers.append(name)
        await self.world.make_pod(name)

    async def strangers_leave(self) -> None:
        while self.strangers:
            await self.world.api.delete_if_there(PODS, self.strangers.pop(), self.world.namespace)

    async def some_node(self) -> SimulatedNode | None:
        bound = [p for p in await self.world.pods() if p["spec"].get("nodeName")]
        return self.world.nodes.node_of(self.dice.choice(bound)) if bound else None

    async def cordon(self, name: str, *, on: bool) -> None:
        await self.world.api.patch(NODES, name, {"spec": {"unschedulable": on}})
        self.cordoned = self.cordoned | {name} if on else self.cordoned - {name}

    async def drain(self) -> None:
        node = await self.some_node()
        if node is None:
            return
        await self.cordon(node.name, on=True)
        if self.world.shape.kind == "DaemonSet":
            return
        for pod in await self.world.pods():
            if pod["spec"].get("nodeName") == node.name:
                with suppress(ApiError):
                    await self.world.api.evict(pod["metadata"]["name"], self.world.namespace)

    async def uncordon(self) -> None:
        for name in sorted(self.cordoned):
            await self.cordon(name, on=False)

    async def stop_kubelet(self) -> None:
        node = await self.some_node()
        if node is None or any(not task.done() for task in self.stops):
            return
        seconds = self.dice.uniform(0.5, LONGEST_STOP)

        async def stopped() -> None:
            await node.lose()
            try:
                await asyncio.sleep(seconds)
            finally:
                await node.come_back()

        self.stops.append(asyncio.create_task(stopped()))

    # To rest

    async def heal(self) -> None:
        """End every fault and every stop, let what was asked for happen, and write the last spec."""
        self.log.append("heal")
        await asyncio.gather(*self.stops)
        await self.uncordon()
        await self.strangers_leave()
        await self.edit(HEALED)
        if self.asked:
            await self.world.until(self._answered, "the last action to be seen and done", seconds=60)
        if self.world.shape.kind != "DaemonSet":
            await self.world.scale(REPLICAS)
        await self.image(LAST)

    def _answered(self, rollout: Object) -> bool:
        status = rollout.get("status") or {}
        return bool(status.get("observedActionID") == str(self.asked) and not status.get("undo"))

    async def come_to_rest(self) -> None:
        """Await the last spec, and hold everything to it."""
        await self.world.until_ready(image=LAST, seconds=180)
        await self.world.recorder.caught_up()
        self.world.assert_promises()
        pods = await self.world.pods()
        assert len(pods) == REPLICAS
        assert not [p["metadata"]["name"] for p in pods if gated(p)]
        owners = {p["metadata"]["uid"] for p in pods}
        left = [c["metadata"]["name"] for c in await self.world.claims() if _owner(c) not in owners]
        assert not left, f"claims of departed pods are left: {left}"
        workload = await self.world.api.get(self.world.workload, self.world.name, self.world.namespace)
        assert not workload["spec"].get("paused")


STEPS: Final[Mapping[str, Callable[[Walk], Awaitable[None]]]] = {
    "newer image": lambda w: w.image(NEWER),
    "good image": lambda w: w.image(GOOD),
    "broken image": lambda w: w.image(BROKEN),
    "scale": Walk.scale,
    "pause": lambda w: w.edit({"paused": True}),
    "unpause": lambda w: w.edit({"paused": False}),
    "abort": lambda w: w.ask("Abort"),
    "retry": lambda w: w.ask("Retry"),
    "undo": lambda w: w.ask("Undo"),
    "partition": lambda w: w.edit({"strategy": {"partition": w.dice.randint(0, REPLICAS)}}),
    "restart": Walk.restart,
    "delete": Walk.delete,
    "force-delete": lambda w: w.delete(grace=0),
    "drain": Walk.drain,
    "uncordon": Walk.uncordon,
    "stop a kubelet": Walk.stop_kubelet,
    "a stranger comes": Walk.stranger_comes,
    "strangers leave": Walk.strangers_leave,
}


def _owner(body: Object) -> str:
    return next((str(r["uid"]) for r in body["metadata"].get("ownerReferences") or []), "")


@dataclass(frozen=True)
class Result:
    """What came of one walk."""

    kind: str
    log: tuple[str, ...]
    seconds: float
    trouble: str = ""


class Walks:
    """Many walks side by side, each with its own dice."""

    def __init__(self, admin: Api, folder: Path, prefix: str, seed: int) -> None:
        self._admin, self._folder, self._prefix, self._seed = admin, folder, prefix, seed
        self._side_by_side = asyncio.Semaphore(SIDE_BY_SIDE)

    def namespace(self, number: int) -> str:
        return f"{self._prefix}-{number}"

    async def walk(self, number: int) -> Result:
        kind, space = KINDS[number % len(KINDS)], self.namespace(number)
        shape = Shape(kind, replicas=REPLICAS, grace=2, faults=SLOW, hold="Always")
        async with (
            self._side_by_side,
            world_apart(self._admin, space, self._folder / space, shape, devices=(1,) * REPLICAS) as world,
        ):
            begin = time.monotonic()
            walk = Walk(world, random.Random(f"{self._seed}/{number}"))
            trouble = ""
            try:
                await world.settle_in(spec=SPEC)
                for _ in range(walk.dice.randint(6, 12)):
                    await walk.take(walk.dice.choice(list(STEPS)))
                    await asyncio.sleep(walk.dice.uniform(0, 2))  # at any moment: that is what is tried
                await walk.heal()
                await walk.come_to_rest()
            except (AssertionError, TimeoutError) as error:  # the others are still worth a look
                trouble = f"walk {number} ({kind}, {space}) after {walk.log}: {error}"
            finally:
                for task in walk.stops:
                    task.cancel()
                await asyncio.gather(*walk.stops, return_exceptions=True)
            return Result(kind, tuple(walk.log), time.monotonic() - begin, trouble)

    async def all(self, account: Account, runs: int) -> list[Result]:
        spaces = ",".join(self.namespace(number) for number in range(runs))
        arguments = (f"--namespaces={spaces}", "--log-format=text")
        async with await OperatorProcess.under(account, self._admin, self._folder, arguments=arguments):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.walk(number)) for number in range(runs)]
            return [task.result() for task in tasks]


async def test_a_walk_of_each_kind(admin: Api, account: Account, namespace: str, tmp_path: Path) -> None:
    results = await Walks(admin, tmp_path, f"walk-{namespace[-8:]}", 5).all(account, len(KINDS))
    assert [r.trouble for r in results if r.trouble] == []


@pytest.mark.slow
@pytest.mark.timeout(1500)
async def test_twenty_walks(
    admin: Api, account: Account, namespace: str, tmp_path: Path, figures: list[str]
) -> None:
    seed = int(os.environ.get("WALKS_SEED") or random.SystemRandom().randrange(10**6))
    runs = int(os.environ.get("WALKS_RUNS") or 20)
    figures.append(f"WALKS_SEED={seed}")  # told also if it fails
    begin = time.monotonic()
    results = await Walks(admin, tmp_path, f"walk-{namespace[-8:]}", seed).all(account, runs)
    steps = Counter(step for r in results for step in r.log if step != "heal")
    done = ", ".join(f"{step} {count}" for step, count in sorted(steps.items()))
    ended = sum(not r.trouble for r in results)
    figures.append(f"{ended} of {runs} walks came to the last spec with a clean ledger ({done})")
    figures.append(
        f"{max(r.seconds for r in results):.0f} s at most a walk, {time.monotonic() - begin:.0f} s in all"
    )
    assert [r.trouble for r in results if r.trouble] == []
