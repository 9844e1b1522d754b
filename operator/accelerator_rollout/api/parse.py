"""From what the API server sent to an AcceleratorRollout, or to the reason why this version cannot read it.

An object may be older or newer than we know. It is then reported, and never keeps the others from being read.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from accelerator_rollout import names
from accelerator_rollout.api.base import Part, Time, shorten
from accelerator_rollout.api.conditions import Condition
from accelerator_rollout.api.models import LegibleRef, RolloutObject, RolloutSpec, RolloutStatus, Unreadable

_TIME: Final[TypeAdapter[datetime]] = TypeAdapter(Time)
P = TypeVar("P", bound=Part)

_SHOWN_ERRORS: Final = 3
_SHOWN_INPUT: Final = 80  # characters of the offending value


def parse(raw: object) -> RolloutObject | Unreadable:
    """Read one object. Never raises: what cannot be read comes back as Unreadable, naming the field."""
    problems: list[str] = []
    meta = _mapping(_get(raw, "metadata"))
    api_version = _get(raw, "apiVersion")
    if api_version not in (None, names.API_VERSION):
        problems.append(f"apiVersion: {_show(api_version)} is not {names.API_VERSION}")

    created = _time(meta.get("creationTimestamp"))
    if created is None:
        problems.append("metadata.creationTimestamp: is missing or not a time")
    deletion = _time(meta.get("deletionTimestamp"))
    if deletion is None and meta.get("deletionTimestamp") is not None:
        problems.append("metadata.deletionTimestamp: is not a time")
    problems += [
        f"metadata.{key}: is missing" for key in ("namespace", "name", "uid") if not _text(meta.get(key))
    ]

    budget = _text(_mapping(meta.get("labels")).get(names.BUDGET_LABEL))

    spec = _part(RolloutSpec, _get(raw, "spec"), "spec", problems)
    status = _part(RolloutStatus, _get(raw, "status"), "status", problems)
    if created is None or spec is None or status is None or problems:
        return Unreadable(
            namespace=_text(meta.get("namespace")),
            name=_text(meta.get("name")),
            uid=_text(meta.get("uid")),
            resource_version=_text(meta.get("resourceVersion")),
            generation=_whole(meta.get("generation")),
            deletion=deletion,
            finalizers=_texts(meta.get("finalizers")),
            workload_ref=_legible_ref(_get(raw, "spec")),
            conditions=status.conditions if status is not None else _legible_conditions(_get(raw, "status")),
            message=_explain(problems),
            budget=budget,
        )
    return RolloutObject(
        namespace=_text(meta.get("namespace")),
        name=_text(meta.get("name")),
        uid=_text(meta.get("uid")),
        resource_version=_text(meta.get("resourceVersion")),
        generation=_whole(meta.get("generation")),
        created=created,
        deletion=deletion,
        finalizers=_texts(meta.get("finalizers")),
        spec=spec,
        status=status,
        budget=budget,
    )


def _part(model: type[P], raw: object, path: str, problems: list[str]) -> P | None:
    try:
        return model.from_raw({} if raw is None else raw)
    except ValidationError as error:
        problems += _problems(error, path)
        return None


def _problems(error: ValidationError, path: str) -> list[str]:
    """Say for each error which field is wrong, and how, in the words of a manifest."""
    found = []
    for detail in error.errors(include_url=False, include_context=False):
        where = path + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in detail["loc"])
        match detail["type"]:
            case "missing":
                found.append(f"{where}: is missing")
            case "extra_forbidden":
                found.append(f"{where}: this version does not know the field")
            case "value_error":
                found.append(f"{where}: {detail['msg'].removeprefix('Value error, ')}")
            case _:
                found.append(f"{where}: {_show(detail['input'])} is refused: {detail['msg']}")
    return found


def _explain(problems: Sequence[str]) -> str:
    shown = "; ".join(problems[:_SHOWN_ERRORS])
    more = len(problems) - _SHOWN_ERRORS
    rest = f"; and {more} more" if more > 0 else ""
    return f"{shown}{rest}. Correct the object, or run the operator of the version that it was written for."


def _legible_ref(spec: object) -> LegibleRef | None:
    ref = _mapping(_get(spec, "workloadRef"))
    kind, name = _text(ref.get("kind")), _text(ref.get("name"))
    return LegibleRef(_text(ref.get("apiVersion")), kind, name) if kind and name else None


def _legible_conditions(status: object) -> tuple[Condition, ...]:
    """Keep what can be read, so that a report does not restart the clocks of the other conditions."""
    listed = _get(status, "conditions")
    unused: list[str] = []
    read = (_part(Condition, item, "", unused) for item in (listed if isinstance(listed, list) else []))
    return tuple(condition for condition in read if condition is not None)


def _get(raw: object, key: str) -> object:
    return _mapping(raw).get(key)


def _mapping(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}


def _text(raw: object) -> str:
    return raw if isinstance(raw, str) else ""


def _texts(raw: object) -> tuple[str, ...]:
    return tuple(item for item in raw if isinstance(item, str)) if isinstance(raw, list) else ()


def _whole(raw: object) -> int:
    return raw if isinstance(raw, int) else 0


def _time(raw: object) -> datetime | None:
    try:
        return _TIME.validate_python(raw)
    except ValidationError:
        return None


def _show(raw: object) -> str:
    return shorten(f'"{raw}"' if isinstance(raw, str) else repr(raw), _SHOWN_INPUT)
