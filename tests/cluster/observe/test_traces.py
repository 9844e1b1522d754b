"""A rollout is one trace, whole, whatever becomes of the operator meanwhile."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from accelerator_rollout.api.models import RolloutObject
from accelerator_rollout.observe import project
from accelerator_rollout.tracing.spans import Span, ended
from lab.client import Api, Object
from lab.collector import Collector, Received
from lab.install import Account
from lab.leases import free_lease
from lab.operator_process import OperatorProcess
from lab.world import NEWER, MakeWorld, Shape, World

# A Lease that is soon lost.
SHORT: Final = (
    "--lease-duration-seconds=5",
    "--lease-renew-deadline-seconds=3",
    "--lease-retry-seconds=0.5",
)
SLOW: Final = {"teardown_seconds": 1.5, "ready_seconds": 1.5}


def replaced(count: int) -> Callable[[Object], bool]:
    """Whether so many replacements of the newest rollout are over, by what is stored."""

    def there(rollout: Object) -> bool:
        history = rollout["status"].get("history") or [{}]
        return len(history[0].get("replacements") or []) >= count

    return there


def stored(rollout: Object) -> set[tuple[Any, ...]]:
    """The spans of all that the stored status says."""
    own = project.rollout(rollout)
    assert isinstance(own, RolloutObject)
    return {_of(span) for span in ended(own, (), own.status.history, own.created)}


def _of(span: Span) -> tuple[Any, ...]:
    times = (int(at.timestamp()) * 10**9 for at in (span.start, span.end))
    return span.trace, span.id, span.parent, span.name, *times


def _got(span: Received) -> tuple[Any, ...]:
    return span.trace, span.id, span.parent, span.name, span.start, span.end


async def until_told(collector: Collector, world: World) -> list[tuple[Any, ...]]:
    """Await that what is stored has arrived; return all that arrived."""
    async with asyncio.timeout(20):
        wanted = stored(await world.rollout())
        while not wanted <= {_got(one) for one in collector.spans}:  # noqa: ASYNC110 - it takes, and does not tell
            await asyncio.sleep(0.1)
    return [_got(one) for one in collector.spans]


async def test_an_operator_killed_in_the_middle_neither_loses_nor_doubles_a_span(
    kind: str, account: Account, admin: Api, namespace: str, make_world: MakeWorld, tmp_path: Path
) -> None:
    """Killed once in mid-step, and once at the moment at which a replacement is stored as over."""
    async with Collector() as collector:
        operator = await OperatorProcess.under(
            account,
            admin,
            tmp_path,
            arguments=(f"--namespaces={namespace}",),
            environment={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint},
        )
        async with operator:
            world = await make_world(Shape(kind, replicas=3, faults=SLOW), devices=(3,))
            # What goes while nobody looks is unproven.
            await world.settle_in(spec={"release": {"unproven": {"extraSeconds": 1}}})
            await world.set_image(NEWER)
            await world.until_stage("Terminating")
            await operator.restart()
            at_kill = await world.until(replaced(1), "a replacement to be over")
            operator.kill()
            unsure = stored(at_kill)
            await operator.restart()
            done = await world.until_ready(image=NEWER, seconds=120)
            arrived = await until_told(collector, world)

    whole = stored(done)
    assert set(arrived) == whole, "every span, and none that is of nothing or tells otherwise"
    assert {span[0] for span in whole} == {arrived[0][0]}, "one trace"
    assert [span[3] for span in whole].count("replacement") == 3
    assert [span[3] for span in whole].count("Terminating") == 3
    assert len({span[1] for span in whole}) == len(whole), "ids are told apart"
    again = {span for span in whole if arrived.count(span) > 1}
    assert again <= unsure, "only what the killed one may not have sent comes again, under its id"
    world.assert_promises()


async def leader(among: Collection[OperatorProcess]) -> OperatorProcess:
    """Await that one of them acts."""
    async with asyncio.timeout(30):
        while True:  # they call nobody
            for one in among:
                if await one.leads():
                    return one
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("way", ["is told to end", "is stopped past its Lease"])
async def test_two_operators_that_follow_each_other_tell_one_trace(
    way: str, account: Account, admin: Api, namespace: str, make_world: MakeWorld, tmp_path: Path
) -> None:
    """The Lease goes to the other one in mid-step, after a replacement that is over."""
    await free_lease(admin, account.namespace)
    async with Collector() as collector, AsyncExitStack() as stack:
        operators = {
            name: await stack.enter_async_context(
                await OperatorProcess.under(
                    account,
                    admin,
                    tmp_path,
                    name=name,
                    arguments=(f"--namespaces={namespace}", f"--lease-namespace={account.namespace}", *SHORT),
                    environment={
                        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
                        "OTEL_SERVICE_NAME": name,
                    },
                )
            )
            for name in ("one", "other")
        }
        world = await make_world(Shape(replicas=3, faults=SLOW), devices=(3,))
        await world.settle_in(spec={"release": {"unproven": {"extraSeconds": 1}}})
        first = await leader(operators.values())
        (second,) = (one for one in operators.values() if one is not first)
        await world.set_image(NEWER)
        await world.until(replaced(1), "a replacement to be over")
        await world.until_stage("Terminating")
        if way == "is told to end":
            assert await first.stop() == 0
        else:
            first.pause()
        assert await leader([second]) is second
        at_handover = stored(await world.rollout())
        if first.is_running:
            first.resume()
        done = await world.until_ready(image=NEWER, seconds=120)
        await until_told(collector, world)
        for one in operators.values():  # and so does what they have left
            if one.is_running:
                assert await one.stop() == 0

    whole, arrived = stored(done), [_got(one) for one in collector.spans]
    assert set(arrived) == whole, "every span, and none that is of nothing or tells otherwise"
    assert len({span[0] for span in arrived}) == 1, "one trace"
    assert [span[3] for span in whole].count("replacement") == 3
    told = Counter((one.service, _got(one)) for one in collector.spans)
    assert {service for service, _ in told} == set(operators), "both have told something"
    assert set(told.values()) == {1}, "nobody tells a span twice"
    again = {span for span in whole if arrived.count(span) > 1}
    assert again <= at_handover, "only what the former one may not have sent comes again, under its id"
    world.assert_promises()


@pytest.mark.parametrize("endpoint", ["", "http://127.0.0.1:9"], ids=["nowhere", "nobody listens"])
async def test_a_rollout_goes_on_without_a_collector(
    endpoint: str, account: Account, admin: Api, namespace: str, make_world: MakeWorld, tmp_path: Path
) -> None:
    operator = await OperatorProcess.under(
        account,
        admin,
        tmp_path,
        arguments=(f"--namespaces={namespace}",),
        environment={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint},
    )
    async with operator:
        world = await make_world(Shape(replicas=1), devices=(1,))
        await world.settle_in()
        await world.set_image(NEWER)
        await world.until_ready(image=NEWER)
        assert await operator.stop() == 0
    world.assert_promises()
