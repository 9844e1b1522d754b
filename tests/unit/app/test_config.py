"""Flags go before the environment, the environment before defaults, and a bad value is named."""

from dataclasses import fields

import pytest

from accelerator_rollout.cli.running import run, told_by
from accelerator_rollout.config import ENVIRONMENT, OPTIONS, Settings, settings
from accelerator_rollout.errors import StartError


def told(*arguments: str, **environment: str) -> Settings:
    given = run.make_context("run", list(arguments)).params
    return settings(told_by(given), {ENVIRONMENT + name: value for name, value in environment.items()})


def test_without_a_word_the_defaults_hold() -> None:
    assert told() == Settings()


def test_every_setting_has_a_flag_and_every_flag_a_setting() -> None:
    assert {f.name for f in fields(Settings)} == {o.flag.replace("-", "_") for o in OPTIONS}


def test_every_setting_tells_its_default() -> None:
    assert [o.flag for o in OPTIONS if "default: " not in o.text] == []


def test_a_flag_goes_before_the_environment() -> None:
    assert told("--workers", "2", WORKERS="3").workers == 2
    assert told(WORKERS="3").workers == 3


def test_an_empty_variable_is_none() -> None:
    assert told(KUBECONFIG="").kubeconfig is None


@pytest.mark.parametrize(
    ("given", "listen"),
    [
        (":8080", ("0.0.0.0", 8080)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:9090", ("::1", 9090)),
    ],
)
def test_where_to_listen(given: str, listen: tuple[str, int]) -> None:
    assert told("--listen", given).listen == listen


def test_lists_are_given_with_commas() -> None:
    assert told("--namespaces", "a, b,").namespaces == ("a", "b")
    assert told("--kubelet-managers=kubelet,k3s").kubelet_managers == {"kubelet", "k3s"}


def test_budgets_are_given_by_flags_or_with_commas() -> None:
    assert told("--shared-budget", "a=1", "--shared-budget", "b=20").shared_budget == {"a": 1, "b": 20}
    assert told(SHARED_BUDGET="a=1, b=20").shared_budget == {"a": 1, "b": 20}
    assert told(SHARED_BUDGET_PATIENCE_SECONDS="inf").shared_budget_patience_seconds == float("inf")


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("listen", "nowhere"),
        ("listen", ":99999"),
        ("resync-seconds", "0"),
        ("resync-seconds", "often"),
        ("request-timeout-seconds", "-1"),
        ("log-format", "xml"),
        ("log-level", "loud"),
        ("kubelet-managers", ","),
        ("workers", "many"),
        ("leader-election", "perhaps"),
        ("lease-duration-seconds", "0"),
        ("lease-duration-seconds", "1.5"),
        ("lease-renew-deadline-seconds", "0"),
        ("lease-retry-seconds", "-1"),
        ("shared-budget", "lpu"),
        ("shared-budget", "lpu=0"),
        ("shared-budget", "-x=1"),
        ("shared-budget", "a=1,a=2"),
        ("shared-budget-patience-seconds", "0"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_where_it_came_from(flag: str, value: str) -> None:
    with pytest.raises(StartError, match=f"--{flag}={value} "):
        told(f"--{flag}={value}")
    variable = flag.upper().replace("-", "_")
    with pytest.raises(StartError, match=f"{ENVIRONMENT}{variable}={value} "):
        told(**{variable: value})
