"""Argo CD and Flux, by the files that users give to them, agree with our own verdict; each mistake in a file is found.

The states here are those of deploy/gitops/argocd/testdata and what the model's walks decide; tests/cluster/observe asks about those
that a cluster saw.
"""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lupa.lua51
import pytest
import yaml

from accelerator_rollout.api.models import RolloutSpec
from lab.agreement import TABLE, WANTED, Answers, ours, waited
from lab.gitops import ACTIONS, FLUX, GITOPS, HEALTH, Argo, Flux, kustomization
from lab.pages import ROOT

CASES = yaml.safe_load((HEALTH.parent / "health_test.yaml").read_text(encoding="utf-8"))["tests"]
SCRIPT = HEALTH.read_text(encoding="utf-8")
DISCOVERY = (ACTIONS / "discovery.lua").read_text(encoding="utf-8")


def body(case: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((HEALTH.parent / case["inputPath"]).read_text(encoding="utf-8"))
    return read


BODIES = [body(case) for case in CASES]
EACH = pytest.mark.parametrize("state", BODIES, ids=lambda _: "")


@pytest.mark.parametrize("case", CASES, ids=lambda c: Path(c["inputPath"]).stem)
def test_argo_cd_says_what_the_case_expects(case: dict[str, Any]) -> None:
    assert Argo.of().health(body(case)) == (case["healthStatus"]["status"], case["healthStatus"]["message"])


def test_each_state_of_the_folder_is_a_case() -> None:
    folder = HEALTH.parent / "testdata"
    assert {case["inputPath"] for case in CASES} == {f"testdata/{path.name}" for path in folder.iterdir()}


@pytest.mark.parametrize("health", ["Healthy", "Progressing", "Degraded", "Suspended"])
def test_each_health_has_a_case(health: str) -> None:
    assert any(case["healthStatus"]["status"] == health for case in CASES)


def test_the_config_map_has_the_very_scripts() -> None:
    read = yaml.safe_load((GITOPS / "argocd" / "argocd-cm.yaml").read_text(encoding="utf-8"))["data"]
    prefix, kind = "resource.customizations", "accelerator-rollout.dev_AcceleratorRollout"
    assert set(read) == {f"{prefix}.health.{kind}", f"{prefix}.actions.{kind}"}
    assert read[f"{prefix}.health.{kind}"] == SCRIPT
    told = yaml.safe_load(read[f"{prefix}.actions.{kind}"])
    assert told["discovery.lua"] == DISCOVERY
    scripts = {
        path.stem: path.read_text(encoding="utf-8") for path in ACTIONS.iterdir() if path.stem != "discovery"
    }
    assert {one["name"]: one["action.lua"] for one in told["definitions"]} == scripts


def allowed(state: dict[str, Any]) -> set[str]:
    return {name for name, told in Argo(DISCOVERY).run(state).items() if not told["disabled"]}


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("complete", {"pause", "restart"}),
        ("complete-and-paused", {"resume"}),
        ("paused", {"resume", "abort"}),
        ("step-pause", {"pause", "abort", "promote", "promote-all", "restart"}),
        ("blocked-by-a-budget", {"pause", "abort", "restart"}),
        ("stalled", {"pause", "abort", "retry", "restart"}),
        ("new", {"pause", "abort", "restart"}),
    ],
)
def test_argo_cd_offers_what_has_an_effect(name: str, others: set[str]) -> None:
    (state,) = (one for one, case in zip(BODIES, CASES, strict=True) if Path(case["inputPath"]).stem == name)
    assert allowed(state) == {"undo"} | others


@pytest.mark.parametrize("path", sorted(ACTIONS.glob("*.lua")), ids=lambda path: path.stem)
def test_what_an_action_of_argo_cd_writes_is_a_valid_spec_that_says_so(path: Path) -> None:
    if path.stem == "discovery":
        assert set(Argo.of(path).run(BODIES[0])) == {one.stem for one in ACTIONS.iterdir()} - {"discovery"}
        return
    before = BODIES[0]
    changed = Argo.of(path).run(before)
    assert changed["metadata"]["name"] == before["metadata"]["name"]
    written = RolloutSpec.from_raw(changed["spec"])
    former = RolloutSpec.from_raw(before["spec"])
    if path.stem in ("pause", "resume"):
        assert written == former.model_copy(update={"paused": path.stem == "pause"})
    elif path.stem == "restart":
        assert written.restarted_at is not None
        assert abs((written.restarted_at - datetime.now(UTC)).total_seconds()) < 60
    else:
        assert written.action is not None
        assert str(written.action.type).lower() == path.stem.replace("-", "")
        assert re.fullmatch(r"argocd-\d{10}", written.action.id)


def test_a_script_that_needs_more_of_lua_than_argo_cd_loads_fails() -> None:
    for needs in ("string.sub('a', 1)", "math.max(1, 2)", "io.write('a')", "os.time()", "('a'):upper()"):
        with pytest.raises(lupa.lua51.LuaError):
            Argo(f"local found = {needs}\n{SCRIPT}").health(BODIES[0])


def flux(expressions: dict[str, str] | None = None) -> Flux:
    if expressions is not None:
        return Flux(expressions)
    return Flux.of(kustomization(), BODIES[0])


def said(state: dict[str, Any], argo: Argo, by: Flux) -> Answers:
    # What kstatus says is asked of the original in tests/cluster/observe.
    return Answers(TABLE[ours(state)].kstatus, argo.health(state)[0], by.status(state), waited(state))


def agree(argo: Argo, by: Flux) -> bool:
    return all(said(state, argo, by) == TABLE[ours(state)] for state in BODIES)


def test_argo_cd_flux_and_we_agree_about_the_cases() -> None:
    assert agree(Argo.of(), flux())


# What is changed in the script, and how; each is a mistake that somebody could make.
MISTAKES = [
    ("obj.metadata.deletionTimestamp ~= nil", "false"),
    ("status.observedGeneration ~= obj.metadata.generation", "false"),
    ('holds("Stalled")', "false"),
    ('holds("Ready")', "true"),
    ('conditions[kind].status == "True"', "true"),
    ("Paused = true", "Paused = false"),
    ("StepPause = true", "StepPause = false"),
    ("OutsideWindow = true", "OutsideWindow = false"),
    ("WorkloadPausedByUser = true", "WorkloadPausedByUser = false"),
    ("Paused = true", "Paused = true, BlockedByPDB = true"),
    ("wanted[conditions.Progressing.reason]", "obj.spec.paused"),
]


@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_a_mistake_in_the_script_is_found(right: str, wrong: str) -> None:
    mistaken, times = re.subn(rf"(?<!\w){re.escape(right)}", wrong, SCRIPT)
    assert times == 1
    assert not agree(Argo(mistaken), flux())


@pytest.mark.parametrize("left_out", ["inProgress", "failed"])
def test_each_of_fluxs_expressions_is_needed(left_out: str) -> None:
    (expressions,) = kustomization()["spec"]["healthCheckExprs"]
    del expressions[left_out]
    assert not agree(Argo.of(), flux(expressions))


def test_fluxs_expressions_can_be_evaluated_of_an_object_without_status_and_of_one_without_conditions() -> (
    None
):
    bare = {key: BODIES[0][key] for key in ("apiVersion", "kind", "metadata", "spec")}
    assert flux().status(bare | {"status": {}}) == "InProgress"
    assert flux().status(bare | {"status": {"conditions": []}}) == "InProgress"
    generation = bare["metadata"]["generation"]
    assert flux().status(bare | {"status": {"observedGeneration": generation}}) == "InProgress"


def test_the_example_for_flux_names_what_there_is() -> None:
    spec = kustomization()["spec"]
    folder = ROOT / spec["path"]
    found = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in folder.glob("rollout.yaml")]
    (check,) = spec["healthChecks"]
    assert check["name"] in [one["metadata"]["name"] for one in found]
    assert FLUX.stem == folder.name


def test_the_page_has_the_table_of_who_agrees() -> None:
    page = (ROOT / "docs" / "gitops.md").read_text(encoding="utf-8")
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in page.splitlines()
        if line[:2] == "| "
    ]
    told = [(mine, s.kstatus, s.argo, s.flux, "ends" if s.wait else "waits") for mine, s in TABLE.items()]
    assert rows[1:] == told


def test_the_page_names_the_waits_that_somebody_wanted() -> None:
    page = (ROOT / "docs" / "gitops.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"\*Waiting as wanted\*: (.*?)\.", page, flags=re.DOTALL)
    assert re.findall(r"`([A-Z]\w+)`", sentence) == ["Progressing", *map(str, WANTED)]
