"""A real Prometheus scrapes real rollouts: dashboards show them, no alert fires, and series go with their object."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from accelerator_rollout.api.models import RolloutStatus
from accelerator_rollout.names import API_VERSION, KIND
from accelerator_rollout.tracing.identity import current_trace
from lab.client import Api, Object
from lab.monitoring import Monitoring, Observe, dashboard_queries, variable_queries
from lab.operator_process import HOST, OperatorProcess
from lab.resources import ACCELERATOR_ROLLOUTS, DEPLOYMENTS, PODS
from lab.world import NEWER, MakeWorld, Shape, World

OBJECTS: Final = 100
CROWD: Final = 1000
SLOW: Final = {"teardown_seconds": 1.5, "unprepare_seconds": 1.5, "ready_seconds": 1.5}
# Shown by no rollout that is well: without these words the query has no result, and with them it says 0.
NOTHING_WRONG: Final = {'type="Stalled"', "reconcile_errors"}

# What the operator itself had to do shows here, by what it was and how that ended: no series of objects, so they stay.
OWN_WORK: Final = (
    "accelerator_rollout_actions",
    "accelerator_rollout_api_requests",
    "accelerator_rollout_evictions",
    "accelerator_rollout_reconcile_errors",
    "accelerator_rollout_resyncs",
)


def series(exposition: str) -> set[str]:
    """Every series of an exposition, without its value."""
    return {line.rpartition(" ")[0] for line in exposition.splitlines() if line[:1] != "#"}


def assert_nothing_is_left(before: set[str], after: set[str]) -> None:
    """Hold what is shown after many objects to what was shown before: nothing of them is left, in whatever it counts."""
    assert {one for one in after ^ before if not one.startswith(OWN_WORK)} == set()
    own = after - before
    assert len(own) < OBJECTS / 2, f"something grows with the objects: {sorted(own)}"


@pytest.mark.slow
async def test_a_healthy_rollout_fills_the_dashboards_and_raises_no_alert(
    kind: str, make_world: MakeWorld, observe: Observe, figures: list[str]
) -> None:
    world = await make_world(Shape(kind, replicas=3, hold="Auto", faults=SLOW), devices=(3,))
    observed = await observe()
    monitoring = observed.monitoring
    await world.settle_in()
    await world.set_image(NEWER)
    done = await world.until_ready(image=NEWER, seconds=120)
    await monitoring.until('accelerator_rollout_outcomes_total{outcome="Completed"} == 1', "the outcome")

    values = {"namespace": world.namespace, "name": world.name}
    asked = dashboard_queries(values)
    empty = []
    for board, panel, expression in asked:
        told = expression if any(words in expression for words in NOTHING_WRONG) else bare(expression)
        if not await monitoring.course(told):
            empty.append(f"{board}, {panel}: {told}")
    assert not empty, "\n".join(empty)
    for board, variable, expression in variable_queries(values):
        assert await monitoring.choices(expression) == [values[variable]], (board, variable)

    trace = current_trace(done["metadata"]["uid"], RolloutStatus.from_raw(done["status"]))
    assert trace in await monitoring.exemplars("accelerator_rollout_stage_duration_seconds_bucket")
    assert trace in await monitoring.exemplars("accelerator_rollout_device_release_seconds_bucket")

    assert await monitoring.fired() == set()
    world.assert_promises()
    figures.append(f"{kind}: {len(asked)} queries of the dashboards have data, no alert fired")


def bare(expression: str) -> str:
    """The expression without the 0 that it shows in place of nothing."""
    return expression.removesuffix(" or vector(0)")


def rollout(name: str) -> Object:
    """An object of a Deployment of the same name."""
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {"workloadRef": ref}}


def deployment(name: str) -> Object:
    """A Deployment without pods."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "model", "image": "model"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


async def in_tens(count: int, work: Callable[[int], Any]) -> None:
    """Do it for each number, ten at a time."""
    for start in range(0, count, 10):
        await asyncio.gather(*(work(number) for number in range(start, min(count, start + 10))))


async def until_shown(operator: OperatorProcess, metric: str, value: int, *, seconds: float = 60.0) -> str:
    """Await that the operator shows so many series of a metric; return all that it shows then."""
    deadline = time.monotonic() + seconds
    while True:
        told = ""
        with suppress(TimeoutError):  # it may have much to do
            told = await operator.metrics()
        count = sum(line.startswith(f"{metric}{{") for line in told.splitlines())
        if told and count == value:
            return told
        assert time.monotonic() < deadline, f"{count} series of {metric} in place of {value}"
        await asyncio.sleep(0.25)  # it tells nobody by itself


async def test_series_go_with_their_objects(admin: Api, namespace: str, operator: OperatorProcess) -> None:
    """Objects alone: the workloads that they name are not there, and that is told of each."""
    await admin.create(ACCELERATOR_ROLLOUTS, rollout("first"), namespace)
    await until_shown(operator, "accelerator_rollout_info", 1)
    await admin.delete(ACCELERATOR_ROLLOUTS, "first", namespace)
    before = series(await until_shown(operator, "accelerator_rollout_info", 0))

    await in_tens(OBJECTS, lambda n: admin.create(ACCELERATOR_ROLLOUTS, rollout(f"r-{n}"), namespace))
    there = series(await until_shown(operator, "accelerator_rollout_info", OBJECTS))
    assert len(there - before) > 10 * OBJECTS
    await in_tens(OBJECTS, lambda n: admin.delete(ACCELERATOR_ROLLOUTS, f"r-{n}", namespace))
    after = series(await until_shown(operator, "accelerator_rollout_info", 0))
    assert_nothing_is_left(before, after)


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_series_of_a_hundred_rollouts_at_once_go_with_them(
    make_world: MakeWorld, operator: OperatorProcess, tmp_path: Path, figures: list[str]
) -> None:
    """Each replaces a pod, and all are deleted; Prometheus counts."""
    shape = Shape(faults={"teardown_seconds": 1.5, "ready_seconds": 1.5}, replicas=1)
    first = await make_world(shape, devices=(10,) * (OBJECTS // 10 + 1))
    worlds = [first] + [
        World(
            first.api,
            first.namespace,
            first.nodes,
            first.ledger,
            first.recorder,
            shape,
            first.folder,
            f"worker-{number}",
            first.device_class,
        )
        for number in range(OBJECTS)
    ]
    ours = f'{{job="operator",namespace="{first.namespace}"}}'
    await first.settle_in()
    await first.set_image(NEWER)
    await first.until_ready(image=NEWER)
    await leave(first)
    before = series(await until_shown(operator, "accelerator_rollout_info", 0))

    begin = time.monotonic()
    others = worlds[1:]
    async with Monitoring(tmp_path, f"{HOST}:{operator.port}", interval="2s") as monitoring:
        await in_tens(OBJECTS, lambda n: others[n].make_workload())
        await in_tens(OBJECTS, lambda n: others[n].make_rollout())
        for world in others:
            await world.until_ready(seconds=300)
        await in_tens(OBJECTS, lambda n: others[n].set_image(NEWER))
        for world in others:
            await world.until_ready(image=NEWER, seconds=600)
        await until_shown(operator, "accelerator_rollout_outcomes_total", OBJECTS)
        most = max(await monitoring.course(f"count({ours})"))
        await in_tens(OBJECTS, lambda n: leave(others[n]))
        after = series(await until_shown(operator, "accelerator_rollout_info", 0))
        await monitoring.until(f"absent({ours})", "the end of the series in Prometheus")
    took = time.monotonic() - begin

    assert_nothing_is_left(before, after)
    figures.append(
        f"{OBJECTS} rollouts made, rolled out and deleted in {took:.0f} s: at most {most:.0f} series of objects "
        f"({most / OBJECTS:.1f} each), 0 in the end; the operator's own: {len(before)} before, {len(after)} after"
    )
    async with asyncio.timeout(120):
        # The namespace is to go afterwards, and that is given less time.
        while (await first.api.list(PODS, first.namespace)).items:  # noqa: ASYNC110
            await asyncio.sleep(0.5)


async def leave(world: World) -> None:
    """Delete the object and its workload."""
    await world.api.delete(ACCELERATOR_ROLLOUTS, world.name, world.namespace)
    await world.api.delete(world.workload, world.name, world.namespace)


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_a_thousand_rollouts_make_so_many_series(
    admin: Api, namespace: str, operator: OperatorProcess, figures: list[str]
) -> None:
    """Objects of Deployments without pods: at rest, as most are."""
    before = len(series(await operator.metrics()))
    await in_tens(CROWD, lambda n: admin.create(DEPLOYMENTS, deployment(f"r-{n}"), namespace))
    await in_tens(CROWD, lambda n: admin.create(ACCELERATOR_ROLLOUTS, rollout(f"r-{n}"), namespace))
    await until_shown(operator, "accelerator_rollout_info", CROWD, seconds=300)
    begin = time.monotonic()
    told = await operator.metrics()
    took = time.monotonic() - begin
    count = len(series(told)) - before
    figures.append(
        f"{CROWD} AcceleratorRollouts: {count} series more than the operator's own {before} "
        f"({count / CROWD:.1f} each), {len(told) / 1e6:.1f} MB told in {took:.2f} s"
    )
    assert count <= 30 * CROWD, "docs/monitoring.md promises at most 30 of each"
