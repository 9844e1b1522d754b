"""The command line: `run` for the operator, `crd` and `release-all` for people."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from accelerator_rollout import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 with one sentence on standard error, or 2 for wrong usage."""
    from accelerator_rollout.config import add_options  # noqa: PLC0415 - each command loads what it needs

    parser = argparse.ArgumentParser(
        prog="accelerator-rollout",
        description="Replace accelerator pods one at a time, each only after its predecessor's devices are free.",
    )
    parser.add_argument("--version", action="version", version=f"accelerator-rollout {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_options(commands.add_parser("run", help="run the operator"))
    commands.add_parser("crd", help="print the CustomResourceDefinition")
    release = commands.add_parser(
        "release-all", help="before an uninstall: open every gate and take everything of ours off"
    )
    release.add_argument("--kubeconfig", help="path of the kubeconfig; default: kubectl's own rules")
    release.add_argument("--context", help="context of the kubeconfig; default: its current one")
    release.add_argument("--namespace", "-n", help="only this namespace; default: all")
    release.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    release.add_argument("--yes", "-y", action="store_true", help="do not ask")
    arguments = parser.parse_args(argv)
    match arguments.command:
        case "run":
            return _run(arguments)
        case "crd":
            from accelerator_rollout.api import crd  # noqa: PLC0415

            sys.stdout.write(crd.render())
            return 0
        case _:
            from accelerator_rollout.cli import release_all  # noqa: PLC0415

            return release_all.main(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from accelerator_rollout import config, logs  # noqa: PLC0415
    from accelerator_rollout.app import Operator  # noqa: PLC0415
    from accelerator_rollout.errors import StartError  # noqa: PLC0415

    async def run() -> None:
        await Operator(settings).run()

    try:
        settings = config.settings(arguments)
        logs.configure(settings.log_format, settings.log_level)
        asyncio.run(run())
    except StartError as error:
        print(f"accelerator-rollout: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
