"""Thousands of states that cluster tests have just recorded are given to kstatus, Argo CD's script, Flux's expressions and to us: all agree.

The states are recorded by the other suites, which run here first (`SUITES`). `STATUSES_FROM` names a folder where they are already: of a run
of any cluster tests with `STATUSES_TO` set to it.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from lab.agreement import TABLE, compared, shape
from lab.agreement import figures as told
from lab.gitops import HEALTH, Argo, Flux, kustomization
from lab.kstatus import ensure_kstatus
from lab.pages import ROOT
from lab.statuses import STATUSES_TO, kept

FEWEST: Final = 5000
# Paths of tests, what else pytest is to know, and the environment: what gives the most states a minute, and all kinds of them.
SUITES: Final[Sequence[tuple[tuple[str, ...], dict[str, str]]]] = (
    (("tests/cluster/scenarios", "-m", "not slow", "-n", "3", "--dist", "loadfile"), {}),
    (
        ("tests/cluster/walks/test_cluster_walks.py", "tests/cluster/chaos", "-m", "slow"),
        {"WALKS_RUNS": "60"},
    ),
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5400)]


async def record(suite: tuple[str, ...], environment: dict[str, str], to: Path) -> None:
    """Run these tests, and keep what they see. Whether they pass is told where they are run by themselves."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", *suite),
        cwd=ROOT,
        env={**os.environ, **environment, STATUSES_TO: str(to)},
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    if there := os.environ.get("STATUSES_FROM"):
        return list(kept(Path(there)))
    to = tmp_path_factory.mktemp("statuses")
    for suite, environment in SUITES:
        asyncio.run(record(suite, environment, to))
    return list(kept(to))


def test_all_tools_agree_about_what_cluster_tests_recorded(
    recorded: list[dict[str, Any]], figures: list[str]
) -> None:
    found, wrong = compared(recorded, ensure_kstatus(), Argo.of(), Flux.of(kustomization(), recorded[0]))
    figures.extend(f"agreement: {line}" for line in told(recorded, found))
    figures.append(f"agreement: {len(wrong)} states of which two tools say different things")
    assert wrong == [], "\n".join(map(str, wrong[:10]))
    assert len(recorded) >= FEWEST
    assert set(found) >= set(TABLE) - {"Unreadable"}


# Each by itself has to show in what was recorded, or so many states show nothing.
MISTAKES: Final = (
    ("status.observedGeneration ~= obj.metadata.generation", "false"),
    ('if holds("Stalled") then', "if false then"),
    ('if holds("Ready") then', "if conditions.Ready ~= nil then"),
    ("  Paused = true,", "  Releasing = true,"),
)


@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_a_mistake_in_the_script_for_argo_cd_is_found(
    recorded: list[dict[str, Any]], right: str, wrong: str
) -> None:
    script = HEALTH.read_text(encoding="utf-8")
    assert right in script
    mistaken = Argo(script.replace(right, wrong))
    each = list({shape(state): state for state in recorded}.values())
    _, found = compared(each, ensure_kstatus(), mistaken, Flux.of(kustomization(), recorded[0]))
    assert found
