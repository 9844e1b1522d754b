"""The operator as its own process, under its ServiceAccount's rights: started, stopped, killed and started again."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import aiohttp

from lab.client import Api
from lab.install import Account
from lab.ports import free_ports
from lab.processes import Component

HOST: Final = "127.0.0.1"
_READY_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05
_ANSWER: Final = aiohttp.ClientTimeout(total=2)


class OperatorProcessError(Exception):
    """The operator did not come up, or did not go; the message shows its last words."""


class OperatorProcess:
    """One operator; use as `async with await OperatorProcess.under(account, admin, folder) as operator`.

    It is killed when this process ends, however that comes about.
    """

    def __init__(
        self,
        kubeconfig: Path,
        log: Path,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        module: str = "accelerator_rollout",
    ) -> None:
        """`arguments` follow `run` on its command line, and `environment` adds to ours; `module` is what is run."""
        self.kubeconfig = kubeconfig
        (self.port,) = free_ports(1)
        command = (sys.executable, "-m", module, "run", *self._flags(), *arguments)
        self._component = Component(
            "operator",
            command,
            log,
            # Unbuffered: what it said before a SIGKILL must stand in the log.
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        )

    @classmethod
    async def under(
        cls,
        account: Account,
        admin: Api,
        folder: Path,
        *,
        name: str = "operator",
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        module: str = "accelerator_rollout",
    ) -> Self:
        """An operator that has the rights of this ServiceAccount and no others; its files come into `folder`."""
        kubeconfig = folder / f"{name}.kubeconfig"
        connection = await account.connection(admin)
        connection.write_kubeconfig(
            kubeconfig, context="lab", user=account.username, namespace=account.namespace
        )
        return cls(
            kubeconfig,
            folder / f"{name}.log",
            arguments=arguments,
            environment=environment,
            module=module,
        )

    async def __aenter__(self) -> Self:
        self.start()
        try:
            await self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.is_running:
            await self.stop()

    # Life

    def start(self) -> None:
        """Start it; `wait_ready` tells when it works."""
        self._component.start()

    async def wait_ready(self, *, seconds: float = _READY_SECONDS) -> float:
        """Await that /readyz says yes; return how many seconds that took from this call.

        Raises OperatorProcessError with the end of its log if it ends first or needs longer.
        """
        begin = time.monotonic()
        answer = "no answer"
        async with aiohttp.ClientSession(timeout=_ANSWER, trust_env=False) as session:
            while time.monotonic() - begin < seconds:
                if not self.is_running:
                    raise self._failure(f"ended before it was ready (exit code {self.exit_code})")
                try:
                    async with session.get(f"{self.url}/readyz") as response:
                        if response.status == 200:
                            return time.monotonic() - begin
                        answer = f"{response.status} {(await response.text()).strip()[:300]}"
                except (aiohttp.ClientError, TimeoutError) as error:
                    answer = str(error)
                # It has no way to call us, so we have to ask.
                await asyncio.sleep(_LOOK_SECONDS)
        raise self._failure(f"was not ready within {seconds:g} s (/readyz: {answer})")

    async def stop(self, *, seconds: float = _STOP_SECONDS) -> int:
        """End it by SIGTERM, as a kubelet does; return its exit code. Raises OperatorProcessError if it stays."""
        os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while self.is_running:
            if time.monotonic() > deadline:
                self.kill()
                raise self._failure(f"did not end within {seconds:g} s of SIGTERM and was killed")
            await asyncio.sleep(_LOOK_SECONDS)
        assert self.exit_code is not None
        return self.exit_code

    def kill(self) -> None:
        """End it at once by SIGKILL, as a crash would. Nothing to do if it has ended."""
        self._component.kill()

    async def restart(self) -> None:
        """Kill it if it runs, start it again on the same port, and await that it is ready."""
        self.kill()
        self.start()
        await self.wait_ready()

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP)."""
        self._component.pause()

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._component.resume()

    # Facts

    @property
    def url(self) -> str:
        """Where it serves /metrics, /healthz and /readyz, without a slash at the end."""
        return f"http://{HOST}:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._component.is_running

    @property
    def pid(self) -> int:
        """The process id of the latest start."""
        return self._component.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended (negative: by that signal); None while it runs."""
        return self._component.exit_code

    @property
    def log(self) -> Path:
        """Where its output goes; a restart appends."""
        return self._component.log

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of its output."""
        return self._component.log_tail(lines)

    async def metrics(self) -> str:
        """What /metrics says now."""
        async with (
            aiohttp.ClientSession(timeout=_ANSWER, trust_env=False) as session,
            session.get(f"{self.url}/metrics") as response,
        ):
            response.raise_for_status()
            return await response.text()

    async def leads(self) -> bool:
        """Whether it says that it may write."""
        return "\naccelerator_rollout_leader 1.0" in await self.metrics()

    def _flags(self) -> tuple[str, ...]:
        return (f"--kubeconfig={self.kubeconfig}", f"--listen={HOST}:{self.port}", "--log-format=text")

    def _failure(self, what: str) -> OperatorProcessError:
        return OperatorProcessError(f"the operator {what}; {self.log} ends with:\n{self.log_tail()}")
