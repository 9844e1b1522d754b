"""What is seen while the demo plays: a live table in a terminal, and plain lines with the time in any case."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lab.client import Object
from lab.demo.book import Book
from lab.demo.facts import PodFacts, State
from lab.demo.manifests import NAME, STRANGER
from lab.demo.narrate import Narrator
from lab.demo.stage import device_names, node_names
from lab.ledger import Ledger
from lab.recorder import Recorded

PLAIN_WIDTH: Final = 80  # of tables where nobody can say how wide the reader's window is
_COLOURS: Final = {
    State.GATED: "yellow",
    State.PENDING: "magenta",
    State.STARTING: "cyan",
    State.WARMING: "cyan",
    State.SERVING: "green",
    State.LEAVING: "red",
    State.ENDED: "dim",
}
_POD_NAME: Final = re.compile(rf"{NAME}-[0-9a-f]+-(?P<end>\w{{5}})\b")
_EMPHASIS: Final = re.compile(r"node-\w/lpu-\d+|\bpod \w{5}\b|the stranger|\b[A-Z]\w+=\w+\b")


class View:
    """Writes to one console; `begin` counts the seconds that each line starts with."""

    def __init__(self, console: Console, begin: float) -> None:
        self.console = console
        self._begin = begin
        self._narrator: Narrator | None = None

    def say(self, text: str, style: str = "") -> None:
        """One line of what happens, with the time since the beginning."""
        stamp = f"{time.monotonic() - self._begin:6.1f} s  "
        if not self.console.is_terminal:
            # One event, one line: whoever pipes this may want to search it.
            self.console.print(Text(stamp + text), soft_wrap=True)
            return
        line = Table.grid(padding=0)
        line.add_column(no_wrap=True, style="dim")
        line.add_column()
        said = Text(text, style=style)
        said.highlight_regex(_EMPHASIS, "bold")
        line.add_row(stamp, said)
        self.console.print(line)

    def title(self, text: str, about: str = "") -> None:
        """The heading of a new part, and what it is about."""
        self.console.print()
        if self.console.is_terminal:
            self.console.rule(Text(text, style="bold"), align="left", style="blue")
        else:
            self.console.print(f"== {text}", soft_wrap=True, highlight=False)
        if about:
            self.console.print(Padding(Text(about, style="dim"), (0, 0, 0, 3)))

    def follow(self, book: Book) -> None:
        """Say from now on what the book takes, once `narrate` names the namespaces."""
        self._narrator = narrator = Narrator(book)

        def hear(one: Recorded) -> None:
            for sentence in narrator.tell(one):
                self.say(sentence)

        book.listen(hear)

    def narrate(self, *namespaces: str) -> None:
        """Say from now on what happens in these namespaces, and nothing of others."""
        if self._narrator is not None:
            self._narrator.tell_of(*namespaces)

    @contextmanager
    def watching(self, book: Book, ledger: Ledger, *namespaces: str) -> Iterator[None]:
        """In a terminal, show these namespaces in a table below what is said."""
        if not self.console.is_terminal:
            yield
            return
        with Live(
            console=self.console,
            get_renderable=lambda: _picture(book, ledger, namespaces),
            refresh_per_second=5,
            transient=True,  # what was said stays, the table has served
        ):
            yield


def _picture(book: Book, ledger: Ledger, namespaces: tuple[str, ...]) -> RenderableType:
    parts: list[RenderableType] = [
        _pods(book, namespaces),
        Text(),
        _devices(ledger, book, namespaces),
        Text(),
    ]
    for namespace in namespaces:
        # Ours says more than the Deployment, if there is one.
        for kind in ("AcceleratorRollout", "Deployment"):
            if book.object(kind, namespace, NAME) is not None:
                parts.append(_status(kind, book.says(kind, namespace, NAME, "Progressing")))
                break
    return Padding(Group(*parts), (1, 0, 0, 2))


def _pods(book: Book, namespaces: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, width in (
        ("pod", 9),
        ("image", 7),
        ("state", 10),
        ("for", 6),
        ("device", 12),
        ("stage", 12),
    ):
        table.add_column(
            heading, min_width=width, no_wrap=True, justify="right" if heading == "for" else "left"
        )
    stages = {
        uid: str(one["stage"])
        for namespace in namespaces
        for one in _replacements(book.object("AcceleratorRollout", namespace, NAME))
        for uid in (one.get("podUID"), one.get("replacementPodUID"))
        if uid
    }
    for pod in book.pods(*namespaces):
        table.add_row(
            _short(pod),
            pod.tag,
            Text(pod.state, style=_COLOURS[pod.state]),
            f"{book.since(pod):.1f} s",
            ", ".join(book.devices(pod)) or "-",
            stages.get(pod.uid, ""),
        )
    return table


def _replacements(rollout: Object | None) -> list[Object]:
    return list(((rollout or {}).get("status") or {}).get("replacements") or ())


def _devices(ledger: Ledger, book: Book, namespaces: tuple[str, ...]) -> Table:
    """Who really has each device, by the ledger: what a driver prepared and has not let go of. A line a node."""
    pods: dict[str, PodFacts] = {pod.uid: pod for pod in book.pods(*namespaces)}
    holders = {f"{e.device.pool}/{e.device.name}": e.holder.pod_uid for e in ledger.held()}
    table = Table.grid(padding=(0, 2))
    for node in node_names():
        cells = [Text(node, style="bold")]
        for name in device_names(node):
            pod = pods.get(holders.get(name, ""))
            if name not in holders:
                who = Text("free", style="yellow")
            elif pod is None:
                who = Text("in use", style="red")
            else:
                who = Text(_short(pod), style="red" if pod.leaving else "green")
            cells.append(Text.assemble((name.partition("/")[2], "dim"), " ", who))
        table.add_row(*cells)
    return table


def _status(kind: str, progress: Object) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    said = Text(progress.get("reason", "unknown"))
    if message := progress.get("message"):
        # Here the table above shows the pods by the end of their names.
        said.append(": " + _POD_NAME.sub(r"\g<end>", message), style="dim")
    table.add_row(kind, said)
    return table


def _short(pod: PodFacts) -> str:
    return "stranger" if pod.name == STRANGER else pod.short
