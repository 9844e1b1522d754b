"""Worlds side by side on one control plane: each with a namespace, nodes, devices and witnesses of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from lab.client import Api
from lab.ledger import Ledger
from lab.namespaces import make_namespace, remove_namespace
from lab.nodes import SimulatedNodes
from lab.recorder import Recorder
from lab.world import GROUP_LABEL, Shape, World


@asynccontextmanager
async def world_apart(
    admin: Api, namespace: str, folder: Path, shape: Shape, *, devices: tuple[int, ...]
) -> AsyncIterator[World]:
    """A world with a node for each number of devices; nothing of it is left afterwards."""
    await asyncio.to_thread(folder.mkdir, parents=True)
    async with AsyncExitStack() as stack:
        await make_namespace(admin, namespace)
        stack.push_async_callback(remove_namespace, admin, namespace)
        ledger = stack.enter_context(Ledger(folder / "ledger.jsonl"))
        nodes = await stack.enter_async_context(
            SimulatedNodes(admin, ledger=ledger, driver=f"{namespace}.example.dev")
        )
        recorder = await stack.enter_async_context(
            Recorder(admin, folder / "recording.jsonl", namespace=namespace)
        )
        for number, count in enumerate(devices):
            await nodes.add(f"{namespace}-{number}", devices=count, labels={GROUP_LABEL: namespace})
        world = World(admin, namespace, nodes, ledger, recorder, shape, folder)
        stack.push_async_callback(world.clean)
        yield world
