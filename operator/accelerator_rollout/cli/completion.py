"""`completion`: the script that completes commands, options and names in a shell; and kubectl's way to ask for them."""

import sys

import click
from click.shell_completion import ShellComplete, get_completion_class

from accelerator_rollout.cli.main import COMPLETE, PROGRAM, group
from accelerator_rollout.errors import OperatorError

_NO_FILES = ":4"  # of the protocol that kubectl asks plugins in: names of files complete nothing here


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(*, shell: str) -> int:
    """Print the script that completes in a shell.

    For bash: source <(accelerator-rollout completion bash). For kubectl accelerator-rollout nothing is to be sourced:
    kubectl finds the command kubectl_complete-accelerator_rollout by itself.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise OperatorError(f"there is no completion for {shell}")
    click.echo(kind(group, {}, PROGRAM, COMPLETE).source())
    return 0


def for_kubectl() -> int:
    """Answer kubectl: a suggestion in each line, then what to do beyond them."""
    given = sys.argv[1:]
    asked = ShellComplete(group, {}, PROGRAM, COMPLETE)
    for one in asked.get_completions(given[:-1], given[-1] if given else ""):
        click.echo(f"{one.value}\t{one.help}" if one.help else one.value)
    click.echo(_NO_FILES)
    return 0
