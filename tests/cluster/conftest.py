"""What holds for every test in this folder: it needs the control plane, and leaves it well."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.controlplane import ControlPlane

_HERE = Path(__file__).parent


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
