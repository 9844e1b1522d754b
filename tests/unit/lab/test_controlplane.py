"""The control plane itself: it comes up whole, beside others, mends after faults, and leaves nothing behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import controlplane, runs
from lab.client import Api, ApiError, has_condition
from lab.controlplane import (
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD,
    SCHEDULER,
    ControlPlane,
    ControlPlaneError,
    Settings,
)
from lab.kubeconfig import Connection
from lab.ports import free_ports
from lab.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS
from lab.runs import RunFolder

pytestmark = pytest.mark.cluster

BETA = "certificates.k8s.io/v1beta1"


@pytest.fixture(scope="module")
def other() -> Iterator[ControlPlane]:
    """A second control plane beside the session's, for tests that break things."""
    settings = Settings(runtime_config=(f"{BETA}=true",), audit=True)
    with ControlPlane(f"other-{os.getpid()}", settings) as started:
        yield started


async def test_two_stand_side_by_side_and_share_nothing(
    control_plane: ControlPlane, other: ControlPlane
) -> None:
    async with Api(control_plane.admin) as one, Api(other.admin) as two:
        await one.create(NAMESPACES, {"metadata": {"name": "only-in-one"}})
        assert await two.find(NAMESPACES, "only-in-one") is None
        await one.delete(NAMESPACES, "only-in-one")
    assert control_plane.server != other.server
    with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
        async with Api(Connection(other.server, ca=control_plane.authority.pair.certificate)) as mixed:
            await mixed.text("/readyz")


async def test_it_serves_what_the_operator_builds_on_and_betas_only_on_request(
    admin: Api, other: ControlPlane
) -> None:
    for group, kinds in {
        "resource.k8s.io/v1": {"ResourceClaim", "ResourceSlice", "DeviceTaintRule"},
        "admissionregistration.k8s.io/v1": {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"},
    }.items():
        served = await admin.request("GET", f"/apis/{group}")
        assert kinds <= {entry["kind"] for entry in served["resources"]}
    with pytest.raises(ApiError, match="404"):
        await admin.request("GET", f"/apis/{BETA}")
    async with Api(other.admin) as api:
        assert await api.request("GET", f"/apis/{BETA}")


async def test_it_is_the_version_that_the_tool_module_names(admin: Api) -> None:
    version = await admin.request("GET", "/version")
    assert version["gitVersion"] == "v1.37.2"
    assert (version["major"], version["minor"]) == ("1", "37")


async def test_pods_can_be_made_the_moment_it_is_up(admin: Api) -> None:
    assert await admin.find(SERVICE_ACCOUNTS, "default", "default") is not None


def test_everything_listens_on_the_loopback_address_only(control_plane: ControlPlane) -> None:
    listening = {
        name: listening_addresses(control_plane.component(name).pid)
        for name in (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER)
    }
    assert all(listening.values()), listening
    assert set().union(*listening.values()) == {"127.0.0.1"}


async def test_the_audit_log_tells_who_did_what(other: ControlPlane) -> None:
    async with Api(other.admin) as api:
        await api.find(NAMESPACES, "nothing-of-this-name")
    # It is written after the answer is sent.
    await until(lambda: "nothing-of-this-name" in other.audit_log.read_text())
    assert '"username":"lab-admin"' in other.audit_log.read_text()


@pytest.mark.parametrize("name", [CONTROLLER_MANAGER, SCHEDULER, API_SERVER, ETCD])
async def test_a_killed_program_is_reported_and_mended(other: ControlPlane, name: str) -> None:
    victim = other.component(name)
    victim.kill()
    with pytest.raises(ControlPlaneError, match=rf"{name} ended by itself \(exit code -9\)"):
        other.check()

    await asyncio.to_thread(other.restart_component, name)
    other.check()
    async with Api(other.admin) as api:
        namespace = f"after-{name}"
        await api.create(NAMESPACES, {"metadata": {"name": namespace}})
        await api.wait_for(SERVICE_ACCOUNTS, "default", lambda _: True, namespace)
        await api.create(PODS, pod("one"), namespace)
        await api.wait_for(PODS, "one", lambda one: has_condition(one, "PodScheduled", "False"), namespace)
        await api.delete(NAMESPACES, namespace)


def test_a_program_killed_on_purpose_is_no_accident(other: ControlPlane) -> None:
    other.kill_component(SCHEDULER)
    other.check()
    other.restart_component(SCHEDULER)
    other.check()


async def test_while_the_scheduler_is_paused_no_pod_is_looked_at(other: ControlPlane) -> None:
    async with Api(other.admin) as api:
        other.pause_component(SCHEDULER)
        try:
            await api.create(PODS, pod("waiting"), "default")
            with pytest.raises(TimeoutError, match="pods default/waiting did not reach the awaited state"):
                await api.wait_for(
                    PODS,
                    "waiting",
                    lambda body: has_condition(body, "PodScheduled", "False"),
                    "default",
                    timeout=1,
                )
        finally:
            other.resume_component(SCHEDULER)
        await api.wait_for(
            PODS, "waiting", lambda body: has_condition(body, "PodScheduled", "False"), "default"
        )
        await api.delete(PODS, "waiting", "default", grace_seconds=0)


async def test_following_goes_on_through_a_restart_of_the_api_server(other: ControlPlane) -> None:
    async with Api(other.admin) as api:
        seen: list[tuple[str, str]] = []

        async def follow() -> None:
            async for kind, body in api.follow(NAMESPACES, label_selector="followed"):
                seen.append((kind, body["metadata"]["name"]))

        for name in ("stays", "goes"):
            await api.create(NAMESPACES, {"metadata": {"name": name, "labels": {"followed": "yes"}}})
        following = asyncio.create_task(follow())
        await until(lambda: len(seen) == 2)
        await asyncio.to_thread(other.restart_component, API_SERVER)
        await api.delete(NAMESPACES, "goes")
        await until(lambda: ("DELETED", "goes") in seen)
        following.cancel()
        await api.delete(NAMESPACES, "stays")
    assert [event for event in seen if event[0] == "ADDED"].count(("ADDED", "stays")) == 1


async def test_a_watch_from_a_version_that_is_too_old_says_so(other: ControlPlane) -> None:
    await asyncio.to_thread(other.restart_component, API_SERVER)  # its memory of changes begins here
    async with Api(other.admin) as api:
        events = api.watch(NAMESPACES, "1")
        with pytest.raises(ApiError) as caught:
            await asyncio.wait_for(anext(events), 10)
    assert caught.value.is_expired


def test_a_start_that_fails_tells_the_program_its_last_words_and_the_next_step() -> None:
    broken = ControlPlane(f"broken-{os.getpid()}", Settings(apiserver_args=("--no-such-flag",)))
    with pytest.raises(ControlPlaneError) as caught, broken:
        pytest.fail("it came up")
    message = str(caught.value)
    assert message.startswith("kube-apiserver ended (exit code 1)")
    assert "unknown flag: --no-such-flag" in message
    assert "--keep" in message
    assert runs.find(broken.name) is None
    assert processes_of(runs.runs_folder() / broken.name) == []


def test_a_port_that_another_process_took_first_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as quicker:
        taken = quicker.getsockname()[1]
        asked: list[int] = []

        def first_a_taken_one(count: int) -> list[int]:
            asked.append(count)
            ports = free_ports(count)
            return [ports[0], ports[1], taken, *ports[3:]] if len(asked) == 1 else ports

        monkeypatch.setattr(controlplane, "free_ports", first_a_taken_one)
        with ControlPlane(f"ports-{os.getpid()}") as started:
            assert started.ports.apiserver != taken
        assert len(asked) == 2


@pytest.mark.parametrize(
    ("how", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_however_its_owner_ends_no_process_and_no_state_is_left(how: signal.Signals, code: int) -> None:
    name = f"ends-{os.getpid()}-{how.name.lower()}"
    folder = runs.runs_folder() / name
    with subprocess.Popen(
        [sys.executable, "-m", "lab", "up", "--name", name], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert "Kubernetes is up" in owner.stdout.readline()
        assert len(processes_of(folder)) == 4
        owner.send_signal(how)
        assert owner.wait(20) == code
    await_none_of(folder)
    RunFolder.claim(f"next-{os.getpid()}").release(keep=False)  # a start sweeps what a killed owner could not
    assert not folder.exists()


@pytest.mark.parametrize("how", ["raise RuntimeError('oops')", "sys.exit(3)", "os.kill(os.getpid(), 2)"])
def test_an_owner_that_stumbles_before_it_is_up_leaves_nothing(how: str) -> None:
    name = f"stumbles-{os.getpid()}"
    code = f"""
import os, sys
from lab.controlplane import ControlPlane
class Stumbling(ControlPlane):
    def _await_ready(self, component):
        assert component.is_running
        {how}
Stumbling({name!r}).start()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "AssertionError" not in done.stderr
    folder = runs.runs_folder() / name
    assert processes_of(folder) == []
    assert not folder.exists()


def test_an_owner_that_forgets_to_stop_it_leaves_nothing() -> None:
    name = f"forgets-{os.getpid()}"
    code = f"""
from lab import runs
from lab.controlplane import ControlPlane
ControlPlane({name!r}).start()
print(runs.find({name!r}).is_ready)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "True"
    folder = runs.runs_folder() / name
    assert processes_of(folder) == []
    assert not folder.exists()


def test_detached_it_is_reached_by_its_name_and_ended_by_it() -> None:
    name = f"detached-{os.getpid()}"

    def lab(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "lab", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)

    up = lab("up", "--detach", "--name", name)
    try:
        assert up.returncode == 0, up.stderr
        env = lab("env", "--name", name).stdout
        shell = subprocess.run(
            ["sh", "-c", f"{env}\nkubectl get namespaces -o name"], capture_output=True, text=True, check=True
        )
        assert "namespace/default" in shell.stdout.split()
        assert f"{name}: up" in lab("status").stdout
        again = lab("up", "--name", name)
        assert again.returncode == 1
        assert "is up already" in again.stderr
    finally:
        down = lab("down", "--name", name)
    assert down.returncode == 0
    assert processes_of(runs.runs_folder() / name) == []
    assert lab("env", "--name", name).returncode == 1


def pod(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "none"}]}}


def processes_of(folder: Path) -> list[int]:
    """Every process whose command line names the folder of a run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"{folder}/".encode() in command:
                found.append(int(entry.name))
    return found


def await_none_of(folder: Path, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while left := processes_of(folder):
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.02)


async def until(reached: Callable[[], bool], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not reached():  # noqa: ASYNC110 - files and lists ring no bell
            await asyncio.sleep(0.02)


def listening_addresses(pid: int) -> set[str]:
    """The local addresses on which a process accepts connections."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            sockets.add(target[8:-1])
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                # Words of four bytes in the machine's order.
                raw = bytes.fromhex(fields[1].partition(":")[0])
                words = [raw[start : start + 4] for start in range(0, len(raw), 4)]
                address = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
                found.add(socket.inet_ntop(family, address))
    return found
