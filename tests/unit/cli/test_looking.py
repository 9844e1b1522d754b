"""list, get, status and history: what they show, to people and to programs, and how they end."""

import json

import pytest
import yaml

from accelerator_rollout.cli import live
from accelerator_rollout.cli.views import RolloutView, picture
from accelerator_rollout.decide.snapshot import Snapshot
from unit.cli import scenes
from unit.cli.conftest import Run
from unit.cli.server import APPS, CORE, OURS, Server
from unit.observe import objects as o


def test_the_list_has_a_row_for_each_rollout(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.COMPLETE, "a")
    scenes.rollout(server, scenes.STALLED, "b")
    said = run("list")
    assert said.code == 0
    head, first, second = said.lines
    assert head.split() == ["NAME", "WORKLOAD", "UPDATED", "AVAILABLE", "STATE", "SINCE", "REASON"]
    assert first.split()[:5] == ["a", "StatefulSet/db", "1/2", "1/2", "Complete"]
    assert second.split()[4] == "Stalled"
    assert second.split()[-1] == "ReleaseTimeout"


def test_the_list_of_all_namespaces_names_them(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.COMPLETE)
    scenes.rollout(server, scenes.COMPLETE, namespace="other")
    assert [line.split()[0] for line in run("list", "-A").lines] == ["NAMESPACE", "other", "team"]
    assert [line.split()[0] for line in run("list", "-n", "other").lines] == ["NAME", "db"]


def test_an_object_that_cannot_be_read_keeps_no_other_from_the_list(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.COMPLETE, "a")
    newer = o.rollout("b")
    newer["spec"]["unheardOf"] = 1
    server.put(OURS, "acceleratorrollouts", newer)
    assert "SpecUnreadable" in run("list").lines[2]
    assert "unheardOf" in run("get", "b").err


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_programs_get_the_objects_as_they_are(run: Run, server: Server, form: str) -> None:
    path = scenes.rollout(server, scenes.COMPLETE)
    read = json.loads if form == "json" else yaml.safe_load
    assert read(run("get", "db", "-o", form).out) == server.objects[path]
    assert read(run("list", "-o", form).out)["items"] == [server.objects[path]]


def test_the_tree_shows_revisions_pods_claims_and_devices(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.RELEASING)
    scenes.workload(server)
    said = run("get", "db")
    assert said.code == 0, said.err
    text = said.out
    assert "Name:      team/db" in text
    assert "1 of 2 updated" in text
    assert "revision db-2 (target): 1 pod" in text
    assert "revision db-1: 1 pod" in text
    (claim,) = [line for line in said.lines if "db-1-lpu" in line]
    assert claim.split()[-2:] == ["Allocated", "lpu.example.com/node-1/dev-0"]


def test_a_pod_that_is_gone_stands_before_the_others(run: Run, server: Server) -> None:
    gone = o.replacement("db-9", claim_name="db-9-lpu", device="dev-9") | {"reason": "ReleaseUnproven"}
    scenes.rollout(server, scenes.RELEASING, replacements=[gone])
    scenes.workload(server)
    said = run("get", "db")
    (row,) = [line for line in said.lines if "pod db-9" in line]
    assert "Releasing" in row
    assert "ReleaseUnproven" in row
    assert said.out.index("db-9") < said.out.index("revision db-2 (target)")
    assert "lpu.example.com/node-1/dev-9" in said.out


def test_what_is_piped_has_no_colours_and_no_blanks_at_the_ends(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.RELEASING)
    scenes.workload(server)
    said = run("get", "db").out + run("list").out
    assert "\x1b" not in said
    assert [line for line in said.splitlines() if line != line.rstrip()] == []


def test_what_may_not_be_read_is_left_out_and_said(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.RELEASING)
    scenes.workload(server)
    server.refuse["/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"] = (403, "claims are forbidden")
    said = run("get", "db")
    assert said.code == 0
    assert "db-1" in said.out
    assert "resourceclaims are not shown: " in said.err


def test_the_status_is_one_line(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.RELEASING)
    said = run("status", "db")
    assert said.code == 0
    assert said.lines == ["db: Progressing (Releasing): replacement of pod db-1: Releasing"]
    assert json.loads(run("status", "db", "-o", "json").out)["verdict"] == "Progressing"


@pytest.mark.parametrize(("conditions", "code"), [(scenes.COMPLETE, 0), (scenes.STALLED, 1)])
def test_who_waits_for_a_rollout_that_has_ended_is_told_at_once(
    run: Run, server: Server, conditions: list[dict[str, object]], code: int
) -> None:
    scenes.rollout(server, conditions)
    assert run("status", "db", "--watch").code == code


def test_who_waits_sees_each_change_until_the_end(run: Run, server: Server) -> None:
    path = scenes.rollout(server, scenes.RELEASING)

    def finish() -> None:
        later = json.loads(json.dumps(server.objects[path]))
        later["status"]["conditions"] = scenes.COMPLETE
        server.put(OURS, "acceleratorrollouts", later)

    server.on_watch.append(finish)
    said = run("status", "db", "--watch", "--timeout", "20s")
    assert said.code == 0
    assert [line.split()[1].rstrip(":") for line in said.lines] == ["Progressing", "Complete"]


def test_a_change_of_the_workload_that_nobody_saw_yet_is_not_complete(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.COMPLETE, observedWorkloadGeneration=1)
    scenes.workload(server)
    assert run("status", "db", "--watch").code == 0
    server.objects[f"{APPS}/namespaces/team/statefulsets/db"]["metadata"]["generation"] = 2
    assert run("status", "db", "--watch", "--timeout", "1s").code == 1


def test_who_waits_for_long_is_told_how_to_go_on(run: Run, server: Server) -> None:
    scenes.rollout(server, scenes.RELEASING)
    said = run("status", "db", "--watch", "--timeout", "1s")
    assert said.code == 1
    assert "is not complete after 1s" in said.err
    assert "accelerator-rollout why db -n team" in said.err


def test_who_waits_for_what_is_deleted_is_told(run: Run, server: Server) -> None:
    path = scenes.rollout(server, scenes.RELEASING)
    server.on_watch.append(lambda: server.drop(path))
    said = run("status", "db", "--watch", "--timeout", "20s")
    assert said.code == 1
    assert "was deleted" in said.err


def test_the_history_tells_how_long_it_took(run: Run, server: Server) -> None:
    past = {
        "revision": "db-2",
        "outcome": "Completed",
        "startedAt": "2026-01-31T12:00:00Z",
        "finishedAt": "2026-01-31T12:03:12Z",
        "replacements": [
            {
                "podName": "db-0",
                "replacedBy": "db-0",
                "proof": "KubeletTerminalPhase",
                "stages": [{"stage": "Terminating", "seconds": 70}, {"stage": "Releasing", "seconds": 2}],
            }
        ],
    }
    scenes.rollout(server, scenes.COMPLETE, history=[past])
    row = run("history", "db").lines[1]
    assert "db-2" in row
    assert "Completed" in row
    assert "3m12s" in row
    assert "Terminating=1m10s Releasing=2s" in run("history", "db", "-o", "wide").out
    assert json.loads(run("history", "db", "-o", "json").out)[0]["revision"] == "db-2"


def test_a_piped_picture_is_written_again_at_a_change(
    run: Run, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scenes.rollout(server, scenes.RELEASING)
    scenes.workload(server)

    def change() -> None:
        pod = json.loads(json.dumps(server.objects[f"{CORE}/namespaces/team/pods/db-0"]))
        pod["status"]["conditions"] = []
        server.put(CORE, "pods", pod)

    following = iter((change, lambda: server.drop(path)))

    def drawn(snapshot: Snapshot) -> RolloutView:
        next(following)()
        return picture(snapshot)

    monkeypatch.setattr(live, "picture", drawn)
    said = run("get", "db", "--watch")
    assert said.code == 0
    assert sum(line.startswith("--- 20") for line in said.lines) == 2
    assert "NotReady" in said.out
    assert said.lines[-1] == "--- db was deleted"
