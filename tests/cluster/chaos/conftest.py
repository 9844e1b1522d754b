"""The figures of a long run come last."""

import pytest

FIGURES = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(FIGURES, []):
        terminalreporter.write_line(line)


@pytest.fixture
def figures(pytestconfig: pytest.Config) -> list[str]:
    """Lines to tell at the very end."""
    return pytestconfig.stash.setdefault(FIGURES, [])
