"""The command line of the test bed: `python -m lab up | down | status | env | build | nodes`."""

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
from lab.controlplane import ControlPlane, ControlPlaneError, Settings
from lab.toolchain import ToolchainError, cache_folder, ensure_control_plane, find_kubectl

_DEFAULT_NAME: Final = "default"
_START_SECONDS: Final = 180.0
_STOP_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 2.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, or 1 with a message on stderr, 130 after Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["nodes"]:
        from lab.nodes.cli import main as nodes_main  # the other commands need nothing of it

        return nodes_main(arguments[1:])
    options = _parser().parse_args(arguments)
    # `down`, an init, or a terminal that closes must end us in order, as Ctrl-C does: the default skips all clean-up.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # under nohup a hang-up stays ignored
            signal.signal(number, _interrupt)
    try:
        match options.command:
            case "up":
                return _up_detached(options) if options.detach else _up(options)
            case "down":
                return _down(options.name)
            case "status":
                return _status()
            case "env":
                return _env(options.name)
            case _:
                ensure_control_plane()
                return 0
    except (ControlPlaneError, ToolchainError, runs.NameTakenError, ValueError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    up = commands.add_parser("up", help="start a control plane and keep it up until Ctrl-C")
    _add_name(up)
    up.add_argument("--detach", action="store_true", help="return when it is ready; end it with `down`")
    up.add_argument("--keep", action="store_true", help="keep its folder with logs and data after the end")
    up.add_argument("--audit", action="store_true", help="write each request to audit.jsonl in its folder")
    up.add_argument(
        "--runtime-config",
        action="append",
        default=[],
        metavar="API=true",
        help="serve an API that is off by default, e.g. resource.k8s.io/v1beta1=true (repeatable)",
    )
    up.add_argument(
        "--controller-manager-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="pass to kube-controller-manager, e.g. =--node-monitor-grace-period=8s (repeatable)",
    )

    down = commands.add_parser(
        "down", help="end a control plane, or remove the folder that it was told to keep"
    )
    _add_name(down)
    commands.add_parser("status", help="list the control planes of this user")
    env = commands.add_parser("env", help='print shell exports: eval "$(python -m lab env)"')
    _add_name(env)
    commands.add_parser("build", help="build the programs into the cache and start nothing")
    commands.add_parser("nodes", help="simulated accelerator nodes (see `nodes --help`)", add_help=False)
    return parser


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default=_DEFAULT_NAME, help="which control plane (default: %(default)s)")


def _up(options: argparse.Namespace) -> int:
    settings = Settings(
        runtime_config=tuple(options.runtime_config),
        controller_manager_args=tuple(options.controller_manager_arg),
        audit=options.audit,
        keep=options.keep,
    )
    begin = time.monotonic()
    with ControlPlane(options.name, settings) as control_plane:
        _say(f"Kubernetes is up after {time.monotonic() - begin:.1f} s: {control_plane.server}")
        _say_how_to_reach(control_plane.kubeconfig)
        _say("Ctrl-C ends it.")
        never = threading.Event()
        while not never.wait(_LOOK_SECONDS):
            control_plane.check()
    return 0


def _up_detached(options: argparse.Namespace) -> int:
    ensure_control_plane()  # here, where somebody sees the progress
    arguments = ["lab", "up", f"--name={options.name}"]
    arguments += ["--keep"] * options.keep + ["--audit"] * options.audit
    arguments += [f"--runtime-config={entry}" for entry in options.runtime_config]
    arguments += [f"--controller-manager-arg={entry}" for entry in options.controller_manager_arg]
    log = _detached_log(options.name)
    try:
        run = detached.start(arguments, log, lambda: runs.find(options.name), _START_SECONDS)
    except detached.NotStartedError as error:
        return _fail(f"the control plane did not come up:\n{error}")
    _say(f"Kubernetes is up: {run.state['server']}")
    _say_how_to_reach(Path(run.state["kubeconfig"]))
    _say(f"`python -m lab down --name {options.name}` ends it.")
    return 0


def _down(name: str) -> int:
    run = runs.find(name)
    if run is None:
        return _fail(f"no control plane named {name!r}; `python -m lab status` lists them")
    if run.owner is not None:
        if not detached.end(run.owner, lambda: runs.find(name), _STOP_SECONDS):
            return _fail(f"process {run.owner} has not ended control plane {name!r} in {_STOP_SECONDS:g} s")
        _detached_log(name).unlink(missing_ok=True)
        _say(f"Control plane {name!r} has ended.")
        return 0
    if runs.remove(name):
        _say(f"Removed {run.folder}.")
    return 0


def _detached_log(name: str) -> Path:
    return cache_folder() / f"up-{name}.log"


def _status() -> int:
    found = runs.all_runs()
    for run in found:
        if run.is_ready:
            state = f"up, {run.state['server']}, Kubernetes {run.state['version']}, process {run.owner}"
        elif run.is_alive:
            state = f"starting, process {run.owner}"
        else:
            state = "ended"
        _say(f"{run.name}: {state}, {run.folder}")
    if not found:
        _say("No control plane is up.")
    return 0


def _env(name: str) -> int:
    run = runs.find(name)
    if run is None or not run.is_ready:
        return _fail(f"control plane {name!r} is not up: start it with `python -m lab up --name {name}`")
    kubectl = Path(run.state["kubectl"])
    _say(f"export KUBECONFIG={shlex.quote(run.state['kubeconfig'])}")
    _say(f'export PATH={shlex.quote(str(kubectl.parent))}:"$PATH"')
    return 0


def _say_how_to_reach(kubeconfig: Path) -> None:
    _say(f"  export KUBECONFIG={shlex.quote(str(kubeconfig))}")
    _say(f"  {find_kubectl()} get pods --all-namespaces")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - this is the command line


def _fail(message: str) -> int:
    print(f"lab: {message}", file=sys.stderr, flush=True)  # noqa: T201 - this is the command line
    return 1


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
