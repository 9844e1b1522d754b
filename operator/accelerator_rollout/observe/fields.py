"""Reading JSON of the API server: absent and null are the same to it; another type than expected is unclear."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from sys import intern
from typing import Any

from accelerator_rollout.records import Owner, SelectorTerm

Raw = Mapping[str, Any]


class UnclearError(ValueError):
    """Part of an object whose meaning is not clear; becomes a ProjectionError that names the object."""


def mapping(raw: Raw, *path: str) -> Raw:
    """Return the object at the end of a path, empty if there is none."""
    found: Any = raw
    for key in path:
        found = found.get(key)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise UnclearError(f"{key} is {type(found).__name__}, not an object")
    return found  # type: ignore[no-any-return]


def items(raw: Raw, key: str) -> list[Raw]:
    """Return a list of objects."""
    found = raw.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise UnclearError(f"{key} is not a list of objects")
    return found


def texts(raw: Raw, key: str) -> tuple[str, ...]:
    """Return a list of strings."""
    found = raw.get(key)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise UnclearError(f"{key} is not a list of strings")
    return tuple(map(intern, found))


def text(raw: Raw, key: str) -> str:
    """Return a string, empty if there is none."""
    found = raw.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise UnclearError(f"{key} is {type(found).__name__}, not a string")
    return found


def need(raw: Raw, key: str) -> str:
    """Return a string that must be there."""
    found = text(raw, key)
    if not found:
        raise UnclearError(f"{key} is missing")
    return found


def version(meta: Raw) -> str:
    """Return the resourceVersion. Those of one resource can be compared as numbers (KEP-5504)."""
    found = need(meta, "resourceVersion")
    if not found.isdecimal():
        raise UnclearError(f"resourceVersion {found!r} is not a number")
    return found


def maybe_integer(raw: Raw, key: str) -> int | None:
    """Return a number, None if there is none."""
    found = raw.get(key)
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool):
        raise UnclearError(f"{key} is {type(found).__name__}, not a number")
    return found


def integer(raw: Raw, key: str, default: int) -> int:
    """Return a number."""
    found = maybe_integer(raw, key)
    return default if found is None else found


def number(value: object) -> int:
    """Return the number an annotation holds; 0 for anything else, as its reader in Kubernetes does."""
    try:
        return int(value) if isinstance(value, str) else 0
    except ValueError:
        return 0


def int_or_percent(raw: Raw, key: str) -> int | str:
    """Return a number or a percentage."""
    found = raw.get(key)
    if found is None:
        return "25%"  # as the API server defaults it
    if isinstance(found, bool) or not isinstance(found, int | str):
        raise UnclearError(f"{key} is {type(found).__name__}, neither a number nor a percentage")
    return found


def flag(raw: Raw, key: str) -> bool:
    """Return a truth value, false if there is none."""
    found = raw.get(key)
    if found is None:
        return False
    if not isinstance(found, bool):
        raise UnclearError(f"{key} is {type(found).__name__}, not true or false")
    return found


def time(raw: Raw, key: str) -> datetime | None:
    """Return a time, None if there is none."""
    found = raw.get(key)
    if found is None:
        return None
    if not isinstance(found, str):
        raise UnclearError(f"{key} is {type(found).__name__}, not a time")
    moment = datetime.fromisoformat(found)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def moment(raw: Raw, key: str) -> datetime:
    """Return a time that must be there."""
    found = time(raw, key)
    if found is None:
        raise UnclearError(f"{key} is missing")
    return found


def requirements(raw: Raw, key: str, operators: Collection[str], what: str) -> tuple[SelectorTerm, ...]:
    """Return the requirements of a selector; `what` selects them is for the message about an operator not known."""
    found = []
    for entry in items(raw, key):
        operator = need(entry, "operator")
        if operator not in operators:
            raise UnclearError(f"the {what} selector's operator {operator!r} is not known")
        found.append(SelectorTerm(need(entry, "key"), operator, texts(entry, "values")))
    return tuple(found)


def controller(meta: Raw) -> Owner | None:
    """Return the controlling owner reference."""
    for reference in items(meta, "ownerReferences"):
        if reference.get("controller") is True:
            uid = intern(need(reference, "uid"))  # one string for all the pods of an owner
            return Owner(kind=intern(need(reference, "kind")), name=need(reference, "name"), uid=uid)
    return None
