"""The running driver: its two sockets, its slices, and whether the kubelet may know of it."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.client import Api
from lab.ledger import Ledger
from lab.nodes.pool import ResourcePool
from lab.realnode.driver.checkpoint import Checkpoint
from lab.realnode.driver.devices import Devices
from lab.realnode.driver.faults import FaultError, Faults
from lab.realnode.driver.kubelet_api import PluginInfo, plugin_server, registration_server
from lab.realnode.driver.slices import Publisher

_LOG: Final = logging.getLogger("driver")
_LOOK_SECONDS: Final = 0.1
_GRACE_SECONDS: Final = 2.0  # for the calls in flight, at the end


@dataclass(frozen=True, slots=True)
class Places:
    """Where the driver finds and puts things."""

    plugins: Path  # the kubelet's folder for drivers' own folders
    registry: Path  # where the kubelet looks for registration sockets
    cdi: Path
    ledger: Path
    faults: Path

    def own(self, driver: str) -> Path:
        """The driver's own folder."""
        return self.plugins / driver

    def socket(self, driver: str) -> Path:
        """Where it serves DRA."""
        return self.own(driver) / "dra.sock"

    def registration(self, driver: str) -> Path:
        """Where it serves registration."""
        return self.registry / f"{driver}-reg.sock"

    def checkpoint(self, driver: str) -> Path:
        """What it keeps across a restart."""
        return self.own(driver) / "checkpoint.json"

    def registered(self, driver: str) -> Path:
        """A file that is there while a kubelet has told it that it is registered."""
        return self.own(driver) / "registered"

    def files(self, driver: str) -> Path:
        """The devices' files on the host."""
        return self.own(driver) / "devices"


class Service:
    """One driver on one node; `run` serves until it is cancelled."""

    def __init__(self, api: Api, *, node: str, driver: str, devices: tuple[str, ...], places: Places) -> None:
        self._driver = driver
        self._places = places
        for folder in (places.files(driver), places.registry, places.cdi):
            folder.mkdir(parents=True, exist_ok=True)
        places.registered(driver).unlink(missing_ok=True)
        self._ledger = Ledger.resume(places.ledger)
        self._devices = Devices(
            api,
            node=node,
            driver=driver,
            ledger=self._ledger,
            checkpoint=Checkpoint.load(places.checkpoint(driver)),
            faults=places.faults,
            files=places.files(driver),
            specs=places.cdi,
        )
        self._publisher = Publisher(api, ResourcePool(driver=driver, name=node, node=node, devices=devices))
        self._plugin = plugin_server(places.socket(driver), self._devices)
        self._registration = registration_server(places.registration(driver), self)

    def info(self) -> PluginInfo:
        """Say who it is, to the kubelet."""
        return PluginInfo(self._driver, self._places.socket(self._driver))

    def notified(self, error: str | None) -> None:
        """The kubelet has registered it, or not."""
        if error is None:
            self._places.registered(self._driver).touch()
            _LOG.info("registered")
        else:
            self._places.registered(self._driver).unlink(missing_ok=True)
            _LOG.error("the kubelet refuses: %s", error)

    async def run(self) -> None:
        """Serve until cancelled, then leave in order: first the kubelet loses sight of it, then calls in flight end."""
        try:
            await self._plugin.start()  # before the kubelet can know of it
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._publisher.keep(), name="slices")
                tasks.create_task(self._heed(), name="registration")
        finally:
            await self._unregister()
            await self._plugin.stop(grace_seconds=_GRACE_SECONDS)
            await self._devices.close()
            self._ledger.close()

    async def _heed(self) -> None:
        """Be registered, or not, as the faults say. Nobody tells when they change."""
        told = ""
        while True:
            with suppress(FaultError):  # the next call answers with it
                wanted = Faults.read(self._places.faults).registered
                if wanted and not self._registration.listens:
                    self._publisher.resume()
                    await self._registration.start()
                elif not wanted and told != "off":
                    self._publisher.pause()
                    await self._unregister()
                    _LOG.warning("not registered, as told")
                told = "on" if wanted else "off"
            await asyncio.sleep(_LOOK_SECONDS)

    async def _unregister(self) -> None:
        await self._registration.stop()
        self._places.registered(self._driver).unlink(missing_ok=True)
