"""`open-gates`, for emergencies: opens gates without any proof, where no operator can be had and pods must run."""

import sys

import click

from accelerator_rollout.cli.cluster import STRATEGIC
from accelerator_rollout.cli.gating import has_gate, opening
from accelerator_rollout.cli.session import Session, about_a_cluster
from accelerator_rollout.errors import ConflictError, GoneError, OperatorError

_WARNING = (
    "WARNING: nothing is proven here. A device whose old process still runs is handed to the new one if its claim is free: "
    "double use, corrupted memory, crashes. First see whether the operator can run again (accelerator-rollout doctor), and make "
    "sure on the nodes that the old processes are gone."
)


@click.command(name="open-gates")
@click.argument("pods", nargs=-1, metavar="[POD]...")
@click.option("--all", "everything", is_flag=True, help="Every gated pod of the namespace.")
@click.option("--dry-run", is_flag=True, help="Say which gates would be opened, and open none.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@about_a_cluster
def open_gates(*, session: Session, pods: tuple[str, ...], everything: bool, dry_run: bool, yes: bool) -> int:
    """Open the gates of pods WITHOUT proof that their devices are free. For emergencies.

    Only our gate is removed; those of others stay.
    """
    if bool(pods) == everything:
        raise click.UsageError("name the pods, or give --all")
    root = f"/api/v1/namespaces/{session.namespace}/pods"
    found = {
        raw["metadata"]["name"]: raw
        for raw in session.cluster.each(root, fieldSelector="status.phase=Pending")
    }
    gated = {name: raw for name, raw in found.items() if has_gate(raw["spec"])}
    strange = [name for name in pods if name not in gated]
    if strange:
        raise OperatorError(
            f"no pod of ours waits at a gate by the name of {', '.join(strange)} in namespace {session.namespace}"
        )
    chosen = {name: raw for name, raw in sorted(gated.items()) if everything or name in pods}
    if not chosen:
        session.screen.line(f"No pod waits at our gate in namespace {session.namespace}.")
        return 0
    click.echo(_WARNING, err=True)
    for name in chosen:
        session.screen.line(f"pod {session.namespace}/{name}: open our gate")
    if dry_run:
        session.screen.line("Nothing was done (--dry-run).")
        return 0
    if not yes and not _confirmed(len(chosen)):
        session.screen.line("Nothing was done.")
        return 1
    failed = 0
    for name, raw in chosen.items():
        try:
            session.cluster.patch(f"{root}/{name}", opening(raw["metadata"]), STRATEGIC)
        except (GoneError, ConflictError):
            session.screen.line(f"pod {name} went meanwhile")
        except OperatorError as error:
            failed = 1
            click.echo(f"pod {name}: {error}", err=True)
        else:
            session.screen.line(f"pod {name}: opened")
    return failed


def _confirmed(count: int) -> bool:
    if not sys.stdin.isatty():
        click.echo("Pass --yes to have this done without being asked.", err=True)
        return False
    asked = f"Open {count} without proof? Type the number of gates to go on"
    return str(click.prompt(asked, default="", show_default=False)).strip() == str(count)
