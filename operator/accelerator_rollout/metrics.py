"""What the operator counts: its own registry, conventional names and units, no label for a pod or a device."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from accelerator_rollout import __version__
from accelerator_rollout.decide.actions import Action, EvictPod
from accelerator_rollout.decide.outcome import Plan
from accelerator_rollout.decide.reasons import NotFree
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.observe.interests import Key

PREFIX: Final = "accelerator_rollout"
_STATES: Final = ("desired", "updated", "ready", "available", "unavailable", "gated")
_SECONDS: Final = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15)


class Metrics:
    """All series. Those of an object go away with it (`gone`)."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, that nothing asks for
        self.registry = CollectorRegistry()
        reg = self.registry
        info = Info(f"{PREFIX}_build", "Version of the operator.", registry=reg)
        info.info({"version": __version__})
        where = ("namespace", "name")
        self._rollouts = Gauge(
            f"{PREFIX}_info", "1 for each AcceleratorRollout.", (*where, "kind", "workload"), registry=reg
        )
        self._conditions = Gauge(
            f"{PREFIX}_condition", "1 where the condition is true.", (*where, "type", "reason"), registry=reg
        )
        self._replicas = Gauge(f"{PREFIX}_replicas", "Pods by state.", (*where, "state"), registry=reg)
        self._flying = Gauge(
            f"{PREFIX}_replacements_in_flight",
            "Departed pods without a healthy successor.",
            where,
            registry=reg,
        )
        self._unproven = Gauge(
            f"{PREFIX}_unproven_releases",
            "Departed pods of whose devices nothing proves yet that the node let go.",
            where,
            registry=reg,
        )
        self._stages = Histogram(
            f"{PREFIX}_stage_duration_seconds",
            "How long replacements stay in a stage.",
            ("stage",),
            buckets=_SECONDS,
            registry=reg,
        )
        self._releases = Histogram(
            f"{PREFIX}_device_release_seconds",
            "From the choice or first sight of a departure to proven free devices.",
            ("driver", "proof"),
            buckets=_SECONDS,
            registry=reg,
        )
        self._evictions = Counter(f"{PREFIX}_evictions", "Evictions by result.", ("result",), registry=reg)
        self._actions = Counter(f"{PREFIX}_actions", "Acts by result.", ("action", "result"), registry=reg)
        self._decisions = Histogram(
            f"{PREFIX}_reconcile_duration_seconds", "One decision, carried out.", buckets=_QUICK, registry=reg
        )
        self._errors = Counter(
            f"{PREFIX}_reconcile_errors", "Decisions that could not be carried out.", ("error",), registry=reg
        )
        self._calls = Counter(
            f"{PREFIX}_api_requests", "API requests.", ("verb", "resource", "code"), registry=reg
        )
        self._waits = Histogram(
            f"{PREFIX}_queue_wait_seconds",
            "How long a key waited for a worker.",
            buckets=_QUICK,
            registry=reg,
        )
        self._shown: dict[Key, set[tuple[str, str]]] = {}
        self._workloads: dict[Key, tuple[str, str]] = {}

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a gauge that is asked when it is scraped."""
        Gauge(f"{PREFIX}_{name}", text, registry=self.registry).set_function(value)

    def counter(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a counter that somebody else keeps and that is asked when it is scraped."""
        self.registry.register(_Kept(f"{PREFIX}_{name}", text, value))

    def text(self) -> bytes:
        """Return the exposition."""
        return generate_latest(self.registry)

    def called(self, verb: str, resource: str, code: str) -> None:
        """Count an API request."""
        self._calls.labels(verb, resource, code).inc()

    def waited(self, seconds: float) -> None:
        """Note how long a key waited for a worker."""
        self._waits.observe(seconds)

    def acted(self, action: Action, result: str) -> None:
        """Count an act."""
        self._actions.labels(type(action).__name__, result).inc()
        if isinstance(action, EvictPod):
            self._evictions.labels(result).inc()

    def failed(self, error: Exception) -> None:
        """Count a decision that could not be carried out."""
        self._errors.labels(type(error).__name__).inc()

    def decided(self, snapshot: Snapshot, plan: Plan, seconds: float) -> None:
        """Show what a decision said."""
        self._decisions.observe(seconds)
        for stage in plan.stage_times:
            self._stages.labels(stage.stage).observe(stage.seconds)
        for release in plan.release_times:
            self._releases.labels(release.driver, release.proof).observe(release.seconds)
        rollout = snapshot.rollout
        key = Key(rollout.namespace, rollout.name)
        ref = rollout.spec.workload_ref
        self._workloads[key] = (str(ref.kind), ref.name)
        self._rollouts.labels(*key, str(ref.kind), ref.name).set(1)
        status = plan.status
        counts = (
            status.replicas,
            status.updated_replicas,
            status.ready_replicas,
            status.available_replicas,
            status.unavailable_replicas,
            status.gated_replicas,
        )
        for state, count in zip(_STATES, counts, strict=True):
            self._replicas.labels(*key, state).set(count)
        self._flying.labels(*key).set(len(status.replacements))
        unproven = sum(r.reason == NotFree.RELEASE_UNPROVEN for r in status.replacements)
        self._unproven.labels(*key).set(unproven)
        now = {(c.type, c.reason) for c in status.conditions}
        for gone in self._shown.get(key, set()) - now:
            self._conditions.remove(*key, *gone)
        for c in status.conditions:
            self._conditions.labels(*key, c.type, c.reason).set(c.status == "True")
        self._shown[key] = now

    def gone(self, key: Key) -> None:
        """Remove the series of an object."""
        workload = self._workloads.pop(key, None)
        if workload is None:
            return
        self._rollouts.remove(*key, *workload)
        self._flying.remove(*key)
        self._unproven.remove(*key)
        for state in _STATES:
            self._replicas.remove(*key, state)
        for shown in self._shown.pop(key, set()):
            self._conditions.remove(*key, *shown)


class _Kept(Collector):
    def __init__(self, name: str, text: str, value: Callable[[], float]) -> None:
        self._name, self._text, self._value = name, text, value

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._text, value=self._value())


def age(since: datetime | None, now: datetime) -> float:
    """Return seconds since then; infinity for never."""
    return float("inf") if since is None else max(0.0, (now - since).total_seconds())
