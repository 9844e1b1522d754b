"""What holds for every test in this folder: it needs the control plane, and leaves it well. And worlds for scenarios."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from lab.client import Api
from lab.controlplane import ControlPlane
from lab.install import Account
from lab.ledger import Ledger
from lab.nodes import SimulatedNodes
from lab.recorder import Recorder
from lab.world import GROUP_LABEL, MakeWorld, Shape, World

_HERE = Path(__file__).parent
_FIGURES = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The figures of a long run come last."""
    for line in config.stash.get(_FIGURES, []):
        terminalreporter.write_line(line)


@pytest.fixture
def figures(pytestconfig: pytest.Config) -> list[str]:
    """Lines to tell at the very end."""
    return pytestconfig.stash.setdefault(_FIGURES, [])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(autouse=True)
def _control_plane_stays_well(request: pytest.FixtureRequest) -> Iterator[None]:
    """A program that died during a test explains its failure better than the timeouts that follow."""
    wanted = {"control_plane", "cluster"} & set(request.fixturenames)
    if not wanted or request.config.getoption("--kube-context") is not None:
        yield
        return
    control_plane: ControlPlane = request.getfixturevalue("control_plane")
    yield
    control_plane.check()


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
                await nodes.add(
                    f"{namespace}-{number}", devices=count, slices=slices, labels={GROUP_LABEL: namespace}
                )
            world = World(admin, namespace, nodes, ledger, recorder, shape, tmp_path)
            stack.push_async_callback(world.clean)
            return world

        yield make


@pytest.fixture(params=["Deployment", "StatefulSet"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each workload kind in turn."""
    return str(request.param)
