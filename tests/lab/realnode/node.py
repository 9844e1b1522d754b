"""One real node beside a control plane of the test bed: containerd and a kubelet; nothing of it outlives us.

Methods block unless they are coroutines: from a coroutine call them by `asyncio.to_thread`.
"""

import asyncio
import atexit
import http.client
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from lab import runs
from lab.client import Api, has_condition
from lab.controlplane import ControlPlane
from lab.kubeconfig import Connection
from lab.ports import free_ports
from lab.processes import Component
from lab.realnode import cgroups
from lab.realnode.archive import Image, write_archive
from lab.realnode.enclosure import Enclosed, Enclosure, NodeError
from lab.realnode.programs import NodePrograms, ensure_node_programs
from lab.realnode.settings import PAUSE, Places, write_containerd, write_kubelet
from lab.resources import NODES
from lab.runs import RunFolder
from lab.toolchain import Report, find_kubectl, report_to_stderr

CONTAINERD: Final = "containerd"
KUBELET: Final = "kubelet"

_FOLDER: Final = "ACCELERATOR_ROLLOUT_NODES"
_READY_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.1
_LONGEST_SOCKET: Final = 107
# What a driver of some length of name needs below the folder.
_ROOM: Final = "kubelet/plugins_registry/test-01234567.example.dev-reg.sock"


class RealNode:
    """A node; use as `async with RealNode(control_plane) as node`, or call `start` and `stop`.

    It needs root on Linux: see `enclosure.refusal`.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        name: str = "real-0",
        *,
        labels: Mapping[str, str] | None = None,
        keep: bool = False,
        report: Report = report_to_stderr,
    ) -> None:
        """`name` is that of the Node object; `keep` leaves the folder with logs behind."""
        self.name = name
        self._control_plane = control_plane
        self._labels = dict(labels or {})
        self._keep = keep
        self._report = report
        self._run: RunFolder | None = None
        self._enclosure: Enclosure | None = None
        self._programs: NodePrograms | None = None
        self._components: dict[str, Enclosed] = {}
        self._killed: set[str] = set()
        self._health_port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    # Life

    def start(self) -> None:
        """Start everything and return when the node is Ready, without images and drivers yet; seconds, once built.

        Raises NodeError with the last log lines of the program that failed; nothing is left running then.
        """
        if self._run is not None:
            raise RuntimeError(f"node {self.name!r} is started already")
        self._programs = ensure_node_programs(self._report)
        sweep()
        self._run = RunFolder.claim(self._control_plane.name, nodes_folder())
        atexit.register(self.stop)
        try:
            self._prepare()
            self.enclosure.start()
            containerd = self._add(CONTAINERD, self._containerd_command())
            containerd.start()
            self._await(self.places.socket.exists, "opened its socket", containerd)
            self._await(self._containerd_answers, "answered", containerd)
            self._import_pause()
            kubelet = self._add(KUBELET, self._kubelet_command())
            kubelet.start()
            self._await_ready()
            self._run.publish(self._facts())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything, containers included, and remove the folder. Nothing to do if it is not started."""
        if self._run is None:
            return
        if self._enclosure is not None:
            self._enclosure.stop()
        for component in self._components.values():
            component.kill()
        cgroups.sweep(self.places.state)
        self._run.release(keep=self._keep)
        self._run, self._components, self._enclosure = None, {}, None
        atexit.unregister(self.stop)

    def check(self) -> None:
        """Raise NodeError if a program has ended that nobody ended."""
        for component in self._components.values():
            if not component.is_running and component.name not in self._killed:
                raise _failure(component, f"ended by itself (exit code {component.exit_code})")

    # Faults

    def kill_component(self, name: str) -> None:
        """End CONTAINERD or the KUBELET at once, as a crash would. Containers run on."""
        self._killed.add(name)
        self.component(name).kill()

    def restart_component(self, name: str) -> None:
        """Start it again, killing it first if it runs; await what `start` awaits."""
        component = self.component(name)
        component.kill()
        component.start()
        self._killed.discard(name)
        answers = self._containerd_answers if name == CONTAINERD else self._kubelet_answers
        self._await(answers, "answered", component)

    def component(self, name: str) -> Enclosed:
        """The program of that name, to be paused and resumed: CONTAINERD or KUBELET."""
        try:
            return self._components[name]
        except KeyError:
            raise KeyError(f"{name!r} is none of {', '.join(self._components) or 'a started node'}") from None

    # Images

    def import_image(self, archive: Path) -> None:
        """Make the images of an archive (OCI or Docker's) known to the node; pods say `imagePullPolicy: Never`."""
        self._ctr("images", "import", "--local", str(archive))

    def images(self) -> list[str]:
        """The names of the images that the node has."""
        return self._ctr("images", "list", "-q").split()

    def containers(self) -> list[str]:
        """The ids of the containers that run, those that hold a pod's namespaces included."""
        rows = [line.split() for line in self._ctr("tasks", "list").splitlines()[1:]]
        return [row[0] for row in rows if row[-1] == "RUNNING"]

    def _import_pause(self) -> None:
        archive = self.folder / "pause.tar"
        # The first process of its namespace gets no signal that it does not handle.
        script = "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done"
        entry = ("/bin/busybox", "sh", "-c", script)
        files = {"bin/busybox": self.programs.busybox.read_bytes()}
        write_archive(archive, Image((PAUSE,), entry, files, {"bin/sleep": "busybox"}))
        self.import_image(archive)

    # Facts

    @property
    def folder(self) -> Path:
        """The folder with configuration, state and logs."""
        if self._run is None:
            raise RuntimeError(f"node {self.name!r} is not started")
        return self._run.path

    @property
    def places(self) -> Places:
        """Folders and sockets: for a driver `plugins`, `registry` and `cdi`."""
        return Places(self.folder)

    @property
    def programs(self) -> NodePrograms:
        """The programs that it runs, and the busybox of which images are made."""
        if self._programs is None:
            raise RuntimeError(f"node {self.name!r} is not started")
        return self._programs

    @property
    def enclosure(self) -> Enclosure:
        """The namespaces in which it runs."""
        if self._enclosure is None:
            raise RuntimeError(f"node {self.name!r} is not started")
        return self._enclosure

    @property
    def control_plane(self) -> ControlPlane:
        """The control plane that it belongs to."""
        return self._control_plane

    def log(self, name: str) -> Path:
        """The log file of CONTAINERD or KUBELET."""
        return self.folder / f"{name}.log"

    # How it is done

    def _prepare(self) -> None:
        longest = self.folder / _ROOM
        if len(str(longest)) > _LONGEST_SOCKET:
            raise NodeError(
                f"{self.folder} is too long a path for sockets below it: take a shorter name, or folder (${_FOLDER})"
            )
        self.places.make()
        write_containerd(self.places, self.programs)
        port, self._health_port = free_ports(2)
        authority = self._control_plane.folder / "ca.crt"
        write_kubelet(self.places, authority=authority, port=port, health_port=self._health_port)
        user = f"system:node:{self.name}"
        pair = self._control_plane.authority.client(user, ["system:nodes"])
        Connection(
            self._control_plane.server,
            ca=self._control_plane.authority.pair.certificate,
            certificate=pair.certificate,
            key=pair.key,
        ).write_kubeconfig(self.places.kubeconfig, context="node", user=user)
        self._enclosure = Enclosure(self.folder)

    def _add(self, name: str, command: list[str]) -> Enclosed:
        component = self.enclosure.component(name, command, self.log(name), env=self._environment())
        self._components[name] = component
        return component

    def _environment(self) -> dict[str, str]:
        """Containerd finds its shim on the PATH, and nobody here may speak through a proxy."""
        standard = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"PATH": f"{self.programs.shim.parent}:{standard}", "HOME": os.environ.get("HOME", "/root")}

    def _containerd_command(self) -> list[str]:
        return [str(self.programs.containerd), "--config", str(self.folder / "containerd.toml")]

    def _kubelet_command(self) -> list[str]:
        command = [
            str(self.programs.kubelet),
            f"--config={self.folder / 'kubelet.yaml'}",
            f"--kubeconfig={self.places.kubeconfig}",
            f"--root-dir={self.places.kubelet}",
            f"--cert-dir={self.folder / 'pki'}",
            f"--hostname-override={self.name}",
            "--v=2",
        ]
        if self._labels:
            command.append("--node-labels=" + ",".join(f"{k}={v}" for k, v in self._labels.items()))
        return command

    def _ctr(self, *arguments: str) -> str:
        command = [str(self.programs.ctr), f"--address={self.places.socket}", "--namespace=k8s.io"]
        return self.enclosure.run([*command, *arguments], env=self._environment())

    def _containerd_answers(self) -> bool:
        try:
            self._ctr("plugins", "list", "-q")
        except NodeError:
            return False
        return True

    def _kubelet_answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._health_port, timeout=5)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _await_ready(self) -> None:
        async def ready() -> None:
            async with Api(self._control_plane.admin) as api, asyncio.timeout(_READY_SECONDS):
                while True:
                    self.check()
                    node = await api.find(NODES, self.name)
                    if has_condition(node, "Ready"):
                        return
                    await asyncio.sleep(_LOOK_SECONDS)

        try:
            asyncio.run(ready())
        except TimeoutError as error:
            raise _failure(self.component(KUBELET), f"made no Ready node in {_READY_SECONDS:g} s") from error

    def _await(self, reached: Callable[[], bool], what: str, component: Component) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not reached():
            if not component.is_running:
                raise _failure(component, f"ended (exit code {component.exit_code}) before it {what}")
            if time.monotonic() > deadline:
                raise _failure(component, f"has not {what} within {_READY_SECONDS:g} s")
            time.sleep(_LOOK_SECONDS)

    def _facts(self) -> dict[str, Any]:
        return {
            "name": self._control_plane.name,
            "node": self.name,
            "server": self._control_plane.server,
            "kubeconfig": str(self._control_plane.kubeconfig),
            "kubectl": str(find_kubectl()),
            "logs": str(self.folder),
        }


def nodes_folder() -> Path:
    """Where the folders of all nodes of this machine are: a short path, as the kernel allows sockets no long ones."""
    return Path(os.environ.get(_FOLDER) or "/var/lib/accelerator-rollout").absolute()


def sweep() -> None:
    """Remove the control groups of nodes whose owner died; their folders go when the next one is claimed."""
    for run in runs.all_runs(nodes_folder()):
        if not run.is_alive:
            cgroups.sweep(Places(run.folder).state)


def _failure(component: Component, what: str) -> NodeError:
    return NodeError(f"{component.name} {what}. Last lines of {component.log}:\n{component.log_tail()}")
