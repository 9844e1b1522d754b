"""Given a rollout, when the operator is killed at any moment, then the next process finishes it: no pod goes twice.

Some moments are drawn at random, others follow at once on a write of the operator, where a crash hurts most.
`CHAOS_SEED` repeats a run, and `CHAOS_ROLLOUTS` sets how many rollouts the long suite does.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from lab.operator_process import OperatorProcess
from lab.recorder import Recorded
from lab.resources import DEPLOYMENTS
from lab.world import GOOD, NEWER, MakeWorld, Shape, World, condition_of, gated, is_ready

REPLICAS: Final = 4
SLOW: Final = {"teardown_seconds": 0.4, "unprepare_seconds": 0.3, "ready_seconds": 0.2}
LONGEST: Final = 7.0  # seconds in which a rollout that nobody disturbs is over


def _flying(one: Recorded) -> list[dict[str, Any]]:
    return list(one.status.get("replacements") or []) if one.kind == "AcceleratorRollout" else []


def _pod(predicate: Callable[[Recorded], bool]) -> Callable[[Recorded], bool]:
    return lambda one: one.kind == "Pod" and one.name.startswith("worker") and predicate(one)


# What is seen of a write of the operator, or of what follows from it.
MOMENTS: Final[Mapping[str, Callable[[Recorded], bool]]] = {
    "the choice is recorded": lambda one: any(r["stage"] == "Selected" for r in _flying(one)),
    "a pod is leaving": _pod(lambda p: p.deleting),
    "a successor is gated": _pod(lambda p: gated(p.object)),
    "the release is recorded": lambda one: any(r.get("releasedAt") for r in _flying(one)),
    "a gate is open": _pod(lambda p: not gated(p.object) and not p.object["spec"].get("nodeName")),
    "the Deployment is paused": lambda one: (
        one.kind == "Deployment" and bool(one.object["spec"].get("paused"))
    ),
    "the Deployment is free": lambda one: one.kind == "Deployment" and not one.object["spec"].get("paused"),
    "a successor starts": _pod(lambda p: bool(p.object["spec"].get("nodeName")) and not p.deleting),
}


@dataclass
class Chaos:
    """Kills the operator in the course of rollouts, and counts."""

    world: World
    operator: OperatorProcess
    dice: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    async def rollout(self, image: str) -> None:
        """Roll out `image` while the operator is killed one to three times."""
        before = {one.uid for one in self.world.deletions()}
        begin = time.monotonic()
        await self.world.set_image(image)
        killer = asyncio.create_task(self._kill(self.dice.randint(1, 3)))
        try:
            await self.world.until_ready(image=image, seconds=120)
        finally:
            killer.cancel()
            await asyncio.gather(killer, return_exceptions=True)
        if not self.operator.is_running:
            await self.operator.restart()
        self.seconds.append(time.monotonic() - begin)
        await self.world.recorder.caught_up()
        gone = {one.uid for one in self.world.deletions()} - before
        assert len(gone) == REPLICAS, f"{len(gone)} pods were deleted for {REPLICAS} replicas\n{self.told()}"

    async def _kill(self, times: int) -> None:
        for _ in range(times):
            last = self.world.recorder.events()[-1]
            if self.dice.random() < 0.4:
                what = "at random"
                await asyncio.sleep(self.dice.uniform(0, LONGEST / times))
            else:
                what = self.dice.choice(self._moments())
                await self.world.recorder.until(MOMENTS[what], timeout=60, what=what, after=last)
            self.kills[what] += 1
            await self.operator.restart()

    def _moments(self) -> list[str]:
        deployment = self.world.shape.kind == "Deployment"
        return [name for name in MOMENTS if deployment or "Deployment" not in name]

    def told(self) -> str:
        return f"{dict(self.kills)}\n{self.world.recorder.render(namespace=self.world.namespace)}"

    async def assert_all_is_well(self) -> None:
        self.world.assert_promises()
        self._assert_no_false_success()
        assert not [p["metadata"]["name"] for p in await self.world.pods() if gated(p)]
        if self.world.shape.kind == "Deployment":
            found = await self.world.api.get(DEPLOYMENTS, "worker", self.world.namespace)
            assert not found["spec"].get("paused")

    def _assert_no_false_success(self) -> None:
        """S8, over every status that was ever stored."""
        for one in self.world.recorder.events(kind="AcceleratorRollout"):
            generation = one.object["metadata"]["generation"]
            for condition in one.status.get("conditions") or []:
                assert condition["observedGeneration"] <= generation, one
            if is_ready(one.object):
                status = one.status
                assert status["updatedReplicas"] == status["availableReplicas"] == status["replicas"], status
                assert not status.get("replacements"), status
                assert condition_of(one.object, "Stalled") is None


async def run(world: World, operator: OperatorProcess, rollouts: int, dice: random.Random) -> Chaos:
    chaos = Chaos(world, operator, dice)
    # What left while nobody watched is unproven and costs this wait: short here, so that 20 rollouts end soon.
    await world.settle_in(spec={"release": {"unproven": {"extraSeconds": 1}}})
    for number in range(rollouts):
        await chaos.rollout(GOOD if number % 2 else NEWER)
    await chaos.assert_all_is_well()
    return chaos


def _seed() -> int:
    return int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))


async def test_a_rollout_survives_its_operator(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=REPLICAS, grace=2, faults=SLOW))
    chaos = await run(world, operator, 1, random.Random(7))
    assert sum(chaos.kills.values()) >= 1


@pytest.mark.slow
@pytest.mark.timeout(1500)
async def test_twenty_rollouts_survive_their_operators(
    kind: str, make_world: MakeWorld, operator: OperatorProcess, figures: list[str]
) -> None:
    """Ten for each kind of workload."""
    seed, rollouts = _seed(), int(os.environ.get("CHAOS_ROLLOUTS") or 20) // 2
    figures.append(f"{kind}: CHAOS_SEED={seed}")  # told also if it fails
    world = await make_world(Shape(kind, replicas=REPLICAS, grace=2, faults=SLOW))
    chaos = await run(world, operator, rollouts, random.Random(seed))
    kills = ", ".join(f"{what} {count}" for what, count in sorted(chaos.kills.items()))
    figures.append(
        f"{kind}: {rollouts} rollouts of {REPLICAS} pods completed, the operator was killed "
        f"{sum(chaos.kills.values())} times ({kills}); {len(world.deletions())} pods were deleted for "
        f"{rollouts * REPLICAS} replacements; the ledger is clean; {sum(chaos.seconds) / rollouts:.1f} s a rollout"
    )
