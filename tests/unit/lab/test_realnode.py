"""What a real node needs before anything of it runs: programs, images, control groups, short paths."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from lab.realnode import cgroups
from lab.realnode.programs import debian, kubelet_recipe
from lab.toolchain import Program, Recipe, ToolchainError, control_plane_recipe


def test_the_node_is_of_the_same_kubernetes_as_the_control_plane() -> None:
    kubelet, control_plane = kubelet_recipe(), control_plane_recipe()
    assert (kubelet.folder, kubelet.link_flags) == (control_plane.folder, control_plane.link_flags)


def test_build_tags_are_part_of_a_builds_name_and_none_of_them_changes_nothing(tmp_path: Path) -> None:
    for file in ("go.mod", "go.sum"):
        (tmp_path / file).write_text(file)
    plain = Recipe("tiny", tmp_path, (Program("one", "tiny/one"),))
    digest = hashlib.sha256(repr(("", plain.programs)).encode() + b"go.mod" + b"go.sum").hexdigest()
    assert plain.key("go1").endswith(digest[:12])
    tagged = Recipe("tiny", tmp_path, plain.programs, tags=("no_btrfs",))
    assert tagged.key("go1") != plain.key("go1")


def test_only_the_control_groups_of_the_nodes_own_containers_go(tmp_path: Path) -> None:
    state, root = tmp_path / "state", tmp_path / "cgroup"
    (state / "io.containerd.runtime.v2.task" / "k8s.io" / "ours").mkdir(parents=True)
    for hierarchy in ("memory", "cpu"):
        (root / hierarchy / "k8s.io" / "ours" / "inner").mkdir(parents=True)
    (root / "cpu" / "k8s.io" / "theirs").mkdir()

    assert cgroups.sweep(state, root) == 2

    assert not (root / "memory" / "k8s.io").exists()
    assert [one.name for one in (root / "cpu" / "k8s.io").iterdir()] == ["theirs"]
    assert cgroups.sweep(tmp_path / "nothing", root) == 0


def test_a_package_is_unpacked_once_and_wholly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATOR_ROLLOUT_CACHE", str(tmp_path))
    fetched: list[str] = []

    def run(command: list[str], **options: object) -> "subprocess.CompletedProcess[str]":
        folder = Path(str(options["cwd"])) if "cwd" in options else tmp_path
        if command[:2] == ["apt-get", "download"]:
            fetched.append(command[2])
            (folder / "thing_1_all.deb").touch()
        elif command[0] == "dpkg-deb":
            (folder / "usr").mkdir()
            (folder / "usr" / "thing").write_text("thing")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("lab.realnode.programs.subprocess.run", run)
    first = debian("thing", "usr/thing", fetched.append)
    assert first.read_text() == "thing"
    assert first == debian("thing", "usr/thing", fetched.append)
    assert fetched.count("thing") == 1


def test_a_package_that_cannot_be_had_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATOR_ROLLOUT_CACHE", str(tmp_path))

    def refuse(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        if command[0] == "dpkg-query":
            return subprocess.CompletedProcess(command, 1, "", "no path found")
        raise subprocess.CalledProcessError(100, command, stderr=b"unable to locate")

    monkeypatch.setattr("lab.realnode.programs.subprocess.run", refuse)
    with pytest.raises(ToolchainError, match="apt-get install thing"):
        debian("thing", "usr/thing", lambda _: None)
    assert not list((tmp_path / "debian").iterdir())
