"""Worlds for scenarios: installed policies, an operator of one's own under its own rights, and the witnesses."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from lab.client import Api
from lab.install import Account, install
from lab.kubeconfig import Connection
from lab.ledger import Ledger
from lab.nodes import SimulatedNodes
from lab.operator_process import OperatorProcess
from lab.recorder import Recorder
from lab.world import Shape, World

MakeWorld = Callable[..., Awaitable[World]]


@pytest.fixture(scope="session")
def account(cluster: Connection) -> Account:
    """The operator's ServiceAccount, with what a user installs around it."""

    async def put() -> Account:
        async with Api(cluster) as admin:
            return await install(admin)

    return asyncio.run(put())


@pytest.fixture
async def operator(
    account: Account, admin: Api, namespace: str, tmp_path: Path
) -> AsyncIterator[OperatorProcess]:
    """An operator process that handles this test's namespace only."""
    arguments = (f"--namespaces={namespace}", "--log-format=text")
    process = await OperatorProcess.under(account, admin, tmp_path, arguments=arguments)
    async with process:
        yield process


@pytest.fixture
async def make_world(
    admin: Api, account: Account, namespace: str, tmp_path: Path
) -> AsyncIterator[MakeWorld]:
    """Makes the world of a test: nodes with so many devices each, and a workload of this shape (not yet created)."""
    del account  # installed
    async with AsyncExitStack() as stack:

        async def make(shape: Shape, *, devices: tuple[int, ...] = (2, 2), slices: int = 1) -> World:
            ledger = Ledger(tmp_path / "ledger.jsonl")
            stack.callback(ledger.close)
            nodes = SimulatedNodes(admin, ledger=ledger, driver=f"{namespace}.example.dev")
            await stack.enter_async_context(nodes)
            recorder = Recorder(admin, tmp_path / "recording.jsonl", namespace=namespace)
            await stack.enter_async_context(recorder)
            for number, count in enumerate(devices):
                await nodes.add(f"{namespace}-{number}", devices=count, slices=slices)
            world = World(admin, namespace, nodes, ledger, recorder, shape, tmp_path)
            stack.push_async_callback(world.clean)
            return world

        yield make


@pytest.fixture(params=["Deployment", "StatefulSet"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each workload kind in turn."""
    return str(request.param)
