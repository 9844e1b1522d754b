"""doctor says what is missing and how to get it; open-gates opens our gates alone, after a warning; completion completes."""

import json
import sys
from typing import Any

import pytest

from accelerator_rollout.cli.completion import for_kubectl
from accelerator_rollout.names import GATE
from unit.cli import scenes
from unit.cli.conftest import Run
from unit.cli.server import APPS, CORE, DEVICES, OURS, Server
from unit.observe import objects as o

LABELS = {"app.kubernetes.io/name": "accelerator-rollout", "app.kubernetes.io/component": "operator"}
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


def install(server: Server) -> None:
    operator = o.deployment("operator")
    operator["metadata"]["labels"] = LABELS
    operator["status"]["readyReplicas"] = 1
    server.put(APPS, "deployments", operator)
    for name in ("gate.accelerator-rollout.dev", "park.accelerator-rollout.dev"):
        for plural in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"):
            server.put(ADMISSION, plural, {"metadata": o.meta(name, namespace="")})


def grades(run: Run) -> dict[str, str]:
    return {one["what"]: one["grade"] for one in json.loads(run("doctor", "-o", "json").out)}


def test_a_cluster_that_has_all_is_well(run: Run, server: Server) -> None:
    install(server)
    scenes.workload(server)
    scenes.rollout(server, scenes.COMPLETE)
    said = run("doctor")
    assert said.code == 0, said.out
    found = grades(run)
    assert {what for what, grade in found.items() if grade != "ok"} == {"DeviceTaintRule"}


def test_what_is_missing_is_named_with_the_way_to_get_it(run: Run, server: Server) -> None:
    said = run("doctor")
    assert said.code == 1
    assert "operator: kubectl apply --server-side -k deploy/kustomize/base" in said.out
    del server.served[OURS]
    server.version = ("1", "31")
    found = grades(run)
    assert (found["AcceleratorRollout"], found["Kubernetes"]) == ("missing", "missing")


def test_what_may_not_be_looked_at_ends_nothing(run: Run, server: Server) -> None:
    install(server)
    server.refuse["/apis/apps/v1/deployments"] = (403, "no deployments for you")
    found = grades(run)
    assert found["operator"] == "warning"
    assert found["parking policy"] == "ok"


def test_a_pool_without_all_its_slices_and_a_stalled_rollout_are_told(run: Run, server: Server) -> None:
    install(server)
    scenes.workload(server)
    scenes.rollout(server, scenes.STALLED)
    server.objects[f"{DEVICES}/resourceslices/slice-0"]["spec"]["pool"]["resourceSliceCount"] = 2
    found = grades(run)
    assert (found["driver lpu.example.com"], found["stalled"]) == ("warning", "warning")


def gated(server: Server, *names: str) -> None:
    for name in names:
        server.put(CORE, "pods", o.pod(name, node="", phase="Pending", gated=True))


def opened(server: Server) -> list[Any]:
    return [path.rpartition("/")[2] for method, path, _ in server.calls if method == "PATCH"]


def test_gates_are_opened_after_a_warning(run: Run, server: Server) -> None:
    gated(server, "a", "b")
    said = run("open-gates", "a", "--yes")
    assert said.code == 0
    assert "WARNING: nothing is proven" in said.err
    assert opened(server) == ["a"]
    body = server.written()[0]
    assert body == {
        "metadata": {"uid": "uid-a"},
        "spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]},
    }


@pytest.mark.parametrize(
    ("arguments", "code"), [(("--all",), 1), (("--all", "--dry-run"), 0), ((), 2), (("c",), 1)]
)
def test_without_a_clear_word_no_gate_is_opened(
    run: Run, server: Server, arguments: tuple[str, ...], code: int
) -> None:
    gated(server, "a", "b")
    assert run("open-gates", *arguments).code == code
    assert opened(server) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(run: Run, shell: str) -> None:
    said = run("completion", shell)
    assert said.code == 0
    assert "_ACCELERATOR_ROLLOUT_COMPLETE" in said.out


@pytest.mark.parametrize(
    ("typed", "suggested"), [(["his"], ["history"]), (["get", "db"], ["db-a", "db-b"]), (["get", "x"], [])]
)
def test_kubectl_is_told_what_to_suggest(
    run: Run,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: list[str],
    suggested: list[str],
) -> None:
    del run  # its kubeconfig
    for name in ("db-a", "db-b"):
        scenes.rollout(server, scenes.COMPLETE, name)
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-accelerator_rollout", *typed])
    assert for_kubectl() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("\t")[0] for line in lines] == [*suggested, ":4"]
