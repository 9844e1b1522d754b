"""Whatever goes wrong, people get a sentence with the next step, and no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accelerator_rollout.cli.main import COMMANDS, main
from accelerator_rollout.cli.session import Session
from unit.cli import scenes
from unit.cli.conftest import Run
from unit.cli.server import OURS, Server

LIST = f"{OURS}/namespaces/team/acceleratorrollouts"


def test_a_wrong_name_brings_a_suggestion(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.COMPLETE, "llm-worker")
    said = run("get", "llm-wroker")
    assert said.code == 1
    assert "Did you mean llm-worker?" in said.err


def test_a_name_of_another_namespace_is_found_there(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.COMPLETE, "db", namespace="other")
    assert "There is one in namespace other" in run("get", "db").err


def test_in_an_empty_namespace_the_next_step_is_to_look_in_all(run: Run) -> None:
    assert "list -A" in run("get", "db").err


def test_a_cluster_without_the_kind_is_told_how_to_get_it(run: Run, server: Server) -> None:
    del server.served[OURS]
    for arguments in (("list",), ("get", "db"), ("status", "db")):
        said = run(*arguments)
        assert said.code == 1
        assert "kubectl apply --server-side -k deploy/kustomize/base" in said.err


def test_a_lacking_right_is_named_with_the_question_to_ask(run: Run, server: Server) -> None:
    server.refuse[LIST] = (403, "User cannot list resource")
    said = run("list")
    assert said.code == 1
    assert "User cannot list resource" in said.err
    assert "kubectl auth can-i list acceleratorrollouts.accelerator-rollout.dev -n team" in said.err


def test_a_cluster_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = Server(url="http://127.0.0.1:1").kubeconfig(tmp_path)
    assert main(["list", "--kubeconfig", str(nowhere)]) == 1
    assert "does not answer: connection refused" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "no: kubeconfig", "[", "clusters: {}"])
def test_a_kubeconfig_that_is_none(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content, encoding="utf-8")
    assert main(["list", "--kubeconfig", str(path)]) == 1
    said = capsys.readouterr().err
    assert "no cluster to speak to" in said
    assert "--context" in said


def test_a_context_that_is_none(run: Run) -> None:
    said = run("list", "--context", "no-such")
    assert said.code == 1
    assert "no-such" in said.err


def test_the_namespace_is_the_contexts(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.COMPLETE, "db", namespace="elsewhere")
    assert "namespace team" in run("list").err
    assert "db" in run("list", "--context", "other").out
    assert "db" in run("--context", "other", "list").out


def test_a_wrong_command_brings_a_suggestion(run: Run) -> None:
    said = run("statsu", "db")
    assert said.code == 2
    assert "Did you mean status?" in said.err


@pytest.mark.parametrize(
    "arguments", [("get",), ("status", "db", "--timeout", "5s"), ("list", "-o", "xml"), ("--no-such",)]
)
def test_wrong_usage_is_code_2(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).code == 2


def test_help_lists_every_command(run: Run) -> None:
    said = run("--help")
    assert said.code == 0
    assert [name for name in COMMANDS if f"  {name} " not in said.out] == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_has_help(run: Run, name: str) -> None:
    said = run(name, "--help")
    assert said.code == 0
    assert "Usage: accelerator-rollout " in said.out


def test_an_interruption_is_code_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "listed", interrupted)
    said = run("list")
    assert said.code == 130
    assert said.err == "accelerator-rollout: interrupted\n"


def test_a_defect_is_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("two left feet")

    monkeypatch.setattr(Session, "listed", broken)
    said = run("list")
    assert said.code == 1
    assert "a defect: RuntimeError: two left feet" in said.err


def test_a_closed_pipe_is_no_failure(server: Server, tmp_path: Path) -> None:
    for number in range(300):
        scenes.rollout(server, scenes.COMPLETE, f"db-{number}")
    script = f"{sys.executable} -m accelerator_rollout list -o wide | head -n 1; exit ${{PIPESTATUS[0]}}"
    env = {**os.environ, "KUBECONFIG": str(server.kubeconfig(tmp_path))}
    done = subprocess.run(
        ["bash", "-c", script], env=env, check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("NAME")


def loaded(imports: str, modules: tuple[str, ...]) -> str:
    """Which of the modules a process has after these statements."""
    script = f"import sys; {imports}; print([m for m in {modules} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def test_run_loads_nothing_that_it_does_not_need() -> None:
    imports = "from accelerator_rollout.cli import main, running; main.group.get_command(None, 'run')"
    assert loaded(imports, ("rich", "pykube", "kopf", "kubernetes")) == "[]"


def test_looking_loads_no_operator() -> None:
    assert loaded("from accelerator_rollout.cli import looking", ("kopf", "kubernetes.aio")) == "[]"
