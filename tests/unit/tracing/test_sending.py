"""Spans go out in order, wait while nobody takes them, and cost nothing where nobody asked for them."""

import asyncio
import importlib.abc
import logging
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from types import ModuleType

import pytest

from accelerator_rollout.api.models import Outcome, PastReplacement, PastRollout, Stage, StageDuration
from accelerator_rollout.decide.outcome import Plan
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.tracing import telling
from accelerator_rollout.tracing.otlp import sender
from accelerator_rollout.tracing.spans import Span
from accelerator_rollout.tracing.telling import Traces
from builders import NOW, running
from lab.collector import Collector

TO = "OTEL_EXPORTER_OTLP_ENDPOINT"


def decision(number: int) -> tuple[Snapshot, Plan]:
    """So many replacements are over."""
    stages = (StageDuration(stage=Stage.TERMINATING, seconds=1),)
    over = tuple(
        PastReplacement(pod_name=f"web-{n}", started_at=NOW + timedelta(minutes=n), stages=stages)
        for n in range(number)
    )
    snapshot = running("Deployment").snapshot()
    history = (PastRollout(revision="r2", outcome=Outcome.IN_PROGRESS, started_at=NOW, replacements=over),)
    status = snapshot.rollout.status.model_copy(update={"history": history})
    return snapshot, Plan(actions=(), status=status, record_first=False, next_due=None)


class Taker:
    """Takes spans, or does not."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.asked = 0
        self.willing = True

    def __call__(self, spans: Sequence[Span]) -> bool:
        self.asked += 1
        if self.willing:
            self.taken += [span.attributes["k8s.pod.name"] for span in spans if span.name == "replacement"]
        return self.willing


async def until(count: int, taker: Taker) -> None:
    async with asyncio.timeout(5):
        while len(taker.taken) < count:  # noqa: ASYNC110 - a thread takes them
            await asyncio.sleep(0.005)


async def test_what_ends_is_sent_in_order_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "_BATCH", 2)
    taker = Taker()
    traces = Traces(taker, lambda: NOW)
    running = asyncio.create_task(traces.run())
    for number in (0, 1, 5):
        traces.decided(*decision(number))
    await until(5, taker)
    running.cancel()
    await traces.close()
    assert taker.taken == [f"web-{n}" for n in range(5)]


async def test_what_nobody_takes_is_sent_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "_PATIENCE", 0.01)
    taker = Taker()
    taker.willing = False
    traces = Traces(taker, lambda: NOW)
    running = asyncio.create_task(traces.run())
    traces.decided(*decision(2))
    async with asyncio.timeout(5):
        while taker.asked < 3:  # noqa: ASYNC110 - a thread asks
            await asyncio.sleep(0.005)
    taker.willing = True
    await until(2, taker)
    running.cancel()
    assert taker.taken == ["web-0", "web-1"]


async def test_what_is_under_way_when_the_process_ends_is_not_sent_again() -> None:
    taker, go = Taker(), threading.Event()

    def slowly(spans: Sequence[Span]) -> bool:
        go.wait(5)
        return taker(spans)

    traces = Traces(slowly, lambda: NOW)
    traces.decided(*decision(2))
    running = asyncio.create_task(traces.run())
    async with asyncio.timeout(5):
        while traces._under_way is None:  # noqa: ASYNC110 - the task begins by itself
            await asyncio.sleep(0.001)
    running.cancel()
    closing = asyncio.create_task(traces.close())
    await asyncio.sleep(0)
    go.set()
    await closing
    assert taker.taken == ["web-0", "web-1"]


async def test_a_defect_of_the_exporter_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(spans: Sequence[Span]) -> bool:
        raise ValueError(len(spans))

    traces = Traces(broken, lambda: NOW)
    traces.decided(*decision(1))
    await traces.close()
    assert "a defect" in caplog.text


async def test_the_end_of_the_process_waits_for_what_is_left_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    taker = Taker()
    traces = Traces(taker, lambda: NOW)
    traces.decided(*decision(2))
    await traces.close()
    assert taker.taken == ["web-0", "web-1"]

    deaf = Taker()
    deaf.willing = False
    traces = Traces(deaf, lambda: NOW)
    traces.decided(*decision(2))
    await traces.close()
    assert "4 spans could not be sent" in caplog.text


async def test_spans_that_nobody_takes_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "_AT_MOST", 4)
    taker = Taker()
    traces = Traces(taker, lambda: NOW)
    traces.decided(*decision(5))
    await traces.close()
    assert taker.taken == ["web-3", "web-4"], "the newest are kept"


async def test_an_object_that_is_gone_is_forgotten() -> None:
    traces = Traces(Taker(), lambda: NOW)
    snapshot, plan = decision(1)
    traces.decided(snapshot, plan)
    (key,) = traces._seen
    traces.gone(key)
    assert not traces._seen


async def test_whoever_begins_to_act_sends_the_latest_again_and_nothing_older() -> None:
    """The second replacement ended a minute and a second after NOW."""
    now = [NOW]
    taker = Taker()
    traces = Traces(taker, lambda: now[0])
    traces.decided(*decision(0))
    now[0] = NOW + timedelta(minutes=6)
    traces.restart()
    traces.decided(*decision(2))
    await traces.close()
    assert taker.taken == ["web-1"]


async def test_where_nobody_asked_nothing_is_collected() -> None:
    traces = Traces(sender({}), lambda: NOW)
    traces.decided(*decision(3))
    await traces.run()
    await traces.close()
    assert not traces._seen
    assert not traces._waiting


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {TO: ""},
        {TO: "http://collector:4318", "OTEL_SDK_DISABLED": "true"},
        {TO: "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_nothing_is_sent_unless_the_environment_says_where_to(environment: dict[str, str]) -> None:
    assert sender(environment) is None


def test_a_protocol_that_is_not_spoken_is_named(caplog: pytest.LogCaptureFixture) -> None:
    assert sender({TO: "http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) is None
    assert "grpc is not spoken" in caplog.text


class Missing(importlib.abc.MetaPathFinder):
    """Finds no opentelemetry."""

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> None:
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)


def test_without_the_packages_it_works_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    with caplog.at_level(logging.WARNING):
        assert sender({TO: "http://collector:4318"}) is None
    assert "install accelerator-rollout[otel]" in caplog.text


async def test_a_collector_gets_the_ids_names_and_times(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Collector() as collector:
        monkeypatch.setenv(TO, collector.endpoint)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "rollouts")
        send = sender({TO: collector.endpoint, "OTEL_SERVICE_NAME": "rollouts"})
        traces = Traces(send, lambda: NOW)
        traces.decided(*decision(1))
        expected = list(traces._waiting)
        await traces.close()
    got = [(s.trace, s.id, s.parent, s.name) for s in collector.spans]
    assert got == [(s.trace, s.id, s.parent, s.name) for s in expected]
    assert [s.start for s in collector.spans] == [int(s.start.timestamp()) * 10**9 for s in expected]
    assert {s.service for s in collector.spans} == {"rollouts"}
