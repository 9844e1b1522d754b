"""Clusters that serve older versions of the device API, and one that is upgraded while we watch."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from lab.client import Api
from lab.install import Account
from lab.operator_process import OperatorProcess
from lab.wire import Wire
from lab.world import GOOD, NEWER, MakeWorld, Shape, image_of

V1, V1BETA2, V1BETA1 = (f"resource.k8s.io/{version}" for version in ("v1", "v1beta2", "v1beta1"))
SLOW = {"teardown_seconds": 0.5, "unprepare_seconds": 0.2}

Behind = Callable[..., Awaitable[Wire]]


@pytest.fixture
async def operator_behind(
    account: Account, admin: Api, namespace: str, tmp_path: Path
) -> AsyncIterator[Behind]:
    """Starts an operator for which the cluster seems not to serve some versions; returns what hides them."""
    async with AsyncExitStack() as stack:

        async def start(*hidden: str) -> Wire:
            own = await account.connection(admin)
            wire = await stack.enter_async_context(Wire(own))
            wire.hidden_versions |= set(hidden)
            kubeconfig = tmp_path / "wire.kubeconfig"
            plain = replace(own, server=wire.url, ca=None, tls_server_name=None)
            plain.write_kubeconfig(kubeconfig, context="lab", user=account.username)
            arguments = (f"--namespaces={namespace}", "--resync-seconds=2")
            process = OperatorProcess(kubeconfig, tmp_path / "operator.log", arguments=arguments)
            await stack.enter_async_context(process)
            return wire

        yield start


@pytest.mark.parametrize("hidden", [(V1,), (V1, V1BETA2)], ids=["v1beta2", "v1beta1"])
async def test_a_rollout_where_only_an_older_version_is_served(
    hidden: tuple[str, ...], make_world: MakeWorld, operator_behind: Behind
) -> None:
    world = await make_world(Shape(replicas=2, hold="Always", faults=SLOW), devices=(2,))
    wire = await operator_behind(*hidden)
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER, seconds=90)
    assert len(world.deletions()) == 2
    assert world.assert_gates_after_release() == 2
    world.assert_promises()
    used = {
        path.split("/")[3] for path in map(_path, wire.requests) if path.startswith("/apis/resource.k8s.io/")
    }
    assert used >= {"v1beta1" if V1BETA2 in hidden else "v1beta2"}


def _path(request: str) -> str:
    return request.split(" ")[1]


async def test_an_upgrade_needs_no_restart_and_costs_no_pod(
    make_world: MakeWorld, operator_behind: Behind
) -> None:
    world = await make_world(Shape(replicas=2, hold="Always", faults=SLOW), devices=(2,))
    wire = await operator_behind(V1, V1BETA2)
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    wire.hidden_versions = {V1BETA2, V1BETA1}  # in mid-step the old version goes and the new one comes
    wire.cut()
    await world.until_ready(image=NEWER, seconds=90)
    assert any(path.startswith("/apis/resource.k8s.io/v1/") for path in map(_path, wire.requests))
    await world.set_image(GOOD)
    await world.until_ready(image=GOOD, seconds=90)
    assert {image_of(p) for p in await world.pods()} == {GOOD}
    assert len(world.deletions()) == 4
    world.assert_promises()
