"""The commands that ask the operator for something: each is one write to spec, and never to anything else.

The write carries UID and resourceVersion: what was looked at is what is changed. It is tried again where only the status
moved on meanwhile.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import click

from accelerator_rollout.api.models import ActionType, RolloutObject
from accelerator_rollout.cli import world
from accelerator_rollout.cli.looking import Length
from accelerator_rollout.cli.session import Session, about_a_cluster, names_of_rollouts, readable
from accelerator_rollout.cli.watching import changes
from accelerator_rollout.decide.undo import target, warning
from accelerator_rollout.errors import ConflictError, OperatorError
from accelerator_rollout.observe.owners import owner_of_templates

_TRIES: Final = 5
_WAIT: Final = timedelta(minutes=1)


def _ask(
    session: Session, name: str, change: Callable[[RolloutObject], Mapping[str, Any]], *, dry_run: bool
) -> RolloutObject:
    """Write what `change` makes of the object into its spec; return the object as it is then."""
    for _ in range(_TRIES):
        raw, rollout = session.rollout(name)
        spec = change(rollout)
        meta = raw["metadata"]
        owner = owner_of_templates(meta)
        if owner:
            click.echo(
                f"warning: {owner} manages this AcceleratorRollout and may put the field back: change it there, too",
                err=True,
            )
        if dry_run:
            return rollout
        same = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        try:
            return readable(session.cluster.patch(session.path(name), {"metadata": same, "spec": dict(spec)}))
        except ConflictError:
            continue
    raise OperatorError(f"{name} changes faster than it can be written: try again")


def _asks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument and the options of a write."""
    function = click.option(
        "--dry-run", is_flag=True, help="Say what would be asked for, and ask for nothing."
    )(function)
    return click.argument("name", shell_complete=names_of_rollouts)(about_a_cluster(function))


def _done(session: Session, name: str, text: str, *, dry_run: bool) -> int:
    session.screen.line(f"{name}: {text}{' (dry run: nothing was written)' if dry_run else ''}")
    return 0


@click.command()
@_asks
def pause(*, session: Session, name: str, dry_run: bool) -> int:
    """Start no further replacement; the one in flight is finished."""
    _ask(session, name, lambda _: {"paused": True}, dry_run=dry_run)
    return _done(session, name, "paused; the pod in flight is finished", dry_run=dry_run)


@click.command()
@_asks
def resume(*, session: Session, name: str, dry_run: bool) -> int:
    """End a pause."""
    _ask(session, name, lambda _: {"paused": None}, dry_run=dry_run)
    return _done(session, name, "not paused any more", dry_run=dry_run)


@click.command()
@_asks
def restart(*, session: Session, name: str, dry_run: bool) -> int:
    """Replace every pod that exists now, one at a time, at the revision that it has."""
    at = f"{session.now():%Y-%m-%dT%H:%M:%SZ}"
    _ask(session, name, lambda _: {"restartedAt": at}, dry_run=dry_run)
    return _done(session, name, f"every pod created before {at} is replaced", dry_run=dry_run)


def _id(kind: ActionType, now: datetime) -> str:
    return f"{kind.lower()}-{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


def _waits(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--wait", is_flag=True, help="Wait until the operator has seen it.")(function)
    return click.option(
        "--timeout", type=Length(), default=_WAIT, help="With --wait: how long; default: 1m."
    )(function)


def _act(
    session: Session, name: str, kind: ActionType, *, dry_run: bool, wait: bool, timeout: timedelta
) -> int:
    asked = _id(kind, session.now())

    def change(rollout: RolloutObject) -> Mapping[str, Any]:
        before = rollout.spec.action
        if before is not None and before.id != rollout.status.observed_action_id:
            click.echo(
                f"warning: {before.type} (id {before.id}) was not seen yet, and is replaced by this", err=True
            )
        return {"action": {"type": str(kind), "id": asked}}

    rollout = _ask(session, name, change, dry_run=dry_run)
    _done(session, name, f"{kind} asked for (id {asked})", dry_run=dry_run)
    if dry_run or not wait:
        return 0
    for raw in changes(session.cluster, session.path(name), time.monotonic() + timeout.total_seconds()):
        if raw is None or raw["metadata"]["uid"] != rollout.uid:
            raise OperatorError(f"AcceleratorRollout {name} was deleted")
        if readable(raw).status.observed_action_id == asked:
            session.screen.line(f"{name}: seen by the operator")
            return 0
    raise OperatorError(
        f"{name}: the operator has not seen {asked} yet. Does it run? It acts on it as soon as it does"
    )


@click.command()
@_waits
@_asks
def abort(*, session: Session, name: str, dry_run: bool, wait: bool, timeout: timedelta) -> int:
    """Start no further replacement of this revision; the one in flight is finished."""
    return _act(session, name, ActionType.ABORT, dry_run=dry_run, wait=wait, timeout=timeout)


@click.command()
@_waits
@_asks
def retry(*, session: Session, name: str, dry_run: bool, wait: bool, timeout: timedelta) -> int:
    """Go on after an abort or a failure."""
    return _act(session, name, ActionType.RETRY, dry_run=dry_run, wait=wait, timeout=timeout)


@click.command()
@click.option("--all", "all_steps", is_flag=True, help="Past all steps.")
@_waits
@_asks
def promote(
    *, session: Session, name: str, all_steps: bool, dry_run: bool, wait: bool, timeout: timedelta
) -> int:
    """Go on past the canary step that the rollout waits at."""
    kind = ActionType.PROMOTE_ALL if all_steps else ActionType.PROMOTE
    return _act(session, name, kind, dry_run=dry_run, wait=wait, timeout=timeout)


@click.command()
@_waits
@_asks
def undo(*, session: Session, name: str, dry_run: bool, wait: bool, timeout: timedelta) -> int:
    """Bring the workload back to the pod template before, and its pods with it."""
    _, rollout = session.rollout(name)
    now = session.now()
    snapshot = world.near(session.cluster, session.namespace, now).snapshot(rollout, now)
    former = target(snapshot) if snapshot is not None else None
    if snapshot is None or former is None:
        raise OperatorError(
            f"{rollout.spec.workload_ref.kind} {rollout.spec.workload_ref.name} has no former pod template, whose pods come "
            "gated, in its revision history: set the template by hand"
        )
    session.screen.line(f"{name}: back to {former.name} (revision {former.number}){warning(snapshot)}")
    return _act(session, name, ActionType.UNDO, dry_run=dry_run, wait=wait, timeout=timeout)
