"""Objects for the tests of the API, and the table of what its rules accept and refuse.

Unit tests hold the models against the table, cluster tests the API server: the two cannot differ unnoticed.
"""

import types
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import count
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from accelerator_rollout import names
from accelerator_rollout.api.base import WholePart
from accelerator_rollout.api.conditions import Condition

SPEC: dict[str, Any] = {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"}}
P = TypeVar("P", bound=WholePart)

_START = datetime(2026, 1, 1, tzinfo=UTC)


def smallest(name: str = "llm", namespace: str = "team") -> dict[str, Any]:
    """The smallest useful manifest."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": SPEC,
    }


def stored(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None) -> dict[str, Any]:
    """An object as the API server returns it."""
    identity = {
        "uid": "u-1",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    body = smallest()
    body["metadata"] |= identity
    body["spec"] = SPEC if spec is None else spec
    return body if status is None else body | {"status": status}


def full(model: type[P], *, longest: bool = False) -> P:
    """An instance in which every field, of every part, says something; lists have two entries that differ.

    It is made from the models themselves, so a new field cannot be forgotten. With `longest`, strings are as long
    as they may be.
    """
    return model.model_validate(_part(model, count(1), longest=longest))


def _part(model: type[WholePart], numbers: Iterator[int], *, longest: bool) -> dict[str, Any]:
    return {
        field.alias or name: _value(field.annotation, field, name, numbers, longest=longest)
        for name, field in model.model_fields.items()
        # A pattern governs these two.
        if not (model is Condition and name in ("type", "reason"))
    } | ({"type": f"Type{next(numbers)}", "reason": "BecauseOfThis"} if model is Condition else {})


def _value(kind: object, field: FieldInfo, name: str, numbers: Iterator[int], *, longest: bool) -> object:
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (option for option in get_args(kind) if option is not type(None))
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return [_value(item, field, name, numbers, longest=longest) for _ in range(2)]
    if not isinstance(kind, type):
        kind = get_args(kind)[0]  # Annotated
    assert isinstance(kind, type)
    if issubclass(kind, WholePart):
        return _part(kind, numbers, longest=longest)
    if issubclass(kind, StrEnum):
        members = list(kind)
        return members[next(numbers) % len(members)].value
    if issubclass(kind, datetime):
        return (_START + timedelta(seconds=next(numbers))).isoformat()
    if issubclass(kind, bool):
        return True
    if issubclass(kind, int):
        return next(numbers)
    if issubclass(kind, str):
        text = f"{name}-{next(numbers)}"
        limit = next((m.max_length for m in field.metadata if hasattr(m, "max_length")), None)
        return text.ljust(limit, "é") if longest and limit else text
    raise AssertionError(f"no sample for {kind} of {name}")


@dataclass(frozen=True)
class Case:
    """A spec that a rule refuses, its twin that the rule accepts, and the words of the refusal."""

    accepted: dict[str, Any]
    refused: dict[str, Any]
    field: str
    message: str


def _workload(**change: str) -> dict[str, Any]:
    return {"workloadRef": SPEC["workloadRef"] | change}


def _window(seconds: int) -> dict[str, Any]:
    return SPEC | {"windows": [{"type": "Allow", "schedule": "0 2 * * 1-5", "durationSeconds": seconds}]}


def _strategy(**strategy: Any) -> dict[str, Any]:
    return SPEC | {"strategy": strategy}


_NAME = (
    "cannot be the name of a workload: such names have lower case letters, digits, - and . only, "
    "and begin and end with a letter or digit"
)

HEALTH_CHECK = {
    "name": "answers",
    "prometheus": {"address": "http://prometheus:9090", "query": "up", "condition": "value > 0.0"},
}

RULES: dict[str, Case] = {
    "the API version is one we drive": Case(
        accepted=_workload(apiVersion="apps/v1"),
        refused=_workload(apiVersion="apps/v1beta2"),
        field="spec.workloadRef.apiVersion",
        message='apiVersion "apps/v1beta2" is not supported: the workload must be of apps/v1',
    ),
    "the kind is one we drive": Case(
        accepted=_workload(kind="StatefulSet"),
        refused=_workload(kind="Job"),
        field="spec.workloadRef.kind",
        message='kind "Job" is not supported: this version drives a Deployment, a StatefulSet or a DaemonSet',
    ),
    "a check is of one kind": Case(
        accepted=SPEC | {"release": {"checks": [{"name": "a", "cel": "true"}]}},
        refused=SPEC | {"release": {"checks": [{"name": "a"}]}},
        field="spec.release.checks[0]",
        message="a check has either cel or prometheus",
    ),
    "health checks have a soak in which they are asked": Case(
        accepted=SPEC | {"health": {"soakSeconds": 1, "checks": [HEALTH_CHECK]}},
        refused=SPEC | {"health": {"checks": [HEALTH_CHECK]}},
        field="spec.health.soakSeconds",
        message=(
            "soakSeconds must be at least 1 where there are checks: they are asked while a successor soaks, and "
            "would never be asked"
        ),
    ),
    "the name has the letters of a name": Case(
        accepted=_workload(name="llm-7b.v2"),
        refused=_workload(name="LLM_7b"),
        field="spec.workloadRef.name",
        message=f'name "LLM_7b" {_NAME}',
    ),
    "the name does not end in a dash": Case(
        accepted=_workload(name="a"),
        refused=_workload(name="a-"),
        field="spec.workloadRef.name",
        message=f'name "a-" {_NAME}',
    ),
    "the name is not empty": Case(
        accepted=_workload(name="0"),
        refused=_workload(name=""),
        field="spec.workloadRef.name",
        message=f'name "" {_NAME}',
    ),
    "the progress deadline does not end before a release may": Case(
        accepted=SPEC | {"progressDeadlineSeconds": 60, "release": {"timeoutSeconds": 60}},
        refused=SPEC | {"progressDeadlineSeconds": 60},
        field="spec.progressDeadlineSeconds",
        message=(
            "progressDeadlineSeconds must be at least release.timeoutSeconds: nothing moves while "
            "a release is awaited, so the shorter deadline would hide what keeps the devices"
        ),
    ),
    "devices settle before a release is late": Case(
        accepted=SPEC | {"release": {"settleSeconds": 59, "timeoutSeconds": 60}},
        refused=SPEC | {"release": {"settleSeconds": 60, "timeoutSeconds": 60}},
        field="spec.release.settleSeconds",
        message=(
            "settleSeconds must be less than timeoutSeconds: the devices do not count as free before they have "
            "settled, so every release would be late"
        ),
    ),
}

BOUNDS: dict[str, Case] = {
    "a release may take a second": Case(
        accepted=SPEC | {"release": {"timeoutSeconds": 1}},
        refused=SPEC | {"release": {"timeoutSeconds": 0}},
        field="spec.release.timeoutSeconds",
        message="greater than or equal to 1",
    ),
    "a release may take a day": Case(
        accepted=SPEC | {"release": {"timeoutSeconds": 86400}, "progressDeadlineSeconds": 86400},
        refused=SPEC | {"release": {"timeoutSeconds": 86401}, "progressDeadlineSeconds": 86401},
        field="spec.release.timeoutSeconds",
        message="less than or equal to 86400",
    ),
    "an unproven release may wait no longer than the grace period": Case(
        accepted=SPEC | {"release": {"unproven": {"extraSeconds": 0}}},
        refused=SPEC | {"release": {"unproven": {"extraSeconds": -1}}},
        field="spec.release.unproven.extraSeconds",
        message="greater than or equal to 0",
    ),
    "an unproven release may wait a day": Case(
        accepted=SPEC | {"release": {"unproven": {"extraSeconds": 86400}}},
        refused=SPEC | {"release": {"unproven": {"extraSeconds": 86401}}},
        field="spec.release.unproven.extraSeconds",
        message="less than or equal to 86400",
    ),
    "devices need not settle": Case(
        accepted=SPEC | {"release": {"settleSeconds": 0}},
        refused=SPEC | {"release": {"settleSeconds": -1}},
        field="spec.release.settleSeconds",
        message="greater than or equal to 0",
    ),
    "devices may settle for an hour": Case(
        accepted=SPEC
        | {"release": {"settleSeconds": 3600, "timeoutSeconds": 7200}, "progressDeadlineSeconds": 7200},
        refused=SPEC
        | {"release": {"settleSeconds": 3601, "timeoutSeconds": 7200}, "progressDeadlineSeconds": 7200},
        field="spec.release.settleSeconds",
        message="less than or equal to 3600",
    ),
    "a window may be open for a minute": Case(
        accepted=_window(60),
        refused=_window(59),
        field="spec.windows[0].durationSeconds",
        message="greater than or equal to 60",
    ),
    "a window may be open for a leap year": Case(
        accepted=_window(31622400),
        refused=_window(31622401),
        field="spec.windows[0].durationSeconds",
        message="less than or equal to 31622400",
    ),
    "steps and a partition exclude each other": Case(
        accepted=_strategy(steps=[{"replicas": 1}], partition=0),
        refused=_strategy(steps=[{"replicas": 1}], partition=1),
        field="spec.strategy.partition",
        message="steps and partition exclude each other",
    ),
    "a step is a number of pods": Case(
        accepted=_strategy(steps=[{"replicas": 1}]),
        refused=_strategy(steps=[{"replicas": 0}]),
        field="spec.strategy.steps[0].replicas",
        message="a number of at least 1, or a percentage from 1% to 100%",
    ),
    "a step may be a percentage": Case(
        accepted=_strategy(steps=[{"replicas": "100%"}]),
        refused=_strategy(steps=[{"replicas": "101%"}]),
        field="spec.strategy.steps[0].replicas",
        message="a number of at least 1, or a percentage from 1% to 100%",
    ),
    "a timed pause has a duration": Case(
        accepted=_strategy(steps=[{"replicas": 1, "pause": {"type": "Duration", "durationSeconds": 1}}]),
        refused=_strategy(steps=[{"replicas": 1, "pause": {"type": "Duration"}}]),
        field="spec.strategy.steps[0].pause.durationSeconds",
        message="a pause of type Duration needs durationSeconds of at least 1",
    ),
    "the progress deadline may be half a minute": Case(
        accepted=SPEC | {"release": {"timeoutSeconds": 1}, "progressDeadlineSeconds": 30},
        refused=SPEC | {"release": {"timeoutSeconds": 1}, "progressDeadlineSeconds": 29},
        field="spec.progressDeadlineSeconds",
        message="greater than or equal to 30",
    ),
    "the progress deadline may be a week": Case(
        accepted=SPEC | {"progressDeadlineSeconds": 604800},
        refused=SPEC | {"progressDeadlineSeconds": 604801},
        field="spec.progressDeadlineSeconds",
        message="less than or equal to 604800",
    ),
}
