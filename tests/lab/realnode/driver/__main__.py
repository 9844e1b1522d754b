"""The command line of the driver. SIGTERM and Ctrl-C end it in order."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from lab.client import Api, ApiError
from lab.kubeconfig import KubeconfigError
from lab.realnode.driver.checkpoint import CheckpointError
from lab.realnode.driver.service import Places, Service
from lab.toolchain import ToolchainError

_USAGE: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal and return 0; 2 with a message if it cannot start."""
    options = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    code = 0
    try:
        asyncio.run(_serve(options))
    except* (KubeconfigError, ApiError, CheckpointError, ToolchainError, OSError) as group:
        for error in group.exceptions:
            logging.getLogger("driver").error("%s", error)
        code = _USAGE
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.realnode.driver", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="how to reach the API server")
    parser.add_argument("--node", required=True, help="name of the Node, and of the pool")
    parser.add_argument("--driver", required=True, help="name of the driver, e.g. lpu.example.dev")
    parser.add_argument("--devices", type=_positive, required=True, help="how many: lpu-0, lpu-1, …")
    parser.add_argument("--plugins", type=Path, required=True, help="the kubelet's folder of plugins")
    parser.add_argument("--registry", type=Path, required=True, help="where the kubelet finds new plugins")
    parser.add_argument("--cdi", type=Path, required=True, help="where the container runtime reads CDI files")
    parser.add_argument(
        "--ledger", type=Path, required=True, help="written, and gone on with after a restart"
    )
    parser.add_argument(
        "--faults", type=Path, required=True, help="what to do wrong (see faults.py); may not exist"
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


async def _serve(options: argparse.Namespace) -> None:
    serving = asyncio.current_task()
    assert serving is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, serving.cancel)
    async with Api.from_kubeconfig(options.kubeconfig, field_manager="lab-driver") as api:
        service = Service(
            api,
            node=options.node,
            driver=options.driver,
            devices=tuple(f"lpu-{index}" for index in range(options.devices)),
            places=Places(options.plugins, options.registry, options.cdi, options.ledger, options.faults),
        )
        with suppress(asyncio.CancelledError):
            await service.run()


if __name__ == "__main__":
    sys.exit(main())
