"""What is told at the end: the stages of each replacement, the proofs, the comparison, the hazards, the verdict."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lab.demo.acts import PATIENCE, Observed, Rolled
from lab.demo.checks import Check
from lab.demo.journeys import STAGES, Extremes, Journey
from lab.demo.manifests import REPLICAS, Way
from lab.demo.stage import Times

_LATER = (
    f"It says so after progressDeadlineSeconds, here {PATIENCE} (Kubernetes' default is 600), and waits on."
)


def show_journeys(console: Console, found: Sequence[Journey]) -> None:
    """Each replacement: who came for whom, on which device, and the seconds of each stage."""
    table = _table()
    table.add_column("old → new pod", no_wrap=True)
    table.add_column("device", no_wrap=True)
    for stage in (*STAGES, "total"):
        table.add_column(stage, justify="right", no_wrap=True)
    for one in found:
        table.add_row(
            f"{one.old.short} → {one.new.short if one.new else '?'}",
            one.device,
            *(_seconds(value) for value in one.seconds()),
            Text(_seconds(one.total), style="bold"),
        )
    _print(console, table)
    _note(
        console,
        "Seconds from being told to leave. drain: until it has ended; free: until its claim is deallocated; gate: until "
        "it opens; sched.: until the new pod is bound; start: until that serves.",
    )


def show_proofs(console: Console, found: Sequence[Journey]) -> None:
    """What said of each device that the node had let go of it, and the order of the writes."""
    table = _table()
    table.add_column("device", no_wrap=True)
    table.add_column("proof of release", no_wrap=True)
    table.add_column("order of the writes (resourceVersions)", no_wrap=True)
    for one in found:
        table.add_row(one.device, one.proof or "none", _order(one))
    _print(console, table)


def show_comparison(console: Console, pairs: Sequence[tuple[Rolled, Sequence[Journey], Extremes]]) -> None:
    """The same rollout, both ways."""
    table = _table()
    table.add_column("the same rollout by")
    for rolled, _, _ in pairs:
        table.add_column(rolled.way, justify="right", no_wrap=True)
    rows: list[tuple[str, list[str]]] = [
        ("seconds in all", [f"{rolled.seconds:.1f}" for rolled, _, _ in pairs]),
        (
            "device free to successor bound, mean",
            [_mean(one.handover for one in found) for _, found, _ in pairs],
        ),
        ("pods deleted", [str(rolled.deleted) for rolled, _, _ in pairs]),
        ("fewest pods serving", [str(worst.serving) for _, _, worst in pairs]),
        (
            f"most device sets held or claimed, of {REPLICAS}",
            [str(worst.device_sets) for _, _, worst in pairs],
        ),
    ]
    for name, values in rows:
        table.add_row(name, *values)
    _print(console, table)


def show_stranger(console: Console, plain: Observed, ours: Observed) -> None:
    """The first hazard, side by side."""
    table = _side_by_side()
    both = (plain, ours)
    table.add_row("pods deleted", *(str(one.deleted) for one in both))
    table.add_row("pods serving", *(f"{one.serving} of {REPLICAS}" for one in both))
    table.add_row("pods waiting", *(str(one.waiting) for one in both))
    table.add_row("the status says", *(_said(one) for one in both))
    table.add_row("when it left", *(_after(one) for one in both))
    _print(console, table)
    _note(console, _LATER)
    _note(
        console,
        "Neither keeps a stranger off the freed device: each loses one pod to it, and no more.",
    )


def show_anti_pattern(console: Console, plain: Observed, ours: Observed) -> None:
    """The second hazard, side by side."""
    table = _side_by_side()
    both = (plain, ours)
    table.add_row("pods deleted", *(str(one.deleted) for one in both))
    table.add_row("pods serving", *(f"{one.serving} of {REPLICAS}" for one in both))
    table.add_row("surge pods", *(f"{one.surplus}, waiting" if one.surplus else "0" for one in both))
    table.add_row("the status says", *(_said(one) for one in both))
    table.add_row("and then", "waits for ever", "leaves the old pods alone until the manifest is mended")
    _print(console, table)
    _note(console, _LATER)


def show_checks(console: Console, checks: Iterable[Check]) -> int:
    """Each check with its verdict; returns how many do not hold."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column()
    failed = 0
    for check in checks:
        failed += not check.holds
        if check.holds:
            table.add_row(Text("ok", style="green"), check.sentence)
        else:
            table.add_row(
                Text("WRONG", style="bold red"), Text(f"{check.sentence}: {check.found}", style="red")
            )
    _print(console, table)
    return failed


def show_times(console: Console, times: Times) -> None:
    """How long each part took."""
    table = _table()
    table.add_column("part")
    table.add_column("seconds", justify="right")
    for name, seconds in times.parts:
        table.add_row(name, f"{seconds:.1f}")
    table.add_row(Text("in all", style="bold"), f"{sum(seconds for _, seconds in times.parts):.1f}")
    _print(console, table)


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="bold", pad_edge=False)


def _side_by_side() -> Table:
    table = _table()
    table.add_column("", no_wrap=True, style="dim")
    for way in (Way.PLAIN, Way.OURS):
        table.add_column(way, ratio=1, overflow="fold")
    return table


def _print(console: Console, what: Table | Text) -> None:
    padded = Padding(what, (1, 0, 0, 2))
    if console.is_terminal:
        console.print(padded)
        return
    with console.capture() as capture:
        console.print(padded)
    for line in capture.get().splitlines():  # without the spaces that fill a terminal's line
        console.print(line.rstrip(), markup=False, soft_wrap=True)


def _note(console: Console, text: str) -> None:
    _print(console, Text(text, style="dim"))


def _said(one: Observed) -> Text:
    return Text.assemble((one.reason, "bold"), f": {one.message}")


def _after(one: Observed) -> str:
    return "went on by itself" if one.went_on else "did not go on"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{max(0.0, value):.2f}"


def _mean(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.2f} s" if known else "-"


def _order(one: Journey) -> str:
    """The order in which the API server took the writes: no clock can blur it."""
    marks = (("ended", one.ended), ("free", one.freed), ("gate", one.opened))
    return " < ".join(f"{name} {mark.version if mark else '?'}" for name, mark in marks)
