"""CEL over a device as its slice publishes it; what is not plainly true keeps the gate closed, and says why."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from accelerator_rollout.act.checks import invalid, problems, run_checks, run_health_checks
from accelerator_rollout.act.prometheus import QueryError, query
from accelerator_rollout.api.models import (
    Cause,
    Check,
    HealthCheck,
    HeldClaim,
    HeldDevice,
    PrometheusCheck,
    Replacement,
    RolloutSpec,
    Stage,
)
from accelerator_rollout.observe.kinds import Kind
from builders import CREATED, device, pod
from lab.ports import free_ports
from lab.prometheus import Prometheus

DEVICE = {
    "name": "lpu-0",
    "attributes": {"healthy": {"bool": True}, "model": {"string": "a1"}, "lanes": {"int": 4}},
    "capacity": {"memory": {"value": "2Gi"}},
    "taints": [{"key": "warm", "effect": "None"}],
}


class Cluster:
    """Some slices and one claim."""

    def __init__(self) -> None:
        self.slices = [self.slice(1, DEVICE)]
        self.claim: dict[str, Any] | None = None

    @staticmethod
    def slice(generation: int, *devices: Mapping[str, Any], pool: str = "node-1") -> dict[str, Any]:
        named = {"name": pool, "generation": generation, "resourceSliceCount": 1}
        return {"spec": {"driver": "d", "nodeName": "node-1", "pool": named, "devices": list(devices)}}

    async def read(self, kind: Kind, namespace: str, name: str) -> Any:
        assert (kind, namespace, name) == (Kind.CLAIMS, "team", "c")
        return self.claim

    async def read_all(self, kind: Kind, namespace: str = "", fields: str = "") -> list[Any]:
        assert (kind, namespace, fields) == (Kind.SLICES, "", "spec.driver=d")
        return self.slices


async def asked(
    cel: str = "", cluster: Cluster | None = None, prometheus: PrometheusCheck | None = None
) -> tuple[str, ...]:
    device = HeldDevice(driver="d", pool="node-1", device="lpu-0")
    claim = HeldClaim(name="c", uid="c-1", devices=(device,))
    entry = Replacement(
        id="p",
        pod_uid="p",
        pod_name="p",
        node_name="node-1",
        stage=Stage.SETTLING,
        cause=Cause.ROLLOUT,
        stage_started_at=CREATED,
        started_at=CREATED,
        claims=(claim,),
    )
    return await run_checks(
        cluster or Cluster(), (Check(name="one", cel=cel, prometheus=prometheus),), entry, "team"
    )


@pytest.mark.parametrize(
    "cel",
    [
        "device.attributes.healthy",
        "device.attributes['model'] == 'a1' && device.attributes.lanes > 3",
        "device.capacity.memory >= 2147483648.0",
        "device.taints.all(t, t.effect != 'NoSchedule')",
        "device.driver == 'd' && device.pool == 'node-1' && device.name == 'lpu-0' && device.node == 'node-1'",
        "size(conditions) == 0",
    ],
)
async def test_what_is_true(cel: str) -> None:
    assert await asked(cel) == ()


@pytest.mark.parametrize(
    ("cel", "words"),
    [
        ("!device.attributes.healthy", "not true (!device.attributes.healthy)"),
        ("device.attributes.temperature < 40", "there is no 'temperature'"),
        ("device.attributes.lanes", "4 is neither true nor false"),
        ("device.attributes.model > 3", "it cannot be evaluated"),
        ("unheard == 1", "it cannot be evaluated"),
    ],
)
async def test_what_is_not_plainly_true_says_why(cel: str, words: str) -> None:
    (failure,) = await asked(cel)
    assert failure.startswith("check one on device d/node-1/lpu-0: ")
    assert words in failure


async def test_the_newest_generation_counts() -> None:
    cluster = Cluster()
    cluster.slices.append(cluster.slice(2, DEVICE | {"attributes": {"healthy": {"bool": False}}}))
    assert len(await asked("device.attributes.healthy", cluster)) == 1
    cluster.slices.append(cluster.slice(3))
    assert "not published" in (await asked("true", cluster))[0]


async def test_conditions_of_the_departed_pods_claim_and_of_no_other() -> None:
    cluster = Cluster()
    wiped = {"type": "Wiped", "status": "True", "reason": "Done", "message": None}
    device = {"driver": "d", "pool": "node-1", "device": "lpu-0", "conditions": [wiped]}
    cluster.claim = {"metadata": {"uid": "c-1"}, "status": {"devices": [device]}}
    cel = "conditions.exists(c, c.type == 'Wiped' && c.status == 'True')"
    assert await asked(cel, cluster) == ()
    cluster.claim["metadata"]["uid"] = "another"
    assert len(await asked(cel, cluster)) == 1


def test_what_can_never_be_evaluated_is_told_by_name() -> None:
    found = problems(
        [
            Check(name="good", cel="true"),
            Check(name="half", cel="device.x =="),
            Check(name="deep", cel="[1].all(a, [1].all(b, [1].all(c, true)))"),
        ]
    )
    assert set(found) == {"half", "deep"}
    assert "Syntax error" in found["half"]
    assert "more than 2 macros" in found["deep"]


def exporter(value: float) -> str:
    return f'memory_used{{driver="d",pool="node-1",device="lpu-0",node="node-1"}} {value}\n'


async def prometheus_says(address: str, query: str, condition: str = "value < 100.0") -> tuple[str, ...]:
    return await asked(prometheus=PrometheusCheck(address=address, query=query, condition=condition))


QUERY = 'memory_used{driver="$(driver)",pool="$(pool)",device="$(device)",node="$(node)"}'


async def test_a_query_to_a_real_prometheus(tmp_path: Path) -> None:
    async with Prometheus(tmp_path) as server:
        await server.expose(exporter(512))
        told = await prometheus_says(server.address, QUERY)
        assert told == ("check one on device d/node-1/lpu-0: not true (value < 100.0) at 512",)
        await server.expose(exporter(7))
        assert await prometheus_says(server.address, QUERY) == ()
        assert await prometheus_says(server.address, "scalar(vector(1))", "value == 1.0") == ()
        (wrong,) = await prometheus_says(server.address, "memory_used{")
        assert "refuses the query" in wrong
        (shape,) = await prometheus_says(server.address, "memory_used[5m]")
        assert "brings a matrix" in shape
        (nothing,) = await prometheus_says(server.address, 'memory_used{device="other"}')
        assert "no sample" in nothing


async def test_a_query_about_a_pod_and_one_about_each_of_its_devices(tmp_path: Path) -> None:
    one = pod("worker-2")
    devices = (device(1), device(2))

    def check(query: str) -> HealthCheck:
        return HealthCheck(
            name="calm",
            prometheus=PrometheusCheck(address=server.address, query=query, condition="value < 50.0"),
        )

    async with Prometheus(tmp_path) as server:
        of_pod = check('errors{pod="$(pod)",namespace="$(namespace)",node="$(node)"}')
        of_device = check('heat{pod="$(pod)",driver="$(driver)",pool="$(pool)",device="$(device)"}')
        heat = 'heat{{pod="worker-2",driver="lpu.example.com",pool="node-{0}",device="dev-{0}"}} {1}\n'
        errors = 'errors{pod="worker-2",namespace="models",node="node-2"} 1\n'
        await server.expose(errors + heat.format(1, 40) + heat.format(2, 60))
        assert await run_health_checks((of_pod,), one, devices) == ()
        assert await run_health_checks((of_pod, of_device), one, devices) == (
            f"check calm on device {device(2)}: not true (value < 50.0)",
        )
        (none,) = await run_health_checks((of_device,), one, ())
        assert "has no device" in none


def test_what_can_never_be_evaluated_is_told_with_its_place() -> None:
    asked_of = {"address": "http://p:9090", "query": "up", "condition": "value <"}
    spec = {
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "health": {"soakSeconds": 1, "checks": [{"name": "half", "prometheus": asked_of}]},
        "release": {"checks": [{"name": "half", "cel": "device.x =="}]},
    }
    assert set(invalid(RolloutSpec.from_raw(spec))) == {
        "half of spec.release.checks",
        "half of spec.health.checks",
    }


async def test_a_server_that_cannot_be_asked_or_is_none_says_so(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (away,) = await prometheus_says(f"http://127.0.0.1:{port}", "up")
    assert "cannot be asked (ClientConnectorError)" in away

    async def moved(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://127.0.0.1:1/elsewhere")

    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    app = web.Application()
    app.router.add_post("/moved/api/v1/query", moved)
    app.router.add_post("/slow/api/v1/query", slow)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        (elsewhere,) = await prometheus_says(f"http://127.0.0.1:{port}/moved", "up")
        assert "does not answer as a Prometheus does (HTTP 302)" in elsewhere
        with pytest.raises(QueryError, match=r"did not answer within 0\.2 s"):
            await query(f"http://127.0.0.1:{port}/slow", "up", timeout_seconds=0.2)
    finally:
        await runner.cleanup()
