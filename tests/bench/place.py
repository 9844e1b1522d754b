"""Where it is measured: a control plane, simulated nodes, an operator under its own rights, and a recorder."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.client import Api, Object
from lab.controlplane import ControlPlane
from lab.install import Account, install
from lab.leases import free_lease
from lab.ledger import Ledger
from lab.namespaces import make_namespace
from lab.nodes import SimulatedNodes
from lab.operator_process import OperatorProcess
from lab.processes import Component
from lab.recorder import Recorder
from lab.resources import PODS
from lab.world import Shape, World, image_of, pod_is_ready

OURS: Final = "bench-ours"  # the only namespace that the operator looks after
THEIRS: Final = "bench-theirs"


@dataclass(slots=True)
class Place:
    """What all parts share."""

    admin: Api
    account: Account
    operator: OperatorProcess
    nodes: SimulatedNodes
    ledger: Ledger
    recorder: Recorder
    folder: Path

    def world(self, namespace: str, name: str, driver: str, shape: Shape) -> World:
        """A workload of this shape on the devices of that driver; not created yet."""
        return World(
            self.admin, namespace, self.nodes, self.ledger, self.recorder, shape, self.folder, name, driver
        )

    async def devices(self, driver: str, *, nodes: int) -> None:
        """Add nodes with two devices each of that driver."""
        for number in range(nodes):
            await self.nodes.add(f"{driver.partition('.')[0]}-{number}", devices=2, driver=driver)

    @asynccontextmanager
    async def bare_loop(self, sets: int, *, confirm: bool) -> AsyncIterator[None]:
        """Open the gates of THEIRS by the least that could, for as long as this lasts."""
        kubeconfig = self.folder / "bare.kubeconfig"
        self.admin.connection.write_kubeconfig(kubeconfig, context="lab", user="admin")
        command = [sys.executable, "-m", "bench.bare", f"--kubeconfig={kubeconfig}"]
        command += [f"--namespace={THEIRS}", f"--sets={sets}", *(["--confirm"] if confirm else [])]
        process = Component("bare loop", command, self.folder / "bare.log", env=dict(os.environ))
        process.start()
        try:
            yield
        finally:
            process.kill()


@asynccontextmanager
async def place(control_plane: ControlPlane, folder: Path) -> AsyncIterator[Place]:
    """Bring everything up, and down again."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Api(control_plane.admin))
        account = await install(admin)
        for name in (OURS, THEIRS):
            await make_namespace(admin, name)
        ledger = stack.enter_context(Ledger())
        nodes = await stack.enter_async_context(SimulatedNodes(admin, ledger=ledger))
        recorder = await stack.enter_async_context(Recorder(admin))
        await free_lease(admin, account.namespace)
        arguments = (f"--namespaces={OURS}", f"--lease-namespace={account.namespace}")  # as it is installed
        operator = await OperatorProcess.under(account, admin, folder, arguments=arguments)
        await stack.enter_async_context(operator)
        yield Place(admin, account, operator, nodes, ledger, recorder, folder)


async def until_pods(world: World, count: int, image: str = "", *, seconds: float = 120.0) -> None:
    """Await that so many pods of the workload, and no others, are ready and run the image."""

    def fine(pods: list[Object]) -> bool:
        return len(pods) == count and all(
            pod_is_ready(p) and (not image or image_of(p) == image) for p in pods
        )

    async with asyncio.timeout(seconds), aclosing(world.api.follow(PODS, world.namespace)) as changes:
        if fine(await world.pods()):
            return
        async for _ in changes:
            if fine(await world.pods()):
                return
