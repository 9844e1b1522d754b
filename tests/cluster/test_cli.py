"""The command line against a real control plane and a real operator: what it shows, asks for and waits for comes true."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from lab.kubeconfig import Connection
from lab.operator_process import OperatorProcess
from lab.world import NEWER, MakeWorld, Shape, World

Run = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
def run(cluster: Connection, namespace: str, tmp_path: Path) -> Run:
    """Runs the command line as a person with a kubeconfig; returns its exit code and all that it said."""
    kubeconfig = tmp_path / "person.kubeconfig"
    cluster.write_kubeconfig(kubeconfig, context="lab", user="person", namespace=namespace)

    async def command(*arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "accelerator_rollout",
            "--kubeconfig",
            str(kubeconfig),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(90):
            said, _ = await process.communicate()
        text = said.decode()
        assert "Traceback" not in text
        assert process.returncode is not None
        return process.returncode, text

    return command


@pytest.fixture
async def world(make_world: MakeWorld, operator: OperatorProcess) -> World:
    """Two pods on two devices, ready, and an operator."""
    del operator  # it runs
    world = await make_world(Shape(replicas=2), devices=(1, 1))
    await world.settle_in()
    return world


async def test_a_rollout_is_watched_to_its_end(world: World, run: Run) -> None:
    await world.set_image(NEWER)
    code, said = await run("status", "worker", "--watch", "--timeout", "60s")
    assert code == 0, said
    await world.until_ready(image=NEWER)
    code, said = await run("get", "worker")
    assert code == 0, said
    assert "2 of 2 updated" in said
    assert f"{world.device_class}/" in said
    code, said = await run("history", "worker", "-o", "wide")
    assert "KubeletTerminalPhase" in said, said


async def test_the_plan_is_what_the_operator_then_does(world: World, run: Run) -> None:
    await run("pause", "worker")
    await world.until_reason("Progressing", "Complete")
    await world.set_image(NEWER)
    await world.until_reason("Progressing", "Paused")
    code, said = await run("why", "worker")
    assert code == 0, said
    assert "waits for: Paused" in said, said
    code, said = await run("plan", "worker", "-o", "json")
    found = json.loads(said)
    assert [one["reason"] for one in found["blockers"]] == ["Paused"]
    assert len(found["order"]) == 2
    await run("resume", "worker")
    code, said = await run("status", "worker", "--watch", "--timeout", "60s")
    assert code == 0, said


async def test_an_abort_is_seen_and_a_retry_ends_it(
    make_world: MakeWorld, operator: OperatorProcess, run: Run
) -> None:
    del operator  # it runs
    world = await make_world(Shape(replicas=3, faults={"teardown_seconds": 4}), devices=(3,))
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_stage("Terminating", "Releasing", "Gated", "Scheduling", "Preparing", "WarmingUp")
    code, said = await run("abort", "worker", "--wait")
    assert code == 0, said
    code, said = await run("status", "worker", "--watch", "--timeout", "30s")
    assert (code, "Aborted" in said) == (1, True), said
    code, said = await run("retry", "worker", "--wait")
    assert code == 0, said
    code, said = await run("status", "worker", "--watch", "--timeout", "60s")
    assert code == 0, said


async def test_the_doctor_finds_what_the_lab_has(world: World, run: Run) -> None:
    code, said = await run("doctor", "-o", "json")
    found = {one["what"]: one for one in json.loads(said)}
    assert found["AcceleratorRollout"]["grade"] == "ok"
    assert found[f"driver {world.device_class}"]["found"] == "2 devices in 2 pools"
    assert found["operator"]["grade"] == "missing", "the lab's operator is a process and no Deployment"
    assert code == 1
