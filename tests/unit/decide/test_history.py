"""The last rollouts: bounded, newest first, the one in progress at the head."""

from accelerator_rollout.api.models import (
    MAX_HISTORY,
    MAX_HISTORY_REPLACEMENTS,
    Outcome,
    PastRollout,
    Stage,
    StageEntry,
)
from accelerator_rollout.decide.history import begin, complete, durations, note
from builders import NOW, at, device, entry, pod

DONE = entry(pod("worker-1"), device(1), replacement_pod_name="worker-1")


def test_a_new_revision_begins_a_rollout() -> None:
    (one,) = begin((), "abc", NOW)
    assert (one.revision, one.outcome, one.started_at) == ("abc", Outcome.IN_PROGRESS, NOW)


def test_the_same_revision_begins_nothing() -> None:
    past = begin((), "abc", NOW)
    assert begin(past, "abc", at(5)) is past


def test_a_revision_in_the_middle_supersedes_the_one_before() -> None:
    newest, before = begin(begin((), "abc", NOW), "def", at(5))
    assert (newest.revision, newest.outcome) == ("def", Outcome.IN_PROGRESS)
    assert (before.outcome, before.finished_at) == (Outcome.SUPERSEDED, at(5))


def test_a_rollout_completes_once() -> None:
    past = complete(begin((), "abc", NOW), at(9))
    assert (past[0].outcome, past[0].finished_at) == (Outcome.COMPLETED, at(9))
    assert complete(past, at(20)) is past


def test_a_revision_that_comes_again_begins_again() -> None:
    past = begin(complete(begin((), "abc", NOW), at(9)), "abc", at(20))
    assert [p.outcome for p in past] == [Outcome.IN_PROGRESS, Outcome.COMPLETED]


def test_a_departure_without_a_rollout_is_no_part_of_one() -> None:
    assert note((), DONE, NOW) == ()
    past = complete(begin((), "abc", NOW), at(9))
    assert note(past, DONE, at(10)) is past


def test_both_lists_are_bounded_and_keep_the_newest() -> None:
    past: tuple[PastRollout, ...] = ()
    for number in range(MAX_HISTORY + 3):
        past = begin(past, f"r{number}", at(number))
    assert [p.revision for p in past] == [f"r{n}" for n in range(MAX_HISTORY + 2, 2, -1)]
    for number in range(MAX_HISTORY_REPLACEMENTS + 3):
        past = note(past, entry(pod(f"worker-{number}"), device(1)), NOW)
    names = [r.pod_name for r in past[0].replacements]
    assert (len(names), names[-1]) == (MAX_HISTORY_REPLACEMENTS, f"worker-{MAX_HISTORY_REPLACEMENTS + 2}")


def test_a_replacement_keeps_when_its_first_stage_began() -> None:
    times = (StageEntry(stage=Stage.TERMINATING, at=at(2)), StageEntry(stage=Stage.RELEASING, at=at(4)))
    (past,) = note(begin((), "abc", NOW), DONE.model_copy(update={"stage_times": times}), at(9))
    (kept,) = past.replacements
    assert kept.started_at == at(2)
    assert sum(stage.seconds for stage in kept.stages) == 7


def test_stage_durations_add_up_to_the_whole() -> None:
    times = tuple(
        StageEntry(stage=s, at=at(t))
        for s, t in ((Stage.SELECTED, 0), (Stage.TERMINATING, 2), (Stage.RELEASING, 32))
    )
    found = durations(DONE.model_copy(update={"stage_times": times}), at(35))
    assert [(d.stage, d.seconds) for d in found] == [
        (Stage.SELECTED, 2),
        (Stage.TERMINATING, 30),
        (Stage.RELEASING, 3),
    ]


def test_a_clock_that_went_back_makes_no_negative_duration() -> None:
    assert [d.seconds for d in durations(DONE, at(-500))] == [0]
