"""Rules that a type and a bound cannot say: each as CEL for the API server and as Python, in the same words.

The API server refuses what breaks a rule. The Python side serves whoever has no API server at hand, and meets
objects that were stored under other rules than ours.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

WORKLOAD_API_VERSION: Final = "apps/v1"
MAX_OBJECT_NAME: Final = 236  # an Event is named after its object, plus a dot and 16 digits; 253 is its limit

_KINDS: Final = ("Deployment", "StatefulSet", "DaemonSet")
_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"

# Second halves of messages, which both sides use.
_VERSION_HELP: Final = f"is not supported: the workload must be of {WORKLOAD_API_VERSION}"
_KIND_HELP: Final = "is not supported: this version drives a Deployment, a StatefulSet or a DaemonSet"
_NAME_HELP: Final = (
    "cannot be the name of a workload: such names have lower case letters, digits, - and . only, "
    "and begin and end with a letter or digit"
)
_DEADLINE_HELP: Final = (
    "progressDeadlineSeconds must be at least release.timeoutSeconds: nothing moves while a release is awaited, "
    "so the shorter deadline would hide what keeps the devices"
)
_SETTLE_HELP: Final = (
    "settleSeconds must be less than timeoutSeconds: the devices do not count as free before they have settled, "
    "so every release would be late"
)

_SOAK_HELP: Final = (
    "soakSeconds must be at least 1 where there are checks: they are asked while a successor soaks, "
    "and would never be asked"
)

_STRATEGY_HELP: Final = (
    "steps and partition exclude each other: a step that asks for more pods than the partition leaves would never be "
    "reached. To stop for good at a number of pods, use partition alone"
)
_REPLICAS_HELP: Final = "replicas must be a number of at least 1, or a percentage from 1% to 100%"
_MAX_UNAVAILABLE_HELP: Final = (
    "maxUnavailable must be a number of at least 1, or a percentage from 1% to 100%"
)
_PAUSE_HELP: Final = (
    "a pause of type Duration needs durationSeconds of at least 1, one of type Manual has none"
)

_CHECK_HELP: Final = "a check has either cel or prometheus"


@dataclass(frozen=True, slots=True)
class CelRule:
    """One entry of `x-kubernetes-validations`."""

    rule: str
    message: str
    # CEL expression of a better message, with `message` to fall back on. Texts only: the API server cannot bound
    # the length of a number made a string, and refuses the whole definition as too costly.
    explain: str = ""
    field_path: str = ""  # of the field to blame, where that is not the one which carries the rule

    def as_schema(self) -> dict[str, Any]:
        """Return the rule as the API server wants it."""
        optional = {"messageExpression": self.explain, "fieldPath": self.field_path}
        return {"rule": self.rule, "message": self.message} | {
            k: text for k, text in optional.items() if text
        }


def validated_by(*rules: CelRule) -> dict[str, Any]:
    """Return the schema extension that attaches the rules."""
    return {"x-kubernetes-validations": [rule.as_schema() for rule in rules]}


# An object answers for the gates and pauses of its workload: pointed elsewhere it would leave them behind.
SAME_WORKLOAD: Final = CelRule(
    rule=(
        "self.apiVersion.split('/')[0] == oldSelf.apiVersion.split('/')[0]"
        " && self.kind == oldSelf.kind && self.name == oldSelf.name"
    ),
    explain=(
        "'workloadRef cannot be changed: this object answers for the pods of '"
        " + oldSelf.kind + ' ' + oldSelf.name + '. For another workload create another AcceleratorRollout'"
    ),
    message="workloadRef cannot be changed: for another workload create another AcceleratorRollout",
)

SUPPORTED_VERSION: Final = CelRule(
    rule=f"self == '{WORKLOAD_API_VERSION}'",
    explain=f"""'apiVersion "' + self + '" {_VERSION_HELP}'""",
    message=f"apiVersion must be {WORKLOAD_API_VERSION}",
)

# Not an enum in the schema: its refusal would stop the API server before the rule that explains itself.
SUPPORTED_KIND: Final = CelRule(
    rule=f"self in {list(_KINDS)}",
    explain=f"""'kind "' + self + '" {_KIND_HELP}'""",
    message="kind must be Deployment, StatefulSet or DaemonSet",
)

POSSIBLE_NAME: Final = CelRule(
    rule=f"self.matches(r'^{_SUBDOMAIN}$')",
    explain=f"""'name "' + self + '" {_NAME_HELP}'""",
    message="name cannot be the name of a workload",
)

DEADLINES_IN_ORDER: Final = CelRule(
    rule="self.progressDeadlineSeconds >= self.release.timeoutSeconds",
    message=_DEADLINE_HELP,
    field_path=".progressDeadlineSeconds",
)

SETTLES_IN_TIME: Final = CelRule(
    rule="self.settleSeconds < self.timeoutSeconds",
    message=_SETTLE_HELP,
    field_path=".settleSeconds",
)

CHECKS_NEED_A_SOAK: Final = CelRule(
    rule="self.soakSeconds > 0 || !has(self.checks) || size(self.checks) == 0",
    message=_SOAK_HELP,
    field_path=".soakSeconds",
)

STEPS_OR_PARTITION: Final = CelRule(
    rule="self.partition == 0 || !has(self.steps) || size(self.steps) == 0",
    message=_STRATEGY_HELP,
    field_path=".partition",
)

POSSIBLE_REPLICAS: Final = CelRule(
    rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
    message=_REPLICAS_HELP,
)

POSSIBLE_MAX_UNAVAILABLE: Final = CelRule(rule=POSSIBLE_REPLICAS.rule, message=_MAX_UNAVAILABLE_HELP)

DURATION_FITS_PAUSE: Final = CelRule(
    rule="(self.type == 'Duration') == (self.durationSeconds > 0)",
    message=_PAUSE_HELP,
    field_path=".durationSeconds",
)

ONE_KIND_OF_CHECK: Final = CelRule(
    rule="(has(self.cel) && self.cel != '') != has(self.prometheus)",
    message=_CHECK_HELP,
)

OBJECT_NAME_FITS: Final = CelRule(
    rule=f"self.metadata.name.size() <= {MAX_OBJECT_NAME}",
    message=(
        f"metadata.name may have at most {MAX_OBJECT_NAME} characters: "
        "Events about the object are named after it, with a suffix"
    ),
)


def check_version(api_version: str) -> str:
    """Return the version. Raises ValueError where SUPPORTED_VERSION refuses it."""
    if api_version != WORKLOAD_API_VERSION:
        message = f'apiVersion "{api_version}" {_VERSION_HELP}'
        raise ValueError(message)
    return api_version


def check_kind(kind: object) -> object:
    """Return the kind. Raises ValueError where SUPPORTED_KIND refuses it."""
    if isinstance(kind, str) and kind not in _KINDS:
        message = f'kind "{kind}" {_KIND_HELP}'
        raise ValueError(message)
    return kind


def check_name(name: str) -> str:
    """Return the name. Raises ValueError where POSSIBLE_NAME refuses it."""
    if re.fullmatch(_SUBDOMAIN, name) is None:
        message = f'name "{name}" {_NAME_HELP}'
        raise ValueError(message)
    return name


def check_deadlines(progress_deadline_seconds: int, release_timeout_seconds: int) -> None:
    """Raise ValueError where DEADLINES_IN_ORDER refuses the pair."""
    if progress_deadline_seconds < release_timeout_seconds:
        raise ValueError(_DEADLINE_HELP)


def check_settle(settle_seconds: int, release_timeout_seconds: int) -> None:
    """Raise ValueError where SETTLES_IN_TIME refuses the pair."""
    if settle_seconds >= release_timeout_seconds:
        raise ValueError(_SETTLE_HELP)


def check_soak(checks: int, soak_seconds: int) -> None:
    """Raise ValueError where CHECKS_NEED_A_SOAK refuses the pair."""
    if checks and not soak_seconds:
        raise ValueError(_SOAK_HELP)


def check_kind_of_check(*, has_cel: bool, has_prometheus: bool) -> None:
    """Raise ValueError where ONE_KIND_OF_CHECK refuses it."""
    if has_cel == has_prometheus:
        raise ValueError(_CHECK_HELP)


def check_strategy(steps: int, partition: int) -> None:
    """Raise ValueError where STEPS_OR_PARTITION refuses the pair."""
    if steps and partition:
        raise ValueError(_STRATEGY_HELP)


def check_replicas(replicas: int | str) -> int | str:
    """Return the number or percentage. Raises ValueError where POSSIBLE_REPLICAS refuses it."""
    if not _at_least_one(replicas):
        raise ValueError(_REPLICAS_HELP)
    return replicas


def check_max_unavailable(pods: int | str) -> int | str:
    """Return the number or percentage. Raises ValueError where POSSIBLE_MAX_UNAVAILABLE refuses it."""
    if not _at_least_one(pods):
        raise ValueError(_MAX_UNAVAILABLE_HELP)
    return pods


def _at_least_one(pods: int | str) -> bool:
    if isinstance(pods, int):
        return pods >= 1
    return re.fullmatch(r"([1-9][0-9]?|100)%", pods) is not None


def check_pause(duration_seconds: int, *, timed: bool) -> None:
    """Raise ValueError where DURATION_FITS_PAUSE refuses the pair."""
    if timed != (duration_seconds > 0):
        raise ValueError(_PAUSE_HELP)
