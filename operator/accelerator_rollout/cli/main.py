"""The whole command line: which commands there are, and how any of them ends.

A command's module is loaded when it is called, so that `run` pays for no other. Whatever happens, people get a sentence and
no traceback: 0 is success, 1 a refusal or a failure, 2 wrong usage, 130 an interruption. ACCELERATOR_ROLLOUT_TRACEBACK=1
shows where a defect is.
"""

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import shell_complete

from accelerator_rollout import __version__
from accelerator_rollout.errors import OperatorError

PROGRAM: Final = "accelerator-rollout"
COMPLETE: Final = "_ACCELERATOR_ROLLOUT_COMPLETE"  # set by the scripts of `completion`
TRACEBACK: Final = "ACCELERATOR_ROLLOUT_TRACEBACK"
_PLUGIN: Final = "kubectl-"
_INTERRUPTED: Final = 130  # 128 and the number of SIGINT


@dataclass(frozen=True, slots=True)
class _Command:
    """Where a command is defined, and what the list of commands says of it."""

    module: str
    name: str
    help: str


_LOOK: Final = "Look"
_ACT: Final = "Act"
_RUN: Final = "Install and run"

_SECTIONS: Final[dict[str, dict[str, _Command]]] = {
    _LOOK: {
        "list": _Command("looking", "list_", "the rollouts of a namespace, or of all"),
        "get": _Command(
            "looking", "get", "one rollout with its pods, claims and devices; --watch keeps it on the screen"
        ),
        "status": _Command(
            "looking", "status", "where a rollout stands, in a line; --watch waits for its end"
        ),
        "why": _Command("deciding", "why", "what it waits for, since when, the cause and the next step"),
        "plan": _Command("deciding", "plan", "what the operator would do now, by its own function"),
        "history": _Command("looking", "history", "the last rollouts, and how long each stage took"),
    },
    _ACT: {
        "pause": _Command("writing", "pause", "start no further replacement"),
        "resume": _Command("writing", "resume", "end a pause"),
        "abort": _Command("writing", "abort", "stop this revision; the pod in flight is finished"),
        "retry": _Command("writing", "retry", "go on after an abort or a failure"),
        "promote": _Command("writing", "promote", "go on past a canary step, or (--all) past all"),
        "undo": _Command("writing", "undo", "go back to the pod template before"),
        "restart": _Command("writing", "restart", "replace every pod that exists now"),
        "open-gates": _Command("gates", "open_gates", "for emergencies: open gates WITHOUT proof"),
    },
    _RUN: {
        "doctor": _Command(
            "doctor", "doctor", "the cluster, rights, policies and drivers; what is missing and how to get it"
        ),
        "completion": _Command("completion", "completion", "the script that completes in bash, zsh or fish"),
        "release-all": _Command("uninstall", "release", "before an uninstall: take everything of ours off"),
        "crd": _Command("running", "crd", "print the CustomResourceDefinition"),
        "run": _Command("running", "run", "run the operator"),
    },
}
COMMANDS: Final = {name: one for section in _SECTIONS.values() for name, one in section.items()}


class _Lazy(click.Group):
    """Commands by the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        where = COMMANDS.get(cmd_name)
        if where is None:
            return None
        found: click.Command = getattr(
            importlib.import_module(f"accelerator_rollout.cli.{where.module}"), where.name
        )
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"there is no command {args[0]}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        for title, section in _SECTIONS.items():
            if section:
                with formatter.section(title):
                    formatter.write_dl([(name, one.help) for name, one in section.items()])


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 success, 1 a refusal or a failure, 2 wrong usage, 130 an interruption.",
)
@click.version_option(__version__, message=f"{PROGRAM} %(version)s")
@click.option("--kubeconfig", help="Path of the kubeconfig; default: kubectl's own rules.")
@click.option("--context", help="Context of the kubeconfig; default: its current one.")
@click.option("--namespace", "-n", help="Namespace; default: the context's.")
@click.option("--no-color", is_flag=True, help="No colours; NO_COLOR in the environment says the same.")
def group(**_: Any) -> None:
    """Update accelerator workloads one pod at a time, each only after its predecessor's devices are free."""


def program() -> str:
    """Return what the user calls us: kubectl finds plugins by their file names."""
    called = Path(sys.argv[0]).name
    return f"kubectl {PROGRAM}" if called.startswith(_PLUGIN) else PROGRAM


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    asked = os.environ.get(COMPLETE)
    if asked:
        return shell_complete(group, {}, program(), COMPLETE, asked)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # Not group.main(), which has endings of its own for interruptions and closed pipes.
        with group.make_context(program(), given) as context:
            code = group.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has seen enough. Python would flush once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OperatorError as error:
        _say(str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - people get a sentence, whatever it was
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        _say(f"a defect: {type(error).__name__}: {error}. Set {TRACEBACK}=1 to see where, and report it")
        return 1
    return code if isinstance(code, int) else 0


def _say(text: str) -> None:
    click.echo(f"{PROGRAM}: {text}", err=True)
