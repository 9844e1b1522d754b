"""What people write into the spec of an AcceleratorRollout, as merge patches: one title for each thing that can be wanted.

`test_edits` holds them against the pydantic models: a field that nobody changes in the walks has to stand in INEXPRESSIBLE,
with the reason.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, get_args

from pydantic import BaseModel

from accelerator_rollout.api.models import RolloutSpec
from model.cluster import EXTRA, ZONE, Cluster

Patch = dict[str, Any]

INEXPRESSIBLE: Final[Mapping[str, str]] = {
    "workloadRef.": "cannot be changed: the API server refuses that",
    "release.reservation": "the model has no DeviceTaintRules, and its claims no tolerations",
}
"""Beginnings of fields that the model cannot express, and why."""


def _denied(now: datetime) -> Patch:
    """A Deny window that is open now, for a minute or two."""
    window = {"type": "Deny", "schedule": f"{now.minute} {now.hour} * * *", "durationSeconds": 120}
    return {"windows": [window]}


def _allowed_later(now: datetime) -> Patch:
    """An Allow window that is over for today, by the clocks of another zone."""
    schedule = f"0 {(now.hour - 2) % 24} * * *"
    return {
        "windows": [{"type": "Allow", "schedule": schedule, "durationSeconds": 3600, "timeZone": "Etc/UTC"}]
    }


def _steps(*steps: Patch) -> Patch:
    return {"strategy": {"partition": 0, "steps": list(steps)}}


def _late(*, minute: bool) -> Patch:
    """Deadlines that pass, where the models' bounds allow it."""
    return {"progressDeadlineSeconds": 60 if minute else 30, "release": {"timeoutSeconds": 12}}


_PROMETHEUS: Final = {"address": "http://prometheus", "query": "memory_used", "condition": "value < 1"}
_MANUAL: Final = {"type": "Manual"}
_TIMED: Final = {"type": "Duration", "durationSeconds": 20}

# The more often a title is drawn, the more patches it has to choose from.
EDITS: Final[Mapping[str, tuple[Patch | Callable[[datetime], Patch], ...]]] = {
    "spec: partition": tuple({"strategy": {"partition": n, "steps": []}} for n in (1, 2, 3)),
    "spec: partition beside steps": ({"strategy": {"partition": 1}},),  # refused, where there are steps
    "spec: no partition": ({"strategy": {"partition": 0}},),
    "spec: steps": (
        _steps({"replicas": 1, "pause": _MANUAL}),
        _steps({"replicas": 1, "pause": _TIMED}, {"replicas": "67%", "pause": _MANUAL}),
        _steps({"replicas": "34%"}, {"replicas": 2, "pause": _TIMED}),
    ),
    "spec: no steps": ({"strategy": {"steps": []}},),
    "spec: order": tuple(
        {"strategy": {"order": {"policy": policy, "topologyKey": key}}}
        for policy in ("Native", "OldestFirst", "NewestFirst", "ReverseOrdinal")
        for key in ("", ZONE)
    ),
    "spec: max unavailable": tuple({"strategy": {"maxUnavailable": n}} for n in (1, 2, "50%", "100%")),
    "spec: guardrails": (
        {"guardrails": {"mode": "Enforce"}},
        {"guardrails": {"mode": "Off"}},
        {"guardrails": {"exempt": [{"rule": "PodDisruptionBudgetMissing", "reason": "a model has none"}]}},
    ),
    "spec: failure policy": tuple({"failurePolicy": p} for p in ("Pause", "Abort", "Undo")),
    "spec: hold": tuple({"release": {"hold": h}} for h in ("Auto", "Always", "Never")),
    "spec: guard": tuple({"release": {"guard": g}} for g in ("None", "Finalizer")),
    "spec: placement": tuple({"release": {"placement": p}} for p in ("Any", "SameNode")),
    "spec: settle": tuple({"release": {"settleSeconds": n}} for n in (0, 2, 5)),
    # Not less than EXTRA: that a process outlives its pod for no longer is what the wait rests on.
    "spec: unproven": tuple(
        {"release": {"unproven": {"policy": p, "extraSeconds": n}}}
        for p in ("Wait", "Pause")
        for n in (EXTRA, 2 * EXTRA)
    ),
    "spec: on timeout": tuple({"release": {"onTimeout": p}} for p in ("Pause", "Abort")),
    "spec: release timeout": tuple({"release": {"timeoutSeconds": n}} for n in (3, 10, 600)),
    "spec: progress deadline": (_late(minute=False), _late(minute=True), {"progressDeadlineSeconds": 1800}),
    "spec: disruption timeout": tuple({"disruption": {"timeoutSeconds": n}} for n in (2, 600)),
    "spec: stage timeouts": (
        {"health": {"scheduleTimeoutSeconds": 2}},
        {"health": {"prepareTimeoutSeconds": 2}},
        {"health": {"readyTimeoutSeconds": 2}},
    ),
    "spec: min ready": tuple({"health": {"minReadySeconds": n}} for n in (0, 3)),
    "spec: soak": tuple({"health": {"soakSeconds": n}} for n in (0, 5)),
    # What they are answered is the step "checks fail".
    "spec: release checks": (
        {"release": {"checks": [{"name": "clean", "cel": "device.node != ''"}]}},
        {"release": {"checks": [{"name": "empty", "prometheus": _PROMETHEUS}]}},
        {"release": {"checks": []}},
    ),
    "spec: health checks": (
        {"health": {"soakSeconds": 5, "checks": [{"name": "serves", "prometheus": _PROMETHEUS}]}},
        {"health": {"checks": []}},
    ),
    "spec: failure threshold": tuple({"health": {"failureThreshold": n}} for n in (1, 3)),
    "spec: deny now": (_denied,),
    "spec: allow later": (_allowed_later,),
    "spec: no windows": ({"windows": []},),
}

# What keeps a rollout from its end: orders, waits and policies may stay as they are.
HEALED: Final[Patch] = {
    "paused": False,
    "windows": [],
    "strategy": {
        "maxUnavailable": 2,
        "partition": 0,
        "steps": [],
    },  # no Deployment of the walks takes more down
    "guardrails": {"mode": "Warn"},
    "release": {
        "timeoutSeconds": 600,
        "hold": "Auto",
        "placement": "Any",
        "unproven": {"policy": "Wait", "extraSeconds": EXTRA},
    },
    "disruption": {"timeoutSeconds": 600},
    "health": {
        "scheduleTimeoutSeconds": 300,
        "prepareTimeoutSeconds": 900,
        "readyTimeoutSeconds": 1800,
    },
    "progressDeadlineSeconds": 1800,
}


def edit(cluster: Cluster, title: str) -> None:
    """Write one of the title's patches."""
    chosen = cluster.random.choice(EDITS[title])
    cluster.edit(chosen(cluster.now) if callable(chosen) else chosen)


def fields(model: type[BaseModel] = RolloutSpec, prefix: str = "") -> Iterator[str]:
    """Yield the path of every field that holds a value, as it is written; `[]` stands for the items of a list."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        inner, listed = _part_in(field.annotation)
        if inner is None:
            yield path
        else:
            yield from fields(inner, f"{path}[]." if listed else f"{path}.")


def _part_in(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the model that a field's type has in it, and whether in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    listed = getattr(annotation, "__origin__", None) is tuple
    for argument in get_args(annotation):
        inner, deeper = _part_in(argument)
        if inner is not None:
            return inner, listed or deeper
    return None, False


def values(spec: RolloutSpec) -> set[tuple[str, str]]:
    """Return every field of the spec with its value; of a list's items each."""
    return set(_flat(spec))


def _flat(part: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(part, BaseModel):
        for name, field in type(part).model_fields.items():
            yield from _flat(
                getattr(part, name), f"{path}.{field.alias or name}" if path else field.alias or name
            )
    elif isinstance(part, tuple):
        for item in part:
            yield from _flat(item, f"{path}[]")
    else:
        yield path, str(part)
