"""`get --watch`: the tree on the screen, kept up to date; where nobody's terminal is, written again at each change."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from accelerator_rollout.cli import world
from accelerator_rollout.cli.drawing import draw, header, tree
from accelerator_rollout.cli.feed import Feed
from accelerator_rollout.cli.session import Session
from accelerator_rollout.cli.views import RolloutView, picture
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.errors import OperatorError
from accelerator_rollout.observe.store import Store

_TICK: Final = 1.0  # seconds: ages go on
_LEAST: Final = 0.25  # seconds between two pictures
_FIRST: Final = 30.0  # seconds until the first lists have to be in


def show(session: Session, name: str, *, wide: bool) -> int:
    """Show the rollout until it is deleted, or somebody ends it. Raises OperatorError if it cannot be read."""
    session.rollout(name)  # a wrong name is told before anything is drawn
    store = Store(now=session.now)
    served = world.serve(session.cluster, world.NEAR)
    feed = Feed(session.cluster.again, served.values(), session.namespace, store)
    feed.start()
    _fill(feed)
    views = _views(session, feed, store, name.rpartition("/")[2])
    if session.screen.terminal:
        return _on_screen(session, feed, views, name, wide=wide)
    return _in_lines(session, views, name, wide=wide)


def _fill(feed: Feed) -> None:
    deadline = time.monotonic() + _FIRST
    while not feed.complete:
        if time.monotonic() > deadline:
            raise OperatorError("the cluster has not answered all lists in 30 s")
        feed.take(_LEAST)


def _views(session: Session, feed: Feed, store: Store, name: str) -> Iterator[RolloutView | None]:
    """Yield the rollout now and after each change, None where nothing has changed for a while; end once it is gone."""
    key = (session.namespace, name)
    changed = True
    while True:
        found = store.snapshot(key, session.now())
        if found is None:
            return
        if not isinstance(found, Snapshot):
            raise OperatorError(f"AcceleratorRollout {name} cannot be read by this version: {found.message}")
        yield picture(found) if changed else None
        changed = feed.take(_TICK)
        if changed:
            time.sleep(_LEAST)
            feed.take(0)


def _on_screen(
    session: Session, feed: Feed, views: Iterator[RolloutView | None], name: str, *, wide: bool
) -> int:
    console = session.screen.console
    view: RolloutView | None = None
    left = False
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            for news in views:
                view = news or view
                if view is not None:
                    live.update(_frame(session, view, feed, wide=wide), refresh=True)
    except KeyboardInterrupt:
        left = True  # the way to leave
    # What was on the screen went with it: leave the last state behind.
    if view is not None:
        for line in header(view.headline, session.now()):
            session.screen.line(line)
    if not left:
        click.echo(f"{name} was deleted.")
    return 0


def _frame(session: Session, view: RolloutView, feed: Feed, *, wide: bool) -> Group:
    now = session.now()
    console = session.screen.console
    width, height = console.size
    lines = header(view.headline, now)
    for line in lines:
        line.truncate(max(width * 2, 1), overflow="ellipsis")
    used = sum(len(line.wrap(console, width)) for line in lines)
    foot = _foot(feed, now, width)
    rows = tree(view, now, height=max(1, height - used - 4))
    return Group(*lines, Text(), draw(rows, wide=wide), Text(), foot)


def _foot(feed: Feed, now: datetime, width: int) -> Text:
    said = f"{now.astimezone():%H:%M:%S}  Ctrl-C leaves"
    style = "dim"
    for kind, why in sorted(feed.trouble.items()):
        said += f"  {kind}: {why}"
        style = "bold red"
    text = Text(said, style=style)
    text.truncate(width, overflow="ellipsis")
    return text


def _in_lines(session: Session, views: Iterator[RolloutView | None], name: str, *, wide: bool) -> int:
    for view in views:
        if view is None:
            continue
        now = session.now()
        session.screen.line(f"--- {now:%Y-%m-%dT%H:%M:%SZ}")
        for line in header(view.headline, now):
            session.screen.line(line)
        session.screen.put(draw(tree(view, now), wide=wide))
        session.screen.console.file.flush()
    session.screen.line(f"--- {name} was deleted")
    return 0
