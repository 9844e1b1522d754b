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
from lab.demo.stage import device_names
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

    def title(self, text: str) -> None:
        """The heading of a new part."""
        self.console.print()
        if self.console.is_terminal:
            self.console.rule(Text(text, style="bold"), align="left", style="blue")
        else:
            self.console.print(f"== {text}", soft_wrap=True, highlight=False)

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
    parts: list[RenderableType] = [_pods(book, namespaces), _devices(ledger, book, namespaces)]
    for namespace in namespaces:
        rollout = book.object("AcceleratorRollout", namespace, NAME)
        deployment = book.object("Deployment", namespace, NAME)
        if rollout is not None:
            progress = book.says("AcceleratorRollout", namespace, NAME, "Progressing")
            parts.append(_status("AcceleratorRollout", progress))
        elif deployment is not None:
            progress = book.says("Deployment", namespace, NAME, "Progressing")
            parts.append(_status("Deployment", progress))
    return Padding(Group(*parts), (1, 0, 0, 2))


def _pods(book: Book, namespaces: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, width in (
        ("pod", 9),
        ("image", 7),
        ("state", 10),
        ("for", 6),
        ("device", 12),
        ("replacement", 12),
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
            pod.short if pod.name != STRANGER else "stranger",
            pod.tag,
            Text(pod.state, style=_COLOURS[pod.state]),
            f"{book.since(pod):.1f} s",
            ", ".join(book.devices(pod)) or "-",
            stages.get(pod.uid, ""),
        )
    return table


def _replacements(rollout: Object | None) -> list[Object]:
    return list(((rollout or {}).get("status") or {}).get("replacements") or ())


def _devices(ledger: Ledger, book: Book, namespaces: tuple[str, ...]) -> Text:
    """Who really has each device, by the ledger: what a driver prepared and has not let go of."""
    pods: dict[str, PodFacts] = {pod.uid: pod for pod in book.pods(*namespaces)}
    holders = {f"{e.device.pool}/{e.device.name}": e.holder.pod_uid for e in ledger.held()}
    text = Text("devices  ", style="bold", end="\n")
    for name in device_names():
        text.append(f"{name} ", style="not bold")
        if name not in holders:
            text.append("free   ", style="not bold yellow")
            continue
        pod = pods.get(holders[name])
        who = "in use" if pod is None else "stranger" if pod.name == STRANGER else pod.short
        text.append(f"{who}  ", style="not bold green" if pod and not pod.leaving else "not bold red")
    return text


def _status(kind: str, progress: Object) -> Text:
    text = Text("status   ", style="bold")
    text.append(f"{kind} {progress.get('reason', 'unknown')}", style="not bold")
    if message := progress.get("message"):
        text.append(f": {message}", style="not bold dim")
    return text
