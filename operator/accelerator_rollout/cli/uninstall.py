"""`release-all` as a command; what it does stands in `release_all`."""

import argparse

import click

from accelerator_rollout.cli import release_all


@click.command(name="release-all")
@click.option("--kubeconfig", help="Path of the kubeconfig; default: kubectl's own rules.")
@click.option("--context", help="Context of the kubeconfig; default: its current one.")
@click.option("--namespace", "-n", help="Only this namespace; default: all.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def release(
    *, kubeconfig: str | None, context: str | None, namespace: str | None, dry_run: bool, yes: bool
) -> int:
    """Before an uninstall: open every gate and take everything of ours off."""
    before = click.get_current_context().find_root().params
    return release_all.main(
        argparse.Namespace(
            kubeconfig=kubeconfig or before.get("kubeconfig"),
            context=context or before.get("context"),
            namespace=namespace or before.get("namespace"),
            dry_run=dry_run,
            yes=yes,
        )
    )
