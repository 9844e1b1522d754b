"""Given three operators, when the one that acts goes in whatever way, then another one goes on: no pod goes twice.

Each operator has a wire of its own to the API server, so that it can be told who sent what.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from lab.client import Api
from lab.install import Account
from lab.leases import free_lease
from lab.operator_process import OperatorProcess
from lab.recorder import Recorded
from lab.wire import Wire
from lab.world import NEWER, MakeWorld, Shape, World, gated

SLOW: Final = {"teardown_seconds": 0.4, "unprepare_seconds": 0.3, "ready_seconds": 0.2}
REPLICAS: Final = 4
# Shorter than the defaults, so that the tests are.
DURATION, DEADLINE, RETRY = 5, 3, 0.5
SHORT: Final = (
    f"--lease-duration-seconds={DURATION}",
    f"--lease-renew-deadline-seconds={DEADLINE}",
    f"--lease-retry-seconds={RETRY}",
)
# The Lease has to run out, a candidate to look at it, and the store to be compared with the cluster.
LONGEST_TAKEOVER: Final = DURATION + 2 * RETRY + 4


@dataclass(frozen=True, slots=True)
class Candidate:
    """One operator and its wire."""

    process: OperatorProcess
    wire: Wire

    def writes(self) -> Counter[str]:
        """What it has sent so far, but for its writes to the Lease and its questions for its own rights."""
        return Counter(
            {
                request: count
                for request, count in self.wire.requests.items()
                if not request.startswith("GET ")
                and "/leases" not in request
                and "selfsubjectaccessreviews" not in request
            }
        )

    def looks(self) -> int:
        """How often it has read the Lease."""
        return sum(n for one, n in self.wire.requests.items() if one.startswith("GET ") and "/leases/" in one)


MakeCandidates = Callable[[Sequence[str]], Awaitable[list[Candidate]]]


@pytest.fixture
async def make_candidates(
    account: Account, admin: Api, namespace: str, tmp_path: Path
) -> AsyncIterator[MakeCandidates]:
    """Starts three operators for this test's namespace."""
    async with AsyncExitStack() as stack:

        async def start(number: int, lease: Sequence[str]) -> Candidate:
            own = await account.connection(admin)
            wire = await stack.enter_async_context(Wire(own))
            plain = replace(own, server=wire.url, ca=None, tls_server_name=None)
            kubeconfig = tmp_path / f"candidate-{number}.kubeconfig"
            plain.write_kubeconfig(kubeconfig, context="lab", user="operator")
            arguments = (f"--namespaces={namespace}", f"--lease-namespace={account.namespace}", *lease)
            log = tmp_path / f"candidate-{number}.log"
            process = OperatorProcess(kubeconfig, log, arguments=arguments)
            await stack.enter_async_context(process)
            return Candidate(process, wire)

        async def make(lease: Sequence[str]) -> list[Candidate]:
            await free_lease(admin, account.namespace)
            return [await start(number, lease) for number in range(3)]

        yield make


async def leader(among: Collection[Candidate], *, seconds: float = 30.0) -> Candidate:
    """Await that one of them acts; nobody else may."""
    async with asyncio.timeout(seconds):
        while True:
            leading = [one for one in among if await one.process.leads()]
            assert len(leading) <= 1
            if leading:
                return leading[0]
            await asyncio.sleep(0.02)


def leaving(one: Recorded) -> bool:
    return one.kind == "Pod" and one.name.startswith("worker") and one.deleting


def waiting(one: Recorded) -> bool:
    return one.kind == "Pod" and one.name.startswith("worker") and gated(one.object)


async def in_mid_step(world: World, moment: Callable[[Recorded], bool]) -> None:
    last = world.recorder.events()[-1]
    await world.recorder.until(moment, timeout=60, what=moment.__name__, after=last)


async def start_over(make_world: MakeWorld, shape: Shape) -> World:
    world = await make_world(shape)
    # What left while nobody watched is unproven and costs this wait: short here.
    await world.settle_in(spec={"release": {"unproven": {"extraSeconds": 1}}})
    return world


async def assert_each_pod_went_once(world: World) -> None:
    assert await world.gone() == REPLICAS, world.recorder.render(namespace=world.namespace)
    world.assert_promises()


async def test_two_that_act_are_killed_in_mid_step(
    kind: str, make_world: MakeWorld, make_candidates: MakeCandidates, figures: list[str]
) -> None:
    candidates = await make_candidates(SHORT)
    world = await start_over(make_world, Shape(kind, replicas=REPLICAS, grace=2, faults=SLOW))
    await world.set_image(NEWER)
    took = []
    for moment in (leaving, waiting):
        await in_mid_step(world, moment)
        acting = await leader(candidates)
        begin = time.monotonic()
        acting.process.kill()
        candidates.remove(acting)
        await leader(candidates)
        took.append(time.monotonic() - begin)
    await world.until_ready(image=NEWER, seconds=120)
    await assert_each_pod_went_once(world)
    figures.append(f"{kind}: takeovers after SIGKILL: {', '.join(f'{t:.1f} s' for t in took)}")
    assert max(took) < LONGEST_TAKEOVER


async def test_two_that_act_are_told_to_end_and_hand_over_at_once(
    kind: str, make_world: MakeWorld, make_candidates: MakeCandidates, figures: list[str]
) -> None:
    """With the defaults: nobody waits for a Lease of 15 seconds to run out."""
    candidates = await make_candidates(())
    world = await start_over(make_world, Shape(kind, replicas=REPLICAS, grace=2, faults=SLOW))
    await world.set_image(NEWER)
    took = []
    for moment in (leaving, waiting):
        await in_mid_step(world, moment)
        acting = await leader(candidates)
        begin = time.monotonic()
        assert await acting.process.stop() == 0
        candidates.remove(acting)
        await leader(candidates)
        took.append(time.monotonic() - begin)
    await world.until_ready(image=NEWER, seconds=120)
    await assert_each_pod_went_once(world)
    figures.append(f"{kind}: handed over after SIGTERM in {', '.join(f'{t:.1f} s' for t in took)}")
    assert max(took) < 6


async def test_one_that_was_stopped_past_its_lease_writes_nothing_when_it_goes_on(
    kind: str, make_world: MakeWorld, make_candidates: MakeCandidates
) -> None:
    candidates = await make_candidates(SHORT)
    world = await start_over(make_world, Shape(kind, replicas=REPLICAS, grace=2, faults=SLOW))
    await world.set_image(NEWER)
    await in_mid_step(world, leaving)
    stopped = await leader(candidates)
    stopped.process.pause()
    candidates.remove(stopped)
    await leader(candidates)
    await in_mid_step(world, leaving)  # the other one is at work
    sent, looks = stopped.writes(), stopped.looks()
    assert sent
    acting = await leader(candidates)
    assert "\naccelerator_rollout_condition{" in await acting.process.metrics()
    stopped.process.resume()
    async with asyncio.timeout(30):
        while stopped.looks() < looks + 3:  # noqa: ASYNC110 - the wire calls nobody
            await asyncio.sleep(0.05)
    await world.until_ready(image=NEWER, seconds=120)
    assert stopped.writes() == sent
    assert not await stopped.process.leads()
    assert "\naccelerator_rollout_condition{" not in await stopped.process.metrics()
    await assert_each_pod_went_once(world)


async def test_idle_operators_write_nothing_but_the_lease(
    make_world: MakeWorld, make_candidates: MakeCandidates
) -> None:
    candidates = await make_candidates(SHORT)
    world = await start_over(make_world, Shape("StatefulSet", replicas=1))
    acting = await leader(candidates)
    await world.recorder.caught_up()
    await asyncio.sleep(2)  # news wait for half a second
    before = [one.writes() for one in candidates]
    looks = acting.wire.requests.total()
    async with asyncio.timeout(30):
        while acting.wire.requests.total() < looks + 8:  # noqa: ASYNC110 - the wire calls nobody
            await asyncio.sleep(0.05)
    assert [one.writes() for one in candidates] == before
    assert not any(one.writes() for one in candidates if one is not acting)
