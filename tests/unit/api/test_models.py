"""What the models write is what they read, in the spelling and the bounds of the API."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError

from accelerator_rollout.api.base import MAX_MESSAGE
from accelerator_rollout.api.models import (
    MAX_REPLACEMENTS,
    Cause,
    HeldClaim,
    HeldDevice,
    Replacement,
    RolloutSpec,
    RolloutStatus,
    Stage,
)
from unit.api.samples import BOUNDS, RULES, SPEC, Case, full

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def replacement(**change: object) -> Replacement:
    known: dict[str, object] = {
        "id": "1",
        "stage": Stage.RELEASING,
        "cause": Cause.ROLLOUT,
        "started_at": NOON,
        "stage_started_at": NOON,
    }
    return Replacement.model_validate(known | change)


def leaves(raw: object, path: str = "") -> set[str]:
    match raw:
        case dict():
            return {leaf for key, item in raw.items() for leaf in leaves(item, f"{path}.{key}")}
        case list():
            return {leaf for item in raw for leaf in leaves(item, f"{path}[]")}
        case _:
            return {path}


def test_every_field_of_a_status_survives_writing_and_reading() -> None:
    status = full(RolloutStatus)
    assert RolloutStatus.from_raw(status.to_raw()) == status


def test_the_full_status_really_is_full() -> None:
    written = leaves(full(RolloutStatus).to_raw())
    assert {
        ".lastProgressTime",
        ".replacements[].bootID",
        ".replacements[].podUID",
        ".replacements[].nodeUID",
        ".replacements[].replacementPodUID",
        ".replacements[].claims[].uid",
        ".replacements[].claims[].devices[].shareID",
        ".replacements[].stageTimes[].at",
        ".replacements[].proof",
        ".history[].replacements[].stages[].seconds",
        ".conditions[].observedGeneration",
    } <= written


def test_an_empty_status_writes_its_lists_so_that_a_patch_empties_them() -> None:
    raw = RolloutStatus().to_raw()
    assert (raw["replacements"], raw["history"], raw["conditions"]) == ([], [], [])
    assert None not in raw.values()


def test_parts_leave_out_what_says_nothing_but_keep_zero() -> None:
    raw = replacement(grace_seconds=0, claims=(HeldClaim(name="c", uid="u"),)).to_raw()
    assert raw == {
        "id": "1",
        "stage": "Releasing",
        "cause": "Rollout",
        "startedAt": "2026-01-01T12:00:00Z",
        "stageStartedAt": "2026-01-01T12:00:00Z",
        "graceSeconds": 0,
        "claims": [{"name": "c", "uid": "u"}],
    }


def test_null_reads_as_absent() -> None:
    raw = replacement().to_raw()
    assert Replacement.from_raw(raw | {"claims": None, "proof": None, "podName": None}) == replacement()


def test_times_are_cut_to_the_second_and_turned_to_utc() -> None:
    east = timezone(timedelta(hours=2))
    read = replacement(started_at=datetime(2026, 1, 1, 14, 0, 0, 999_999, tzinfo=east)).started_at
    assert read == NOON
    assert read.tzinfo is UTC


@pytest.mark.parametrize("time", ["2026-01-01T12:00:00", "yesterday", 1_767_268_800, datetime(2026, 1, 1)])  # noqa: DTZ001
def test_a_time_without_a_zone_is_no_time(time: object) -> None:
    with pytest.raises(ValidationError, match="2026-01-31T12:00:00Z"):
        replacement(started_at=time)


def test_a_long_message_of_others_is_cut_not_refused() -> None:
    assert len(replacement(message="x" * 5000).message) == MAX_MESSAGE


@pytest.mark.parametrize(
    "change", [{"id": ""}, {"stage": "Sleeping"}, {"grace_seconds": -1}, {"node_name": "n" * 254}]
)
def test_what_the_api_server_would_refuse_is_refused_here(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        replacement(**change)


def test_lists_have_the_bounds_that_the_api_server_enforces() -> None:
    RolloutStatus(replacements=(replacement(),) * MAX_REPLACEMENTS)
    with pytest.raises(ValidationError, match="at most 100 items"):
        RolloutStatus(replacements=(replacement(),) * (MAX_REPLACEMENTS + 1))


def test_facts_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        replacement().stage = Stage.DONE  # type: ignore[misc]


def test_equal_facts_are_equal_and_can_be_members_of_a_set() -> None:
    device = HeldDevice(driver="lpu.example.com", pool="node-1", device="lpu-0")
    assert {device, HeldDevice.from_raw(device.to_raw())} == {device}


def test_the_smallest_spec_gets_the_documented_defaults() -> None:
    spec = RolloutSpec.from_raw(SPEC)
    assert (spec.paused, spec.release.timeout_seconds, spec.progress_deadline_seconds) == (False, 600, 1800)
    assert spec.release.unproven.extra_seconds == 60


@pytest.mark.parametrize("case", [*RULES.values(), *BOUNDS.values()], ids=[*RULES, *BOUNDS])
def test_rules_and_bounds_hold_without_an_api_server_too(case: Case) -> None:
    RolloutSpec.from_raw(case.accepted)
    with pytest.raises(ValidationError) as refusal:
        RolloutSpec.from_raw(case.refused)
    assert case.message in str(refusal.value)
