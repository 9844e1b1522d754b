"""What is told at the end: the stages of each replacement, the proofs, the comparison, the hazards, the verdict."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.demo.acts import PATIENCE, Observed, Rolled
from lab.demo.checks import Check
from lab.demo.journeys import STAGES, Extremes, Journey
from lab.demo.manifests import REPLICAS, Way
from lab.demo.stage import Times


def show_journeys(console: Console, found: Sequence[Journey]) -> None:
    """Each replacement: who came for whom, on which device, and the seconds of each stage."""
    table = _table()
    table.add_column("old → new", no_wrap=True)
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
    console.print(table)


def show_proofs(console: Console, found: Sequence[Journey]) -> None:
    """What said of each device that the node had let go of it, and the order of the writes."""
    for one in found:
        line = Text("  ")
        line.append(one.old.short, style="bold")
        line.append(f" let go of {one.device}: proof {one.proof or 'none'}. ")
        line.append(_order(one), style="dim")
        console.print(line, soft_wrap=not console.is_terminal)


def show_comparison(console: Console, pairs: Sequence[tuple[Rolled, Sequence[Journey], Extremes]]) -> None:
    """The same rollout, both ways."""
    table = _table()
    table.add_column("the same rollout, by")
    for rolled, _, _ in pairs:
        table.add_column(rolled.way, justify="right")
    rows: list[tuple[str, list[str]]] = [
        ("seconds in all", [f"{rolled.seconds:.1f}" for rolled, _, _ in pairs]),
        (
            "from device free to successor bound, mean",
            [_mean(one.handover for one in found) for _, found, _ in pairs],
        ),
        ("pods deleted", [str(rolled.deleted) for rolled, _, _ in pairs]),
        ("fewest pods serving", [str(worst.serving) for _, _, worst in pairs]),
        (
            f"device sets held or claimed at most, of {REPLICAS}",
            [str(worst.device_sets) for _, _, worst in pairs],
        ),
    ]
    for name, values in rows:
        table.add_row(name, *values)
    console.print(table)


def show_hazard(console: Console, plain: Observed, ours: Observed) -> None:
    """What each did, side by side."""
    table = _table()
    table.add_column("")
    for way in (Way.PLAIN, Way.OURS):
        table.add_column(way, ratio=1)
    both = (plain, ours)
    table.add_row("pods deleted", *(str(one.deleted) for one in both))
    table.add_row("surge pods", *(str(one.surplus) for one in both))
    table.add_row("pods serving", *(f"{one.serving} of {REPLICAS}" for one in both))
    table.add_row(
        "what the status says",
        *(Text.assemble((one.reason, "bold"), f"\n{one.message}") for one in both),
    )
    if ours.went_on is not None:
        table.add_row("stranger gone", *("goes on unaided" if one.went_on else "stands" for one in both))
    else:
        table.add_row("and then", "waits for ever", "does nothing until the manifest is mended")
    console.print(table)
    note = (
        f"The plain Deployment speaks after progressDeadlineSeconds, here {PATIENCE} (the default is 600), "
        "and then waits on."
    )
    console.print(Text(f"  {note}", style="dim"), soft_wrap=not console.is_terminal)


def show_checks(console: Console, checks: Iterable[Check]) -> int:
    """Each check with its verdict; returns how many do not hold."""
    failed = 0
    for check in checks:
        failed += not check.holds
        mark = ("ok   ", "green") if check.holds else ("WRONG", "bold red")
        line = Text.assemble("  ", mark, f" {check.sentence}")
        if not check.holds:
            line.append(f": {check.found}", style="red")
        console.print(line, soft_wrap=not console.is_terminal)
    return failed


def show_times(console: Console, times: Times) -> None:
    """How long each part took."""
    table = _table()
    table.add_column("part")
    table.add_column("seconds", justify="right")
    for name, seconds in times.parts:
        table.add_row(name, f"{seconds:.1f}")
    table.add_section()
    table.add_row("in all", f"{sum(seconds for _, seconds in times.parts):.1f}")
    console.print(table)


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{max(0.0, value):.2f}"


def _mean(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.2f} s" if known else "-"


def _order(one: Journey) -> str:
    """The order of the writes, which nobody's clock can blur."""
    marks = [("ended", one.ended), ("claim free", one.freed), ("gate open", one.opened)]
    return " < ".join(f"{name} rv {mark.version if mark else '?'}" for name, mark in marks)
