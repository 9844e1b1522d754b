"""Given rollouts that share budgets, when all change at once, then no more pods than that are out of service, and each has its turn.

The pool is full, so that whoever waits for its turn holds the devices that others may be given. What is counted are pods that are
not Ready, by the recorder alone: the operator's own numbers are not asked.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from accelerator_rollout.names import BUDGET_LABEL
from lab.client import Api, EventType
from lab.install import Account
from lab.operator_process import OperatorProcess
from lab.recorder import Recorded
from lab.resources import ACCELERATOR_ROLLOUTS
from lab.world import NEWER, MakeWorld, Shape, World, pod_is_ready

DEFAULT, CRITICAL = 2, 1  # pods
REPLICAS: Final = 2
FAULTS: Final = {"teardown_seconds": 0.4, "unprepare_seconds": 0.1}
# What left while nobody watched is unproven and costs this wait: short here.
RELEASE: Final = {"release": {"unproven": {"extraSeconds": 1}}}


@pytest.fixture
async def budgeted(
    account: Account, admin: Api, namespace: str, tmp_path: Path
) -> AsyncIterator[OperatorProcess]:
    """An operator that was given two budgets."""
    arguments = (
        f"--namespaces={namespace}",
        f"--shared-budget=default={DEFAULT}",
        f"--shared-budget=critical={CRITICAL}",
    )
    async with await OperatorProcess.under(account, admin, tmp_path, arguments=arguments) as process:
        yield process


async def crowd(world: World) -> tuple[list[World], list[World]]:
    """Six workloads that fill the pool: four share the default budget, two the other."""
    worlds = [replace(world, name=f"worker-{number}") for number in range(6)]
    for one in worlds:
        await one.make_workload()
        await one.make_rollout(RELEASE)
    for one in worlds[4:]:
        labels = {"metadata": {"labels": {BUDGET_LABEL: "critical"}}}
        await one.api.patch(ACCELERATOR_ROLLOUTS, one.name, labels, one.namespace)
    await asyncio.gather(*(one.until_ready() for one in worlds))
    return worlds[:4], worlds[4:]


def out_of_service(worlds: Collection[World]) -> int:
    """Return how many pods of these workloads were not Ready at once at most, once all had been."""
    recorder = next(iter(worlds)).recorder
    ready: dict[str, set[str]] = {one.name: set() for one in worlds}
    everybody, most, complete = REPLICAS * len(ready), 0, False
    for seen in recorder.events(kind="Pod"):
        whose = next((name for name in ready if seen.name.startswith(f"{name}-")), None)
        if whose is None:
            continue
        well = seen.type is not EventType.DELETED and not seen.deleting and pod_is_ready(seen.object)
        (ready[whose].add if well else ready[whose].discard)(seen.uid)
        now = sum(map(len, ready.values()))
        complete = complete or now == everybody
        if complete:
            most = max(most, everybody - now)
    return most


def turns(worlds: Collection[World]) -> list[str]:
    """Return whose pods went, in this order."""
    went = [(one.deletions(), one.name) for one in worlds]
    return [name for _, name in sorted((d.monotonic, name) for ds, name in went for d in ds)]


class Leaving:
    """Whether so many pods of these workloads have been seen to go, this change included."""

    def __init__(self, worlds: Collection[World], number: int) -> None:
        self._prefixes = tuple(f"{one.name}-" for one in worlds)
        self._number, self._gone = number, set[str]()

    def __call__(self, seen: Recorded) -> bool:
        """Note the change; to be called with each one, in their order."""
        going = seen.deleting or seen.type is EventType.DELETED
        if seen.kind == "Pod" and going and seen.name.startswith(self._prefixes):
            self._gone.add(seen.uid)
        return len(self._gone) >= self._number


def assert_in_turn(worlds: Collection[World]) -> None:
    """Assert that nobody had a further turn while somebody waited for one before that."""
    had: Counter[str] = Counter({one.name: 0 for one in worlds})
    for name in turns(worlds):
        assert had[name] == min(had.values()), turns(worlds)
        had[name] += 1


async def test_of_a_group_no_more_are_out_of_service_than_its_budget_and_all_have_their_turn(
    kind: str, make_world: MakeWorld, budgeted: OperatorProcess, figures: list[str]
) -> None:
    world = await make_world(Shape(kind, replicas=REPLICAS, faults=FAULTS), devices=(4, 4, 4))
    default, critical = await crowd(world)

    everyone = [*default, *critical]
    await asyncio.gather(*(one.set_image(NEWER) for one in everyone))
    await asyncio.gather(*(one.until_ready(image=NEWER, seconds=200) for one in everyone))

    await world.recorder.caught_up()
    most = out_of_service(default), out_of_service(critical)
    figures.append(f"{kind}: out of service at once at most: {most[0]} of {DEFAULT}, {most[1]} of {CRITICAL}")
    assert most == (DEFAULT, CRITICAL)  # kept, and used
    told = (await budgeted.metrics()).splitlines()
    for group, limit in (("default", DEFAULT), ("critical", CRITICAL)):
        assert f'accelerator_rollout_shared_budget_limit{{group="{group}"}} {limit}.0' in told
        assert f'accelerator_rollout_shared_budget_in_replacement{{group="{group}"}} 0.0' in told
    for worlds in (default, critical):
        assert_in_turn(worlds)
    for one in everyone:
        assert len(one.deletions()) == REPLICAS
        one.assert_promises()


async def test_the_budget_outlives_the_operator(
    kind: str, make_world: MakeWorld, budgeted: OperatorProcess, figures: list[str]
) -> None:
    world = await make_world(Shape(kind, replicas=REPLICAS, faults=FAULTS), devices=(4, 4, 4))
    default, critical = await crowd(world)

    everyone = [*default, *critical]
    await asyncio.gather(*(one.set_image(NEWER) for one in everyone))
    for number in (1, 5):
        await world.recorder.until(Leaving(everyone, number), timeout=120, what=f"departure {number}")
        await budgeted.restart()  # killed in mid-step
    await asyncio.gather(*(one.until_ready(image=NEWER, seconds=200) for one in everyone))

    await world.recorder.caught_up()
    most = out_of_service(default), out_of_service(critical)
    figures.append(f"{kind}, killed twice: {most[0]} of {DEFAULT}, {most[1]} of {CRITICAL}")
    assert most[0] <= DEFAULT
    assert most[1] <= CRITICAL
    for one in everyone:
        assert len(one.deletions()) == REPLICAS
        one.assert_promises()
