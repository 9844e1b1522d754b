"""A workload whose process really has its devices: an exclusive lock on each device's file, from its start to its end.

A second process on a device fails, with an exit code of its own and a message that stands in the pod's status: who shares
a device is seen by the processes themselves, not by the ledger alone.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lab.realnode.archive import Image, write_archive
from lab.realnode.driver.cdi import FOLDER
from lab.toolchain import TOOLS, Program, Recipe, Report, ensure, report_to_stderr

TAKEN: Final = 75
"""The exit code of a process whose device somebody else has."""
NO_DEVICE: Final = 78
"""The exit code of a process that was given no device."""
READY_FILE: Final = "/tmp/ready"
"""There while the process is ready."""

_HERE: Final = Path(__file__).parent
_SCRIPTS: Final = ("start.sh", "work.sh")
_APPLETS: Final = ("cat", "echo", "env", "kill", "ls", "ps", "rm", "sh", "sleep", "tee", "test")
_REPOSITORY: Final = "node.example.com/workload"


def tag(version: str) -> str:
    """The name of the image in this version."""
    return f"{_REPOSITORY}:{version}"


def write_images(busybox: Path, archive: Path, tags: Sequence[str]) -> None:
    """Write one image under these names; busybox must be a static binary. Builds a small program the first time."""
    write_archive(archive, image(busybox.read_bytes(), ensure_take().read_bytes(), tags))


def image(busybox: bytes, take: bytes, tags: Sequence[str]) -> Image:
    """The image, out of its two programs."""
    scripts = {f"bin/{name}": (_HERE / name).read_bytes() for name in _SCRIPTS}
    return Image(
        tags=tuple(tags),
        entrypoint=("/bin/sh", "/bin/start.sh"),
        files={"bin/busybox": busybox, "bin/take": take, **scripts},
        links={f"bin/{applet}": "busybox" for applet in _APPLETS},
    )


def ensure_take(report: Report | None = None) -> Path:
    """The program that locks the devices: Debian's busybox comes without `flock`."""
    recipe = Recipe("take", TOOLS / "take", (Program("take", "."),), link_flags="-s -w")
    return ensure(recipe, report or report_to_stderr)["take"]


def container(
    *,
    warm_up: float = 0.0,
    letting_go: float = 0.0,
    pre_stop: float = 0.0,
    stubborn: bool = False,
) -> dict[str, Any]:
    """What a container of the image needs besides its name, its image and its claims.

    In seconds: from its start until it is ready, from SIGTERM to its end, and that of its preStop hook. A `stubborn` one
    ignores SIGTERM.
    """
    environment = {
        "DEVICES": FOLDER,
        "READY_FILE": READY_FILE,
        "WARM_UP_SECONDS": f"{warm_up:g}",
        "LETTING_GO_SECONDS": f"{letting_go:g}",
        "IGNORES_SIGTERM": str(stubborn).lower(),
    }
    made: dict[str, Any] = {
        "imagePullPolicy": "Never",
        "env": [
            {"name": "HOLDER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            *({"name": name, "value": value} for name, value in environment.items()),
        ],
        "readinessProbe": {"exec": {"command": ["test", "-f", READY_FILE]}, "periodSeconds": 1},
    }
    if pre_stop:
        # What a hook prints is lost, so it writes where the container's log is read.
        hook = f"echo 'runs its preStop hook for {pre_stop:g} s' > /proc/1/fd/1; sleep {pre_stop:g}"
        made["lifecycle"] = {"preStop": {"exec": {"command": ["sh", "-c", hook]}}}
    return made
