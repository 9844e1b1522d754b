"""The spans of a rollout, from the times that its history in the status has: pure, and the same in every process.

A rollout is the root, each replaced pod a span below it, and each stage of a replacement a span below that. Times have whole
seconds, as in the status.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from accelerator_rollout.api.models import Outcome, PastReplacement, PastRollout, RolloutObject
from accelerator_rollout.tracing.identity import span_id, trace_id

_PREFIX: Final = "accelerator_rollout"


@dataclass(frozen=True, slots=True)
class Span:
    """Something that ended. `parent` is "" for the root; `failed` where it ended otherwise than it was to."""

    trace: str
    id: str
    parent: str
    name: str
    start: datetime
    end: datetime
    attributes: Mapping[str, str]
    failed: bool = False


def ended(
    rollout: RolloutObject,
    before: Iterable[PastRollout] | None,
    after: Iterable[PastRollout],
    since: datetime,
) -> list[Span]:
    """Return the spans of what is over in `after` and was not in `before`.

    Without a `before`, nothing is known of what another process has told: then of all that ended at `since` or later. A rollout
    that was stopped and goes on keeps the root that told of its stop.
    """
    known = None if before is None else {_key(past): past for past in before}
    found: list[Span] = []
    for past in after:
        trace = trace_id(rollout.uid, past)
        root = span_id(trace, "rollout")
        was = None if known is None else known.get(_key(past))
        told = {_begun(one) for one in was.replacements} if was is not None else set()
        for replacement in past.replacements:
            if _begun(replacement) in told:
                continue
            spans = list(_replaced(rollout, trace, root, replacement))
            if spans and (known is not None or spans[0].end >= since):
                found += spans
        if past.outcome is Outcome.IN_PROGRESS or (
            was is not None and was.outcome is not Outcome.IN_PROGRESS
        ):
            continue
        span = _rollout(rollout, trace, root, past)
        if known is not None or span.end >= since:
            found.append(span)
    return found


def _rollout(rollout: RolloutObject, trace: str, root: str, past: PastRollout) -> Span:
    start = _whole(past.started_at)
    ref = rollout.spec.workload_ref
    about = {
        "k8s.namespace.name": rollout.namespace,
        f"{_PREFIX}.name": rollout.name,
        f"{_PREFIX}.uid": rollout.uid,
        f"{_PREFIX}.workload": f"{ref.kind}/{ref.name}",
        f"{_PREFIX}.revision": past.revision,
        f"{_PREFIX}.outcome": str(past.outcome),
    }
    end = max(start, _whole(past.finished_at or past.started_at))
    return Span(trace, root, "", "rollout", start, end, about, failed=past.outcome is Outcome.ABORTED)


def _replaced(rollout: RolloutObject, trace: str, root: str, past: PastReplacement) -> Iterator[Span]:
    """Yield the replacement, then its stages; nothing of one whose beginning an older operator did not note."""
    if past.started_at is None:
        return
    begun = _whole(past.started_at)
    own = span_id(trace, "replacement", past.pod_name, f"{begun:%FT%T}")
    about = {"k8s.namespace.name": rollout.namespace, "k8s.pod.name": past.pod_name}
    if past.replaced_by:
        about[f"{_PREFIX}.replaced_by"] = past.replaced_by
    if past.proof is not None:
        about[f"{_PREFIX}.proof"] = str(past.proof)
    end = begun + timedelta(seconds=sum(stage.seconds for stage in past.stages))
    yield Span(trace, own, root, "replacement", begun, end, about)
    at = begun
    for number, stage in enumerate(past.stages):
        until = at + timedelta(seconds=stage.seconds)
        yield Span(
            trace, span_id(own, str(number), str(stage.stage)), own, str(stage.stage), at, until, about
        )
        at = until


def _key(past: PastRollout) -> tuple[str, datetime]:
    return past.revision, _whole(past.started_at)


def _begun(past: PastReplacement) -> tuple[str, datetime | None]:
    return past.pod_name, _whole(past.started_at) if past.started_at else None


def _whole(at: datetime) -> datetime:
    return at.replace(microsecond=0)
