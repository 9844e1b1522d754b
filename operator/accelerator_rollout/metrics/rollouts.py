"""What is shown of each AcceleratorRollout. The series are made when they are scraped, so they go away with their object."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from accelerator_rollout.api.models import Outcome, PastRollout, RolloutStatus, Stage
from accelerator_rollout.clock import Clock
from accelerator_rollout.decide.departures import gated
from accelerator_rollout.decide.holds import held
from accelerator_rollout.decide.outcome import Plan
from accelerator_rollout.decide.reasons import NotFree
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.observe.interests import Key

_WHERE: Final = ("namespace", "name")
_STATES: Final = ("desired", "updated", "ready", "available", "unavailable", "gated")


@dataclass(slots=True)
class _Shown:
    """One object. `outcomes`, `torn_down` and `teardown_seconds` are since this process first saw it; the rest is now."""

    uid: str
    kind: str
    workload: str
    status: RolloutStatus
    holds: int = 0
    oldest_gate: datetime | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    torn_down: int = 0
    teardown_seconds: float = 0.0


class Rollouts(Collector):
    """The objects by key."""

    def __init__(self, prefix: str, clock: Clock) -> None:
        self._prefix, self._clock = prefix, clock
        self._shown: dict[Key, _Shown] = {}

    def show(self, snapshot: Snapshot, plan: Plan) -> None:
        """Show what a decision said. What ended before the first decision on an object was counted by another process."""
        rollout = snapshot.rollout
        key = Key(rollout.namespace, rollout.name)
        shown = self._shown.get(key)
        if shown is None or shown.uid != rollout.uid:
            ref = rollout.spec.workload_ref
            shown = _Shown(rollout.uid, str(ref.kind), ref.name, rollout.status)
            self._shown[key] = shown
        shown.outcomes.update(newly_ended(shown.status.history, plan.status.history))
        for stage in plan.stage_times:
            if stage.stage == Stage.TERMINATING:
                shown.torn_down += 1
                shown.teardown_seconds += stage.seconds
        shown.status = plan.status
        shown.holds = sum(held(claim, rollout.uid) for claim in snapshot.claims.values())
        shown.oldest_gate = min((p.created for p in snapshot.pods if p.live and gated(p)), default=None)

    def gone(self, key: Key) -> None:
        """Show nothing more of an object."""
        self._shown.pop(key, None)

    def clear(self) -> None:
        """Show nothing more of any object."""
        self._shown.clear()

    def collect(self) -> Iterable[Metric]:
        """Return all series of all objects."""
        families = self._families()
        now = self._clock()
        for key, shown in self._shown.items():
            self._add(families, key, shown, now)
        return families.values()

    def describe(self) -> Iterable[Metric]:
        """Return the families without their series."""
        return self._families().values()

    def _families(self) -> dict[str, Metric]:
        p = self._prefix
        return {
            "info": GaugeMetricFamily(
                f"{p}_info", "1 for each AcceleratorRollout.", labels=(*_WHERE, "kind", "workload")
            ),
            "condition": GaugeMetricFamily(
                f"{p}_condition", "1 where the condition is true, else 0.", labels=(*_WHERE, "type", "reason")
            ),
            "replicas": GaugeMetricFamily(f"{p}_replicas", "Pods by state.", labels=(*_WHERE, "state")),
            "flying": GaugeMetricFamily(
                f"{p}_replacements_in_flight", "Departed pods without a healthy successor.", labels=_WHERE
            ),
            "stage": GaugeMetricFamily(
                f"{p}_replacements", "Replacements in flight by stage.", labels=(*_WHERE, "stage")
            ),
            "unproven": GaugeMetricFamily(
                f"{p}_unproven_releases",
                "Departed pods of whose devices nothing proves yet that the node let go.",
                labels=_WHERE,
            ),
            "holds": GaugeMetricFamily(
                f"{p}_holds_in_force", "Claims that carry the object's hold.", labels=_WHERE
            ),
            "gate": GaugeMetricFamily(
                f"{p}_oldest_gate_age_seconds",
                "Age of the oldest pod that waits at our gate; 0 if none does.",
                labels=_WHERE,
            ),
            "latest": GaugeMetricFamily(
                f"{p}_latest_outcome", "1 for what became of the newest rollout.", labels=(*_WHERE, "outcome")
            ),
            "started": GaugeMetricFamily(
                f"{p}_started_timestamp_seconds",
                "When the rollout in progress began; absent if none is.",
                labels=_WHERE,
            ),
            "outcomes": CounterMetricFamily(
                f"{p}_outcomes", "Rollouts that ended, by outcome.", labels=(*_WHERE, "outcome")
            ),
            "teardown": SummaryMetricFamily(
                f"{p}_teardown_seconds",
                "How long departed pods of the workload took to end, from their deletion.",
                labels=(*_WHERE, "kind", "workload"),
            ),
        }

    @staticmethod
    def _add(families: dict[str, Metric], key: Key, shown: _Shown, now: datetime) -> None:
        def add(family: str, value: float, *labels: str) -> None:
            found = families[family]
            assert isinstance(found, GaugeMetricFamily | CounterMetricFamily)
            found.add_metric((*key, *labels), value)

        status = shown.status
        add("info", 1, shown.kind, shown.workload)
        for condition in status.conditions:
            add("condition", condition.status == "True", condition.type, condition.reason)
        for state, count in zip(_STATES, _counts(status), strict=True):
            add("replicas", count, state)
        add("flying", len(status.replacements))
        for stage, count in sorted(Counter(str(r.stage) for r in status.replacements).items()):
            add("stage", count, stage)
        add("unproven", sum(r.reason == NotFree.RELEASE_UNPROVEN for r in status.replacements))
        add("holds", shown.holds)
        gate = shown.oldest_gate
        add("gate", max(0.0, (now - gate).total_seconds()) if gate else 0.0)
        if status.history:
            newest = status.history[0]
            add("latest", 1, str(newest.outcome))
            if newest.outcome is Outcome.IN_PROGRESS:
                add("started", newest.started_at.replace(microsecond=0).timestamp())
        for outcome, count in sorted(shown.outcomes.items()):
            add("outcomes", count, outcome)
        if shown.torn_down:
            teardown = families["teardown"]
            assert isinstance(teardown, SummaryMetricFamily)
            labels = (*key, shown.kind, shown.workload)
            teardown.add_metric(labels, count_value=shown.torn_down, sum_value=shown.teardown_seconds)


def newly_ended(before: Iterable[PastRollout], after: Iterable[PastRollout]) -> list[str]:
    """Return the outcomes of `after` that `before` does not have."""
    known = {_ending(past) for past in before}
    return [
        str(past.outcome)
        for past in after
        if past.outcome is not Outcome.IN_PROGRESS and _ending(past) not in known
    ]


def _ending(past: PastRollout) -> tuple[str, datetime, Outcome]:
    # Times are cut to seconds once they are stored.
    return past.revision, past.started_at.replace(microsecond=0), past.outcome


def _counts(status: RolloutStatus) -> tuple[int, ...]:
    return (
        status.replicas,
        status.updated_replicas,
        status.ready_replicas,
        status.available_replicas,
        status.unavailable_replicas,
        status.gated_replicas,
    )
