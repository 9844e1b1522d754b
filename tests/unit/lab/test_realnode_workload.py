"""The workload of the real node: its image, and its scripts run by the very busybox that is in the image."""

import fcntl
import hashlib
import io
import json
import os
import select
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lab.realnode.archive import Image, write_archive
from lab.realnode.workload import NO_DEVICE, TAKEN, container, ensure_take, image, tag
from lab.toolchain import cache_folder


@pytest.fixture(scope="session")
def busybox() -> Path:
    """A static one: Debian's, installed or unpacked into the cache."""
    installed = Path("/bin/busybox")
    listed = subprocess.run(["dpkg-query", "-S", str(installed)], check=False, capture_output=True, text=True)
    if installed.exists() and "busybox-static" in listed.stdout:
        return installed
    home = cache_folder() / "debian" / "busybox-static"
    if not (home / "bin" / "busybox").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        subprocess.run(["apt-get", "download", "busybox-static"], cwd=home, check=True, capture_output=True)
        (package,) = home.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package.name, "."], cwd=home, check=True, capture_output=True)
    return home / "bin" / "busybox"


@pytest.fixture(scope="session")
def take() -> Path:
    return ensure_take()


# The archive


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {entry.name: (tar.extractfile(entry) or io.BytesIO()).read() for entry in tar.getmembers()}


def test_an_archive_has_what_a_container_runtime_reads(tmp_path: Path) -> None:
    one = Image(
        tags=("example.com/one:1", "example.com/one:2"),
        entrypoint=("/bin/sh", "-c"),
        files={"bin/program": b"program"},
        links={"bin/sh": "program"},
    )
    write_archive(tmp_path / "images.tar", one)

    found = members(tmp_path / "images.tar")
    (entry,) = json.loads(found["manifest.json"])
    assert entry["RepoTags"] == ["example.com/one:1", "example.com/one:2"]
    config = json.loads(found[entry["Config"]])
    (layer,) = entry["Layers"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(found[layer]).hexdigest()}"]
    assert entry["Config"] == f"{hashlib.sha256(found[entry['Config']]).hexdigest()}.json"
    assert config["config"]["Entrypoint"] == ["/bin/sh", "-c"]
    assert config["os"] == "linux"
    with tarfile.open(fileobj=io.BytesIO(found[layer])) as tar:
        assert tar.getmember("bin/program").mode == 0o755
        assert tar.getmember("bin/sh").linkname == "program"
        assert {"bin", "dev", "proc", "sys", "tmp"} <= set(tar.getnames())


def test_images_that_share_their_layer_have_it_once_in_the_archive(tmp_path: Path) -> None:
    files = {"bin/program": b"program"}
    write_archive(
        tmp_path / "images.tar",
        Image(("example.com/one:1",), ("/bin/program",), files),
        Image(("example.com/two:1",), ("/bin/program", "2"), files),
    )

    with tarfile.open(tmp_path / "images.tar") as tar:
        names = tar.getnames()
    assert len(names) == len(set(names)) == 4  # a layer, two configurations, the manifest


def test_the_same_image_makes_the_same_archive(tmp_path: Path) -> None:
    one = Image(("example.com/one:1",), ("/bin/program",), {"bin/program": b"program"})
    for name in ("first", "second"):
        write_archive(tmp_path / name, one)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


# The container


def test_a_container_says_what_its_process_does_when() -> None:
    made = container(letting_go=2.5, pre_stop=3, stubborn=True)

    told = {one["name"]: one.get("value") for one in made["env"]}
    assert (told["LETTING_GO_SECONDS"], told["IGNORES_SIGTERM"]) == ("2.5", "true")
    assert "sleep 3" in made["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert made["imagePullPolicy"] == "Never"


def test_without_a_hook_there_is_none() -> None:
    assert "lifecycle" not in container()


# The process


class Workload:
    """The image's own files, unpacked, and run as its container would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.device = root / "accelerators" / "lpu.example.dev" / "lpu-0"
        self.device.parent.mkdir(parents=True)
        self.device.touch()
        self.ready = root / "ready"
        self._started: list[subprocess.Popen[str]] = []

    def start(self, holder: str = "llm-0", **settings: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [self.root / "bin" / "sh", self.root / "bin" / "start.sh"],
            env={
                "PATH": str(self.root / "bin"),
                "DEVICES": str(self.root / "accelerators"),
                "READY_FILE": str(self.ready),
                "HOLDER": holder,
                **settings,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self._started.append(process)
        return process

    def until_free(self) -> None:
        """Return once nobody has the device any more."""
        with self.device.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)

    def kill_all(self) -> None:
        for process in self._started:
            # In a container everything ends with its first process.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def workload(busybox: Path, take: Path, tmp_path: Path) -> Iterator[Workload]:
    write_archive(tmp_path / "image.tar", image(busybox.read_bytes(), take.read_bytes(), [tag("v1")]))
    found = members(tmp_path / "image.tar")
    (entry,) = json.loads(found["manifest.json"])
    with tarfile.open(fileobj=io.BytesIO(found[entry["Layers"][0]])) as tar:
        tar.extractall(tmp_path / "root", filter="fully_trusted")
    one = Workload(tmp_path / "root")
    yield one
    one.kill_all()


def until_said(process: "subprocess.Popen[str]", what: str, seconds: float = 30) -> float:
    """Await a line, and return the seconds until it came."""
    assert process.stdout is not None
    begin = time.monotonic()
    said = ""
    while what not in said:
        left = begin + seconds - time.monotonic()
        assert left > 0, f"did not say {what!r} but {said!r}"
        assert select.select([process.stdout], [], [], left)[0], f"did not say {what!r} but {said!r}"
        chunk = os.read(process.stdout.fileno(), 4096).decode()
        assert chunk, f"ended without {what!r}: {said!r}"
        said += chunk
    return time.monotonic() - begin


def test_a_second_process_on_its_device_fails_with_a_code_and_a_message_of_its_own(
    workload: Workload,
) -> None:
    until_said(workload.start("llm-0"), "is ready")

    second = workload.start("llm-1")
    said, _ = second.communicate(timeout=30)

    assert second.returncode == TAKEN
    assert f"device {workload.device} is taken by llm-0" in said


def test_one_device_of_several_that_is_taken_is_enough(workload: Workload) -> None:
    other = workload.device.with_name("lpu-1")
    first = workload.start("llm-0")
    until_said(first, "is ready")
    other.touch()

    second = workload.start("llm-1")

    assert second.wait(timeout=30) == TAKEN


def test_while_it_lets_go_it_is_not_ready_and_has_its_device_still(workload: Workload) -> None:
    first = workload.start("llm-0", LETTING_GO_SECONDS="60")
    until_said(first, "is ready")
    assert workload.ready.exists()

    first.send_signal(signal.SIGTERM)
    until_said(first, "told to end")
    assert workload.start("llm-1").wait(timeout=30) == TAKEN
    assert not workload.ready.exists()


def test_it_takes_the_time_to_let_go_that_it_was_told_and_the_next_one_can_start(workload: Workload) -> None:
    first = workload.start("llm-0", LETTING_GO_SECONDS="0.5")
    until_said(first, "is ready")

    begin = time.monotonic()
    first.send_signal(signal.SIGTERM)
    until_said(first, "has let go")
    assert time.monotonic() - begin >= 0.5
    assert first.wait(timeout=30) == 0

    until_said(workload.start("llm-1"), "is ready")


def test_it_is_not_ready_before_it_has_warmed_up_but_has_its_device(workload: Workload) -> None:
    first = workload.start("llm-0", WARM_UP_SECONDS="3")
    until_said(first, "has its devices")
    assert not workload.ready.exists()
    assert workload.start("llm-1").wait(timeout=30) == TAKEN
    until_said(first, "is ready")
    assert workload.ready.exists()


def test_it_can_be_told_to_end_while_it_warms_up(workload: Workload) -> None:
    first = workload.start("llm-0", WARM_UP_SECONDS="60")
    until_said(first, "has its devices")

    first.send_signal(signal.SIGTERM)

    assert first.wait(timeout=30) == 0


def test_a_stubborn_one_ends_by_sigkill_alone(workload: Workload) -> None:
    first = workload.start("llm-0", IGNORES_SIGTERM="true")
    until_said(first, "is ready")

    first.send_signal(signal.SIGTERM)
    assert workload.start("llm-1").wait(timeout=30) == TAKEN
    assert first.poll() is None

    os.killpg(first.pid, signal.SIGKILL)
    assert first.wait(timeout=30) == -signal.SIGKILL
    workload.until_free()  # its children have the lock too, and end when they are next run
    until_said(workload.start("llm-2"), "is ready")


def test_without_a_device_it_does_not_start(workload: Workload) -> None:
    workload.device.unlink()
    process = workload.start()
    said, _ = process.communicate(timeout=30)
    assert process.returncode == NO_DEVICE
    assert "no device was given" in said


@pytest.mark.parametrize("arguments", [[], ["file"], ["--", "true"], ["file", "--"]])
def test_the_locking_program_refuses_what_it_cannot_read(take: Path, arguments: list[str]) -> None:
    done = subprocess.run([take, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 64
    assert "take FILE... -- PROGRAM" in done.stderr
