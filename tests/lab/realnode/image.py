"""Images without a registry: archives of one layer, as `docker save` writes them, for `RealNode.import_image`."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.realnode.settings import PAUSE

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_EXECUTABLE: Final = 0o755


def write_pause(busybox: Path, archive: Path) -> None:
    """Write the image of every pod's first container: it sleeps until it is told to end."""
    # A process with number 1 gets no signal that it does not handle.
    script = "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done"
    write_image(archive, PAUSE, {"bin/busybox": busybox.read_bytes()}, ["/bin/busybox", "sh", "-c", script])


def write_image(
    archive: Path,
    tag: str,
    files: Mapping[str, bytes],
    entrypoint: Sequence[str],
    *,
    links: Mapping[str, str] | None = None,
) -> None:
    """Write an image of executable `files` and symbolic `links` (path to target), by paths without a first slash."""
    layer = _layer(files, links or {})
    diff = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    machine = platform.machine()
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [diff]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as tar:
        for name, content in (("layer.tar", layer), (config_name, config), ("manifest.json", manifest)):
            _add(tar, name, content)


def _layer(files: Mapping[str, bytes], links: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        paths = [Path(name) for name in (*files, *links)]
        folders = {str(parent) for path in paths for parent in path.parents} | {"dev", "proc", "sys", "tmp"}
        for folder in sorted(folders - {"."}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, _EXECUTABLE
            tar.addfile(entry)
        for name, content in sorted(files.items()):
            _add(tar, name, content)
        for name, target in sorted(links.items()):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), _EXECUTABLE
    tar.addfile(entry, io.BytesIO(content))
