"""The live tree in a real terminal: it fits 80 and 200 columns, 4 and 200 pods, follows changes, and leaves on Ctrl-C."""

import os
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from unit.cli import scenes
from unit.cli.server import CORE, Server

pytestmark = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="needs tmux (Debian: apt-get install tmux)"
)
HEIGHT = 30
SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal of tmux, on a server of its own."""

    socket: str

    def tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self.socket, *arguments], check=True, capture_output=True, text=True, timeout=10
        )
        return done.stdout

    def screen(self) -> list[str]:
        """What one sees."""
        return self.tmux("capture-pane", "-p", "-t", "it").splitlines()

    def until(self, shown: Callable[[str], bool]) -> list[str]:
        """Await a screen; return its lines."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            lines = self.screen()
            if shown("\n".join(lines)):
                return lines
            time.sleep(0.1)
        raise AssertionError("\n".join(self.screen()))

    def press(self, *keys: str) -> None:
        """Press keys."""
        self.tmux("send-keys", "-t", "it", *keys)


Open = Callable[[int, str], Terminal]


@pytest.fixture
def open_terminal(server: Server, tmp_path: Path) -> Iterator[Open]:
    """Opens a terminal so many columns wide, in which the command line runs with these arguments."""
    terminal = Terminal(f"test-{uuid.uuid4().hex[:8]}")

    def start(columns: int, arguments: str) -> Terminal:
        config = shlex.quote(str(server.kubeconfig(tmp_path)))
        program = f"{shlex.quote(sys.executable)} -m accelerator_rollout {arguments}"
        script = f"trap : INT; export KUBECONFIG={config}; {program}; echo ended with $?; exec sleep 60"
        size = ("-x", str(columns), "-y", str(HEIGHT))
        subprocess.run(
            [
                "tmux",
                "-L",
                terminal.socket,
                "-f",
                "/dev/null",
                "new-session",
                "-d",
                "-s",
                "it",
                *size,
                "bash",
                "-c",
                script,
            ],
            check=True,
            timeout=10,
            env={**os.environ, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"},
        )
        return terminal

    yield start
    subprocess.run(
        ["tmux", "-L", terminal.socket, "kill-server"], check=False, capture_output=True, timeout=10
    )


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("pods", [4, 200])
def test_the_live_tree_fits_follows_and_leaves(
    open_terminal: Open, server: Server, columns: int, pods: int
) -> None:
    scenes.rollout(server, scenes.RELEASING)
    scenes.workload(server, pods=pods, updated=1)
    terminal = open_terminal(columns, "get db --watch")
    lines = terminal.until(lambda text: "Ctrl-C leaves" in text)
    text = "\n".join(lines)
    assert "team/db" in lines[0]
    assert "revision db-2 (target): 1 pod" in text
    assert f"revision db-1: {pods - 1} pods" in text
    assert max(map(len, lines)) <= columns
    pod = server.objects[f"{CORE}/namespaces/team/pods/db-1"]
    server.put(CORE, "pods", {**pod, "status": {**pod["status"], "conditions": []}})
    changed = terminal.until(lambda text: "NotReady" in text)
    assert any("db-1" in line and "NotReady" in line for line in changed), (
        "what needs a look is not summed up"
    )
    terminal.press("C-c")
    left = terminal.until(lambda text: "ended with" in text)
    assert "ended with 0" in "\n".join(left)
    assert "Traceback" not in "\n".join(left)
    assert any("Status:    Progressing" in line for line in left), "the last state stays on the screen"


def test_the_live_tree_ends_with_the_object(open_terminal: Open, server: Server) -> None:
    path = scenes.rollout(server, scenes.RELEASING)
    scenes.workload(server)
    terminal = open_terminal(80, "get db --watch")
    terminal.until(lambda text: "Ctrl-C leaves" in text)
    server.drop(path)
    assert "db was deleted." in "\n".join(terminal.until(lambda text: "ended with 0" in text))


def test_an_interrupted_wait_leaves_no_traceback(open_terminal: Open, server: Server) -> None:
    scenes.rollout(server, scenes.RELEASING)
    terminal = open_terminal(80, "status db --watch")
    terminal.until(lambda text: "Progressing" in text)
    terminal.press("C-c")
    text = "\n".join(terminal.until(lambda text: "ended with" in text))
    assert "ended with 130" in text
    assert "Traceback" not in text


def test_a_narrow_list_keeps_names_and_states(open_terminal: Open, server: Server) -> None:
    scenes.rollout(server, scenes.STALLED, "llm-inference-worker")
    text = "\n".join(open_terminal(80, "list").until(lambda text: "ended with 0" in text))
    assert "llm-inference-worker" in text
    assert "Stalled" in text
