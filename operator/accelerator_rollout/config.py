"""Every setting of the operator: flag, environment variable (ACCELERATOR_ROLLOUT_ and the flag's name), default."""

import argparse
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from accelerator_rollout.errors import StartError

_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
ENVIRONMENT: Final = "ACCELERATOR_ROLLOUT_"


@dataclass(frozen=True, slots=True)
class Settings:
    """What `run` was told."""

    kubeconfig: str | None = None
    context: str | None = None
    namespaces: tuple[str, ...] = ()
    listen: tuple[str, int] = ("0.0.0.0", 8080)  # noqa: S104 - a pod is scraped and probed from outside
    resync_seconds: float = 60.0
    request_timeout_seconds: float = 15.0
    workers: int = 4
    leader_election: str = "auto"
    lease_name: str = "accelerator-rollout"
    lease_namespace: str | None = None
    lease_duration_seconds: int = 15
    lease_renew_deadline_seconds: float = 10.0
    lease_retry_seconds: float = 2.0
    kubelet_managers: frozenset[str] = frozenset({"kubelet"})
    orphan_hold_seconds: float = 300.0
    shared_budget: Mapping[str, int] = field(default_factory=dict)
    shared_budget_patience_seconds: float = 3600.0
    log_format: str = "json"
    log_level: str = "INFO"


@dataclass(frozen=True, slots=True)
class _Option:
    flag: str
    read: Callable[[str], Any]
    text: str
    choices: tuple[str, ...] | None = None
    repeat: bool = False


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _names(text: str) -> frozenset[str]:
    names = frozenset(_list(text))
    if not names:
        raise ValueError("at least one name is needed")
    return names


def _address(text: str) -> tuple[str, int]:
    host, _, number = text.rpartition(":")
    if not number.isdigit() or not 0 <= int(number) <= 65535:
        raise ValueError("an address is HOST:PORT, with a port between 0 and 65535")
    return host.strip("[]") or "0.0.0.0", int(number)  # noqa: S104 - ":8080" means every address


def _positive(text: str) -> float:
    number = float(text)
    if number <= 0:
        raise ValueError("must be above 0")
    return number


def _shared_budgets(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in _list(text):
        group, _, number = part.partition("=")
        if not _LABEL_VALUE.fullmatch(group) or not number.isdecimal() or int(number) < 1:
            raise ValueError("a budget is GROUP=PODS, a label's value and a number above 0")
        if group in found:
            raise ValueError(f"group {group} is given twice")
        found[group] = int(number)
    return found


def _whole_seconds(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("must be a whole number above 0")
    return number


def _workers(text: str) -> int:
    return max(1, int(text))


OPTIONS: Final = (
    _Option(
        "kubeconfig",
        str,
        "path of the kubeconfig; default: the pod's ServiceAccount, else kubectl's own rules",
    ),
    _Option("context", str, "context of the kubeconfig; default: its current one"),
    _Option(
        "namespaces", _list, "namespaces whose AcceleratorRollouts are handled, with commas; default: all"
    ),
    _Option(
        "listen",
        _address,
        "HOST:PORT of /metrics, /healthz and /readyz; port 0: a free one, which is logged; default: 0.0.0.0:8080",
    ),
    _Option(
        "resync-seconds", _positive, "seconds between comparisons of the store with the cluster; default: 60"
    ),
    _Option(
        "request-timeout-seconds",
        _positive,
        "seconds that one request to the API server may take; default: 15",
    ),
    _Option("workers", _workers, "how many objects are decided on at once; default: 4"),
    _Option(
        "leader-election",
        str.lower,
        "on, off or auto: whether only the process acts that holds a Lease. auto: where a namespace for it is known, in a pod "
        "or by --lease-namespace; off: no second operator may run beside; default: auto",
        ("auto", "on", "off"),
    ),
    _Option(
        "lease-name",
        str,
        "name of the Lease; operators with different --namespaces need different ones, and the Role names it; "
        "default: accelerator-rollout",
    ),
    _Option(
        "lease-namespace",
        str,
        "namespace of the Lease; default: POD_NAMESPACE, else the pod's own",
    ),
    _Option(
        "lease-duration-seconds",
        _whole_seconds,
        "whole seconds without a renewal after which another process takes over; default: 15",
    ),
    _Option(
        "lease-renew-deadline-seconds",
        _positive,
        "seconds without a renewal after which a process stops to act, below the duration; default: 10",
    ),
    _Option(
        "lease-retry-seconds",
        _positive,
        "seconds between looks at the Lease, and between renewals, below half of the deadline; default: 2",
    ),
    _Option(
        "kubelet-managers",
        _names,
        "field managers whose word on a pod's end is the kubelet's, with commas: distributions that rename the binary "
        "rename its manager; default: kubelet",
    ),
    _Option(
        "orphan-hold-seconds",
        _positive,
        "seconds that a hold stays on a claim whose AcceleratorRollout and pod are both gone; default: 300",
    ),
    _Option(
        "shared-budget",
        _shared_budgets,
        "GROUP=PODS: how many pods of a group's AcceleratorRollouts may be in replacement at once, repeatable or with "
        "commas; group default is for those that name none; default: no such limit",
        repeat=True,
    ),
    _Option(
        "shared-budget-patience-seconds",
        _positive,
        "seconds that an AcceleratorRollout may be Stalled before its pods in replacement leave their budget to others, "
        "inf: for ever; default: 3600",
    ),
    _Option("log-format", str, "json or text; default: json", ("json", "text")),
    _Option(
        "log-level",
        str.upper,
        "DEBUG, INFO, WARNING or ERROR; default: INFO",
        ("DEBUG", "INFO", "WARNING", "ERROR"),
    ),
)


def variable(option: _Option) -> str:
    """Return the environment variable that says the same as the flag."""
    return ENVIRONMENT + option.flag.upper().replace("-", "_")


def settings(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings: flags before environment before defaults. Raises StartError that names the setting."""
    chosen: dict[str, Any] = {}
    for option in OPTIONS:
        field = option.flag.replace("-", "_")
        given = getattr(arguments, field, None)
        source = f"--{option.flag}"
        if given is None:
            source = ENVIRONMENT + field.upper()
            given = environment.get(source) or None
        if given is None:
            continue
        if isinstance(given, list):
            given = ",".join(given)
        try:
            value = option.read(given)
        except ValueError as error:
            raise StartError(f"{source}={given} cannot be used: {error}") from error
        if option.choices is not None and value not in option.choices:
            raise StartError(f"{source}={given} cannot be used: choose one of {', '.join(option.choices)}")
        chosen[field] = value
    found = Settings(**chosen)
    _check_lease(found)
    return found


def _check_lease(found: Settings) -> None:
    """Raises StartError where a holder could still act when another begins, or has no second try."""
    duration, deadline = found.lease_duration_seconds, found.lease_renew_deadline_seconds
    if not 2 * found.lease_retry_seconds < deadline < duration:
        raise StartError(
            f"--lease-retry-seconds={found.lease_retry_seconds:g}, --lease-renew-deadline-seconds={deadline:g} and "
            f"--lease-duration-seconds={duration} do not fit: twice the first must be below the second, and that below "
            "the third"
        )
