"""The control groups of containers, which outlive their processes as empty folders."""

from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
_GROUP: Final = "k8s.io"  # containerd's name of the kubelet's containers
_RUNNING: Final = Path("io.containerd.runtime.v2.task") / _GROUP


def sweep(state: Path, root: Path = ROOT) -> int:
    """Remove the groups of the containers that a dead containerd's `state` names; return how many were there."""
    running = state / _RUNNING
    names = [one.name for one in running.iterdir()] if running.is_dir() else []
    hierarchies = [root, *(one for one in root.iterdir() if one.is_dir())] if root.is_dir() else []
    removed = 0
    for hierarchy in hierarchies:
        parent = hierarchy / _GROUP
        for name in names:
            removed += _remove(parent / name)
        with suppress(OSError):  # others' containers are in it
            parent.rmdir()
    return removed


def _remove(group: Path) -> int:
    """Remove a group and those in it. One that has a process stays: the kernel refuses."""
    if not group.is_dir():
        return 0
    for inner in group.iterdir():
        if inner.is_dir():
            _remove(inner)
    with suppress(OSError):
        group.rmdir()
        return 1
    return 0
