"""Each alert fires when its fault lasts, stays quiet before and without it, and has a page that says what to do."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "monitoring" / "rules.yaml"
ALERTS = {rule["alert"]: rule for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}

ME = 'namespace="team",name="web"'
DOWN = "accelerator_rollout_build_info"
WATCH, CALLS = "accelerator_rollout_watch_up", "accelerator_rollout_api_requests_total"
ERRORS, WAIT = "accelerator_rollout_reconcile_errors_total", "accelerator_rollout_queue_wait_seconds_bucket"
CONDITION, UNPROVEN = "accelerator_rollout_condition", "accelerator_rollout_unproven_releases"
HELD = f"accelerator_rollout_holds_in_force{{{ME}}}"


def flat(name: str, value: object) -> dict[str, str]:
    """A series that says this once a minute, for hours."""
    return {"series": name, "values": f"{value}x300"}


# By alert: the series of a fault, those of a healthy operator, and the minutes it has to last.
CASES: dict[str, tuple[list[dict[str, str]], list[dict[str, str]], int]] = {
    "Stalled": (
        [flat(f'{CONDITION}{{{ME},type="Stalled",reason="ReleaseTimeout"}}', 1)],
        [flat(f'{CONDITION}{{{ME},type="Progressing",reason="Gated"}}', 1)],
        5,
    ),
    "ReleaseUnproven": ([flat(f"{UNPROVEN}{{{ME}}}", 1)], [flat(f"{UNPROVEN}{{{ME}}}", 0)], 15),
    "HoldLong": (
        [flat(f"{UNPROVEN}{{{ME}}}", 1), flat(HELD, 2)],
        [flat(f"{UNPROVEN}{{{ME}}}", 0), flat(HELD, 4)],
        120,
    ),
    "DeviceTaken": (
        [flat(f'{CONDITION}{{{ME},type="DevicesReleased",reason="DeviceTaken"}}', 0)],
        [flat(f'{CONDITION}{{{ME},type="DevicesReleased",reason="AllReleased"}}', 1)],
        10,
    ),
    "DoubleAllocation": (
        [flat(f'{CONDITION}{{{ME},type="Progressing",reason="DoubleAllocation"}}', 1)],
        [flat(f'{CONDITION}{{{ME},type="Progressing",reason="Complete"}}', 1)],
        1,
    ),
    "GateOld": (
        [flat(f"accelerator_rollout_oldest_gate_age_seconds{{{ME}}}", 1801)],
        [flat(f"accelerator_rollout_oldest_gate_age_seconds{{{ME}}}", 60)],
        5,
    ),
    "OperatorDown": ([flat("up", 1)], [flat(DOWN, 1)], 5),
    "NoLeader": (
        [flat('accelerator_rollout_leader{instance="a"}', 0)],
        [
            flat('accelerator_rollout_leader{instance="a"}', 0),
            flat('accelerator_rollout_leader{instance="b"}', 1),
        ],
        2,
    ),
    "StoreStale": (
        [flat('accelerator_rollout_store_age_seconds{instance="a"}', 181)],
        [flat('accelerator_rollout_store_age_seconds{instance="a"}', 61)],
        2,
    ),
    "WatchDown": (
        [flat(f'{WATCH}{{instance="a",resource="pods"}}', 0)],
        [flat(f'{WATCH}{{instance="a",resource="pods"}}', 1)],
        5,
    ),
    "ApiErrors": (
        [flat(f'{CALLS}{{verb="get",code="200"}}', "0+8"), flat(f'{CALLS}{{verb="get",code="503"}}', "0+2")],
        [
            flat(f'{CALLS}{{verb="get",code="200"}}', "0+99"),
            flat(f'{CALLS}{{verb="get",code="503"}}', "0+1"),
            flat(f'{CALLS}{{verb="watch",code="error"}}', "0+90"),
        ],
        10,
    ),
    "ReconcileErrors": (
        [flat(f'{ERRORS}{{error="ForbiddenError"}}', "0+1")],
        [flat(f'{ERRORS}{{error="ForbiddenError"}}', 7)],
        5,
    ),
    "QueueSlow": (
        [
            flat(f'{WAIT}{{le="5"}}', "0+1"),
            flat(f'{WAIT}{{le="15"}}', "0+9"),
            flat(f'{WAIT}{{le="+Inf"}}', "0+9"),
        ],
        [
            flat(f'{WAIT}{{le="5"}}', "0+9"),
            flat(f'{WAIT}{{le="15"}}', "0+9"),
            flat(f'{WAIT}{{le="+Inf"}}', "0+9"),
        ],
        10,
    ),
}


def firing(folder: Path, alert: str, series: list[dict[str, str]], minute: int) -> bool:
    """Whether the alert fires at this minute, by promtool."""
    case: dict[str, Any] = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            {"expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})', "eval_time": f"{minute}m"}
        ],
    }
    asked = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [case]}
    file = folder / "asked.yaml"
    file.write_text(yaml.safe_dump(asked))
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], check=False, capture_output=True, text=True
    )
    told = done.stdout + done.stderr
    assert "parse error" not in told, told
    # Nothing was expected: success means that nothing fires.
    return "SUCCESS" not in told


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_it_fires_once_its_fault_lasts(alert: str, tmp_path: Path) -> None:
    fault, _, minutes = CASES[alert.removeprefix("AcceleratorRollout")]
    later = minutes + 20  # a rate needs some minutes of its own
    assert firing(tmp_path, alert, fault, later)
    assert not firing(tmp_path, alert, fault, minutes - 1)


# What each is about, and the minutes that it lasts. The longest: with these, a process that ends now and then would keep them quiet.
OUTLASTING = {"ReleaseUnproven": ([UNPROVEN], 15), "HoldLong": ([UNPROVEN, HELD.partition("{")[0]], 120)}


def led(name: str, *courses: str) -> list[dict[str, str]]:
    """The series of an object, as one process after the other told it."""
    return [{"series": f'{name}{{{ME},instance="{n}"}}', "values": c} for n, c in enumerate(courses)]


@pytest.mark.parametrize("alert", OUTLASTING)
def test_its_time_goes_on_while_another_process_takes_over(alert: str, tmp_path: Path) -> None:
    names, minutes = OUTLASTING[alert]
    half = minutes // 2
    courses = (f"1x{half} stale", f"_x{half + 3} 1x300")  # for two minutes nobody tells
    series = [one for name in names for one in led(name, *courses)]
    assert firing(tmp_path, f"AcceleratorRollout{alert}", series, minutes + 5)
    assert not firing(tmp_path, f"AcceleratorRollout{alert}", series, minutes - 1)


def test_a_release_that_was_unproven_when_its_object_went_is_not_held_against_it(tmp_path: Path) -> None:
    for course in ("1x9 stale", "1x9 0x30"):
        series = led(UNPROVEN, course)
        assert not any(firing(tmp_path, "AcceleratorRolloutReleaseUnproven", series, m) for m in range(9, 25))


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_it_stays_quiet_while_all_is_well(alert: str, tmp_path: Path) -> None:
    _, well, minutes = CASES[alert.removeprefix("AcceleratorRollout")]
    assert not firing(tmp_path, alert, well, minutes + 20)


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_it_names_what_to_do_and_has_a_page(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["for"]
    assert {"summary", "description", "runbook_url"} <= rule["annotations"].keys()
    page = (ROOT / rule["annotations"]["runbook_url"]).read_text(encoding="utf-8")
    assert page.startswith(f"# {alert}\n")
    assert "## What to do" in page
