"""What docs/cli.md shows is what the commands say, of one example. UPDATE_PAGES=1 writes it anew."""

import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path

import pytest

from accelerator_rollout.cli.main import COMMANDS
from accelerator_rollout.cli.session import Session
from unit.cli import scenes
from unit.cli.conftest import Run
from unit.cli.server import POLICY, Server
from unit.observe import objects as o

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"
SHOWN = re.compile(r"<!-- shown: (.+) -->\n```text\n(?P<text>(?:.*\n)*?)```\n")
NOW = datetime(2026, 1, 31, 12, 3, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _example(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "now", staticmethod(lambda: NOW))
    monkeypatch.setattr(secrets, "token_hex", lambda _: "c0de")
    past = {
        "revision": "db-2",
        "outcome": "InProgress",
        "startedAt": "2026-01-31T12:00:00Z",
        "replacements": [{"podName": "db-0", "replacedBy": "db-0", "stages": []}],
    }
    blocked = [
        scenes.condition("Ready", "BlockedByPDB", status="False"),
        scenes.condition(
            "Progressing", "BlockedByPDB", "PodDisruptionBudget db allows no disruption now", "False"
        ),
        scenes.condition("Reconciling", "BlockedByPDB"),
    ]
    scenes.rollout(server, blocked, history=[past])
    scenes.workload(server)
    budget = o.budget("db", selector={"matchLabels": {"app": "web"}})
    budget["status"]["disruptionsAllowed"] = 0
    budget["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
    park = {"metadata": o.meta("park.accelerator-rollout.dev", namespace="")}
    server.put("/apis/admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", park)
    server.put(POLICY, "poddisruptionbudgets", budget)


def test_the_page_shows_what_one_sees(run: Run) -> None:
    before = PAGE.read_text(encoding="utf-8")

    def fresh(found: re.Match[str]) -> str:
        said = run(*found[1].split())
        assert said.code == 0, said.err
        body = said.out.strip("\n")
        return f"<!-- shown: {found[1]} -->\n```text\n$ accelerator-rollout {found[1]}\n{body}\n```\n"

    after = SHOWN.sub(fresh, before)
    if os.environ.get("UPDATE_PAGES"):
        PAGE.write_text(after, encoding="utf-8")
    assert after == before
    assert len(SHOWN.findall(before)) >= 6


def test_the_page_names_each_command() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [
        name for name in COMMANDS if name not in ("run", "crd") and not re.search(rf"\b{name}\b", text)
    ] == []
