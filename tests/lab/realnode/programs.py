"""The programs of a real node: built from Go modules as the control plane's are, or out of Debian's packages."""

import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.toolchain import (
    TOOLS,
    Program,
    Recipe,
    Report,
    ToolchainError,
    cache_folder,
    ensure,
    module_version,
    report_to_stderr,
    version_stamp,
)

CONTAINERD_TOOLS: Final = TOOLS.with_name("tools-containerd")


@dataclass(frozen=True, slots=True)
class NodePrograms:
    """Where the programs of a node are."""

    kubelet: Path
    containerd: Path
    shim: Path
    ctr: Path
    runc: Path
    cni: Path
    """The folder of the CNI plugins."""
    busybox: Path
    """A static binary, of which the pods' images are made."""


def kubelet_recipe(folder: Path = TOOLS) -> Recipe:
    """The recipe of the kubelet, which shares nearly all that it is built of with the control plane."""
    kubernetes = module_version(folder, "k8s.io/kubernetes")
    return Recipe(
        label=f"kubelet-{kubernetes}",
        folder=folder,
        programs=(Program("kubelet", "k8s.io/kubernetes/cmd/kubelet"),),
        link_flags=version_stamp(kubernetes),
        cost="Where the control plane was built this takes about a minute, afterwards nothing.",
    )


def containerd_recipe(folder: Path = CONTAINERD_TOOLS) -> Recipe:
    """The recipe of containerd with its shim and its client."""
    containerd = module_version(folder, "github.com/containerd/containerd/v2")
    package = "github.com/containerd/containerd/v2/cmd"
    return Recipe(
        label=f"containerd-{containerd}",
        folder=folder,
        programs=(
            Program("ctr", f"{package}/ctr"),
            Program("containerd-shim-runc-v2", f"{package}/containerd-shim-runc-v2"),
            Program("containerd", f"{package}/containerd"),
        ),
        link_flags="-s -w",
        tags=("no_btrfs", "no_devmapper", "no_zfs"),
        cost="From empty caches this takes about 2 minutes on two cores, afterwards nothing.",
    )


def ensure_node_programs(report: Report | None = None) -> NodePrograms:
    """Everything that a node runs, built or fetched first where this machine has not got it yet."""
    report = report or report_to_stderr
    built = {**ensure(containerd_recipe(), report), **ensure(kubelet_recipe(), report)}
    return NodePrograms(
        kubelet=built["kubelet"],
        containerd=built["containerd"],
        shim=built["containerd-shim-runc-v2"],
        ctr=built["ctr"],
        runc=debian("runc", "usr/sbin/runc", report),
        cni=debian("containernetworking-plugins", "usr/lib/cni/loopback", report).parent,
        busybox=debian("busybox-static", "bin/busybox", report),
    )


def debian(package: str, file: str, report: Report) -> Path:
    """A file of a Debian package: where it is installed, else unpacked into the cache."""
    home = cache_folder() / "debian" / package
    if found := _installed(package, file) or _unpacked(home, file):
        return found
    report(f"Fetching Debian's {package} into {home}.")
    partial = home.with_name(f"{package}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        subprocess.run(["apt-get", "download", package], cwd=partial, check=True, capture_output=True)
        (archive,) = partial.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", archive.name, "."], cwd=partial, check=True, capture_output=True)
        # Only a complete folder gets the name; another process may have been quicker.
        with suppress(OSError):
            partial.rename(home)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        raise ToolchainError(
            f"no {package} for the node: install it (Debian: apt-get install {package}). {said}".strip()
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    if (found := _unpacked(home, file)) is None:
        raise ToolchainError(f"Debian's {package} brings no {file}: {home} is what it holds")
    return found


def _unpacked(home: Path, file: str) -> Path | None:
    return next((path for path in _places(home, file) if path.exists()), None)


def _installed(package: str, file: str) -> Path | None:
    """The file, if it is of this package: another `busybox` need not be static."""
    if shutil.which("dpkg-query") is None:
        return None
    for path in _places(Path("/"), file):
        done = subprocess.run(["dpkg-query", "-S", str(path)], check=False, capture_output=True, text=True)
        if path.exists() and any(line.startswith(f"{package}:") for line in done.stdout.splitlines()):
            return path
    return None


def _places(root: Path, file: str) -> tuple[Path, Path]:
    """Newer releases of Debian have moved everything below /usr."""
    return root / file, root / "usr" / file
