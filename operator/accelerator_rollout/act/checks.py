"""Asks checks: CEL over devices as their slices publish them, and queries to a Prometheus about devices and pods.

The expressions are written by whoever may edit an AcceleratorRollout, so they are bounded: in length by the schema, in
work by the number of macros that go over lists.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

from accelerator_rollout.act.prometheus import QueryError, query
from accelerator_rollout.api.models import (
    Check,
    HealthCheck,
    HeldClaim,
    HeldDevice,
    PrometheusCheck,
    Replacement,
    RolloutSpec,
)
from accelerator_rollout.observe.devices import published
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.records import Device, PodRecord

Raw = Mapping[str, Any]

_MACRO: Final = re.compile(r"\.\s*(all|exists|exists_one|map|filter)\s*\(")
_MOST_MACROS: Final = 2
_CACHED: Final = 256
_OF_DEVICE: Final = {"$(driver)": "driver", "$(pool)": "pool", "$(device)": "name"}
_PLACEHOLDERS: Final = _OF_DEVICE | {"$(node)": "node"}
_OF_POD: Final = {"$(pod)": "pod", "$(namespace)": "namespace", "$(node)": "node"}


class Reading(Protocol):
    """Who reads the cluster."""

    async def read(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        """GET one object. Raises ActError."""
        ...

    async def read_all(self, kind: Kind, namespace: str = "", fields: str = "") -> list[Raw]:
        """LIST a kind, by field selector. Raises ActError."""
        ...


class BadCheckError(ValueError):
    """A check that can never be evaluated."""


def invalid(spec: RolloutSpec) -> dict[str, str]:
    """Return why checks can never be evaluated, by name and place."""
    found = {f"{name} of spec.release.checks": why for name, why in problems(spec.release.checks).items()}
    return found | {
        f"{name} of spec.health.checks": why for name, why in problems(spec.health.checks).items()
    }


def problems(checks: Iterable[Check | HealthCheck]) -> dict[str, str]:
    """Return why checks can never be evaluated, by their names."""
    return {check.name: why for check in checks if (why := _flaw(_expression(check)))}


def _expression(check: Check | HealthCheck) -> str:
    if isinstance(check, Check) and check.prometheus is None:
        return check.cel
    return check.prometheus.condition if check.prometheus is not None else ""


@lru_cache(maxsize=_CACHED)
def _compiled(expression: str) -> Any:
    if len(_MACRO.findall(expression)) > _MOST_MACROS:
        raise BadCheckError(f"it has more than {_MOST_MACROS} macros that go over a list")
    import cel  # noqa: PLC0415 - with its command line it takes 30 MB, which only those who have checks should pay

    try:
        return cel.compile(expression)
    except ValueError as error:
        raise BadCheckError(" ".join(str(error).split())) from error


@lru_cache(maxsize=_CACHED)
def _flaw(expression: str) -> str:
    """Return why the expression can never be evaluated; "" if it can. Asked at each decision, compiled once."""
    try:
        _compiled(expression)
    except BadCheckError as error:
        return str(error)
    return ""


async def run_checks(
    client: Reading, checks: tuple[Check, ...], entry: Replacement, namespace: str
) -> tuple[str, ...]:
    """Return a sentence for each check that is not true of a device of the departed pod. Raises ActError."""
    failures: list[str] = []
    drivers = sorted({held.driver for claim in entry.claims for held in claim.devices})
    slices = {d: await client.read_all(Kind.SLICES, fields=f"spec.driver={d}") for d in drivers}
    for claim in entry.claims:
        conditions = _conditions(await client.read(Kind.CLAIMS, namespace, claim.name), claim)
        for held in claim.devices:
            device = _device(slices[held.driver], held, entry.node_name)
            for check in checks:
                if device is None:
                    why = "the device is not published"
                elif check.prometheus is not None:
                    why = await _unlike(check.prometheus, device)
                else:
                    known = {"device": device, "conditions": conditions.get(_key(held), [])}
                    why = await asyncio.to_thread(_why_not, check.cel, known)
                if why:
                    failures.append(
                        f"check {check.name} on device {held.driver}/{held.pool}/{held.device}: {why}"
                    )
    return tuple(failures)


def _why_not(expression: str, known: Raw) -> str:
    """Return why the expression is not true; "" if it is."""
    try:
        found = _compiled(expression).execute(known)
    except KeyError as error:
        return f"there is no {error} ({expression})"
    except Exception as error:  # noqa: BLE001 - whatever an expression runs into is no reason to open a gate
        return f"it cannot be evaluated: {error} ({expression})"
    if found is True:
        return ""
    return (
        f"not true ({expression})"
        if found is False
        else f"{found!r} is neither true nor false ({expression})"
    )


async def run_health_checks(
    checks: tuple[HealthCheck, ...], pod: PodRecord, devices: tuple[Device, ...]
) -> tuple[str, ...]:
    """Return a sentence for each check that is not true of the pod, or of one of its devices where it asks for those."""
    failures: list[str] = []
    of_pod = {"pod": pod.name, "namespace": pod.namespace, "node": pod.node}
    for check in checks:
        if not any(placeholder in check.prometheus.query for placeholder in _OF_DEVICE):
            why = await _unlike(check.prometheus, of_pod, _OF_POD, at_value=False)
            failures += [f"check {check.name}: {why}"] if why else []
            continue
        if not devices:
            failures.append(f"check {check.name}: the pod has no device that it could be asked of")
        for device in devices:
            known = of_pod | {"driver": device.driver, "pool": device.pool, "name": device.name}
            why = await _unlike(check.prometheus, known, _OF_POD | _OF_DEVICE, at_value=False)
            failures += [f"check {check.name} on device {device}: {why}"] if why else []
    return tuple(failures)


async def _unlike(
    check: PrometheusCheck,
    known: Raw,
    placeholders: Mapping[str, str] = _PLACEHOLDERS,
    *,
    at_value: bool = True,
) -> str:
    """Return why what the query brings is not as it has to be; "" if it is.

    `at_value`: with the value, which may be another each time that it is asked.
    """
    expression = check.query
    for placeholder, key in placeholders.items():
        expression = expression.replace(placeholder, str(known[key]))
    try:
        values = await query(check.address, expression)
    except QueryError as error:
        return str(error)
    if not values:
        return f"the query brings no sample ({expression})"
    for value in values:
        why = await asyncio.to_thread(_why_not, check.condition, {"value": value})
        if why:
            return f"{why} at {value:g}" if at_value else why
    return ""


def _device(slices: Iterable[Raw], held: HeldDevice, node: str) -> Raw | None:
    """Return the device as its pool's newest generation publishes it, in plain values. `slices` are its driver's."""
    pool = [s["spec"] for s in slices if s["spec"]["pool"]["name"] == held.pool]
    newest = max((spec["pool"].get("generation") or 0 for spec in pool), default=0)
    for spec in (s for s in pool if (s["pool"].get("generation") or 0) == newest):
        for device in spec.get("devices") or ():
            if device["name"] == held.device:
                names = {"driver": held.driver, "pool": held.pool, "name": held.device}
                return names | {"node": spec.get("nodeName") or node} | published(device)
    return None


def _conditions(raw: Raw | None, claim: HeldClaim) -> dict[tuple[str, str, str], list[Raw]]:
    """Return the conditions that drivers wrote into the departed pod's claim, by device."""
    if raw is None or raw["metadata"]["uid"] != claim.uid:
        return {}
    keys = ("type", "status", "reason", "message")
    return {
        (device["driver"], device["pool"], device["device"]): [
            {key: str(condition.get(key) or "") for key in keys}
            for condition in device.get("conditions") or ()
        ]
        for device in (raw.get("status") or {}).get("devices") or ()
    }


def _key(held: HeldDevice) -> tuple[str, str, str]:
    return held.driver, held.pool, held.device
