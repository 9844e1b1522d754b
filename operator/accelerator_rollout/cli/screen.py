"""Writes text for people and for programs: tables that fit a terminal, whole lines where a program reads, JSON and YAML."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import yaml
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_UNBOUNDED: Final = 10_000  # columns, where nobody's terminal has to be fitted
# Columns that may be cut where the terminal is too narrow: what they say can be had in full elsewhere.
_GIVES_WAY: Final = frozenset(("WORKLOAD", "REASON", "MESSAGE", "NODE", "DEVICES", "STAGES", "WHY", "FOUND"))
JSON: Final = "json"
YAML: Final = "yaml"

STYLES: Final[Mapping[str, str]] = {
    "Complete": "green",
    "Ready": "green",
    "Progressing": "cyan",
    "Waiting": "yellow",
    "Stalled": "bold red",
    "Unknown": "magenta",
    "Deleting": "magenta",
    "Terminating": "magenta",
    "Gated": "yellow",
    "ok": "green",
    "warning": "yellow",
    "missing": "bold red",
}


class Screen:
    """Standard output. `plain`: no colours. NO_COLOR and TERM=dumb are honoured by themselves."""

    def __init__(self, *, plain: bool = False, width: int | None = None) -> None:
        terminal = sys.stdout.isatty()
        self.terminal = terminal
        self.console = Console(
            no_color=True if plain else None,
            highlight=False,
            markup=False,
            emoji=False,
            width=width if width or terminal else _UNBOUNDED,
        )

    def line(self, text: str | Text = "") -> None:
        """Write a line; a long one is folded at words in a terminal, and stays whole elsewhere."""
        self.put(text if isinstance(text, Text) else Text(text))

    def put(self, *shown: RenderableType) -> None:
        """Write what rich can draw, without blanks at the ends of lines."""
        if self.terminal:
            self.console.print(*shown)
            return
        with self.console.capture() as said:
            self.console.print(*shown)
        sys.stdout.writelines(f"{line.rstrip()}\n" for line in said.get().splitlines())

    def table(self, titles: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
        """Write a table as kubectl does. Some columns give way where a terminal is too narrow; names and states do not."""
        self.put(table(titles, rows))

    def data(self, value: Any, form: str) -> None:
        """Write JSON or YAML."""
        if form == JSON:
            text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        else:
            text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)
        sys.stdout.write(text)


def table(titles: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Return a table without lines."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False, header_style="")
    cells = [[coloured(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    for number, title in enumerate(titles):
        widest = max([len(title), *(len(row[number]) for row in cells)])
        least = None if title in _GIVES_WAY else widest
        drawn.add_column(title, no_wrap=True, overflow="ellipsis", min_width=least)
    for row in cells:
        drawn.add_row(*row)
    return drawn


def coloured(word: str) -> Text:
    """Return the word in the colour that it has everywhere."""
    return Text(word, style=STYLES.get(word, ""))
