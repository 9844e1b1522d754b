"""`run` from outside: it says in one sentence why it cannot begin, tells how it is, and ends at once when told to."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import aiohttp

from lab.client import Api
from lab.install import Account
from lab.kubeconfig import Connection
from lab.operator_process import OperatorProcess
from lab.resources import SERVICE_ACCOUNTS


async def refused(arguments: Sequence[str], **environment: str) -> str:
    """Run the operator, which must not come up; return the one line in which it says why."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "accelerator_rollout",
        "run",
        "--listen=127.0.0.1:0",
        *arguments,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    said = err.decode()
    assert process.returncode == 1, said
    assert out == b""
    assert "Traceback" not in said
    sentences = [line for line in said.splitlines() if line.startswith("accelerator-rollout: ")]
    assert len(sentences) == 1, said
    return sentences[0]


async def as_nobody(admin: Api, namespace: str, folder: Path) -> Path:
    """A kubeconfig of an account without any role."""
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}}
    await admin.create(SERVICE_ACCOUNTS, body, namespace)
    connection = await Account(namespace, "nobody").connection(admin)
    path = folder / "nobody.kubeconfig"
    connection.write_kubeconfig(path, context="lab", user="nobody")
    return path


async def test_without_a_kubeconfig(tmp_path: Path) -> None:
    said = await refused([f"--kubeconfig={tmp_path / 'none'}"])
    assert "pass a kubeconfig" in said


async def test_with_a_context_that_is_not_there(cluster: Connection, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    cluster.write_kubeconfig(path, context="lab", user="admin")
    assert "elsewhere" in await refused([f"--kubeconfig={path}", "--context=elsewhere"])


async def test_without_an_answering_cluster(cluster: Connection, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    replace(cluster, server="https://127.0.0.1:9").write_kubeconfig(path, context="lab", user="admin")
    assert "does not answer" in await refused([f"--kubeconfig={path}"])


async def test_without_rights(account: Account, admin: Api, namespace: str, tmp_path: Path) -> None:
    del account  # installed
    path = await as_nobody(admin, namespace, tmp_path)
    said = await refused([f"--kubeconfig={path}"])
    assert "not allowed to" in said
    assert "create pods/eviction" in said
    assert "rbac.yaml" in said


async def test_without_the_role_for_the_lease(
    account: Account, admin: Api, namespace: str, tmp_path: Path
) -> None:
    path = tmp_path / "operator.kubeconfig"
    connection = await account.connection(admin)
    connection.write_kubeconfig(path, context="lab", user="operator")
    said = await refused([f"--kubeconfig={path}", f"--lease-namespace={namespace}"])  # the Role is elsewhere
    for verb in ("get", "patch", "create"):
        assert f"{verb} leases" in said
    assert f"in namespace {namespace}" in said
    assert "for leader election" in said
    assert "rbac.yaml" in said
    assert "--leader-election=off" in said


async def test_with_an_election_and_no_place_for_it(cluster: Connection, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    cluster.write_kubeconfig(path, context="lab", user="admin")
    assert "--lease-namespace" in await refused([f"--kubeconfig={path}", "--leader-election=on"])


async def test_with_a_setting_that_cannot_be_used() -> None:
    said = await refused([], ACCELERATOR_ROLLOUT_WORKERS="many")
    assert "ACCELERATOR_ROLLOUT_WORKERS=many" in said


async def test_on_a_port_that_is_taken(account: Account, admin: Api, tmp_path: Path) -> None:
    async with await OperatorProcess.under(account, admin, tmp_path) as operator:
        said = await refused([f"--kubeconfig={operator.kubeconfig}", f"--listen=127.0.0.1:{operator.port}"])
    assert "--listen" in said


async def test_it_tells_how_it_is_and_ends_at_once(account: Account, admin: Api, tmp_path: Path) -> None:
    async with (
        await OperatorProcess.under(account, admin, tmp_path) as operator,
        aiohttp.ClientSession(trust_env=False) as session,
    ):
        for probe in ("healthz", "readyz"):
            async with session.get(f"{operator.url}/{probe}") as response:
                assert (response.status, await response.text()) == (200, "ok\n")
        shown = await operator.metrics()
        assert re.search(r'^accelerator_rollout_build_info{version="\d', shown, re.MULTILINE)
        age = re.search(r"^accelerator_rollout_store_age_seconds (\S+)$", shown, re.MULTILINE)
        assert age is not None
        assert float(age[1]) < 60
        begin = time.monotonic()
        code = await operator.stop()
        assert time.monotonic() - begin < 2
        assert code == 0
    assert "Traceback" not in operator.log.read_text()
    assert "Unclosed" not in operator.log.read_text()


async def test_it_ends_at_once_even_before_it_has_begun(account: Account, admin: Api, tmp_path: Path) -> None:
    operator = await OperatorProcess.under(account, admin, tmp_path)
    operator.start()
    async with asyncio.timeout(20):
        while "serves metrics" not in operator.log_tail():  # noqa: ASYNC110 - it has no way to call us
            await asyncio.sleep(0.01)
    begin = time.monotonic()
    os.kill(operator.pid, signal.SIGTERM)
    assert await operator.stop() == 0
    assert time.monotonic() - begin < 2


async def test_it_is_not_ready_while_the_cluster_does_not_answer(
    account: Account, admin: Api, tmp_path: Path
) -> None:
    """The API server is away for the operator alone: its store grows old, and it says so."""
    gate = await Gate.to(admin.connection)
    async with gate:
        kubeconfig = tmp_path / "operator.kubeconfig"
        connection = replace(await account.connection(admin), server=gate.url)
        connection.write_kubeconfig(kubeconfig, context="lab", user="operator")
        arguments = ("--resync-seconds=1", "--request-timeout-seconds=1")
        async with (
            OperatorProcess(kubeconfig, tmp_path / "operator.log", arguments=arguments) as operator,
            aiohttp.ClientSession(trust_env=False) as session,
        ):
            gate.shut()
            await _until_answered(session, f"{operator.url}/readyz", 503)
            async with session.get(f"{operator.url}/healthz") as response:
                assert response.status == 200  # a restart would not bring the cluster back
            gate.open()
            await _until_answered(session, f"{operator.url}/readyz", 200)


async def _until_answered(session: aiohttp.ClientSession, url: str, status: int) -> None:
    async with asyncio.timeout(40):
        while True:
            async with session.get(url) as response:
                if response.status == status:
                    return
            await asyncio.sleep(0.1)


class Gate:
    """Passes bytes on to the API server, or closes every connection."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._server: asyncio.Server
        self._open = True
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    @classmethod
    async def to(cls, connection: Connection) -> "Gate":
        host, _, port = connection.server.removeprefix("https://").rpartition(":")
        return cls(host, int(port))

    async def __aenter__(self) -> "Gate":
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.shut()
        self._server.close()

    def shut(self) -> None:
        self._open = False
        for writer in self._writers:
            writer.transport.abort()

    def open(self) -> None:
        self._open = True

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        upstream, back = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, back}
        try:
            await asyncio.wait(
                {
                    asyncio.create_task(_copy(reader, back)),
                    asyncio.create_task(_copy(upstream, writer)),
                }
            )
        finally:
            self._writers -= {writer, back}


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
