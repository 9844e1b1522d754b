"""The commands of README.md and docs/*.md, run in order with the real kubectl: each is accepted, and one sees what the page shows."""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.kubeconfig import Connection
from lab.operator_process import OperatorProcess
from lab.pages import Step, says, steps, with_commands
from lab.world import MakeWorld, Shape

ROOT = Path(__file__).parents[2]
NAME = "llm-inference-worker"
SLOW = {"teardown_seconds": 4}  # long enough to be seen, and to type the next command
READS = {"get", "describe", "wait", "logs"}
INSTALLS = "kubectl apply --server-side -k"
TRIED = " --dry-run=server --force-conflicts"  # the lab has installed all but the operator's own Deployment already
SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Setting:
    """The world in which the commands of a page are run: all pods are ready."""

    shape: Shape = field(default_factory=lambda: Shape(replicas=3, faults=SLOW))
    devices: tuple[int, ...] = (3,)
    spec: Mapping[str, Any] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()  # programs whose runs are tests, or jobs of their own
    until: str | None = None  # a heading: what follows takes off what all tests share, and has its own

    def steps(self, text: str) -> list[Step]:
        """The commands to run."""
        found = steps(text if self.until is None else text.partition(f"\n{self.until}\n")[0])
        return [step for step in found if step.command.split()[0] not in self.elsewhere]


SETTINGS = {
    "README.md": Setting(elsewhere=frozenset({"make", "docker"}), until="## Uninstall"),
    "update.md": Setting(),
    "canary.md": Setting(),
    "pause.md": Setting(),
    "abort-undo-restart.md": Setting(),
    "drain.md": Setting(Shape(replicas=2), (1, 1, 1)),
    "stuck.md": Setting(Shape(replicas=2, grace=2), (2,), {"release": {"unproven": {"extraSeconds": 8}}}),
    "gitops.md": Setting(),
    "hold.md": Setting(Shape(replicas=1), (1,)),
}


@dataclass(frozen=True, slots=True)
class Shell:
    """A person's shell: kubectl is on the path, and these variables are set."""

    variables: Mapping[str, str]

    async def run(self, page: str, step: Step) -> None:
        """Run the command; await what is shown, if it only looks, or else compare. Raises AssertionError."""
        command = step.command.split("  #")[0].rstrip()
        command += TRIED if command.startswith(INSTALLS) else ""
        looks = command.split()[1] in READS
        said = "nothing yet"
        try:
            async with asyncio.timeout(SECONDS):
                while True:
                    code, said = await self._once(command)
                    if code == 0 and says(said, step.shown):
                        return
                    if not looks:
                        break
        except TimeoutError:
            pass
        shown = "\n".join(step.shown)
        raise AssertionError(f"{page}:{step.line}\n$ {step.command}\n{said}\ninstead of\n{shown}")

    async def _once(self, command: str) -> tuple[int, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the kubectl of the pinned wheel
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-euo",
            "pipefail",
            "-c",
            command,
            cwd=ROOT,
            env={**os.environ, **self.variables, "PATH": path},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, said.decode()


@pytest.mark.parametrize("page", sorted(with_commands()))
async def test_the_commands_of_a_page_do_what_it_shows(
    page: str, make_world: MakeWorld, operator: OperatorProcess, cluster: Connection, tmp_path: Path
) -> None:
    setting = SETTINGS[page]
    world = await make_world(setting.shape, devices=setting.devices)
    world.name = NAME
    await world.settle_in(spec=setting.spec)
    kubeconfig = tmp_path / "person.kubeconfig"
    cluster.write_kubeconfig(kubeconfig, context="lab", user="person", namespace=world.namespace)
    nodes = [str(pod["spec"]["nodeName"]) for pod in await world.pods()]
    shell = Shell({"KUBECONFIG": str(kubeconfig), "NODE": nodes[0], "NEXT": nodes[-1]})
    for step in setting.steps(with_commands()[page]):
        await shell.run(page, step)
    world.ledger.assert_clean()


def test_each_page_that_is_set_up_has_commands() -> None:
    assert set(SETTINGS) == set(with_commands())
