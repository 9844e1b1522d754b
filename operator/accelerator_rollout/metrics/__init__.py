"""What the operator counts: its own registry, conventional names and units, no label for a pod or a device."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from accelerator_rollout import __version__
from accelerator_rollout.clock import Clock, utc_now
from accelerator_rollout.decide.actions import Action, EvictPod
from accelerator_rollout.decide.outcome import Plan
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.metrics.asked import AskedCounter, AskedGauges
from accelerator_rollout.metrics.rollouts import Rollouts
from accelerator_rollout.observe.interests import Key
from accelerator_rollout.tracing.identity import current_trace

PREFIX: Final = "accelerator_rollout"
_SECONDS: Final = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15)


class Metrics:
    """All series. Those of an object go away with it (`gone`)."""

    def __init__(self, clock: Clock = utc_now) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, that nothing asks for
        self.registry = CollectorRegistry()
        reg = self.registry
        info = Info(f"{PREFIX}_build", "Version of the operator.", registry=reg)
        info.info({"version": __version__})
        self._rollouts = Rollouts(PREFIX, clock)
        reg.register(self._rollouts)
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
        self._resyncs = Counter(
            f"{PREFIX}_resyncs",
            "Comparisons of the store with the cluster: agreed, repaired or failed.",
            ("result",),
            registry=reg,
        )
        self._resync_times = Histogram(
            f"{PREFIX}_resync_duration_seconds",
            "How long a comparison took that was finished.",
            buckets=_QUICK,
            registry=reg,
        )

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a gauge that is asked when it is scraped."""
        Gauge(f"{PREFIX}_{name}", text, registry=self.registry).set_function(value)

    def gauges(self, name: str, text: str, label: str, values: Callable[[], Mapping[str, float]]) -> None:
        """Add gauges that differ in one label, asked when they are scraped."""
        self.registry.register(AskedGauges(f"{PREFIX}_{name}", text, label, values))

    def counter(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a counter that somebody else keeps and that is asked when it is scraped."""
        self.registry.register(AskedCounter(f"{PREFIX}_{name}", text, value))

    def text(self) -> bytes:
        """Return the exposition in Prometheus' own text format."""
        return generate_latest(self.registry)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the exposition and its content type, as the scraper's Accept header asks: OpenMetrics has exemplars."""
        return self.rendering(accept)()

    def rendering(self, accept: str) -> Callable[[], tuple[bytes, str]]:
        """Read all series now, and return what writes the exposition of them: by far the longer part, for any thread."""
        encode, content_type = choose_encoder(accept)
        read = _Read(list(self.registry.collect()))
        return lambda: (encode(read), content_type)

    def called(self, verb: str, resource: str, code: str) -> None:
        """Count an API request."""
        self._calls.labels(verb, resource, code).inc()

    def waited(self, seconds: float) -> None:
        """Note how long a key waited for a worker."""
        self._waits.observe(seconds)

    def compared(self, result: str, seconds: float) -> None:
        """Count a comparison of the store with the cluster."""
        self._resyncs.labels(result).inc()
        if result != "failed":
            self._resync_times.observe(seconds)

    def acted(self, action: Action, result: str) -> None:
        """Count an act."""
        self._actions.labels(type(action).__name__, result).inc()
        if isinstance(action, EvictPod):
            self._evictions.labels(result).inc()

    def failed(self, error: Exception) -> None:
        """Count a decision that could not be carried out."""
        self._errors.labels(type(error).__name__).inc()

    def took(self, seconds: float) -> None:
        """Note how long a decision and its acts took."""
        self._decisions.observe(seconds)

    def decided(self, snapshot: Snapshot, plan: Plan) -> None:
        """Show what a decision said whose status stands."""
        trace = current_trace(snapshot.rollout.uid, plan.status)
        exemplar = {"trace_id": trace} if trace else None
        for stage in plan.stage_times:
            self._stages.labels(stage.stage).observe(stage.seconds, exemplar)
        for release in plan.release_times:
            self._releases.labels(release.driver, release.proof).observe(release.seconds, exemplar)
        self._rollouts.show(snapshot, plan)

    def gone(self, key: Key) -> None:
        """Remove the series of an object."""
        self._rollouts.gone(key)

    def stood_down(self) -> None:
        """Remove the series of all objects: whoever acts now shows them, and what we knew is out of date."""
        self._rollouts.clear()


class _Read(Collector):
    """Series as they were at one moment."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        return self._families


def age(since: datetime | None, now: datetime) -> float:
    """Return seconds since then; infinity for never."""
    return float("inf") if since is None else max(0.0, (now - since).total_seconds())
