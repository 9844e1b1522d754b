"""The driver as its own process: started, killed, started again, told to do wrong, and asked what it did."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from lab.ledger import Ledger
from lab.processes import Component
from lab.realnode.driver.faults import Faults
from lab.realnode.driver.kubelet_api import ensure_protos
from lab.realnode.driver.service import Places

_LISTENS_SECONDS: Final = 60.0
_REGISTERED_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05


class DriverProcessError(Exception):
    """The driver did not come up, or did not go; the message shows its last words."""


@dataclass(frozen=True, slots=True)
class DriverFolders:
    """Where a node looks for drivers."""

    plugins: Path
    registry: Path
    cdi: Path


class DriverProcess:
    """One driver; use as `async with DriverProcess(…) as driver`, which awaits that it listens.

    It is killed when this process ends, however that comes about.
    """

    def __init__(
        self,
        *,
        kubeconfig: Path,
        node: str,
        driver: str,
        devices: int,
        folders: DriverFolders,
        folder: Path,
    ) -> None:
        """Its ledger, its faults and its log come into `folder`; `devices` is how many it has."""
        self.driver = driver
        self.places = Places(
            plugins=folders.plugins,
            registry=folders.registry,
            cdi=folders.cdi,
            ledger=folder / f"{driver}.ledger.jsonl",
            faults=folder / f"{driver}.faults.json",
        )
        self.log = folder / f"{driver}.log"
        command = (
            sys.executable,
            "-m",
            "lab.realnode.driver",
            f"--kubeconfig={kubeconfig}",
            f"--node={node}",
            f"--driver={driver}",
            f"--devices={devices}",
            f"--plugins={self.places.plugins}",
            f"--registry={self.places.registry}",
            f"--cdi={self.places.cdi}",
            f"--ledger={self.places.ledger}",
            f"--faults={self.places.faults}",
        )
        self._component = Component(
            f"driver {driver}", command, self.log, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(ensure_protos)  # here, where no clock runs yet
        self.start()
        try:
            await self.wait_listening()
        except BaseException:
            self.kill()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.is_running:
            await self.stop()

    # Life

    def start(self) -> None:
        """Start it, again if it has ended; what it had prepared it still has."""
        self.places.registered(self.driver).unlink(missing_ok=True)  # of an earlier life
        self._component.start()

    async def wait_listening(self, *, seconds: float = _LISTENS_SECONDS) -> None:
        """Await that a kubelet can find and call it."""
        sockets = (self.places.registration(self.driver), self.places.socket(self.driver))
        await self._await(lambda: all(_answers(one) for one in sockets), "listen", seconds)

    async def wait_registered(self, *, seconds: float = _REGISTERED_SECONDS) -> None:
        """Await that a kubelet has registered it."""
        await self._await(self.places.registered(self.driver).exists, "get registered", seconds)

    async def wait_until(self, reached: Callable[[], Any], what: str, *, seconds: float) -> None:
        """Await something that the driver does or that follows from it; `what` completes the sentence "it did not …"."""
        await self._await(lambda: bool(reached()), what, seconds)

    async def wait_ended(self, *, seconds: float = _STOP_SECONDS) -> int:
        """Await that it has ended, by itself or by a fault; return its exit code."""
        deadline = time.monotonic() + seconds
        while (code := self.exit_code) is None:
            if time.monotonic() > deadline:
                raise self._failure(f"has not ended within {seconds:g} s")
            await asyncio.sleep(_LOOK_SECONDS)
        return code

    async def stop(self) -> None:
        """End it in order. Raises DriverProcessError if that fails or takes too long."""
        os.kill(self._component.pid, signal.SIGTERM)
        try:
            code = await self.wait_ended()
        except DriverProcessError:
            self.kill()
            raise
        if code != 0:
            raise self._failure(f"ended with exit code {code}")

    def kill(self) -> None:
        """End it at once, as a crash would. Its containers run on."""
        self._component.kill()

    @property
    def is_running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._component.is_running

    @property
    def exit_code(self) -> int | None:
        """How it ended (negative: by that signal), None while it runs."""
        return self._component.exit_code

    # What it does

    def order(self, **faults: Any) -> None:
        """Have it do wrong from its next call on, e.g. `order(fail_unprepares=3)`; `order()` heals it."""
        Faults(**faults).write(self.places.faults)

    def ledger(self) -> Ledger:
        """What it has done so far, also before a restart."""
        return Ledger.load(self.places.ledger) if self.places.ledger.exists() else Ledger()

    async def _await(self, reached: Callable[[], bool], what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not reached():
            if not self.is_running:
                raise self._failure(f"ended (exit code {self.exit_code}) before it could {what}")
            if time.monotonic() > deadline:
                raise self._failure(f"did not {what} within {seconds:g} s")
            await asyncio.sleep(_LOOK_SECONDS)

    def _failure(self, what: str) -> DriverProcessError:
        return DriverProcessError(
            f"driver {self.driver} {what}. Last lines of {self.log}:\n{self._component.log_tail()}"
        )


def _answers(path: Path) -> bool:
    """Whether somebody listens at the socket; one that a crash left behind is there all the same."""
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(str(path)) == 0
