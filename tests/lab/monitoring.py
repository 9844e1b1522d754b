"""The project's own rules and dashboards on a real Prometheus that scrapes an operator.

What lasts minutes and hours in the rules lasts a sixtieth of it here: `for`, the ranges of rates, and what the age of a gate or
of the store is compared with. Everything else of the rules is as it is installed.
"""

import asyncio
import json
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import yaml

from lab.operator_process import OperatorProcess
from lab.prometheus import Server
from lab.wire import Wire

MONITORING: Final = Path(__file__).parents[2] / "deploy" / "monitoring"
FACTOR: Final = 60
_LOOK_SECONDS: Final = 0.25
_UNITS: Final[Mapping[str, float]] = {"s": 1.0, "m": 60.0, "h": 3600.0}
_PREFIX: Final = "AcceleratorRollout"

Query = tuple[str, str, str]  # board, panel or variable, expression


def scaled(rules: str) -> str:
    """Return the rules with every duration divided by FACTOR."""
    groups = yaml.safe_load(rules)
    for group in groups["groups"]:
        for rule in group["rules"]:
            rule["for"] = _shorter(rule["for"])
            ranges = re.sub(r"\[(\w+)\]", lambda found: f"[{_shorter(found[1])}]", rule["expr"])
            rule["expr"] = re.sub(
                r"(_age_seconds\)?) > (\d+)", lambda found: f"{found[1]} > {int(found[2]) / FACTOR:g}", ranges
            )
    return yaml.safe_dump(groups)


def dashboard_queries(values: Mapping[str, str]) -> list[Query]:
    """Return every query of every dashboard, with these values for their variables."""
    found: list[Query] = []
    for path in sorted((MONITORING / "dashboards").glob("*.json")):
        board = json.loads(path.read_text(encoding="utf-8"))
        for panel in board["panels"]:
            for target in panel["targets"]:
                expression = target["expr"]
                for name, value in values.items():
                    expression = expression.replace(f"${name}", value)
                found.append((path.stem, panel["title"], expression))
    return found


def variable_queries(values: Mapping[str, str]) -> list[Query]:
    """Return what the dashboards ask for the choices of their variables: `label_values(series, label)`."""
    found: list[Query] = []
    for path in sorted((MONITORING / "dashboards").glob("*.json")):
        for variable in json.loads(path.read_text(encoding="utf-8"))["templating"]["list"]:
            if variable["type"] == "query":
                expression = str(variable["query"])
                for name, value in values.items():
                    expression = expression.replace(f"${name}", value)
                found.append((path.stem, variable["name"], expression))
    return found


class Monitoring:
    """A Prometheus with our rules over these operators (HOST:PORT); use as `async with`.

    `interval` is that of scrapes, and as long may each take: one that fails begins the time of every alert anew.
    """

    def __init__(self, folder: Path, *targets: str, interval: str = "1s") -> None:
        rules = folder / "rules.yaml"
        rules.write_text(scaled((MONITORING / "rules.yaml").read_text(encoding="utf-8")))
        scrape = {"job_name": "operator", "honor_labels": True, "static_configs": [{"targets": [*targets]}]}
        config = {
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "evaluation_interval": "250ms",
            },
            "rule_files": [str(rules)],
            "scrape_configs": [scrape],
        }
        self._server = Server(folder, config, "--enable-feature=exemplar-storage")
        self._begun = time.time()

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        # It looks at its rules at once and at its targets after 5 s only: until then, the operator is down for it.
        await self.until("accelerator_rollout_build_info", "the first scrape")
        await self.until_quiet("OperatorDown")
        self._begun = time.time()
        return self

    async def __aexit__(self, *what: Any) -> None:
        await self._server.__aexit__(*what)

    async def value(self, expression: str) -> float | None:
        """Return what the expression is now, if it is one thing; None if it is nothing."""
        found = (await self._server.ask("query", query=expression))["result"]
        if not found:
            return None
        ((_, text),) = [one["value"] for one in found]
        return float(text)

    async def until(self, expression: str, what: str, *, seconds: float = 30.0) -> None:
        """Await that the expression has a result."""
        deadline = time.monotonic() + seconds
        while not (await self._server.ask("query", query=expression))["result"]:
            assert time.monotonic() < deadline, f"{what} did not come within {seconds:g} s: {expression}"
            await asyncio.sleep(_LOOK_SECONDS)  # it tells nobody by itself

    async def course(self, expression: str) -> list[float]:
        """Return every number that the expression had since this began, of all its series."""
        now = time.time()
        step = f"{max(0.25, (now - self._begun) / 5000):.3f}"
        ask = {"query": expression, "start": f"{self._begun:.3f}", "end": f"{now:.3f}", "step": step}
        found = (await self._server.ask("query_range", **ask))["result"]
        numbers = [float(text) for one in found for _, text in one["values"]]
        return [number for number in numbers if math.isfinite(number)]

    async def choices(self, expression: str) -> list[str]:
        """Return what `label_values(series, label)` offers."""
        asked = re.fullmatch(r"label_values\((.+), (\w+)\)", expression)
        assert asked is not None, expression
        return list(await self._server.ask(f"label/{asked[2]}/values", **{"match[]": asked[1]}))

    async def exemplars(self, metric: str) -> set[str]:
        """Return the traces that the exemplars of a metric name."""
        times = {"start": f"{self._begun:.3f}", "end": f"{time.time() + 1:.3f}"}
        found = await self._server.ask("query_exemplars", query=metric, **times)
        return {one["labels"]["trace_id"] for series in found for one in series["exemplars"]}

    async def fired(self) -> set[str]:
        """Return the alerts that have fired since this began, by their names without the project's."""
        since = f"{max(1, int((time.time() - self._begun) * 1000))}ms"
        ask = f'last_over_time(ALERTS{{alertstate="firing"}}[{since}])'
        found = (await self._server.ask("query", query=ask))["result"]
        return {one["metric"]["alertname"].removeprefix(_PREFIX) for one in found}

    async def until_fires(self, alert: str, *, seconds: float = 60.0) -> Mapping[str, str]:
        """Await that an alert fires; return its labels."""
        expression = f'ALERTS{{alertname="{_PREFIX}{alert}",alertstate="firing"}}'
        await self.until(expression, f"the alert {alert}", seconds=seconds)
        found = (await self._server.ask("query", query=expression))["result"]
        return dict(found[0]["metric"]) if found else {}

    async def until_quiet(self, alert: str, *, seconds: float = 60.0) -> None:
        """Await that an alert fires no more."""
        expression = f'absent(ALERTS{{alertname="{_PREFIX}{alert}",alertstate="firing"}})'
        await self.until(expression, f"the end of the alert {alert}", seconds=seconds)


@dataclass(frozen=True, slots=True)
class Observed:
    """An operator, what it sees the cluster through, and what sees it."""

    operator: OperatorProcess
    wire: Wire
    monitoring: Monitoring


Observe = Callable[
    ..., Awaitable[Observed]
]  # (*arguments of the operator): a fixture's way to start all three


def _shorter(duration: str) -> str:
    found = re.fullmatch(r"(\d+)([smh])", duration)
    assert found is not None, duration
    return f"{int(float(found[1]) * _UNITS[found[2]] * 1000 / FACTOR)}ms"
