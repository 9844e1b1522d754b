"""The command line of a real node: `python -m lab.realnode up | down | status | build`."""

import argparse
import shlex
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from lab import detached, runs
from lab.controlplane import ControlPlane, ControlPlaneError
from lab.realnode.enclosure import NodeError, refusal
from lab.realnode.node import RealNode, nodes_folder, sweep
from lab.realnode.programs import ensure_node_programs
from lab.toolchain import ToolchainError, cache_folder, ensure_control_plane

_DEFAULT_NAME: Final = "node"
_START_SECONDS: Final = 240.0
_STOP_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 2.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, or 1 with a message on stderr, 130 after Ctrl-C."""
    options = _parser().parse_args(argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # under nohup a hang-up stays ignored
            signal.signal(number, _interrupt)
    try:
        match options.command:
            case "up":
                return _up(options.name, options.detach, options.keep)
            case "down":
                return _down(options.name)
            case "status":
                return _status()
            case _:
                ensure_control_plane()
                ensure_node_programs()
                return 0
    except (ControlPlaneError, NodeError, ToolchainError, runs.NameTakenError, ValueError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.realnode", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start a control plane with a real node, and keep both until Ctrl-C")
    up.add_argument("--name", default=_DEFAULT_NAME, help="of both (default: %(default)s)")
    up.add_argument("--detach", action="store_true", help="return when the node is Ready; end it with `down`")
    up.add_argument("--keep", action="store_true", help="keep the folders with logs and data after the end")
    down = commands.add_parser("down", help="end both, and remove what a crash or --keep left")
    down.add_argument("--name", default=_DEFAULT_NAME, help="of both (default: %(default)s)")
    commands.add_parser("status", help="list the real nodes of this user")
    commands.add_parser("build", help="build or fetch the programs into the cache and start nothing")
    return parser


def _up(name: str, detach: bool, keep: bool) -> int:
    if (reason := refusal()) is not None:
        return _fail(reason)
    if detach:
        return _up_detached(name, keep)
    begin = time.monotonic()
    with ControlPlane(name) as control_plane, RealNode(control_plane, keep=keep) as node:
        _say(f"Node {node.name} is Ready after {time.monotonic() - begin:.1f} s.")
        _say_how_to_reach(control_plane.kubeconfig)
        _say("Ctrl-C ends it.")
        never = threading.Event()
        while not never.wait(_LOOK_SECONDS):
            control_plane.check()
            node.check()
    return 0


def _up_detached(name: str, keep: bool) -> int:
    ensure_control_plane()  # here, where somebody sees the progress
    ensure_node_programs()
    arguments = ["lab.realnode", "up", f"--name={name}", *["--keep"] * keep]
    try:
        run = detached.start(
            arguments, _detached_log(name), lambda: runs.find(name, nodes_folder()), _START_SECONDS
        )
    except detached.NotStartedError as error:
        return _fail(f"the node did not come up:\n{error}")
    _say(f"Node {run.state['node']} is Ready; its logs: {run.state['logs']}")
    _say_how_to_reach(Path(run.state["kubeconfig"]))
    _say(f"`python -m lab.realnode down --name {name}` ends it.")
    return 0


def _down(name: str) -> int:
    run = runs.find(name, nodes_folder())
    if run is None:
        return _fail(f"no node named {name!r}; `python -m lab.realnode status` lists them")
    if run.owner is not None:
        if not detached.end(run.owner, lambda: runs.find(name, nodes_folder()), _STOP_SECONDS):
            return _fail(f"process {run.owner} has not ended node {name!r} in {_STOP_SECONDS:g} s")
        _detached_log(name).unlink(missing_ok=True)
        _say(f"Node {name!r} and its control plane have ended.")
    sweep()
    if runs.remove(name, nodes_folder()):
        _say(f"Removed {run.folder}.")
    return 0


def _status() -> int:
    found = runs.all_runs(nodes_folder())
    for run in found:
        state = "up" if run.is_ready else "starting" if run.is_alive else "ended"
        owner = f", process {run.owner}" if run.owner is not None else ""
        _say(f"{run.name}: {state}{owner}, {run.folder}")
    if not found:
        _say("No real node is up.")
    return 0


def _detached_log(name: str) -> Path:
    return cache_folder() / f"node-up-{name}.log"


def _say_how_to_reach(kubeconfig: Path) -> None:
    _say(f"  export KUBECONFIG={shlex.quote(str(kubeconfig))}")
    _say("  kubectl get nodes,pods --all-namespaces")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - this is the command line


def _fail(message: str) -> int:
    print(f"lab.realnode: {message}", file=sys.stderr, flush=True)  # noqa: T201 - this is the command line
    return 1


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
