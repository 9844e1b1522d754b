"""The build of the control plane's programs: cached, resumed after an interruption, one at a time.

A tiny module stands in for Kubernetes, and a script for a Go toolchain that must stop at a chosen point; the real
toolchain builds the tiny module.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lab.toolchain import (
    Program,
    Recipe,
    ToolchainError,
    cache_folder,
    control_plane_recipe,
    ensure,
    find_go,
    find_kubectl,
    module_version,
)

# Builds by writing a file, and counts its builds; waits before the program whose name is in $STOP_AT.
FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then
  echo '{"GOVERSION": "go0.0.0", "GOCACHE": "%(folder)s/c", "GOMODCACHE": "%(folder)s/m"}'; exit 0
fi
while [ "$1" != -o ]; do shift; done
out="$2"; package="$3"
echo "$package" >> "%(folder)s/builds"
echo "compiling $package" >&2
printf half > "$out"
if [ -e "%(folder)s/stop-at-$package" ]; then
  read _ < "%(folder)s/go-on"
fi
[ -e "%(folder)s/fail-at-$package" ] && { echo "no such module" >&2; exit 3; }
printf whole > "$out"
"""


@pytest.fixture
def go(tmp_path: Path) -> Path:
    script = tmp_path / "go"
    script.write_text(FAKE_GO % {"folder": tmp_path})
    script.chmod(0o755)
    os.mkfifo(tmp_path / "go-on")
    return script


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    module = tmp_path / "module"
    module.mkdir()
    (module / "go.mod").write_text("module tiny\n\ngo 1.26.0\n")
    (module / "go.sum").write_text("")
    return Recipe("tiny", module, (Program("one", "one"), Program("two", "two")))


def built(tmp_path: Path) -> list[str]:
    return (tmp_path / "builds").read_text().split()


def test_a_second_call_builds_nothing(tmp_path: Path, go: Path, recipe: Recipe) -> None:
    lines: list[str] = []
    first = ensure(recipe, lines.append, go=go, cache=tmp_path / "cache")
    said = len(lines)
    second = ensure(recipe, lines.append, go=go, cache=tmp_path / "cache")

    assert first == second
    assert [path.read_text() for path in first.values()] == ["whole", "whole"]
    assert built(tmp_path) == ["one", "two"]
    assert any("one: done in" in line for line in lines)
    assert len(lines) == said, "nothing to build, nothing to say"


def test_another_version_of_a_module_is_built_anew(tmp_path: Path, go: Path) -> None:
    module = tmp_path / "module"
    module.mkdir()
    (module / "go.mod").write_text("module tiny\n")
    (module / "go.sum").write_text("")
    recipe = Recipe("tiny", module, (Program("one", "one"),))
    before = ensure(recipe, _ignore, go=go, cache=tmp_path / "cache")
    (module / "go.sum").write_text("something v1.0.1 h1:other\n")
    after = ensure(recipe, _ignore, go=go, cache=tmp_path / "cache")

    assert before["one"] != after["one"]
    assert built(tmp_path) == ["one", "one"]


def test_a_failed_build_says_why_and_what_next_and_installs_nothing(
    tmp_path: Path, go: Path, recipe: Recipe
) -> None:
    (tmp_path / "fail-at-two").touch()
    with pytest.raises(ToolchainError) as caught:
        ensure(recipe, _ignore, go=go, cache=tmp_path / "cache")

    assert "no such module" in str(caught.value)
    assert "GOPROXY" in str(caught.value)
    assert files(tmp_path / "cache") == {"one": "whole"}

    (tmp_path / "fail-at-two").unlink()
    ensure(recipe, _ignore, go=go, cache=tmp_path / "cache")
    assert built(tmp_path) == ["one", "two", "two"], "the finished program is kept"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_build_leaves_nothing_half_installed_and_is_resumed(
    tmp_path: Path, go: Path, recipe: Recipe, how: signal.Signals
) -> None:
    (tmp_path / "stop-at-two").touch()
    builder = start_builder(tmp_path, go, recipe)
    await_line(builder, "two: started")
    await_file(tmp_path / "cache", "two.partial")
    builder.send_signal(how)
    builder.wait(10)
    builder.stdout.close()  # type: ignore[union-attr]
    assert files(tmp_path / "cache").get("two") is None

    (tmp_path / "stop-at-two").unlink()
    paths = ensure(recipe, _ignore, go=go, cache=tmp_path / "cache")

    assert [path.read_text() for path in paths.values()] == ["whole", "whole"]
    assert files(tmp_path / "cache") == {"one": "whole", "two": "whole"}
    assert built(tmp_path) == ["one", "two", "two"]


def test_of_two_builds_at_once_the_second_waits_and_builds_nothing(
    tmp_path: Path, go: Path, recipe: Recipe
) -> None:
    recipe = Recipe("tiny", recipe.folder, (Program("one", "one"),))
    (tmp_path / "stop-at-one").touch()
    first = start_builder(tmp_path, go, recipe)
    await_line(first, "one: started")

    waiting = threading.Event()
    lines: list[str] = []

    def note(line: str) -> None:
        lines.append(line)
        waiting.set()

    second = threading.Thread(
        target=ensure, args=(recipe, note), kwargs={"go": go, "cache": tmp_path / "cache"}
    )
    second.start()
    assert waiting.wait(10)
    (tmp_path / "go-on").write_text("go on\n")
    second.join(10)
    first.wait(10)
    first.stdout.close()  # type: ignore[union-attr]

    assert lines == [f"Another build is running (process {first.pid}), waiting for it."]
    assert built(tmp_path) == ["one"]
    assert files(tmp_path / "cache") == {"one": "whole"}


def test_the_real_toolchain_builds_a_module_with_its_version_stamped_in(tmp_path: Path) -> None:
    module = tmp_path / "module"
    module.mkdir()
    (module / "go.mod").write_text("module tiny\n\ngo 1.26.0\n")
    (module / "go.sum").write_text("")
    (module / "main.go").write_text(
        'package main\n\nvar version = "none"\n\nfunc main() { print(version) }\n'
    )
    recipe = Recipe("tiny", module, (Program("tiny", "tiny"),), link_flags="-X main.version=v1.2.3")
    paths = ensure(recipe, _ignore, cache=tmp_path / "cache")

    done = subprocess.run([paths["tiny"]], check=True, capture_output=True, text=True)
    assert done.stderr == "v1.2.3"


def test_go_gets_caches_of_ours_where_the_user_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Recipe
) -> None:
    from lab.toolchain import _go_environment, _go_facts

    for variable in ("HOME", "XDG_CACHE_HOME", "GOCACHE", "GOMODCACHE", "GOPATH"):
        monkeypatch.delenv(variable, raising=False)
    environment = _go_environment(_go_facts(find_go()), tmp_path)

    assert environment["GOCACHE"] == str(tmp_path / "go-build")
    assert environment["GOMODCACHE"] == str(tmp_path / "go-mod")


def test_the_users_own_go_caches_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lab.toolchain import _go_environment, _go_facts

    monkeypatch.setenv("GOCACHE", str(tmp_path / "theirs"))
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "theirs-too"))
    environment = _go_environment(_go_facts(find_go()), tmp_path / "ours")

    assert environment["GOCACHE"] == str(tmp_path / "theirs")
    assert environment["GOMODCACHE"] == str(tmp_path / "theirs-too")


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("ACCELERATOR_ROLLOUT_CACHE", raising=False)
    assert cache_folder() == tmp_path / "accelerator-rollout"
    monkeypatch.setenv("ACCELERATOR_ROLLOUT_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"


def test_the_tool_module_pins_what_it_says() -> None:
    recipe = control_plane_recipe()

    assert module_version(recipe.folder, "k8s.io/kubernetes") == "1.37.2"
    assert module_version(recipe.folder, "go.etcd.io/etcd/server/v3") == "3.7.3"
    assert "gitVersion=v1.37.2" in recipe.link_flags
    text = (recipe.folder / "go.mod").read_text()
    assert [program.package for program in recipe.programs if program.package not in text] == []


def test_kubectl_is_found() -> None:
    done = subprocess.run([find_kubectl(), "version", "--client"], check=True, capture_output=True, text=True)
    assert "v1.37" in done.stdout


def start_builder(tmp_path: Path, go: Path, recipe: Recipe) -> "subprocess.Popen[str]":
    programs = [(program.name, program.package) for program in recipe.programs]
    code = (
        "from pathlib import Path\n"
        "from lab.toolchain import Program, Recipe, ensure\n"
        f"programs = tuple(Program(*each) for each in {programs!r})\n"
        f"recipe = Recipe('tiny', Path({str(recipe.folder)!r}), programs)\n"
        f"ensure(recipe, lambda line: print(line, flush=True), go=Path({str(go)!r}), cache=Path({str(tmp_path / 'cache')!r}))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def await_line(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(f"the builder ended without saying {text!r}")


def await_file(folder: Path, name: str) -> None:
    deadline = threading.Event()
    for _ in range(1000):
        if any(path.read_text() for path in folder.rglob(name)):
            return
        deadline.wait(0.01)
    pytest.fail(f"no {name} in {folder}")


def files(cache: Path) -> dict[str, str]:
    return {
        path.name: path.read_text() for path in cache.rglob("*") if path.is_file() and path.name != "lock"
    }


def _ignore(_line: str) -> None:
    pass
