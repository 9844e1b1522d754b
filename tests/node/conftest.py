"""What holds for every test in this folder: it needs a real node, and leaves it well. And worlds for scenarios."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from lab.client import Api
from lab.controlplane import ControlPlane
from lab.install import Account
from lab.realnode.enclosure import refusal
from lab.realnode.node import RealNode
from lab.realnode.programs import ensure_node_programs
from lab.realnode.workload import write_images
from lab.realnode.world import GOOD, NEWER, RealShape, RealWorld, real_world

MakeRealWorld = Callable[..., Awaitable[RealWorld]]

_HERE = Path(__file__).parent
_FIGURES = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.node)
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish(session: pytest.Session) -> None:
    # A first build takes longer than any test may: it must be done before the tests' clocks start.
    config = session.config
    if config.option.collectonly or refusal() is not None:
        return
    if any("node" in getattr(item, "fixturenames", ()) for item in session.items):
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        ensure_node_programs(reporter.write_line if reporter else None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The figures come last."""
    for line in config.stash.get(_FIGURES, []):
        terminalreporter.write_line(line)


@pytest.fixture
def figures(pytestconfig: pytest.Config) -> list[str]:
    """Lines to tell at the very end."""
    return pytestconfig.stash.setdefault(_FIGURES, [])


@pytest.fixture(scope="session")
def node(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    """The node that all tests of the session share, with the images of the workload. A test that breaks it mends it."""
    if (reason := refusal()) is not None:
        pytest.skip(reason)
    with RealNode(control_plane) as started:
        archive = tmp_path_factory.mktemp("images") / "workload.tar"
        write_images(started.programs.busybox, archive, (GOOD, NEWER))
        started.import_image(archive)
        yield started


@pytest.fixture(autouse=True)
def _node_stays_well(node: RealNode) -> Iterator[None]:
    """A program that died during a test explains its failure better than the timeouts that follow."""
    yield
    node.check()
    node.control_plane.check()


@pytest.fixture
async def make_world(
    admin: Api, account: Account, node: RealNode, namespace: str, tmp_path: Path
) -> AsyncIterator[MakeRealWorld]:
    """Makes the world of a test: a driver with so many devices, and a workload of this shape (not yet created)."""
    del account  # installed
    async with AsyncExitStack() as stack:

        async def make(shape: RealShape, *, devices: int) -> RealWorld:
            return await stack.enter_async_context(
                real_world(admin, node, namespace, tmp_path, shape, devices=devices)
            )

        yield make
