"""The recorder and the nodes go on through what happens to a real API server."""

import asyncio
from pathlib import Path

import pytest

from accelerator_rollout.api import crd
from cluster.lab.workload import Bench
from lab.client import EventType
from lab.controlplane import API_SERVER, ControlPlane
from lab.recorder import Recorder, Timeline
from lab.resources import ACCELERATOR_ROLLOUTS, PODS, RESOURCE_SLICES

pytestmark = pytest.mark.cluster


async def test_what_happens_while_and_after_the_api_server_restarts_is_recorded(
    bench: Bench, recorder: Recorder, control_plane: ControlPlane
) -> None:
    await bench.nodes.add("node-a", devices=2)
    await bench.pod("before")
    await bench.ready("before")
    await asyncio.to_thread(control_plane.restart_component, API_SERVER)
    await bench.pod("after")
    await bench.ready("after")
    await bench.delete("before")
    await bench.gone("before")
    await recorder.caught_up()

    gone = recorder.first(kind="Pod", name="before", type=EventType.DELETED)
    recorder.order(recorder.first(kind="Pod", name="after"), gone)
    bench.nodes.ledger.assert_clean()


async def test_the_file_holds_the_same_timeline(bench: Bench, recorder: Recorder, tmp_path: Path) -> None:
    await bench.nodes.add("node-a", devices=1)
    await bench.pod()
    await bench.ready()
    await recorder.caught_up()
    await recorder.close()

    assert Timeline.load(tmp_path / "recording.jsonl").events() == recorder.events()
    assert recorder.first(kind="ResourceSlice", predicate=lambda one: "node-a" in one.name)
    assert recorder.first(kind="ResourceClaim")
    assert recorder.first(kind="Event")


async def test_every_status_of_our_kind_is_kept(bench: Bench) -> None:
    await bench.api.apply_manifest(crd.COMMITTED)
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"}
    body = {
        "apiVersion": "accelerator-rollout.dev/v1alpha1",
        "kind": "AcceleratorRollout",
        "metadata": {"name": "llm"},
        "spec": {"workloadRef": reference},
    }
    async with Recorder(
        bench.api, namespace=bench.namespace, resources=(ACCELERATOR_ROLLOUTS, PODS, RESOURCE_SLICES)
    ) as recorder:
        await bench.api.create(ACCELERATOR_ROLLOUTS, body, bench.namespace)
        for replicas in (1, 2):
            status = {"status": {"replicas": replicas}}
            await bench.api.patch(ACCELERATOR_ROLLOUTS, "llm", status, bench.namespace, subresource="status")
        await recorder.caught_up()

        assert [status.get("replicas") for status in recorder.statuses("llm")] == [None, 1, 2]
    await bench.api.delete(ACCELERATOR_ROLLOUTS, "llm", bench.namespace)
