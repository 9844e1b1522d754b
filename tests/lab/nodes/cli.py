"""`python -m lab nodes`: simulated nodes in the foreground, on the lab's own cluster or on one that was named."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab import runs
from lab.client import Api, ApiError
from lab.kubeconfig import Connection, KubeconfigError
from lab.ledger import Ledger
from lab.nodes.fleet import DRIVER, SimulatedNodes
from lab.nodes.timing import Timing

_DONE: Final = 0
_OVERLAP: Final = 1
_USAGE: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run until Ctrl-C or SIGTERM, then remove the nodes; 1 if a device was prepared twice, 2 if it cannot start."""
    options = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    try:
        connection = _connection(options)
        return asyncio.run(_serve(connection, options))
    except (KubeconfigError, ApiError, RuntimeError, OSError) as error:
        sys.stderr.write(f"lab nodes: {error}\n")
        return _USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab nodes",
        description="Simulated accelerator nodes. Without --context only the lab's own cluster is touched.",
    )
    parser.add_argument(
        "--context", help="kubeconfig context of the cluster; must be named for any but the lab's own"
    )
    parser.add_argument(
        "--kubeconfig", type=Path, help="kubeconfig file (default: the lab's own; with --context, kubectl's)"
    )
    parser.add_argument(
        "--name", default="default", help="which running lab to join when no context is named"
    )
    parser.add_argument("--count", type=_positive, default=2, help="how many nodes (default 2)")
    parser.add_argument("--devices", type=_positive, default=4, help="devices on each node (default 4)")
    parser.add_argument("--slices", type=_positive, default=1, help="ResourceSlices of each pool (default 1)")
    parser.add_argument(
        "--prefix", default="sim", help="nodes are called PREFIX-0, PREFIX-1, … (default sim)"
    )
    parser.add_argument("--driver", default=DRIVER, help=f"DRA driver and DeviceClass (default {DRIVER})")
    parser.add_argument("--ledger", type=Path, help="write the ledger to this file as JSON lines")
    parser.add_argument(
        "--real-time", action="store_true", help="a real kubelet's retry periods, not a tenth of them"
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _connection(options: argparse.Namespace) -> Connection:
    """Where to: a context that was named may lead anywhere; else the lab's own cluster, which runs on this machine."""
    path: Path | None = options.kubeconfig
    if path is None and options.context is not None:
        path = _kubectl_config()
    if path is None:
        run = runs.find(options.name)
        if run is None or not run.is_ready:
            raise KubeconfigError(
                f"no lab named {options.name!r} is up: start one with `python -m lab up`, "
                f"or name the cluster you mean with --context"
            )
        path = Path(str(run.state["kubeconfig"]))
    return Connection.from_kubeconfig(path, context=options.context)


def _kubectl_config() -> Path:
    """The file that kubectl would read. Of a KUBECONFIG list, the first one that exists."""
    listed = [Path(entry) for entry in os.environ.get("KUBECONFIG", "").split(os.pathsep) if entry]
    return next((path for path in listed if path.exists()), Path.home() / ".kube" / "config")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def _serve(connection: Connection, options: argparse.Namespace) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    timing = Timing.real() if options.real_time else Timing()
    with Ledger(options.ledger) as ledger:
        async with (
            Api(connection, field_manager="lab-nodes") as api,
            SimulatedNodes(api, ledger=ledger, timing=timing, driver=options.driver) as nodes,
        ):
            device_class = await nodes.ensure_device_class()
            added = await nodes.add_many(
                options.count, prefix=options.prefix, devices=options.devices, slices=options.slices
            )
            _say(
                f"{len(added)} simulated nodes ({added[0].name} to {added[-1].name}), "
                f"{options.devices} devices each, DeviceClass {device_class}. Ctrl-C removes them."
            )
            await stop.wait()
        overlaps = ledger.violations()
        _say(f"ledger: {len(ledger.entries())} entries, {len(overlaps)} devices prepared twice")
        for overlap in overlaps:
            _say(f"  {overlap}")
        return _OVERLAP if overlaps else _DONE


if __name__ == "__main__":
    sys.exit(main())
