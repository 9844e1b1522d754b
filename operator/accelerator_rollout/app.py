"""Puts the operator together: watches into the store, keys into the queue, decisions into acts, and the probes beside."""

import asyncio
import contextlib
import logging
import os
import platform
from collections.abc import AsyncIterator
from typing import Any, Final

from aiohttp import web

from accelerator_rollout import __version__
from accelerator_rollout.act.client import ApiClient, Raw
from accelerator_rollout.act.confirming import Confirming
from accelerator_rollout.act.events import Events
from accelerator_rollout.act.executor import Executor
from accelerator_rollout.act.reporter import Reporter
from accelerator_rollout.clock import utc_now
from accelerator_rollout.config import Settings
from accelerator_rollout.control.leadership import AlwaysLeader
from accelerator_rollout.control.loop import Loop
from accelerator_rollout.control.queue import KeyedQueue
from accelerator_rollout.decide.plan import plan
from accelerator_rollout.decide.snapshot import Freshness
from accelerator_rollout.errors import StartError
from accelerator_rollout.metrics import Metrics, age
from accelerator_rollout.observe.errors import ObserveError
from accelerator_rollout.observe.interests import Key
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.observe.login import configuration_from
from accelerator_rollout.observe.observer import Observer, ObserverSettings
from accelerator_rollout.observe.store import Store

_log = logging.getLogger(__name__)

_STUCK: Final = 120.0  # seconds that one decision may take before the process counts as dead
_STRAYS: Final = 2.0  # seconds between looks for gates that nobody answers for


class Operator:
    """All parts of one process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.metrics = Metrics()
        self.store = Store(
            now=utc_now, namespaces=settings.namespaces, kubelet_managers=settings.kubelet_managers
        )
        self.queue: KeyedQueue[Key] = KeyedQueue(waited=self.metrics.waited)
        load = configuration_from(settings.kubeconfig, settings.context)
        self.observer = Observer(
            self.store,
            self.queue.add,
            ObserverSettings(load=load, resync_period=settings.resync_seconds),
            counted=lambda verb, code: self.metrics.called(verb, "watched", code),
        )
        self.client = ApiClient(
            load, lambda: self.observer.served, AlwaysLeader(), counted=self.metrics.called
        )
        events = Events(self.client, utc_now, platform.node() or "operator")
        self.reporter = Reporter(self.client, events, utc_now)
        executor = Executor(
            self.client,
            Confirming(self.client, settings.kubelet_managers),
            events,
            self._written,
            self.metrics,
            utc_now,
            plan,
        )
        self.loop = Loop(
            self.store,
            self.queue,
            executor,
            self.reporter,
            self.metrics,
            utc_now,
            plan,
            workers=settings.workers,
        )
        self._gauges()

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT. Raises StartError if the cluster does not let us begin."""
        stop = asyncio.Event()
        async with self._served():
            tasks = {
                asyncio.create_task(self.observer.run(stop), name="observer"),
                asyncio.create_task(self.loop.run(), name="loop"),
                asyncio.create_task(self._strays(), name="strays"),
            }
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    self._ended(task)
            finally:
                # Acts are single requests, and what is in flight stands in the status: stopping at once is safe.
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                self.queue.close()
                await self.client.close()
        _log.info("stopped")

    @staticmethod
    def _ended(task: asyncio.Task[None]) -> None:
        try:
            task.result()
        except ObserveError as error:
            raise StartError(str(error)) from error

    def _written(self, kind: Kind, raw: Raw) -> None:
        """Let the store see at once what our own write brought."""
        for key in self.store.apply(kind, "MODIFIED", raw):
            self.queue.add(key)

    async def _strays(self) -> None:
        while True:
            await asyncio.sleep(_STRAYS)
            for pod in self.store.strays():
                await self.reporter.open_stray(pod)

    # Probes and metrics

    def _gauges(self) -> None:
        m = self.metrics
        m.gauge("queue_depth", "Keys that wait for a worker.", lambda: float(self.queue.depth))
        m.gauge(
            "store_age_seconds",
            "Seconds since store and cluster were last seen to agree.",
            lambda: age(self.observer.verdict().agreed_at, utc_now()),
        )
        m.gauge(
            "watch_missed_changes", "Changes that only a list brought.", lambda: float(self.observer.missed)
        )
        m.gauge(
            "unreadable_objects",
            "Objects that cannot be read.",
            lambda: float(sum(self.store.unreadable_counts().values())),
        )
        m.gauge(
            "rollouts",
            "AcceleratorRollouts known.",
            lambda: float(len(self.store.keys())),
        )

    @contextlib.asynccontextmanager
    async def _served(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        where = self._settings.listen
        site = web.TCPSite(runner, *where)
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise StartError(
                f"cannot listen on {where[0]}:{where[1]} ({error.strerror}): choose another with --listen"
            ) from error
        address: Any = runner.addresses[0]
        _log.info(
            "accelerator-rollout %s serves metrics and probes on %s:%s",
            __version__,
            address[0],
            address[1],
            extra={"port": address[1], "pid": os.getpid()},
        )
        try:
            yield
        finally:
            await runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self.metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def _healthz(self, _: web.Request) -> web.Response:
        stuck = self.loop.longest_running()
        if stuck > _STUCK:
            return web.Response(status=503, text=f"one decision has been carried out for {stuck:.0f} s\n")
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        verdict = self.observer.verdict()
        if verdict.freshness is not Freshness.FRESH:
            return web.Response(status=503, text=f"{verdict.freshness}: {verdict.problem}\n")
        return web.Response(text="ok\n")
