"""docs/conditions.md says of each reason which alert fires while it lasts: what the rules themselves make of its condition."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "conditions.md").read_text(encoding="utf-8")
RULES = yaml.safe_load((ROOT / "deploy" / "monitoring" / "rules.yaml").read_text(encoding="utf-8"))["groups"][
    0
]["rules"]
PREFIX = "AcceleratorRollout"

# By section: the conditions that its reasons are of, and whether they are true then.
SECTIONS: dict[str, tuple[tuple[str, bool], ...]] = {
    "Why devices are not free": (("DevicesReleased", False),),
    "Why nothing moves": (("Progressing", True), ("Progressing", False), ("Reconciling", True)),
    "Why a container does not run": (("Progressing", True),),
    "Whether devices are held": (("HoldInForce", False),),
    "Why it is Stalled": (("Stalled", True),),
    "Whether devices are reserved": (("ReservationInForce", False),),
}
# Alerts on other series than conditions, by the reason that their cause has.
BESIDE = {
    ("Why devices are not free", "ReleaseUnproven"): {"ReleaseUnproven", "HoldLong"},
    ("Why nothing moves", "StateUnknown"): {"StoreStale"},
}


def matches(alert: dict[str, str], condition: str, reason: str, *, true: bool) -> bool:
    """Whether the alert's expression is about this condition with this reason."""
    found = re.fullmatch(r"accelerator_rollout_condition\{(.*)\} (==|>=) ([01])", alert["expr"])
    if found is None:
        return False
    selectors, comparison, value = found.groups()
    labels = {"type": condition, "reason": reason}
    for name, operator, pattern in re.findall(r'(\w+)(=~?)"([^"]*)"', selectors):
        wanted = re.escape(pattern) if operator == "=" else pattern
        if not re.fullmatch(wanted, labels[name]):
            return False
    return int(true) >= int(value) if comparison == ">=" else int(true) == int(value)


def expected(section: str, reason: str) -> set[str]:
    of_conditions = {
        alert["alert"].removeprefix(PREFIX)
        for alert in RULES
        for condition, true in SECTIONS[section]
        if matches(alert, condition, reason, true=true)
    }
    return of_conditions | BESIDE.get((section, reason), set())


def rows(section: str) -> dict[str, set[str]]:
    """Of each reason the alerts in the last cell of its row; a row may end without that cell."""
    body = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `(\w+)` \| (.*) \|$", body, flags=re.MULTILINE)
    told = {reason: rest.split(" | ") for reason, rest in found}
    return {
        reason: set(re.findall(rf"\[(\w+)\]\(runbooks/{PREFIX}\1\.md\)", cells[2]))
        if len(cells) > 2
        else set()
        for reason, cells in told.items()
    }


@pytest.mark.parametrize("section", SECTIONS)
def test_each_reason_has_the_alert_that_the_rules_fire(section: str) -> None:
    told = rows(section)
    assert told
    assert told == {reason: expected(section, reason) for reason in told}


def test_the_alerts_beside_are_alerts() -> None:
    known = {alert["alert"].removeprefix(PREFIX) for alert in RULES}
    assert set().union(*BESIDE.values()) <= known


def test_something_fires_for_each_condition_that_alerts_are_about() -> None:
    told = {alert for section in SECTIONS for alerts in rows(section).values() for alert in alerts}
    about = {
        alert["alert"].removeprefix(PREFIX)
        for alert in RULES
        if "accelerator_rollout_condition{" in alert["expr"]
    }
    assert about <= told
