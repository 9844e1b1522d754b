"""The commands that need no cluster's word: `run` starts the operator, and `crd` prints the kind."""

import argparse
import asyncio
from collections.abc import Mapping
from typing import Any

import click

from accelerator_rollout import config


def _options(command: click.Command) -> click.Command:
    for option in config.OPTIONS:
        text = f"{option.text} [{config.variable(option)}]"
        command.params.append(
            click.Option([f"--{option.flag}"], metavar="VALUE", multiple=option.repeat, help=text)
        )
    return command


@_options
@click.command()
def run(**given: Any) -> int:
    """Run the operator until it is told to stop."""
    from accelerator_rollout import logs  # noqa: PLC0415 - each command loads what it needs
    from accelerator_rollout.app import Operator  # noqa: PLC0415

    before = click.get_current_context().find_root().params
    for name in ("kubeconfig", "context"):
        given[name] = given[name] or before.get(name)
    settings = config.settings(told_by(given))

    async def operate() -> None:
        await Operator(settings).run()

    logs.configure(settings.log_format, settings.log_level)
    try:
        asyncio.run(operate())
    except KeyboardInterrupt:
        return 0
    return 0


def told_by(given: Mapping[str, Any]) -> argparse.Namespace:
    """Return the flags as the settings want them: None where one was not given."""
    lists = {name: list(value) or None for name, value in given.items() if isinstance(value, tuple)}
    return argparse.Namespace(**{**given, **lists})


@click.command()
def crd() -> int:
    """Print the CustomResourceDefinition, for kubectl apply --server-side -f -."""
    from accelerator_rollout.api import crd as definition  # noqa: PLC0415

    click.echo(definition.render(), nl=False)
    return 0
