"""A real Prometheus for tests: Debian's own binary, on a loopback port, scraping what the test exposes."""

import asyncio
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp
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


class Prometheus:
    """One server, and an exporter beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._runner: web.AppRunner | None = None
        self._text = ""
        self._scrapes = 0
        self._scraped = asyncio.Condition()
        self.address = ""

    async def __aenter__(self) -> Self:
        binary = await asyncio.to_thread(ensure_prometheus)
        app = web.Application()
        app.router.add_get("/metrics", self._expose)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        config = self._folder / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s}\n"
            f"scrape_configs: [{{job_name: devices, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]\n"
        )
        (own,) = free_ports(1)
        self.address = f"http://127.0.0.1:{own}"
        self._process = await asyncio.create_subprocess_exec(
            str(binary),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{own}",
            "--log.level=warn",
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
        if self._runner is not None:
            await self._runner.cleanup()

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

    async def _until_ready(self) -> None:
        async with asyncio.timeout(_READY_SECONDS), aiohttp.ClientSession() as session:
            while True:  # nobody tells when it is ready
                with suppress(aiohttp.ClientError):
                    async with session.get(f"{self.address}/-/ready") as response:
                        if response.status == 200:
                            return
                if self._process is not None and self._process.returncode is not None:
                    raise RuntimeError(f"Prometheus ended with code {self._process.returncode}")
                await asyncio.sleep(0.1)
