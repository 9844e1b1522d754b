"""What deploy/monitoring/build.py makes is what is committed, asks only for metrics that exist, and can be installed."""

import json
import re
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import yaml

from accelerator_rollout.app import Operator
from accelerator_rollout.config import Settings
from lab.toolchain import find_kubectl

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
BOARDS = sorted((MONITORING / "dashboards").glob("*.json"))
SUFFIX = re.compile(r"_(bucket|sum|count|total)$")


def metrics() -> set[str]:
    found = set()
    for family in Operator(Settings()).metrics.registry.collect():
        found.add(f"{family.name}_info" if family.type == "info" else family.name)
    return found


def queries(board: Path) -> list[str]:
    panels = json.loads(board.read_text(encoding="utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_what_is_committed_is_what_is_made() -> None:
    made = cast("Callable[[], dict[Path, str]]", runpy.run_path(str(MONITORING / "build.py"))["files"])()
    assert {p.name for p in made if p.suffix == ".json"} == {b.name for b in BOARDS}
    for file, content in made.items():
        assert file.read_text(encoding="utf-8") == content, f"run `make dashboards` for {file.name}"


async def test_dashboards_and_alerts_ask_for_metrics_that_exist() -> None:
    rules = yaml.safe_load((MONITORING / "rules.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    asked = [*(rule["expr"] for rule in rules), *(q for board in BOARDS for q in queries(board))]
    names = {
        SUFFIX.sub("", name) for query in asked for name in re.findall(r"accelerator_rollout_\w+", query)
    }
    assert names <= metrics()


def test_panels_lie_beside_each_other() -> None:
    for board in BOARDS:
        panels = json.loads(board.read_text(encoding="utf-8"))["panels"]
        places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
        assert len(set(places)) == len(places), board.name


@pytest.mark.parametrize("component", ["prometheus-operator", "dashboards"])
def test_the_components_can_be_built(component: str) -> None:
    overlay = MONITORING.parent / "kustomize" / "overlays" / "monitoring"
    built = subprocess.run(
        [str(find_kubectl()), "kustomize", str(overlay)], check=True, capture_output=True, text=True
    ).stdout
    kinds = {body["kind"] for body in yaml.safe_load_all(built)}
    wanted = {"prometheus-operator": {"ServiceMonitor", "PrometheusRule"}, "dashboards": {"ConfigMap"}}
    assert wanted[component] <= kinds
