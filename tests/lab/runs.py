"""The folders of running test beds: one owner each, found by name, swept when the owner has died."""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Self

from lab.toolchain import cache_folder

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")
_LOCK: Final = "lock"
_STATE: Final = "state.json"
_KEPT: Final = "kept"


class NameTakenError(Exception):
    """A test bed of this name is up."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as another process sees it: its name and folder, whether its owner lives, what it wrote about itself."""

    name: str
    folder: Path
    is_alive: bool
    state: Mapping[str, Any]

    @property
    def is_ready(self) -> bool:
        """Whether the owner lives and has said how to reach what it started."""
        return self.is_alive and "server" in self.state

    @property
    def owner(self) -> int | None:
        """The process id of the owner, if it lives."""
        return self.state.get("pid") if self.is_alive else None


class RunFolder:
    """The folder of a run that this process owns, by a lock that the kernel frees if we die in whatever way."""

    def __init__(self, name: str, folder: Path, lock: IO[str]) -> None:
        self.name = name
        self.path = folder
        self._lock = lock

    @classmethod
    def claim(cls, name: str, root: Path | None = None) -> Self:
        """Make the folder of a new run, empty; dead owners' folders are swept first.

        Raises NameTakenError if a living process owns that name.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name for a test bed: use lower-case letters, digits and dashes")
        root = root or runs_folder()
        with _registry(root):
            _sweep(root)
            folder = root / name
            if folder.exists():
                owner = _lock_of(folder)
                if owner is None:
                    pid = _read_state(folder).get("pid", "unknown")
                    raise NameTakenError(
                        f"a test bed named {name!r} is up already (process {pid}): "
                        f"end it with `python -m lab down --name {name}`, or choose another name"
                    )
                owner.close()
                shutil.rmtree(folder)
            folder.mkdir(mode=0o700)
            lock = _lock_of(folder)
            assert lock is not None, "nobody else takes a lock while we hold the registry"
        run = cls(name, folder, lock)
        run.publish({})
        return run

    def publish(self, state: Mapping[str, Any]) -> None:
        """Tell other processes how to reach this run."""
        partial = self.path / f"{_STATE}.partial"
        partial.write_text(json.dumps({"pid": os.getpid(), **state}, indent=1))
        partial.rename(self.path / _STATE)

    def release(self, *, keep: bool) -> None:
        """Give the folder up: removed, or kept for reading until the name is used again or `down` removes it."""
        if keep:
            (self.path / _STATE).unlink(missing_ok=True)
            (self.path / _KEPT).touch()
        else:
            # Whoever lists the runs meanwhile must not find half a folder.
            with _registry(self.path.parent):
                shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def runs_folder() -> Path:
    """Where the folders of all runs of this user are."""
    return cache_folder() / "runs"


def find(name: str, root: Path | None = None) -> Run | None:
    """The run of that name, or None."""
    return next((run for run in all_runs(root) if run.name == name), None)


def all_runs(root: Path | None = None) -> list[Run]:
    """All runs that have a folder, by name: up, kept, or dead and not yet swept."""
    root = root or runs_folder()
    if not root.exists():
        return []
    with _registry(root):
        return [
            Run(folder.name, folder, is_alive=not _is_abandoned(folder), state=_read_state(folder))
            for folder in _folders(root)
        ]


def remove(name: str, root: Path | None = None) -> bool:
    """Remove the folder of a run whose owner is gone; false if there is none, or its owner lives."""
    root = root or runs_folder()
    if not root.exists():
        return False
    with _registry(root):
        folder = root / name
        if not folder.is_dir() or not _is_abandoned(folder):
            return False
        shutil.rmtree(folder)
    return True


@contextmanager
def _registry(root: Path) -> Iterator[None]:
    """Held while folders are made or swept: a sweep must not take a folder between its making and its locking."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (root / ".registry").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _folders(root: Path) -> list[Path]:
    return sorted(entry for entry in root.iterdir() if entry.is_dir())


def _sweep(root: Path) -> None:
    for folder in _folders(root):
        if not (folder / _KEPT).exists() and _is_abandoned(folder):
            # The children of a killed owner die a moment after it and may still write.
            shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    lock = _lock_of(folder)
    if lock is None:
        return False
    lock.close()
    return True


def _lock_of(folder: Path) -> IO[str] | None:
    """The folder's lock, taken; None while somebody holds it."""
    lock = (folder / _LOCK).open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _read_state(folder: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads((folder / _STATE).read_text())
    except (OSError, ValueError):
        return {}
    return state
