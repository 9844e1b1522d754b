"""A room for a node on this machine: process and mount namespaces that the kernel empties when their owner is gone.

Containers, shims and mounts are no children of ours, and a crash would leave them behind. Here they cannot outlive the
namespaces' first process, which dies with us in whatever way we die.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from lab import launch
from lab.processes import Component
from lab.realnode import init

# Where programs of a node write whatever their settings say, and where another node may run on this machine.
_HIDDEN: Final = ("/run", "/var/log", "/var/lib/kubelet", "/var/lib/cni")
_READY_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.02


class NodeError(Exception):
    """A program of the node did not start, or ended by itself; the message shows its last words."""


def refusal() -> str | None:
    """Why no node can run on this machine; None if one can."""
    if sys.platform != "linux":
        return f"a node needs Linux, and this is {sys.platform}"
    if os.geteuid() != 0:
        return "a node needs root (namespaces, mounts, control groups): run as root, e.g. in a throw-away machine"
    for program in ("unshare", "nsenter", "mount"):
        if shutil.which(program) is None:
            return f"a node needs {program}: install util-linux and mount"
    if not Path("/sys/fs/cgroup").is_dir() or not any(Path("/sys/fs/cgroup").iterdir()):
        return "a node needs control groups mounted at /sys/fs/cgroup"
    trial = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "mount", "-t", "tmpfs", "try", "/run"]
    done = subprocess.run(trial, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        return f"a node needs namespaces and mounts, which this machine refuses: {done.stderr.strip()}"
    return None


class Enclosure:
    """The namespaces of one node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[Path] = []
        self._keeper = Component("enclosure", (), folder / "enclosure.log")

    def start(self) -> None:
        """Make the namespaces; raises NodeError if the machine refuses."""
        for hidden in map(Path, _HIDDEN):
            if not hidden.exists():  # a mount needs a place
                hidden.mkdir(parents=True)
                self._made.append(hidden)
        ready = self._folder / "enclosed"
        ready.unlink(missing_ok=True)
        self._keeper = Component(
            "enclosure",
            (
                _program("unshare"),
                *("--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
                *(sys.executable, "-I", "-S", init.__file__, str(ready), *_HIDDEN),
            ),
            self._folder / "enclosure.log",
        )
        self._keeper.start()
        deadline = time.monotonic() + _READY_SECONDS
        while not ready.exists():
            if not self._keeper.is_running or time.monotonic() > deadline:
                raise NodeError(f"no namespaces for the node:\n{self._keeper.log_tail()}")
            time.sleep(_LOOK_SECONDS)

    def stop(self) -> None:
        """End everything inside and return when it has ended. The mounts go with it."""
        if self._keeper.is_running:
            for pid in children(self._keeper.pid):
                _send(pid, signal.SIGKILL)
            # It waits for the first process, and that one's end waits for all others of the namespace.
            deadline = time.monotonic() + _READY_SECONDS
            while self._keeper.is_running and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
            self._keeper.kill()
        while self._made:
            with suppress(OSError):  # somebody else uses it by now
                self._made.pop().rmdir()

    @property
    def is_running(self) -> bool:
        """Whether the namespaces are there."""
        return self._keeper.is_running

    def component(
        self, name: str, command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None
    ) -> "Enclosed":
        """Return a program that runs inside; it is not started yet."""
        (first,) = children(self._keeper.pid)
        return Enclosed(name, _entering(first, command), log, env=env)

    def run(self, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> str:
        """Run a short command inside and return its output; raises NodeError if it fails."""
        (first,) = children(self._keeper.pid)
        done = subprocess.run(
            _entering(first, command, parent=False),
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=None if env is None else dict(env),
        )
        if done.returncode != 0:
            raise NodeError(
                f"{' '.join(map(str, command))} ended with code {done.returncode}: {done.stderr.strip()}"
            )
        return done.stdout


class Enclosed(Component):
    """A program inside. Signals go to itself, not to the process that holds the door."""

    def kill(self) -> None:
        """End the program at once, paused or not, and reap it. Nothing to do if it has ended."""
        if self.is_running:
            for pid in children(super().pid):
                _send(pid, signal.SIGKILL)
            deadline = time.monotonic() + _READY_SECONDS
            while self.is_running and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
        super().kill()

    def pause(self) -> None:
        """Stop the program in its tracks."""
        self._inside(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused program go on."""
        self._inside(signal.SIGCONT)

    @property
    def inner_pid(self) -> int:
        """The program's own process id, as seen from outside."""
        found = children(self.pid) if self.is_running else []
        if not found:
            raise RuntimeError(f"{self.name} is not running")
        return found[0]

    def _inside(self, number: signal.Signals) -> None:
        os.kill(self.inner_pid, number)


def children(pid: int) -> list[int]:
    """The children of a process, none if it is gone."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _entering(first: int, command: Sequence[str], *, parent: bool = True) -> list[str]:
    """The command that runs another one in the namespaces of process `first`."""
    enter = [_program("nsenter"), "--target", str(first), "--mount", "--pid", "--"]
    # Whoever holds the door is outside, where processes inside see only the number 0; if it dies, so does the program.
    tied = [sys.executable, "-I", "-S", launch.__file__, "0"] if parent else []
    return [*enter, *tied, *map(str, command)]


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NodeError(f"a node needs {name}: install util-linux")
    return found


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
