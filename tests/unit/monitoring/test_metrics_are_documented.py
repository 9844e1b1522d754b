"""Every metric stands in docs/monitoring.md, and nothing else does."""

import re
from pathlib import Path

from accelerator_rollout.app import Operator
from accelerator_rollout.config import Settings

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| `(accelerator_rollout_\w+)` \|", re.MULTILINE)


def registered() -> set[str]:
    """The names of all series families as a scraper sees them."""
    found = set()
    for family in Operator(Settings()).metrics.registry.collect():
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        found.add(f"{family.name}{suffix}")
    return found


async def test_each_metric_is_documented_and_none_that_is_not_there() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    rows = ROW.findall(page)
    assert len(rows) == len(set(rows))
    assert set(rows) == registered()
