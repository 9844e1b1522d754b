"""What holds for every test in this folder: it needs a real node, and leaves it well."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.controlplane import ControlPlane
from lab.realnode.enclosure import refusal
from lab.realnode.node import RealNode
from lab.realnode.programs import ensure_node_programs

_HERE = Path(__file__).parent


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


@pytest.fixture(scope="session")
def node(control_plane: ControlPlane) -> Iterator[RealNode]:
    """The node that all tests of the session share. A test that breaks it mends it."""
    if (reason := refusal()) is not None:
        pytest.skip(reason)
    with RealNode(control_plane) as started:
        yield started


@pytest.fixture(autouse=True)
def _node_stays_well(node: RealNode) -> Iterator[None]:
    """A program that died during a test explains its failure better than the timeouts that follow."""
    yield
    node.check()
    node.control_plane.check()
