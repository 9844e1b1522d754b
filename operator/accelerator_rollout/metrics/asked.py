"""Series that somebody else keeps, and that are asked when they are scraped."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class AskedCounter(Collector):
    """One counter."""

    def __init__(self, name: str, text: str, value: Callable[[], float]) -> None:
        self._name, self._text, self._value = name, text, value

    def collect(self) -> Iterable[Metric]:
        """Return it."""
        yield CounterMetricFamily(self._name, self._text, value=self._value())


class AskedGauges(Collector):
    """Gauges that differ in one label: as many as there are values at the moment."""

    def __init__(self, name: str, text: str, label: str, values: Callable[[], Mapping[str, float]]) -> None:
        self._name, self._text, self._label, self._values = name, text, label, values

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        family = GaugeMetricFamily(self._name, self._text, labels=(self._label,))
        for label, value in self._values().items():
            family.add_metric((label,), value)
        yield family

    def describe(self) -> Iterable[Metric]:
        """Return the family without its series."""
        yield GaugeMetricFamily(self._name, self._text, labels=(self._label,))
