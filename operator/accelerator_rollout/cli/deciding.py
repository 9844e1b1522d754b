"""The commands that decide as the operator does, and act on nothing: why and plan."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from accelerator_rollout.api.models import RolloutObject, RolloutStatus
from accelerator_rollout.cli import world
from accelerator_rollout.cli.ages import age
from accelerator_rollout.cli.looking import plain
from accelerator_rollout.cli.session import Session, about_a_cluster, names_of_rollouts, output
from accelerator_rollout.decide.actions import victims_of
from accelerator_rollout.decide.explain import Explanation, Wait, explain
from accelerator_rollout.decide.plan import plan as decide
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.decide.words import said, upcoming


@click.command()
@click.argument("name", shell_complete=names_of_rollouts)
@output("json", "yaml")
@about_a_cluster
def why(*, session: Session, name: str, output: str | None) -> int:
    """Say what a rollout waits for: since when, the cause, and the next step."""
    _, rollout = session.rollout(name)
    explained = explain(rollout, _status_now(session, rollout))
    if output is not None:
        session.screen.data(plain(asdict(explained)), output)
        return 0
    for line in _told(session, name, explained):
        session.screen.line(line)
    return 0


def _status_now(session: Session, rollout: RolloutObject) -> RolloutStatus:
    """Return the status as of now where everything may be read; else what the operator stored last."""
    if rollout.status.observed_generation < rollout.generation:
        return rollout.status  # that nobody looks is the news
    found = world.whole(session.cluster, session.namespace, session.now())
    snapshot = found.snapshot(rollout, session.now())
    if found.unread or snapshot is None:
        return rollout.status
    return decide(snapshot, session.now()).status


def _told(session: Session, name: str, explained: Explanation) -> Iterator[str]:
    now = session.now()
    since = age(explained.since, now)
    reason = f" ({explained.reason})" if explained.reason != explained.verdict else ""
    yield f"{name} is {explained.verdict}{reason}" + (f" for {since}" if since else "")
    if not explained.waits:
        yield f"  {explained.message}"
    for wait in (*explained.waits, *explained.remarks):
        yield ""
        yield from _of(wait, age(wait.since, now))


def _of(wait: Wait, since: str) -> Iterator[str]:
    yield f"{wait.who}: {wait.what}" + (f" for {since}" if since else "")
    for title, text in (
        ("reason" if wait.who == "remark" else "waits for", wait.reason),
        ("says", wait.message),
        ("cause", wait.cause),
        ("to do", wait.todo),
    ):
        if text:
            yield f"  {title + ':':<11}{text}"


@click.command()
@click.argument("name", shell_complete=names_of_rollouts)
@output("json", "yaml")
@about_a_cluster
def plan(*, session: Session, name: str, output: str | None) -> int:
    """Say what the operator would do now, by the very function that it runs: actions, order, devices, blockers."""
    _, rollout = session.rollout(name)
    now = session.now()
    found = world.whole(session.cluster, session.namespace, now)
    snapshot = found.present(rollout, now)
    for kind, lack in sorted(found.unread.items()):
        click.echo(f"warning: decided without all {kind}: {lack}", err=True)
    decided = decide(snapshot, now)
    gone = {uid for action in decided.actions for uid in victims_of(action)}
    order = list(upcoming(snapshot, now))
    shown = {
        "actions": [said(action) for action in decided.actions],
        "order": [_pod(snapshot, pod.uid, now=pod.uid in gone) for pod in order],
        "blockers": plain([asdict(wait) for wait in explain(rollout, decided.status).waits]),
    }
    if output is not None:
        session.screen.data(shown, output)
        return 0
    session.screen.line("Now:")
    for line in shown["actions"] or ["nothing is to be done"]:
        session.screen.line(f"  {line}")
    session.screen.line()
    if order:
        rows = [
            (str(number), pod["pod"], pod["node"], ", ".join(pod["devices"]), "now" if pod["now"] else "")
            for number, pod in enumerate(shown["order"], start=1)
        ]
        session.screen.table(("ORDER", "POD", "NODE", "DEVICES", "GOES"), rows)
    else:
        session.screen.line("No pod is due.")
    for wait in explain(rollout, decided.status).waits:
        session.screen.line()
        for line in _of(wait, age(wait.since, now)):
            session.screen.line(line)
    return 0


def _pod(snapshot: Snapshot, uid: str, *, now: bool) -> dict[str, Any]:
    pod = next(p for p in snapshot.pods if p.uid == uid)
    return {
        "pod": pod.name,
        "node": pod.node,
        "devices": [str(device) for device in snapshot.devices_of(pod)],
        "now": now,
    }
