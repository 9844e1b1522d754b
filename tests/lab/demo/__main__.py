"""`python -m lab.demo [--keep]`: plays the demo and says whether everything was as it should be, by the exit code."""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from rich.console import Console

from lab.controlplane import ControlPlane, ControlPlaneError
from lab.demo.play import play
from lab.demo.stage import Times
from lab.demo.view import PLAIN_WIDTH, View
from lab.operator_process import OperatorProcessError
from lab.toolchain import ToolchainError, ensure_control_plane


def main(argv: Sequence[str] | None = None) -> int:
    """Play; return 0 if all checks hold, 1 if not or if something could not be brought up, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m lab.demo", description=__doc__)
    parser.add_argument(
        "--keep",
        action="store_true",
        default=os.environ.get("KEEP", "") not in {"", "0"},  # how `make demo KEEP=1` passes it on
        help="leave everything up at the end, until Ctrl-C [KEEP=1]",
    )
    options = parser.parse_args(argv)
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else PLAIN_WIDTH, highlight=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end in order, as with Ctrl-C
    times = Times()
    try:
        with ExitStack() as stack:
            # Before the clock starts: a first build takes minutes, shows its own progress, and is not what is timed.
            with times.part("build"):
                binaries = ensure_control_plane()
            view = View(console, time.monotonic())
            control_plane = ControlPlane(f"demo-{os.getpid()}", binaries=binaries)
            with times.part("control plane"):
                stack.enter_context(control_plane)
            version = binaries.kubernetes_version
            view.say(f"Kubernetes {version} is up: etcd, API server, controller manager, scheduler.")
            return asyncio.run(play(control_plane, view, times, keep=options.keep))
    except (ControlPlaneError, ToolchainError, OperatorProcessError, TimeoutError) as error:
        print(f"demo: {error}", file=sys.stderr)  # noqa: T201 - this is the command line
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
