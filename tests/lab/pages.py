"""The commands of README.md and of a page of docs/, and what the page shows of their answers.

A command is a line that begins with `$ ` in a block of ```console; the lines below it are what one sees then. In them `…` stands
for anything and an age like `3d` for any age; lines in between may be missing. What a page takes for granted and does not
show stands in its source as `<!-- given: COMMAND -->`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CONSOLE: Final = "console"

_FENCE: Final = re.compile(r"^ *```(\S*)$")
_GIVEN: Final = re.compile(r"^<!-- given: (.+) -->$")
_AGE: Final = re.compile(r"\d+[smhd]")
_ANY_AGE: Final = r"(?:\d+[smhdy])+"


@dataclass(frozen=True, slots=True)
class Step:
    """One command and the lines shown below it."""

    line: int  # of the page
    command: str
    shown: tuple[str, ...] = ()


def blocks(text: str) -> Iterator[tuple[str, int, list[str]]]:
    """The fenced blocks: the word after the fence, the number of the first line within, and the lines."""
    within: tuple[str, int, list[str]] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if within is None and fence:
            within = (fence[1], number + 1, [])
        elif within is not None and fence:
            yield within
            within = None
        elif within is not None:
            within[2].append(line)
    assert within is None, "a block that is not closed"


def steps(text: str) -> list[Step]:
    """What is to be run, from top to bottom."""
    found = [
        Step(number, given[1])
        for number, line in enumerate(text.splitlines(), start=1)
        if (given := _GIVEN.match(line))
    ]
    for kind, first, lines in blocks(text):
        if kind == CONSOLE:
            found += _of_block(first, lines)
    return sorted(found, key=lambda step: step.line)


def _of_block(first: int, lines: Iterable[str]) -> Iterator[Step]:
    current: Step | None = None
    for number, line in enumerate(lines, start=first):
        if line.startswith("$ "):
            if current is not None:
                yield current
            current = Step(number, line.removeprefix("$ "))
        elif line.strip():
            assert current is not None, f"line {number}: a block begins with a command"
            current = Step(current.line, current.command, (*current.shown, line))
    if current is not None:
        yield current


def says(answer: str, shown: Iterable[str]) -> bool:
    """Whether the answer has each shown line, in this order."""
    lines = iter(answer.splitlines())
    return all(any(_pattern(one).fullmatch(line.strip()) for line in lines) for one in shown)


def _pattern(shown: str) -> re.Pattern[str]:
    words = (
        _ANY_AGE if _AGE.fullmatch(word) else re.escape(word).replace("…", ".*") for word in shown.split()
    )
    return re.compile(r"\s+".join(words))


def with_commands() -> dict[str, str]:
    """The pages that have commands of kubectl in their blocks, by file name."""
    paths = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    pages = {path.name: path.read_text(encoding="utf-8") for path in paths}
    return {name: text for name, text in pages.items() if any(_is_command(b) for b in blocks(text))}


def _is_command(block: tuple[str, int, list[str]]) -> bool:
    return any(re.match(r"(\$ )?kubectl ", line) for line in block[2])
