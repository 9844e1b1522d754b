"""Child processes that never outlive us: not after an exception, Ctrl-C, SIGTERM or even SIGKILL."""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Final

from lab import launch

_Request = tuple[Callable[[], "subprocess.Popen[bytes]"], "Future[subprocess.Popen[bytes]]"]


class _Spawner:
    """The one thread from which all children are forked.

    The kernel sends the parent-death signal when the *thread* that forked ends, so a child started from a short-lived
    worker thread would be killed with it. This thread lives as long as the process.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def spawn(self, start: Callable[[], "subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
        """Call `start` in the thread and return (or raise) what it does."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, name="lab-spawner", daemon=True)
                self._thread.start()
        answer: Future[subprocess.Popen[bytes]] = Future()
        self._requests.put((start, answer))
        return answer.result()

    def _serve(self) -> None:
        while True:
            start, answer = self._requests.get()
            try:
                answer.set_result(start())
            except Exception as error:  # noqa: BLE001 - handed to the caller, who raises it
                answer.set_exception(error)


_SPAWNER: Final = _Spawner()


def spawn(
    command: Sequence[str],
    *,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a program that is killed when this process ends, however that comes about.

    It gets a process group of its own: a Ctrl-C in the terminal is for us, and we end our children in order.
    """
    tied = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), *command]
    return _SPAWNER.spawn(
        lambda: subprocess.Popen(
            tied,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=None if env is None else dict(env),
            cwd=cwd,
            process_group=0,
        )
    )


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a spawned program together with the helpers that it started, and reap it."""
    if process.poll() is None:  # not reaped, so its group still bears its number
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Component:
    """One long-running program with a log file, which can be killed, paused and started again."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = tuple(command)
        self.log = log
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program; its output is appended to the log."""
        if self.is_running:
            raise RuntimeError(f"{self.name} is running already (pid {self.pid})")
        with self.log.open("ab") as log:
            self._process = spawn(self.command, stdout=log, stderr=log, env=self._env)

    def kill(self) -> None:
        """End the program at once, paused or not, and reap it. Nothing to do if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Stop the program in its tracks: it keeps its connections and its beliefs, and does nothing."""
        self._signal(signal.SIGSTOP)
        # The signal takes effect a moment after kill() returns. WNOWAIT leaves the news, also of an end, to Popen.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a paused program go on."""
        self._signal(signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        """Whether the program has been started and has not ended (a paused one runs)."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the latest start."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended (negative: by that signal), None while it runs or before it was started."""
        return None if self._process is None else self._process.poll()

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of the log."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return "(no log was written)"
        return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"

    def _signal(self, number: signal.Signals) -> None:
        if not self.is_running:
            raise RuntimeError(f"{self.name} is not running: {number.name} cannot reach it")
        os.kill(self.pid, number)
