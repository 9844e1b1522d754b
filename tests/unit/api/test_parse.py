"""An object we cannot read is reported with the field to blame, and never raises."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelerator_rollout.api.models import LegibleRef, RolloutObject, RolloutStatus, Unreadable
from accelerator_rollout.api.parse import parse
from unit.api.samples import RULES, SPEC, Case, full, smallest, stored

REF = LegibleRef("apps/v1", "Deployment", "llm")


def unreadable(raw: object) -> Unreadable:
    read = parse(raw)
    assert isinstance(read, Unreadable), read
    return read


def test_an_object_without_status_is_read() -> None:
    read = parse(stored())
    assert isinstance(read, RolloutObject)
    assert (read.namespace, read.name, read.uid, read.generation) == ("team", "llm", "u-1", 3)
    assert read.status == RolloutStatus()
    assert read.deletion is None


def test_a_full_status_is_read() -> None:
    status = full(RolloutStatus)
    read = parse(stored(status=status.to_raw()))
    assert isinstance(read, RolloutObject)
    assert read.status == status


def test_finalizers_and_the_end_are_read() -> None:
    raw = stored()
    raw["metadata"] |= {"finalizers": ["a/b"], "deletionTimestamp": "2026-01-02T00:00:00Z"}
    read = parse(raw)
    assert isinstance(read, RolloutObject)
    assert read.finalizers == ("a/b",)
    assert read.deletion is not None


def test_a_field_from_a_newer_version_stops_us_since_it_may_forbid_what_we_would_do() -> None:
    read = unreadable(stored(SPEC | {"strategy": {"surge": 2}}))
    assert read.message.startswith("spec.strategy.surge: this version does not know the field.")
    assert read.workload_ref == REF
    assert (read.namespace, read.name, read.uid, read.generation) == ("team", "llm", "u-1", 3)


def test_a_field_in_the_spelling_of_the_code_is_not_a_field() -> None:
    message = unreadable(stored({"workload_ref": SPEC["workloadRef"]})).message
    assert "spec.workloadRef: is missing" in message
    assert "spec.workload_ref: this version does not know the field" in message


def test_a_status_field_from_a_newer_version_does_not_stop_us() -> None:
    assert isinstance(parse(stored(status={"observedActionID": "7"})), RolloutObject)


def test_a_stage_we_do_not_know_stops_us_and_the_conditions_stay_legible() -> None:
    raw = full(RolloutStatus).to_raw()
    raw["replacements"][1]["stage"] = "Dreaming"
    raw["conditions"][0]["lastTransitionTime"] = "?"
    read = unreadable(stored(status=raw))
    assert 'status.replacements[1].stage: "Dreaming" is refused' in read.message
    assert [c.to_raw() for c in read.conditions] == raw["conditions"][1:]


def test_an_object_of_another_version_is_named_as_such() -> None:
    read = unreadable(stored() | {"apiVersion": "accelerator-rollout.dev/v1"})
    assert 'apiVersion: "accelerator-rollout.dev/v1" is not accelerator-rollout.dev/v1alpha1' in read.message


def test_a_kind_we_do_not_drive_is_still_a_reference() -> None:
    read = unreadable(stored(RULES["the kind is one we drive"].refused))
    assert read.workload_ref == LegibleRef("apps/v1", "Job", "llm")


@pytest.mark.parametrize("case", RULES.values(), ids=RULES)
def test_an_object_stored_under_other_rules_is_reported_in_the_same_words(case: Case) -> None:
    assert case.message in unreadable(stored(case.refused)).message


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "spec.workloadRef: is missing"),
        ({"workloadRef": {"kind": "Deployment", "name": "a"}}, "spec.workloadRef.apiVersion: is missing"),
        (SPEC | {"paused": "yes"}, 'spec.paused: "yes" is refused'),
        (SPEC | {"release": []}, "spec.release: [] is refused"),
        (SPEC | {"release": {"timeoutSeconds": "600"}}, 'spec.release.timeoutSeconds: "600" is refused'),
    ],
)
def test_the_message_names_the_field(spec: dict[str, Any], words: str) -> None:
    assert words in unreadable(stored(spec)).message


def test_an_object_that_never_was_at_an_api_server_says_what_it_lacks() -> None:
    message = unreadable(smallest()).message
    assert "metadata.creationTimestamp: is missing" in message
    assert "metadata.uid: is missing" in message


def test_a_message_stays_short_however_much_is_wrong() -> None:
    read = unreadable(stored({f"field{n}": "x" * 1000 for n in range(100)}))
    assert "and 98 more" in read.message
    assert len(read.message) < 600


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def paths(raw: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    match raw:
        case dict():
            return [path, *(found for key, item in raw.items() for found in paths(item, (*path, key)))]
        case list():
            return [path, *(found for index, item in enumerate(raw) for found in paths(item, (*path, index)))]
        case _:
            return [path]


WHOLE = stored(status=full(RolloutStatus).to_raw())


@given(st.sampled_from(paths(WHOLE)), JSON)
def test_whatever_stands_in_whichever_field_nothing_is_raised(path: tuple[Any, ...], junk: object) -> None:
    body: Any = {"root": deepcopy(WHOLE)}
    place, last = body, "root"
    for step in path:
        place, last = place[last], step
    place[last] = junk
    read = parse(body["root"])
    assert isinstance(read, RolloutObject) or read.message


@given(JSON)
def test_what_is_no_object_at_all_is_unreadable(junk: object) -> None:
    assert unreadable(junk).message
