"""Which cluster `python -m lab nodes` may touch."""

from pathlib import Path

import pytest

from lab.kubeconfig import Connection
from lab.nodes.cli import main


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    server = "https://203.0.113.1:6443"
    Connection(server, token="secret").write_kubeconfig(path, context="production", user="someone")
    return path


def test_a_cluster_elsewhere_is_not_touched_unless_its_context_is_named(
    foreign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--kubeconfig", str(foreign)]) == 2
    assert "leads to https://203.0.113.1:6443, which is not this machine" in capsys.readouterr().err


def test_the_current_context_of_kubectl_is_never_used_by_itself(
    foreign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(foreign))
    monkeypatch.setenv("ACCELERATOR_ROLLOUT_CACHE", str(tmp_path / "cache"))

    assert main([]) == 2
    assert "no lab named 'default' is up: start one with `python -m lab up`" in capsys.readouterr().err


def test_a_context_that_does_not_exist_is_named(
    foreign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{foreign.parent / 'absent'}:{foreign}")

    assert main(["--context", "staging"]) == 2
    assert f"the kubeconfig {foreign} has no context 'staging'" in capsys.readouterr().err


@pytest.mark.parametrize("count", ["0", "-1", "many"])
def test_a_count_of_nodes_is_a_positive_number(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--count", count])

    assert caught.value.code == 2
    assert "--count" in capsys.readouterr().err
