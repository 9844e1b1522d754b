"""The node runs real pods, and nothing of it is left afterwards, however its owner ends."""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from lab import runs
from lab.client import Api, Object
from lab.realnode.node import CONTAINERD, KUBELET, RealNode, nodes_folder
from lab.realnode.settings import PAUSE
from lab.resources import PODS

TESTS = Path(__file__).parents[1]


def idle_pod(name: str, node: RealNode) -> Object:
    """A pod that sleeps on the node."""
    container = {"name": "idle", "image": PAUSE, "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node.name,
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 2,
            "automountServiceAccountToken": False,
            "containers": [container],
        },
    }


def runs_now(pod: Object | None) -> bool:
    return pod is not None and (pod.get("status") or {}).get("phase") == "Running"


async def test_a_pod_runs_as_a_process_and_its_end_is_the_processs(
    node: RealNode, admin: Api, namespace: str
) -> None:
    await admin.create(PODS, idle_pod("idle", node), namespace)
    pod = await admin.wait_for(PODS, "idle", runs_now, namespace)
    (container,) = pod["status"]["containerStatuses"]
    assert container["containerID"].removeprefix("containerd://") in node.containers()

    await admin.delete(PODS, "idle", namespace)
    await admin.wait_gone(PODS, "idle", namespace, uid=pod["metadata"]["uid"])
    assert container["containerID"].removeprefix("containerd://") not in node.containers()


async def test_containers_run_on_while_the_kubelet_and_containerd_are_away(
    node: RealNode, admin: Api, namespace: str
) -> None:
    await admin.create(PODS, idle_pod("idle", node), namespace)
    pod = await admin.wait_for(PODS, "idle", runs_now, namespace)
    before = sorted(node.containers())
    for name in (KUBELET, CONTAINERD):
        node.kill_component(name)
        node.restart_component(name)
        assert sorted(node.containers()) == before
    await admin.delete(PODS, "idle", namespace)
    await admin.wait_gone(PODS, "idle", namespace, uid=pod["metadata"]["uid"])


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_the_owner_ends(node: RealNode, end: signal.Signals) -> None:
    name = f"twin-{os.getpid()}"
    command = [sys.executable, "-m", "lab.realnode"]
    subprocess.run([*command, "up", "--detach", f"--name={name}"], cwd=TESTS, check=True)
    run = runs.find(name, nodes_folder())
    assert run is not None
    assert run.owner is not None
    inside = _processes(run.folder)
    assert len(inside) > 2

    os.kill(run.owner, end)
    for pid in (run.owner, *inside):
        _await_gone(pid)
    assert not _processes(run.folder)
    assert str(run.folder) not in Path("/proc/self/mountinfo").read_text()
    if end is signal.SIGKILL:
        subprocess.run([*command, "down", f"--name={name}"], cwd=TESTS, check=True)
    assert not run.folder.exists()
    assert runs.find(name, nodes_folder()) is None


def _await_gone(pid: int) -> None:
    """Await the end of a process that is no child of ours."""
    try:
        opened = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([opened], [], [], 60)[0], f"process {pid} has not ended"
    finally:
        os.close(opened)


def _processes(folder: Path) -> list[int]:
    """The processes whose command lines name something in a folder."""
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if f"{folder}/".encode() in one.read_bytes():
                found.append(int(one.parent.name))
    return found
