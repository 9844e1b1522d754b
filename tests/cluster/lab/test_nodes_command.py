"""`python -m lab nodes` from outside: it joins the cluster that it was told, and leaves nothing behind."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from lab.client import Api
from lab.ledger import Ledger
from lab.resources import DEVICE_CLASSES, NODES, RESOURCE_SLICES

pytestmark = pytest.mark.cluster

SIMULATED = "lab.accelerator-rollout.dev/simulated"


async def test_the_command_runs_nodes_until_it_is_ended_and_takes_them_away(
    admin: Api, namespace: str, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    admin.connection.write_kubeconfig(kubeconfig, context="other", user="admin")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lab.nodes.cli", "--kubeconfig", str(kubeconfig), "--context", "other"),
        *("--count", "2", "--devices", "3", "--prefix", namespace, "--driver", f"{namespace}.example.dev"),
        *("--ledger", str(tmp_path / "ledger.jsonl")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(30):
        greeting = await process.stdout.readline()
    assert f"2 simulated nodes ({namespace}-0 to {namespace}-1), 3 devices each" in greeting.decode()
    slices = await admin.list(RESOURCE_SLICES, field_selector=f"spec.nodeName={namespace}-1")
    assert [len(one["spec"]["devices"]) for one in slices.items] == [3]

    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert "0 devices prepared twice" in output.decode()
    assert Ledger.load(tmp_path / "ledger.jsonl").violations() == ()
    left = (await admin.list(NODES, label_selector=SIMULATED)).items
    assert not [one for one in left if one["metadata"]["name"].startswith(namespace)]
    await admin.delete(DEVICE_CLASSES, f"{namespace}.example.dev")
