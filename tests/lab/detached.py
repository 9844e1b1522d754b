"""A test bed in the background: a process that outlives the command which starts it, and is ended by another."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.runs import Run


class NotStartedError(Exception):
    """The process ended before its run was ready, or took too long; the message is what it said."""


def start(arguments: Sequence[str], log: Path, find: Callable[[], Run | None], seconds: float) -> Run:
    """Start `python -m` with these arguments, and return its run once that is ready. Raises NotStartedError."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        run = find()
        if run is not None and run.is_ready and run.owner == process.pid:
            process.returncode = 0  # it outlives us on purpose: no warning about that
            return run
        time.sleep(0.1)
    if process.poll() is None:
        process.terminate()
        process.wait()
    raise NotStartedError(log.read_text().strip())


def end(owner: int, find: Callable[[], Run | None], seconds: float) -> bool:
    """Tell the owner of a run to end; return whether it has within so many seconds."""
    os.kill(owner, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while (found := find()) is not None and found.owner == owner:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
