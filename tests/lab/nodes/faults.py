"""How a simulated pod behaves: times, counts and faults, read from annotations and image tags.

Precedence: the defaults below, then the node's annotations, then the image's tag, then the pod's annotations. They are
read anew at every step, so a fault can be set or healed on a running pod with `kubectl annotate`.
Seconds in annotations are meant literally; only what comes from a pod's spec or from the kubelet itself is scaled.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final

PREFIX: Final = "lab.accelerator-rollout.dev/"
FOREVER: Final = math.inf  # as a count; its annotation reads `forever`
_FOREVER_TEXT: Final = "forever"


class FaultError(ValueError):
    """An annotation of ours that means nothing: a fault that silently did nothing would make a test lie."""


class StartFailure(StrEnum):
    """Why a container never starts: the waiting reasons that a kubelet reports."""

    IMAGE_PULL = "ImagePullBackOff"
    INVALID_IMAGE = "InvalidImageName"
    CREATE = "CreateContainerError"
    CONFIG = "CreateContainerConfigError"
    RUN = "RunContainerError"


Value = float | bool | str | StartFailure | None


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One pod's behaviour; every field is also an annotation, e.g. `prepare-seconds`.

    Counts may be infinite: the annotation's value is then `forever`.
    """

    prepare_seconds: float = 0.05  # from the prepare call to its success
    prepare_failures: float = 0  # how many prepare calls fail before one succeeds
    start_seconds: float = 0.05  # from prepared to containers running
    start_failure: StartFailure | None = None
    start_failures: float = FOREVER  # how many attempts `start_failure` spoils
    ready_seconds: float = 0.05  # from running to Ready
    never_ready: bool = False
    crash_after_seconds: float | None = None  # from running to exit code 1
    crash_times: float = FOREVER  # how many runs crash before one stays up
    crash_message: str = ""  # the termination message of such a run
    complete_after_seconds: float | None = None  # from running to exit code 0
    teardown_seconds: float | None = (
        None  # preStop and exit together; None: the spec's preStop, then EXIT_SECONDS
    )
    never_dies: bool = False  # SIGKILL does not help either
    unprepare_seconds: float = 0.05
    unprepare_failures: float = 0


EXIT_SECONDS: Final = 0.05  # from SIGTERM to exit of a container that nobody asked to be slow

_IMAGE_TAGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "broken": {"start_failure": StartFailure.IMAGE_PULL},
    "crashing": {"crash_after_seconds": 0.1},
    "unready": {"never_ready": True},
    "slow": {"ready_seconds": 5.0},
    # The memory of the pod before is still being freed: the third start succeeds.
    "memory": {
        "crash_after_seconds": 0.1,
        "crash_times": 2,
        "ready_seconds": 0.5,
        "crash_message": "Traceback\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    },
}
_FIELDS: Final = {field.name for field in fields(Behaviour)}
_SECONDS: Final = frozenset(name for name in _FIELDS if name.endswith("_seconds"))
_COUNTS: Final = frozenset({"prepare_failures", "start_failures", "crash_times", "unprepare_failures"})
_FLAGS: Final = frozenset({"never_ready", "never_dies"})
_TEXTS: Final = frozenset({"crash_message"})
_CRASHES: Final = 0.1  # `crash-times` alone is enough to make a pod crash, this long after each start


def behaviour_of(
    pod: Mapping[str, Any], node_annotations: Mapping[str, str] | None = None, base: Behaviour | None = None
) -> Behaviour:
    """What this pod does on a node with these annotations; raises FaultError on a fault that cannot be read."""
    behaviour = apply_annotations(base or Behaviour(), node_annotations or {})
    for container in pod["spec"].get("containers", ()):
        tag = container.get("image", "").partition("@")[0].rpartition(":")[2]
        behaviour = replace(behaviour, **_IMAGE_TAGS.get(tag, {}))
    return apply_annotations(behaviour, pod["metadata"].get("annotations") or {})


def apply_annotations(behaviour: Behaviour, annotations: Mapping[str, str]) -> Behaviour:
    """The behaviour with our annotations applied; others are not looked at."""
    changes: dict[str, Any] = {}
    for key, value in annotations.items():
        if key.startswith(PREFIX):
            name = key.removeprefix(PREFIX).replace("-", "_")
            changes[name] = _parse(key, name, value)
    if changes.get("crash_times") and not (changes.keys() & {"crash_after_seconds"}):
        changes["crash_after_seconds"] = behaviour.crash_after_seconds or _CRASHES
    return replace(behaviour, **changes)


def annotations_of(**faults: Value) -> dict[str, str]:
    """Faults by their Python names as annotations, e.g. `annotations_of(unprepare_seconds=20)`; checked at once."""
    found = {PREFIX + name.replace("_", "-"): _written(value) for name, value in faults.items()}
    apply_annotations(Behaviour(), found)
    return found


def _written(value: Value) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float() if math.isinf(value):
            return _FOREVER_TEXT
        case _:
            return str(value)


def _parse(key: str, name: str, value: str) -> Value:
    try:
        if name in _FLAGS:
            return {"true": True, "false": False}[value]
        if name in _COUNTS:
            return FOREVER if value == _FOREVER_TEXT else _not_negative(int(value))
        if name in _SECONDS:
            return _not_negative(float(value))
        if name in _TEXTS:
            return value
        if name == "start_failure":
            return StartFailure(value) if value else None
    except (KeyError, ValueError) as error:
        raise FaultError(f"annotation {key}: {value!r} is no value for it; {_expected(name)}") from error
    known = ", ".join(sorted(field.replace("_", "-") for field in _FIELDS))
    raise FaultError(f"annotation {key} is not a fault; known are {known}")


def _not_negative(number: float) -> float:
    if number < 0 or math.isnan(number) or math.isinf(number):
        raise ValueError(number)
    return number


def _expected(name: str) -> str:
    if name in _FLAGS:
        return "use true or false"
    if name in _COUNTS:
        return f"use a whole number or {_FOREVER_TEXT}"
    if name in _SECONDS:
        return "use seconds, 0 or more"
    return f"use one of {', '.join(StartFailure)}"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a pod's containers stop: after how many seconds (None: never), and with which exit code."""

    seconds: float | None
    exit_code: int

    @property
    def killed(self) -> bool:
        """Whether the grace period ran out first."""
        return self.exit_code == SIGKILL_EXIT


SIGKILL_EXIT: Final = 137


def ending_of(
    behaviour: Behaviour, pod: Mapping[str, Any], grace_seconds: float, *, grace_scale: float = 1.0
) -> Ending:
    """Stop the containers of a pod that was given `grace_seconds` (of the API, not yet scaled).

    A kubelet never gives less than one second, whatever the API says (pod_workers, calculateEffectiveGracePeriod).
    """
    if behaviour.never_dies:
        return Ending(seconds=None, exit_code=SIGKILL_EXIT)
    grace = max(grace_seconds, 1.0) * grace_scale
    wanted = behaviour.teardown_seconds
    if wanted is None:
        wanted = prestop_seconds(pod["spec"].get("containers", ())) * grace_scale + EXIT_SECONDS
    if wanted > grace:
        return Ending(seconds=grace, exit_code=SIGKILL_EXIT)
    return Ending(seconds=wanted, exit_code=0)


_SLEEP: Final = re.compile(r"\bsleep\s+(\d+(?:\.\d+)?)")


def prestop_seconds(containers: Iterable[Mapping[str, Any]]) -> float:
    """The longest preStop hook of the containers, in seconds: its sleep action, or the sleeps in its command."""
    longest = 0.0
    for container in containers:
        hook = (container.get("lifecycle") or {}).get("preStop") or {}
        command = " ".join((hook.get("exec") or {}).get("command") or ())
        slept = sum(float(seconds) for seconds in _SLEEP.findall(command))
        longest = max(longest, float((hook.get("sleep") or {}).get("seconds") or 0) + slept)
    return longest
