"""Rollouts under blows that free devices without proof: with a hold no device is ever prepared twice.

Each run has a namespace, nodes and devices of its own, on a full pool, with a stranger that waits for any device. The same
blows fall on a plain Deployment beside it, to show what a hold prevents. `HOSTILE_SEED` repeats a run, `HOSTILE_RUNS` sets
how many there are.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from lab.apart import world_apart
from lab.client import Api, ApiError, Object
from lab.install import Account
from lab.ledger import Overlap
from lab.operator_process import OperatorProcess
from lab.resources import NODES, PODS
from lab.world import GOOD, NEWER, Shape, World, image_of

SIDE_BY_SIDE: Final = 8
REPLICAS: Final = 4
GRACE: Final = 2
EXTRA: Final = 8  # seconds: longer than what the simulated nodes need to end what was left behind
SLOW: Final = {"teardown_seconds": 0.5, "unprepare_seconds": 1.0}
SPEC: Final = {"release": {"hold": "Always", "unproven": {"extraSeconds": EXTRA}}}


@dataclass
class Attack:
    """One run's world while blows fall on it."""

    world: World
    dice: random.Random
    repairs: list[Callable[[], Awaitable[object]]] = field(default_factory=list)

    async def victim(self) -> Object | None:
        """Any pod of the workload that has a node."""
        found = [p for p in await self.world.pods() if p["spec"].get("nodeName")]
        return self.dice.choice(found) if found else None

    async def delete(self, pod: Object, *, grace: int | None = None) -> None:
        with suppress(ApiError):
            await self.world.api.delete(
                PODS, pod["metadata"]["name"], self.world.namespace, grace_seconds=grace
            )

    async def evict(self, pod: Object, *, grace: int | None = None) -> None:
        with suppress(ApiError):
            await self.world.api.evict(pod["metadata"]["name"], self.world.namespace, grace_seconds=grace)

    async def cordon(self, node: str, *, on: bool) -> None:
        await self.world.api.patch(NODES, node, {"spec": {"unschedulable": on}})


async def forced_deletion(attack: Attack) -> None:
    if (pod := await attack.victim()) is not None:
        await attack.delete(pod, grace=0)


async def two_forced_deletions(attack: Attack) -> None:
    await asyncio.gather(forced_deletion(attack), forced_deletion(attack))


async def ordinary_deletion(attack: Attack) -> None:
    """Of a template whose grace period is 0, this is a forced one; see `_grace`."""
    if (pod := await attack.victim()) is not None:
        await attack.delete(pod)


async def forced_eviction(attack: Attack) -> None:
    if (pod := await attack.victim()) is not None:
        await attack.evict(pod, grace=0)


async def drain(attack: Attack) -> None:
    """A node is cordoned and its pods are evicted, one of them without grace."""
    if (pod := await attack.victim()) is None:
        return
    node = pod["spec"]["nodeName"]
    await attack.cordon(node, on=True)
    attack.repairs.append(lambda: attack.cordon(node, on=False))
    there = [p for p in await attack.world.pods() if p["spec"].get("nodeName") == node]
    for number, one in enumerate(there):
        await attack.evict(one, grace=0 if number == 0 else None)


async def driver_outage(attack: Attack) -> None:
    """A pod is deleted by force while its driver is down."""
    if (pod := await attack.victim()) is None:
        return
    node = attack.world.nodes.node_of(pod)
    await node.driver_down()
    await attack.delete(pod, grace=0)
    await asyncio.sleep(attack.dice.uniform(0.5, 3))
    await node.driver_up()


async def node_removed(attack: Attack) -> None:
    """A node is taken out; the pod garbage collector ends its pods; the machine was alive all the time, and comes back."""
    if (pod := await attack.victim()) is None:
        return
    node = attack.world.nodes.node_of(pod)
    await node.remove()
    with suppress(TimeoutError):
        uid = pod["metadata"]["uid"]
        await attack.world.api.wait_gone(
            PODS, pod["metadata"]["name"], attack.world.namespace, uid=uid, timeout=90
        )
    await asyncio.sleep(attack.dice.uniform(0, 2))
    await node.come_back()


BLOWS: Final[Mapping[str, Callable[[Attack], Awaitable[None]]]] = {
    "forced deletion": forced_deletion,
    "two forced deletions": two_forced_deletions,
    "grace 0 in the template": ordinary_deletion,
    "forced eviction": forced_eviction,
    "drain": drain,
    "driver outage": driver_outage,
    "node removed": node_removed,
}


@dataclass(frozen=True)
class Result:
    """What came of one run."""

    blow: str
    overlaps: tuple[Overlap, ...]
    seconds: float
    trouble: str = ""  # why it did not come to an end


async def attacked(world: World, blow: str, dice: random.Random, *, held: bool) -> Result:
    """Roll out while blows fall, repair what was broken, and await the end of the rollout."""
    begin = time.monotonic()
    await world.make_workload()
    if held:
        await world.make_rollout(SPEC)
    await until_up(world, GOOD)
    await world.make_pod("stranger")
    attack = Attack(world, dice)
    await world.set_image(NEWER)
    for _ in range(1 if blow == "node removed" else dice.randint(1, 2)):
        await asyncio.sleep(dice.uniform(0, 4))  # at any moment: that is what is tried
        await BLOWS[blow](attack)
    await asyncio.sleep(dice.uniform(0, 2))
    for repair in attack.repairs:
        await repair()
    await world.api.delete_if_there(PODS, "stranger", world.namespace)
    await until_up(world, NEWER)
    return Result(blow, world.ledger.violations(), time.monotonic() - begin)


async def until_up(world: World, image: str) -> None:
    """Await that every pod of the workload is ready and runs the image."""

    def up(pods: list[Object]) -> bool:
        fine = [
            p
            for p in pods
            if image_of(p) == image and not p["metadata"].get("deletionTimestamp") and _ready(p)
        ]
        return len(fine) == REPLICAS == len(pods)

    seen = None
    try:
        async with asyncio.timeout(150):
            while not up(
                [p for p in await world.pods() if p["status"].get("phase") not in ("Failed", "Succeeded")]
            ):
                seen = await world.recorder.until(lambda one: one.kind == "Pod", timeout=150, after=seen)
    except TimeoutError as error:
        status = (await world.rollout()).get("status") if world.shape.gate != "none" else None
        told = world.recorder.render(namespace=world.namespace)
        raise AssertionError(f"{world.namespace} is not up at {image}: {status}\n{told}") from error


def _ready(pod: Object) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or [])


def _shape(blow: str, kind: str, *, held: bool) -> Shape:
    grace = 0 if blow == "grace 0 in the template" else GRACE
    return Shape(kind, replicas=REPLICAS, grace=grace, gate="template" if held else "none", faults=SLOW)


class Campaign:
    """Many runs side by side, each with its own dice."""

    def __init__(self, admin: Api, folder: Path, prefix: str, seed: int) -> None:
        self._admin, self._folder, self._prefix, self._seed = admin, folder, prefix, seed
        self._side_by_side = asyncio.Semaphore(SIDE_BY_SIDE)

    def namespace(self, number: int) -> str:
        return f"{self._prefix}-{number}"

    async def run(self, number: int, *, held: bool) -> Result:
        blow = list(BLOWS)[number % len(BLOWS)]
        kind = "StatefulSet" if held and number % 5 == 4 else "Deployment"
        space = self.namespace(number) if held else f"{self.namespace(number)}-plain"
        async with (
            self._side_by_side,
            world_apart(
                self._admin,
                space,
                self._folder / space,
                _shape(blow, kind, held=held),
                devices=(REPLICAS // 2, REPLICAS // 2),
            ) as world,
        ):
            begin = time.monotonic()
            try:
                return await attacked(world, blow, random.Random(f"{self._seed}/{number}"), held=held)
            except (AssertionError, TimeoutError) as error:  # the others' figures are still worth having
                told = f"run {number} in {space}: {error}"
                return Result(blow, world.ledger.violations(), time.monotonic() - begin, told)

    async def all(self, runs: int, *, held: bool) -> list[Result]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.run(number, held=held)) for number in range(runs)]
        return [task.result() for task in tasks]


async def campaign(
    admin: Api, account: Account, namespace: str, folder: Path, runs: int, seed: int
) -> tuple[list[Result], list[Result]]:
    """Return what came of the runs with holds, and of those with plain Deployments."""
    fight = Campaign(admin, folder, f"hostile-{namespace[-8:]}", seed)
    spaces = ",".join(fight.namespace(number) for number in range(runs))
    arguments = (f"--namespaces={spaces}", "--log-format=text")
    async with await OperatorProcess.under(account, admin, folder, arguments=arguments):
        held = await fight.all(runs, held=True)
    return held, await fight.all(runs, held=False)


def _told(results: list[Result]) -> str:
    twice = Counter({blow: sum(len(r.overlaps) for r in results if r.blow == blow) for blow in BLOWS})
    each = ", ".join(f"{blow} {count}" for blow, count in twice.items())
    longest = max(r.seconds for r in results)
    ended = sum(not r.trouble for r in results)
    return (
        f"{ended} of {len(results)} runs came to their end, {twice.total()} devices were prepared twice ({each}), "
        f"{longest:.0f} s at most a run"
    )


async def test_a_few_blows(admin: Api, account: Account, namespace: str, tmp_path: Path) -> None:
    """One of each kind that needs no garbage collector, which takes a minute."""
    fight = Campaign(admin, tmp_path, f"hostile-{namespace[-8:]}", 11)
    numbers = [n for n, blow in enumerate(BLOWS) if blow != "node removed"]
    arguments = (f"--namespaces={','.join(map(fight.namespace, numbers))}", "--log-format=text")
    async with (
        await OperatorProcess.under(account, admin, tmp_path, arguments=arguments),
        asyncio.TaskGroup() as group,
    ):
        tasks = [group.create_task(fight.run(number, held=True)) for number in numbers]
    assert [str(o) for t in tasks for o in t.result().overlaps] == []
    assert [t.result().trouble for t in tasks if t.result().trouble] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_a_hundred_hostile_runs(
    admin: Api, account: Account, namespace: str, tmp_path: Path, figures: list[str]
) -> None:
    seed = int(os.environ.get("HOSTILE_SEED") or random.SystemRandom().randrange(10**6))
    runs = int(os.environ.get("HOSTILE_RUNS") or 100)
    figures.append(f"HOSTILE_SEED={seed}")  # told also if it fails
    begin = time.monotonic()
    held, plain = await campaign(admin, account, namespace, tmp_path, runs, seed)
    figures.append(f"with a hold: {_told(held)}")
    figures.append(f"plain Deployments: {_told(plain)}")
    figures.append(f"{time.monotonic() - begin:.0f} s in all")
    assert [f"{r.blow}: {o}" for r in held for o in r.overlaps] == []
    assert [r.trouble for r in held if r.trouble] == []
    assert any(r.overlaps for r in plain), "the blows hit nothing: this run shows nothing"
