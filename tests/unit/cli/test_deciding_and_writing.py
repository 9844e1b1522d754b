"""why and plan decide as the operator does; the commands that write change spec alone, once, of the object looked at."""

import json
from typing import Any

import pytest

from accelerator_rollout.names import FINALIZER
from unit.cli import scenes
from unit.cli.conftest import Run
from unit.cli.server import APPS, OURS, Server
from unit.observe import objects as o


def test_why_names_cause_and_next_step(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.COMPLETE)
    said = run("why", "db")
    assert said.code == 0, said.err
    assert "db is Stalled (WorkloadNotFound)" in said.out
    assert "to do:     Create it" in said.out


def test_why_tells_the_stored_words_where_not_all_may_be_read(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.STALLED)
    server.refuse["/api/v1/nodes"] = (403, "no")
    assert "db is Stalled (ReleaseTimeout)" in run("why", "db").out


def test_why_says_that_no_operator_looks(run: Run, server: Server) -> None:
    path = scenes.rollout(server, scenes.COMPLETE)
    server.objects[path]["metadata"]["generation"] = 2
    assert "generation 2 of AcceleratorRollout db was not looked at" in run("why", "db").out


def test_a_parking_policy_that_is_missing_is_remarked(run: Run, server: Server) -> None:
    rollout = o.rollout("web", status=scenes.status(scenes.RELEASING))
    rollout["metadata"]["finalizers"] = [FINALIZER]
    server.put(OURS, "acceleratorrollouts", rollout)
    web = o.deployment()
    web["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    server.put(APPS, "deployments", web)
    lacking = "ParkingPolicyMissing"
    assert lacking in run("why", "web", "-o", "json").out
    park = {"metadata": o.meta("park.accelerator-rollout.dev", namespace="")}
    server.put("/apis/admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", park)
    assert lacking not in run("why", "web", "-o", "json").out


def test_the_plan_shows_order_devices_and_what_would_be_done(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.RELEASING)
    scenes.workload(server, pods=3)
    found = json.loads(run("plan", "db", "-o", "json").out)
    assert [one["pod"] for one in found["order"]] == ["db-2", "db-1"]
    assert found["order"][0]["devices"] == ["lpu.example.com/node-2/dev-0"]
    assert "evict pod db-2" in found["actions"]
    assert found["order"][0]["now"] is True
    said = run("plan", "db")
    assert said.code == 0
    assert "  evict pod db-2" in said.lines


@pytest.mark.parametrize(
    ("command", "spec"),
    [(("pause",), {"paused": True}), (("resume",), {"paused": None})],
)
def test_a_pause_is_one_field(
    run: Run, server: Server, command: tuple[str, ...], spec: dict[str, Any]
) -> None:
    path = scenes.rollout(server, scenes.COMPLETE)
    before = server.objects[path]["metadata"]
    assert run(*command, "db").code == 0
    same = {"uid": before["uid"], "resourceVersion": before["resourceVersion"]}
    assert server.written() == [{"metadata": same, "spec": spec}]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (("abort",), "Abort"),
        (("retry",), "Retry"),
        (("promote",), "Promote"),
        (("promote", "--all"), "PromoteAll"),
    ],
)
def test_each_request_has_an_id_of_its_own(
    run: Run, server: Server, command: tuple[str, ...], kind: str
) -> None:
    scenes.rollout(server, scenes.RELEASING)
    first, second = run(*command, "db"), run(*command, "db")
    assert (first.code, second.code) == (0, 0)
    asked = [body["spec"]["action"] for body in server.written()]
    assert [one["type"] for one in asked] == [kind, kind]
    assert asked[0]["id"] != asked[1]["id"]
    assert asked[0]["id"] in first.out
    assert "was not seen yet" in second.err


def test_who_waits_is_told_when_it_was_seen(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.RELEASING)
    server.on_patch.append(lambda raw: raw["status"].update(observedActionID=raw["spec"]["action"]["id"]))
    said = run("abort", "db", "--wait")
    assert said.code == 0
    assert said.lines[-1] == "db: seen by the operator"


def test_who_waits_in_vain_is_told_so(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.RELEASING)
    said = run("abort", "db", "--wait", "--timeout", "1s")
    assert said.code == 1
    assert "Does it run?" in said.err


def test_a_dry_run_writes_nothing(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.RELEASING)
    assert "nothing was written" in run("restart", "db", "--dry-run").out
    assert server.written() == []


def test_undo_says_where_it_goes(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.RELEASING)
    scenes.workload(server)
    assert "set the template by hand" in run("undo", "db").err
    former = o.controller_revision("db-1", image="v0")
    former["metadata"]["ownerReferences"][0] |= {"kind": "StatefulSet", "name": "db", "uid": "uid-db"}
    server.put(APPS, "controllerrevisions", former)
    said = run("undo", "db")
    assert said.code == 0, said.err
    assert "back to db-1 (revision 1)" in said.out
    assert server.written()[0]["spec"]["action"]["type"] == "Undo"


def test_a_tool_that_puts_it_back_is_named(run: Run, server: Server) -> None:
    path = scenes.rollout(server, scenes.RELEASING)
    server.objects[path]["metadata"]["labels"] = {"argocd.argoproj.io/instance": "models"}
    assert "Argo CD manages this AcceleratorRollout" in run("pause", "db").err


def test_a_right_that_lacks_is_a_sentence(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.RELEASING)
    server.refuse[f"{OURS}/namespaces/team/acceleratorrollouts/db"] = (403, "cannot get")
    assert run("pause", "db").code == 1
