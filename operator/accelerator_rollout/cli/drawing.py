"""Draws a rollout as a tree, for any width and (on a screen) any height: what needs a look comes before what is at rest."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rich.table import Table
from rich.text import Text

from accelerator_rollout.cli.ages import age
from accelerator_rollout.cli.screen import STYLES, coloured
from accelerator_rollout.cli.views import ClaimView, Headline, PodView, RevisionView, RolloutView

_COLUMNS = ("NAME", "STATE", "SINCE", "NODE", "WHAT")
_BAR = 20  # characters


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the tree; `branch` leads to its name from the left."""

    branch: str
    name: str
    state: str = ""
    since: str = ""
    node: str = ""
    what: str = ""


def header(view: Headline, now: datetime) -> list[Text]:
    """Return the lines above the tree."""
    since = age(view.since, now)
    verdict = Text.assemble(
        ("Status:    ", ""),
        (view.verdict, STYLES.get(view.verdict, "")),
        f": {view.reason}" if view.reason != view.verdict else "",
        f" for {since}" if since else "",
        ", paused" if view.paused else "",
    )
    lines = [
        Text(f"Name:      {view.namespace}/{view.name}"),
        Text(f"Workload:  {view.workload}" + (f" at revision {view.revision}" if view.revision else "")),
        verdict,
        Text(
            f"Pods:      {_bar(view)} {view.updated} of {view.desired} updated, {view.ready} ready, "
            f"{view.available} available, {view.gated} gated"
        ),
    ]
    if view.message:
        lines.append(Text(f"Message:   {view.message}"))
    return lines


def _bar(view: Headline) -> str:
    filled = round(_BAR * view.updated / view.desired) if view.desired else _BAR
    return f"[{'#' * min(_BAR, filled)}{'.' * max(0, _BAR - filled)}]"


def tree(view: RolloutView, now: datetime, *, height: int | None = None) -> list[Row]:
    """Return the rows of the tree; in at most `height` lines, if that is given."""
    rows = list(_rows(view, now))
    if height is None or len(rows) <= height:
        return rows
    # The devices of pods at rest first, then these pods themselves, then all devices.
    for narrowed in (_without_claims_at_rest(view), _summed_up(view), _without_claims(_summed_up(view))):
        rows = list(_rows(narrowed, now))
        if len(rows) <= height:
            return rows
    left = len(rows) - max(0, height - 1)
    return [*rows[: max(0, height - 1)], Row("", f"… {left} more lines: a larger terminal shows them")]


def draw(rows: Sequence[Row], *, wide: bool) -> Table:
    """Return the tree with its columns. Not `wide`: without nodes."""
    shown = [column for column in _COLUMNS if wide or column != "NODE"]
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False, header_style="")
    for column in shown:
        drawn.add_column(column, no_wrap=True, overflow="ellipsis", min_width=_least(column, rows))
    for row in rows:
        cells = {
            "NAME": Text(row.branch + row.name),
            "STATE": coloured(row.state),
            "SINCE": Text(row.since),
            "NODE": Text(row.node),
            "WHAT": Text(row.what),
        }
        drawn.add_row(*(cells[column] for column in shown))
    return drawn


def _least(column: str, rows: Sequence[Row]) -> int | None:
    """Return the width below which a column says nothing: states and ages stay whole."""
    match column:
        case "STATE":
            return min(14, max((len(r.state) for r in rows), default=0))
        case "SINCE":
            return max((len(r.since) for r in rows), default=0)
        case _:
            return None


# From the view to rows


def _rows(view: RolloutView, now: datetime) -> Iterator[Row]:
    head = view.headline
    yield Row(
        "",
        head.name,
        head.verdict,
        age(head.since, now),
        "",
        head.reason if head.reason != head.verdict else "",
    )
    branches = len(view.gone) + len(view.revisions)
    for number, gone in enumerate(view.gone, start=1):
        here, below = _branch(number == branches)
        yield Row(here, gone.name, gone.stage, age(gone.since, now), gone.node, gone.note)
        for index, device in enumerate(gone.devices, start=1):
            inner, _ = _branch(index == len(gone.devices))
            yield Row(below + inner, device)
    for number, revision in enumerate(view.revisions, start=1 + len(view.gone)):
        here, below = _branch(number == branches)
        yield Row(here, _title(revision))
        for index, pod in enumerate(revision.pods, start=1):
            inner, deeper = _branch(index == len(revision.pods))
            yield Row(below + inner, pod.name, pod.state, age(pod.since, now), pod.node, pod.note)
            yield from _claims(pod.claims, below + deeper)


def _claims(claims: Sequence[ClaimView], below: str) -> Iterator[Row]:
    for index, claim in enumerate(claims, start=1):
        inner, _ = _branch(index == len(claims))
        yield Row(below + inner, claim.name, claim.state, "", "", ", ".join(claim.devices))


def _branch(last: bool) -> tuple[str, str]:  # noqa: FBT001 - a private word for two drawings
    return ("└─ ", "   ") if last else ("├─ ", "│  ")


def _title(revision: RevisionView) -> str:
    count = sum(pod.count for pod in revision.pods)
    pods = "1 pod" if count == 1 else f"{count} pods"
    return f"revision {revision.name}{' (target)' if revision.target else ''}: {pods}"


def _without_claims_at_rest(view: RolloutView) -> RolloutView:
    return _with_pods(view, lambda pod: replace(pod, claims=()) if pod.at_rest else pod)


def _without_claims(view: RolloutView) -> RolloutView:
    return replace(
        _with_pods(view, lambda pod: replace(pod, claims=())),
        gone=tuple(replace(gone, devices=()) for gone in view.gone),
    )


def _with_pods(view: RolloutView, change: Callable[[PodView], PodView]) -> RolloutView:
    return replace(view, revisions=tuple(replace(r, pods=tuple(map(change, r.pods))) for r in view.revisions))


def _summed_up(view: RolloutView) -> RolloutView:
    """Return the view with the pods at rest of each revision in one line."""

    def summed(revision: RevisionView) -> RevisionView:
        rest = [pod for pod in revision.pods if pod.at_rest]
        if len(rest) < 2:
            return revision
        more = PodView(f"… {len(rest)} pods", "Ready", None, "", "", (), at_rest=True, count=len(rest))
        return replace(revision, pods=(*(p for p in revision.pods if not p.at_rest), more))

    return replace(view, revisions=tuple(map(summed, view.revisions)))
