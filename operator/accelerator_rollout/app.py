"""Puts the operator together: watches into the store, keys into the queue, decisions into acts, and the probes beside."""

import asyncio
import contextlib
import gc
import logging
import os
import platform
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final

from aiohttp import web

from accelerator_rollout import __version__
from accelerator_rollout.act.abilities import Abilities
from accelerator_rollout.act.checks import invalid
from accelerator_rollout.act.client import ApiClient, Raw
from accelerator_rollout.act.confirming import Confirming
from accelerator_rollout.act.events import Events
from accelerator_rollout.act.executor import Executor
from accelerator_rollout.act.parking import Parking
from accelerator_rollout.act.reporter import Reporter
from accelerator_rollout.act.rights import missing, refused
from accelerator_rollout.clock import utc_now
from accelerator_rollout.config import Settings
from accelerator_rollout.control.loop import Loop
from accelerator_rollout.control.queue import KeyedQueue
from accelerator_rollout.decide.plan import plan
from accelerator_rollout.decide.snapshot import Freshness, HoldAbility, ReserveAbility
from accelerator_rollout.election import election
from accelerator_rollout.errors import StartError, UnavailableError
from accelerator_rollout.metrics import Metrics, age
from accelerator_rollout.observe.errors import NotAllowedError, ObserveError
from accelerator_rollout.observe.interests import Key
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.observe.login import configuration_from
from accelerator_rollout.observe.observer import Observer, ObserverSettings
from accelerator_rollout.observe.shared_budgets import SharedBudgets
from accelerator_rollout.observe.store import Store
from accelerator_rollout.tracing.otlp import sender
from accelerator_rollout.tracing.telling import AlsoTraced, Traces

_log = logging.getLogger(__name__)

_STUCK: Final = 120.0  # seconds that one decision may take before the process counts as dead
_INSTALL_ROLES: Final = "install the roles that come with the operator (deploy/kustomize/base/rbac.yaml)"
_HANDOVER: Final = 2.0  # seconds that the writes under way get to be answered, and the Lease to be given back
_STRAYS: Final = 2.0  # seconds between looks for gates and holds that nobody answers for


class Operator:
    """All parts of one process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.metrics = Metrics()
        self.queue: KeyedQueue[Key] = KeyedQueue(waited=self.metrics.waited)
        self.store = Store(
            now=utc_now,
            namespaces=settings.namespaces,
            kubelet_managers=settings.kubelet_managers,
            orphan_hold_wait=timedelta(seconds=settings.orphan_hold_seconds),
            shared_budgets=SharedBudgets(
                settings.shared_budget, settings.shared_budget_patience_seconds, self.queue.troubled
            ),
        )
        load = configuration_from(settings.kubeconfig, settings.context)
        self.observer = Observer(
            self.store,
            self.queue.add,
            ObserverSettings(load=load, resync_period=settings.resync_seconds),
            counted=self.metrics.called,
            filled=_spare_the_collector,
            compared=self.metrics.compared,
        )
        self.election = election(settings, load, self.metrics.called)
        self.leadership = self.election.leadership
        self.client = ApiClient(
            load,
            lambda: self.observer.served,
            self.leadership,
            counted=self.metrics.called,
            timeout_seconds=settings.request_timeout_seconds,
        )
        self.traces = Traces(sender(os.environ), utc_now)
        self.parking = Parking(self.client)
        self.abilities = Abilities(self.client)
        events = Events(self.client, utc_now, platform.node() or "operator")
        self.reporter = Reporter(self.client, events, utc_now)
        executor = Executor(
            self.client,
            Confirming(self.client, settings.kubelet_managers, self._written),
            events,
            self._written,
            self.metrics,
            utc_now,
            plan,
            shared=lambda snapshot: self.store.shared(snapshot.rollout),
        )
        self.loop = Loop(
            self.store,
            self.queue,
            executor,
            self.reporter,
            AlsoTraced(self.metrics, self.traces),
            utc_now,
            plan,
            policy_parks=lambda: self.parking.present,
            hold=lambda: self.abilities.hold,
            reserve=lambda: self.abilities.reserve,
            restore=lambda: self.abilities.restore,
            bad_checks=lambda rollout: invalid(rollout.spec),
            workers=settings.workers,
        )
        self._gauges()

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT. Raises StartError if the cluster does not let us begin."""
        stop = asyncio.Event()
        # Kopf takes the signals for itself when it starts, and the observer gives them back; until then they are ours.
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        try:
            async with self._served():
                await self._until(stop)
        finally:
            self.queue.close()
            await self.client.close()
            await self.election.close()
            await self.traces.close()
        _log.info("stopped")

    async def _until(self, stop: asyncio.Event) -> None:
        tasks = {
            asyncio.create_task(stop.wait(), name="until stopped"),
            asyncio.create_task(self._work(stop), name="work"),
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Acts are single requests, and what is in flight stands in the status: stopping at once is safe. But whoever
            # is given the Lease begins at once, so nothing of ours may still be under way then.
            self.leadership.stand_down()
            answered = await self.client.written(_HANDOVER)
            for task in tasks:
                task.cancel()
            done, _ = await asyncio.wait(tasks)
            if answered:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_HANDOVER):
                        await self.leadership.release()
        for task in done:
            if not task.cancelled():
                task.result()

    async def _work(self, stop: asyncio.Event) -> None:
        """Work for ever. Raises StartError if the cluster does not let us begin."""
        try:
            await self._may_work()
            async with asyncio.TaskGroup() as group:
                group.create_task(self.observer.run(asyncio.Event(), on_signal=stop.set), name="observer")
                group.create_task(self._compete(), name="leadership")
                group.create_task(self.parking.run(), name="parking")
                group.create_task(self.traces.run(), name="traces")
                group.create_task(self.abilities.run(), name="abilities")
        except (ObserveError, UnavailableError) as error:
            raise _start_error(error) from error
        except ExceptionGroup as group:
            # The first ended the work; the others are its consequences.
            first = group.exceptions[0]
            raise (_start_error(first) if isinstance(first, ObserveError) else first) from group

    async def _compete(self) -> None:
        if self.election.place is None:
            await self._act()
            return
        # Whoever has not seen the cluster yet leaves the Lease to those that have.
        await self.observer.caught_up()
        await self.leadership.run(self._lead)

    async def _lead(self) -> None:
        """Lead for one term; cancelled when it is over."""
        # The last write of whoever acted before may not have reached our watches.
        await self.observer.caught_up()
        _log.info("acting")
        self.loop.restart()
        self.traces.restart()
        try:
            await self._act()
        finally:
            self.metrics.stood_down()

    async def _act(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.loop.run(), name="loop")
            group.create_task(self._strays(), name="strays")

    async def _may_work(self) -> None:
        lacking = await missing(self.client, self._settings.namespaces)
        if lacking:
            raise StartError(f"not allowed to {', '.join(lacking)}: {_INSTALL_ROLES}")
        place = self.election.place
        if place is not None:
            lacking = await refused(self.client, place.needed, place.namespace)
            if lacking:
                raise StartError(
                    f"not allowed to {', '.join(lacking)} for leader election: {_INSTALL_ROLES}, or run a single replica with "
                    "--leader-election=off"
                )
        await self.abilities.look()

    def _written(self, kind: Kind, raw: Raw) -> None:
        """Let the store see at once what our own write brought."""
        for key in self.store.apply(kind, "MODIFIED", raw):
            self.queue.add(key)

    async def _strays(self) -> None:
        while True:
            await asyncio.sleep(_STRAYS)
            for pod in self.store.strays():
                try:
                    await self.reporter.release_stray(pod)
                except Exception:  # noqa: BLE001 - one odd pod must not end the work for all others
                    _log.exception("%s/%s could not be released", pod.namespace, pod.name)
            possible = self.abilities.hold is HoldAbility.POSSIBLE
            for claim, uid in self.store.ownerless_holds() if possible else ():
                try:
                    await self.reporter.sweep_hold(claim, uid)
                except Exception:  # noqa: BLE001 - as above
                    _log.exception("the hold on claim %s/%s could not be swept", claim.namespace, claim.name)
            possible = self.abilities.reserve is ReserveAbility.POSSIBLE
            for rule in self.store.ownerless_reservations() if possible else ():
                try:
                    await self.reporter.sweep_reservation(rule)
                except Exception:  # noqa: BLE001 - as above
                    _log.exception("DeviceTaintRule %s could not be swept", rule.name)

    # Probes and metrics

    def _gauges(self) -> None:
        m = self.metrics
        m.gauge("queue_depth", "Keys that wait for a worker.", lambda: float(self.queue.depth))
        m.gauge(
            "store_age_seconds",
            "Seconds since store and cluster were last seen to agree.",
            lambda: age(self.observer.verdict().agreed_at, utc_now()),
        )
        m.counter(
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
        m.gauge(
            "leader",
            "1 while this process may write to the cluster, else 0.",
            lambda: float(self.leadership.allows()),
        )
        m.gauges(
            "shared_budget_in_replacement",
            "Pods of a shared budget's group that are in replacement, or recorded to be next.",
            "group",
            lambda: {group: float(count) for group, count in self.store.shared_use().items()},
        )
        m.gauges(
            "shared_budget_limit",
            "Pods of a shared budget's group that may be in replacement at once.",
            "group",
            lambda: {group: float(limit) for group, limit in self._settings.shared_budget.items()},
        )
        m.gauges(
            "watch_up",
            "1 while a watch of the kind stands, else 0.",
            "resource",
            lambda: {str(kind): float(stands) for kind, stands in self.observer.watches().items()},
        )
        m.gauges(
            "watch_age_seconds",
            "Seconds since the watch of the kind brought an event or was accepted; a quiet kind has an old watch.",
            "resource",
            lambda: {str(kind): age(at, utc_now()) for kind, at in self.observer.heard().items()},
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

    async def _metrics(self, request: web.Request) -> web.Response:
        # In a thread: a thousand objects are half a second of work, and nothing may wait for it.
        rendering = self.metrics.rendering(request.headers.get("Accept", ""))
        body, content_type = await asyncio.to_thread(rendering)
        return web.Response(body=body, headers={"Content-Type": content_type})

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


def _spare_the_collector() -> None:
    """Leave modules and first lists out of garbage collection: a full one stops everything for 0.1 s and more."""
    gc.collect()
    gc.freeze()


def _start_error(error: Exception) -> StartError:
    hint = f": {_INSTALL_ROLES}" if isinstance(error, NotAllowedError) else ""
    return StartError(f"{error}{hint}")
