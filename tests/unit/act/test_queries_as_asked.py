"""Each part of a query is what the user wrote: where it is asked, what, what the answer has to be, and how it is called."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from accelerator_rollout.act.checks import run_checks, run_health_checks
from accelerator_rollout.api.models import RolloutSpec
from accelerator_rollout.observe.kinds import Kind
from builders import DRIVER, device, entry, pod
from lab.ports import free_ports

POD = pod("worker-2")
ANSWER = {"status": "success", "data": {"resultType": "vector", "result": [{"value": [0, "7"]}]}}


class Cluster:
    """The pool of `node-2` with its one device, and no claim any more."""

    async def read(self, kind: Kind, namespace: str, name: str) -> Any:
        del kind, namespace, name

    async def read_all(self, kind: Kind, namespace: str = "", fields: str = "") -> list[Any]:
        del kind, namespace, fields
        whole = {"name": "node-2", "generation": 1, "resourceSliceCount": 1}
        return [
            {"spec": {"driver": DRIVER, "nodeName": "node-2", "pool": whole, "devices": [{"name": "dev-2"}]}}
        ]


@asynccontextmanager
async def server() -> AsyncIterator[tuple[str, list[str]]]:
    """The address of one that answers 7 to everything, and what it was asked."""
    (port,) = free_ports(1)
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(str((await request.post())["query"]))
        return web.json_response(ANSWER)

    app = web.Application()
    app.router.add_post("/api/v1/query", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{port}", asked
    finally:
        await runner.cleanup()


def check(address: str, condition: str) -> dict[str, Any]:
    query = {"address": address, "query": 'used{device="$(device)"}', "condition": condition}
    return {"name": "idle", "prometheus": query}


def spec(**parts: Any) -> RolloutSpec:
    ref = {"workloadRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "worker"}}
    return RolloutSpec.from_raw(ref | parts)


async def test_of_the_devices_of_a_departed_pod() -> None:
    async with server() as (address, asked):
        for condition, true in (("value < 8.0", True), ("value < 7.0", False)):
            wanted = spec(release={"checks": [check(address, condition)]})
            failures = await run_checks(Cluster(), wanted.release.checks, entry(POD, device(2)), "models")
            assert (failures == ()) is true
        assert asked == ['used{device="dev-2"}'] * 2
    assert "check idle" in failures[0]
    assert "value < 7.0" in failures[0]


async def test_of_a_successor_that_soaks() -> None:
    async with server() as (address, asked):
        for condition, true in (("value < 8.0", True), ("value < 7.0", False)):
            wanted = spec(health={"soakSeconds": 60, "checks": [check(address, condition)]})
            failures = await run_health_checks(wanted.health.checks, POD, (device(2),))
            assert (failures == ()) is true
        assert asked == ['used{device="dev-2"}'] * 2
    assert "check idle" in failures[0]
    assert "value < 7.0" in failures[0]
