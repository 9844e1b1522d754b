"""Images without a registry: archives as `docker save` writes them, for `ctr images import`."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_EXECUTABLE: Final = 0o755
_FOLDERS: Final = ("dev", "etc", "proc", "sys", "tmp")  # where a runtime mounts things, and for the programs


@dataclass(frozen=True, slots=True)
class Image:
    """An image of one layer; paths have no first slash."""

    tags: tuple[str, ...]
    entrypoint: tuple[str, ...]
    files: Mapping[str, bytes]  # all of them executable
    links: Mapping[str, str] = field(default_factory=dict)  # path to target


def write_archive(path: Path, *images: Image) -> None:
    """Write an archive of images; the same images make the same bytes."""
    manifest = []
    written: set[str] = set()
    with tarfile.open(path, "w") as tar:
        for image in images:
            layer = _layer(image)
            layer_name = f"{hashlib.sha256(layer).hexdigest()}.tar"
            config = _config(image, layer)
            config_name = f"{hashlib.sha256(config).hexdigest()}.json"
            for name, content in ((layer_name, layer), (config_name, config)):
                if name not in written:  # images may share a layer
                    _add(tar, name, content)
                    written.add(name)
            manifest.append({"Config": config_name, "RepoTags": list(image.tags), "Layers": [layer_name]})
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _config(image: Image, layer: bytes) -> bytes:
    machine = platform.machine()
    config = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": list(image.entrypoint), "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    return json.dumps(config).encode()


def _layer(image: Image) -> bytes:
    paths = [Path(name) for name in (*image.files, *image.links)]
    parents = {str(parent) for path in paths for parent in path.parents}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in sorted((parents | set(_FOLDERS)) - {"."}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else _EXECUTABLE
            tar.addfile(entry)
        for name, content in sorted(image.files.items()):
            _add(tar, name, content)
        for name, target in sorted(image.links.items()):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), _EXECUTABLE
    tar.addfile(entry, io.BytesIO(content))
