"""Folders of runs and child processes: who owns what, and what is left when the owner dies."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lab import runs
from lab.ports import free_ports
from lab.processes import Component
from lab.runs import NameTakenError, RunFolder


def test_a_claimed_name_is_taken_until_it_is_released(tmp_path: Path) -> None:
    first = RunFolder.claim("one", tmp_path)
    with pytest.raises(NameTakenError, match=rf"process {os.getpid()}.*down --name one"):
        RunFolder.claim("one", tmp_path)
    first.release(keep=False)
    assert runs.all_runs(tmp_path) == []

    again = RunFolder.claim("one", tmp_path)
    again.release(keep=False)


def test_what_an_owner_publishes_is_found_by_name(tmp_path: Path) -> None:
    owner = RunFolder.claim("one", tmp_path)
    starting = runs.find("one", tmp_path)
    owner.publish({"server": "https://127.0.0.1:1"})
    ready = runs.find("one", tmp_path)
    owner.release(keep=False)

    assert starting is not None
    assert (starting.is_alive, starting.is_ready) == (True, False)
    assert ready is not None
    assert (ready.is_ready, ready.owner) == (True, os.getpid())
    assert runs.find("one", tmp_path) is None


def test_the_folder_of_a_killed_owner_is_swept_at_the_next_start(tmp_path: Path) -> None:
    code = f"""
import sys, threading
from pathlib import Path
from lab.runs import RunFolder
run = RunFolder.claim("dead", Path({str(tmp_path)!r}))
(run.path / "data").write_text("left over")
print("claimed", flush=True)
threading.Event().wait()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        living = RunFolder.claim("living", tmp_path)
        assert (tmp_path / "dead" / "data").exists(), "a living owner's folder stays"
        owner.kill()
    dead = runs.find("dead", tmp_path)
    assert dead is not None
    assert not dead.is_alive

    another = RunFolder.claim("another", tmp_path)
    assert [run.name for run in runs.all_runs(tmp_path)] == ["another", "living"]
    living.release(keep=False)
    another.release(keep=False)


def test_a_kept_folder_stays_until_it_is_removed_or_its_name_is_used_again(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run = RunFolder.claim(name, tmp_path)
        (run.path / "log").write_text("worth reading")
        run.release(keep=True)
    RunFolder.claim("three", tmp_path).release(keep=False)
    assert (tmp_path / "one" / "log").exists()
    assert (tmp_path / "two" / "log").exists()

    assert runs.remove("one", tmp_path)
    again = RunFolder.claim("two", tmp_path)
    assert not (tmp_path / "one").exists()
    assert not (again.path / "log").exists()
    again.release(keep=False)


def test_remove_leaves_a_living_owner_alone(tmp_path: Path) -> None:
    owner = RunFolder.claim("one", tmp_path)
    assert not runs.remove("one", tmp_path)
    assert owner.path.exists()
    owner.release(keep=False)


@pytest.mark.parametrize("name", ["", "../up", "A", "a/b", "-a", "a" * 60])
def test_a_name_that_is_no_folder_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="lower-case"):
        RunFolder.claim(name, tmp_path)


def test_a_child_dies_with_an_owner_that_was_killed(tmp_path: Path) -> None:
    code = f"""
import threading
from pathlib import Path
from lab.processes import Component
child = Component("sleep", ["/bin/sleep", "1000"], Path({str(tmp_path / "log")!r}))
child.start()
print(child.pid, flush=True)
threading.Event().wait()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        watched = os.pidfd_open(child)
        owner.kill()
    assert ended(watched, seconds=10)


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    child = Component("sleep", ["/bin/sleep", "1000"], tmp_path / "log")
    thread = threading.Thread(target=child.start)
    thread.start()
    thread.join()
    watched = os.pidfd_open(child.pid)
    try:
        assert not ended(watched, seconds=0.3)
    finally:
        child.kill()


def test_a_child_is_paused_resumed_and_killed(tmp_path: Path) -> None:
    child = Component("sleep", ["/bin/sleep", "1000"], tmp_path / "log")
    child.start()
    try:
        child.pause()
        assert child.is_running
        assert process_state(child.pid) == "T"
        child.resume()
        assert process_state(child.pid) != "T"
    finally:
        child.kill()
    assert child.exit_code == -signal.SIGKILL
    with pytest.raises(RuntimeError, match="sleep is not running"):
        child.pause()


def test_the_log_tail_tells_why_a_child_ended(tmp_path: Path) -> None:
    child = Component("sh", ["/bin/sh", "-c", "echo first; echo last >&2; exit 3"], tmp_path / "log")
    child.start()
    assert ended(os.pidfd_open(child.pid), seconds=10)
    assert child.exit_code == 3
    assert child.log_tail(1) == "last"


def test_free_ports_are_different_and_nobody_listens_on_them() -> None:
    import socket

    ports = free_ports(20)
    assert len(set(ports)) == 20
    with socket.create_server(("127.0.0.1", ports[0])):
        pass


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def ended(pidfd: int, *, seconds: float) -> bool:
    """Whether the process ends within that time; closes the descriptor."""
    import select

    try:
        return bool(select.select([pidfd], [], [], seconds)[0])
    finally:
        os.close(pidfd)
