"""Brings up what the demo plays on: control plane, installation, nodes with four devices, recorder, operator."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final

from lab.client import Api
from lab.controlplane import ControlPlane
from lab.demo.book import Book
from lab.demo.manifests import device_class
from lab.install import install
from lab.ledger import Ledger
from lab.namespaces import make_namespace
from lab.nodes import SimulatedNodes, annotations_of
from lab.operator_process import OperatorProcess
from lab.recorder import Recorder

OTHER_TEAM: Final = "other-team"  # the namespace from which a stranger comes
NODES: Final = 2
DEVICES: Final = 2  # each
# Scaled down: the guideline's pods would drain for up to 120 s, and a model would load for minutes.
BEHAVIOUR: Final = annotations_of(
    prepare_seconds=0.2, start_seconds=0.1, ready_seconds=0.3, teardown_seconds=1.2, unprepare_seconds=0.2
)
# For what is taken away between two acts, which is no part of what is shown.
AT_ONCE: Final = annotations_of(teardown_seconds=0.0, unprepare_seconds=0.0)


def node_names() -> list[str]:
    """The nodes' names."""
    return [f"node-{letter}" for letter in "abcdefgh"[:NODES]]


def device_names(node: str) -> list[str]:
    """The devices of a node, as "node/device"."""
    return [f"{node}/lpu-{number}" for number in range(DEVICES)]


Say = Callable[[str], None]


@dataclass(slots=True)
class Times:
    """How long each part took, in seconds."""

    parts: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure what is done inside."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.parts.append((name, time.monotonic() - begin))


@dataclass(frozen=True, slots=True)
class Stage:
    """All that the acts need."""

    control_plane: ControlPlane
    admin: Api
    nodes: SimulatedNodes
    ledger: Ledger
    recorder: Recorder
    book: Book
    operator: OperatorProcess


@asynccontextmanager
async def stage(control_plane: ControlPlane, times: Times, say: Say) -> AsyncIterator[Stage]:
    """Everything but the control plane, which is up already; all is ended on leaving."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Api(control_plane.admin))
        ledger = stack.enter_context(Ledger(control_plane.folder / "ledger.jsonl"))
        # Left with the nodes still there: the control plane goes with everything in it.
        nodes = SimulatedNodes(admin, ledger=ledger)
        await nodes.start()
        stack.push_async_callback(nodes.close, clean=False)
        with times.part("installation and nodes"):
            installing = asyncio.create_task(install(admin))
            await admin.apply(device_class())
            await make_namespace(admin, OTHER_TEAM)
            await asyncio.gather(
                *(nodes.add(name, devices=DEVICES, annotations=BEHAVIOUR) for name in node_names())
            )
            account = await installing
        say(
            f"CRD, roles and admission policies are installed; {NODES} simulated nodes have {DEVICES} devices each."
        )
        recorder = Recorder(admin, control_plane.folder / "recording.jsonl")
        await stack.enter_async_context(recorder)
        book = Book(recorder)
        following = asyncio.create_task(book.run(), name="follow the recorder")
        stack.callback(following.cancel)
        operator = await OperatorProcess.under(account, admin, control_plane.folder)
        with times.part("operator"):
            await stack.enter_async_context(operator)
        say(f"The operator is a process of its own ({operator.pid}), with the rights of its ServiceAccount.")
        yield Stage(control_plane, admin, nodes, ledger, recorder, book, operator)
