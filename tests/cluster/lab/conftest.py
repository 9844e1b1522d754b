"""Fixtures for the tests of the simulated nodes and the recorder on a real control plane."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.lab.workload import Bench
from lab.client import Api
from lab.namespaces import make_namespace
from lab.nodes import SimulatedNodes
from lab.recorder import Recorder
from lab.resources import NAMESPACES


@pytest.fixture
async def namespace(admin: Api) -> AsyncIterator[str]:
    """A namespace whose removal nobody waits for: `bench` leaves nothing in it that could hold a device."""
    name = f"test-{secrets.token_hex(4)}"
    await make_namespace(admin, name)
    yield name
    await admin.delete(NAMESPACES, name)


@pytest.fixture
async def bench(admin: Api, namespace: str) -> AsyncIterator[Bench]:
    """Simulated nodes of this test alone: its own driver, so no stray pod of another test gets its devices."""
    async with SimulatedNodes(admin, driver=f"{namespace}.example.dev") as nodes:
        bench = Bench(api=admin, namespace=namespace, nodes=nodes)
        await bench.prepare()
        try:
            yield bench
        finally:
            await bench.clear()


@pytest.fixture
async def recorder(admin: Api, namespace: str, tmp_path: Path) -> AsyncIterator[Recorder]:
    """Everything that happens in the test's namespace, from before its workload is made."""
    async with Recorder(admin, tmp_path / "recording.jsonl", namespace=namespace) as recorder:
        yield recorder
