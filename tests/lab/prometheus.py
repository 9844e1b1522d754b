"""A real Prometheus for tests: Debian's own binary, on a loopback port, scraping what the test exposes."""

import asyncio
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import yaml
from aiohttp import web

from lab.ports import free_ports
from lab.toolchain import cache_folder

_HOW: Final = "install it (Debian: apt-get install prometheus), or put its binary on the PATH"
_READY_SECONDS: Final = 30.0
_CERTAIN: Final = 2  # scrapes: when the second comes, the first has been stored


def ensure_prometheus() -> Path:
    """Return the binary: from the PATH, else from Debian's package, unpacked into the cache. Raises RuntimeError."""
    found = shutil.which("prometheus")
    if found:
        return Path(found)
    home = cache_folder() / "prometheus"
    binary = home / "usr" / "bin" / "prometheus"
    if binary.exists():
        return binary
    home.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["apt-get", "download", "prometheus"], cwd=home, check=True, capture_output=True)
        (package,) = home.glob("prometheus_*.deb")
        subprocess.run(["dpkg-deb", "-x", package.name, "."], cwd=home, check=True, capture_output=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"no Prometheus for the tests: {_HOW}") from error
    return binary


class Server:
    """One server with this configuration; use as `async with`. Its data goes into `folder`."""

    def __init__(self, folder: Path, config: Mapping[str, Any], *flags: str) -> None:
        self._folder, self._config, self._flags = folder, config, flags
        self._process: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession
        self.address = ""

    async def __aenter__(self) -> Self:
        binary = await asyncio.to_thread(ensure_prometheus)
        config = self._folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(dict(self._config)))
        (own,) = free_ports(1)
        self.address = f"http://127.0.0.1:{own}"
        self._session = aiohttp.ClientSession(trust_env=False)
        self._process = await asyncio.create_subprocess_exec(
            str(binary),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{own}",
            "--log.level=warn",
            *self._flags,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await self._until_ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            await self._process.wait()
        await self._session.close()

    async def ask(self, path: str, **parameters: str) -> Any:
        """Return the `data` that its HTTP API answers with, e.g. to `query`. Raises AssertionError if it refuses."""
        async with self._session.get(f"{self.address}/api/v1/{path}", params=parameters) as response:
            answer = await response.json()
        assert answer["status"] == "success", f"{path} {parameters}: {answer.get('error')}"
        return answer["data"]

    async def _until_ready(self) -> None:
        async with asyncio.timeout(_READY_SECONDS):
            while True:  # nobody tells when it is ready
                with suppress(aiohttp.ClientError):
                    async with self._session.get(f"{self.address}/-/ready") as response:
                        if response.status == 200:
                            return
                if self._process is not None and self._process.returncode is not None:
                    raise RuntimeError(f"Prometheus ended with code {self._process.returncode}")
                await asyncio.sleep(0.1)


class Prometheus:
    """One server, and an exporter beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = AsyncExitStack()
        self._text = ""
        self._scrapes = 0
        self._scraped = asyncio.Condition()
        self.address = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/metrics", self._expose)
        runner = web.AppRunner(app)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        target = f"127.0.0.1:{runner.addresses[0][1]}"
        server = Server(
            self._folder,
            {
                "global": {"scrape_interval": "1s"},
                "scrape_configs": [{"job_name": "devices", "static_configs": [{"targets": [target]}]}],
            },
        )
        await self._stack.enter_async_context(server)
        self.address = server.address
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def expose(self, text: str) -> None:
        """Have the exporter say this from now on; returns once the server has taken it in."""
        self._text, self._scrapes = text, 0
        async with asyncio.timeout(_READY_SECONDS), self._scraped:
            await self._scraped.wait_for(lambda: self._scrapes >= _CERTAIN)

    async def _expose(self, _: web.Request) -> web.Response:
        async with self._scraped:
            self._scrapes += 1
            self._scraped.notify_all()
        return web.Response(text=self._text)
