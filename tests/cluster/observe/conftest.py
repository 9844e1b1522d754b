"""An operator behind a wire that can fail, and a real Prometheus that scrapes it under our rules."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from lab.client import Api
from lab.install import Account
from lab.monitoring import Monitoring, Observe, Observed
from lab.operator_process import HOST, OperatorProcess
from lab.wire import Wire


@pytest.fixture
async def observe(account: Account, admin: Api, namespace: str, tmp_path: Path) -> AsyncIterator[Observe]:
    """Starts an operator for this test's namespace, and a Prometheus that scrapes it."""
    async with AsyncExitStack() as stack:

        async def make(*arguments: str) -> Observed:
            own = await account.connection(admin)
            wire = await stack.enter_async_context(Wire(own))
            kubeconfig = tmp_path / "wire.kubeconfig"
            plain = replace(own, server=wire.url, ca=None, tls_server_name=None)
            plain.write_kubeconfig(kubeconfig, context="lab", user="operator")
            flags = (f"--namespaces={namespace}", "--resync-seconds=1", "--request-timeout-seconds=2")
            operator = OperatorProcess(kubeconfig, tmp_path / "operator.log", arguments=(*flags, *arguments))
            await stack.enter_async_context(operator)
            monitoring = Monitoring(tmp_path, f"{HOST}:{operator.port}")
            await stack.enter_async_context(monitoring)
            return Observed(operator, wire, monitoring)

        yield make
