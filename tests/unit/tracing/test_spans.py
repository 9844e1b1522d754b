"""Spans follow from the history alone: every process makes the same, and each is told once."""

from datetime import timedelta
from typing import Any

from accelerator_rollout.api.models import (
    Outcome,
    PastReplacement,
    PastRollout,
    RolloutObject,
    Stage,
    StageDuration,
)
from accelerator_rollout.tracing.identity import trace_id
from accelerator_rollout.tracing.spans import Span, ended
from builders import NOW, running

OWN: RolloutObject = running("Deployment").snapshot().rollout
LATE = NOW + timedelta(seconds=0.9)  # before it is stored, a time is finer


def stage(name: Stage, seconds: int) -> StageDuration:
    return StageDuration(stage=name, seconds=seconds)


def replaced(pod: str = "web-0", **over: Any) -> PastReplacement:
    stages = (stage(Stage.TERMINATING, 3), stage(Stage.GATED, 0), stage(Stage.PREPARING, 4))
    return PastReplacement(**({"pod_name": pod, "started_at": NOW, "stages": stages} | over))


def past(*replacements: PastReplacement, **over: Any) -> PastRollout:
    facts: dict[str, Any] = {"revision": "r2", "outcome": Outcome.IN_PROGRESS, "started_at": NOW}
    return PastRollout(**(facts | {"replacements": replacements} | over))


def done(*replacements: PastReplacement, **over: Any) -> PastRollout:
    facts = {"outcome": Outcome.COMPLETED, "finished_at": NOW + timedelta(seconds=20)}
    return past(*replacements, **(facts | over))


def told(
    before: list[PastRollout] | None, after: list[PastRollout], *, since: timedelta = timedelta(0)
) -> list[Span]:
    return ended(OWN, before, after, NOW + since)


def names(spans: list[Span]) -> list[str]:
    return [span.name for span in spans]


def test_a_replacement_is_told_once_it_is_over_with_a_span_for_each_stage_one_after_the_other() -> None:
    spans = told([past()], [past(replaced())])
    assert names(spans) == ["replacement", "Terminating", "Gated", "Preparing"]
    whole, *stages = spans
    assert (whole.start, whole.end) == (NOW, NOW + timedelta(seconds=7))
    assert [(s.end - s.start).total_seconds() for s in stages] == [3, 0, 4]
    assert [s.start for s in stages][1:] == [s.end for s in stages][:-1]
    assert {s.parent for s in stages} == {whole.id}
    assert {s.trace for s in spans} == {trace_id(OWN.uid, past())}
    assert len({s.id for s in spans}) == 4


def test_the_root_comes_last_and_is_the_parent_of_what_came_before() -> None:
    (root,) = told([past(replaced())], [done(replaced())])
    assert (root.name, root.parent, root.failed) == ("rollout", "", False)
    assert (root.start, root.end) == (NOW, NOW + timedelta(seconds=20))
    assert root.attributes["accelerator_rollout.outcome"] == "Completed"
    (whole, *_) = told([past()], [past(replaced())])
    assert whole.parent == root.id


def test_nothing_is_told_twice() -> None:
    assert told([done(replaced())], [done(replaced())]) == []


def test_two_processes_tell_the_same_whatever_fractions_of_seconds_the_first_has_seen() -> None:
    fine = told([past(started_at=LATE)], [done(replaced(started_at=LATE), started_at=LATE)])
    stored = told([past()], [done(replaced())])
    assert fine == stored


def test_a_pod_that_is_replaced_twice_in_a_rollout_is_told_twice() -> None:
    again = replaced(started_at=NOW + timedelta(minutes=2))
    spans = told([past(replaced())], [past(replaced(), again)])
    assert names(spans)[0] == "replacement"
    assert not {s.id for s in spans} & {s.id for s in told([past()], [past(replaced())])}


def test_a_new_process_tells_again_what_may_not_have_been_sent_and_nothing_older() -> None:
    assert names(told(None, [done(replaced())], since=timedelta(seconds=7))) == [
        "replacement",
        "Terminating",
        "Gated",
        "Preparing",
        "rollout",
    ]
    assert names(told(None, [done(replaced())], since=timedelta(seconds=8))) == ["rollout"]
    assert told(None, [done(replaced())], since=timedelta(seconds=21)) == []


def test_what_is_told_again_has_the_same_ids_and_times() -> None:
    first = told([past()], [done(replaced())])
    assert told(None, [done(replaced())]) == first


def test_a_rollout_that_was_stopped_has_failed_and_its_root_stays_when_it_goes_on() -> None:
    stopped = done(outcome=Outcome.ABORTED)
    (root,) = told([past()], [stopped])
    assert root.failed
    assert names(told([stopped], [done(replaced())])) == ["replacement", "Terminating", "Gated", "Preparing"]


def test_a_later_rollout_has_a_trace_of_its_own() -> None:
    later = past(revision="r3", started_at=NOW + timedelta(minutes=1))
    (root,) = told([past()], [later, done(outcome=Outcome.SUPERSEDED)])
    assert root.attributes["accelerator_rollout.revision"] == "r2"
    assert trace_id(OWN.uid, later) != root.trace


def test_a_replacement_without_a_beginning_is_left_out() -> None:
    assert told([past()], [past(replaced(started_at=None))]) == []
