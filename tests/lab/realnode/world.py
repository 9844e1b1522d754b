"""A world on a real node: the same workload and witnesses as on simulated nodes, but its pods are processes.

The driver is of this world alone, and so is its ledger.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from lab.client import Api, Object
from lab.ledger import Ledger
from lab.namespaces import remove_namespace
from lab.nodes import SimulatedNodes
from lab.realnode import workload
from lab.realnode.driver_process import DriverFolders, DriverProcess
from lab.realnode.happenings import Happening, What, happenings, rendered
from lab.realnode.node import RealNode
from lab.recorder import Recorder
from lab.resources import RESOURCE_SLICES
from lab.world import GOOD as SIMULATED
from lab.world import Shape, World

GOOD: Final = workload.tag("v1")
NEWER: Final = workload.tag("v2")
ABSENT: Final = workload.tag("absent")
"""An image that the node does not have: its container never starts."""

_EMPTY_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class RealShape(Shape):
    """What the pods' processes do, beside what the workload looks like."""

    image: str = GOOD
    letting_go: float = 0.0
    """Seconds from SIGTERM until the process lets go of its device."""
    pre_stop: float = 0.0
    """Seconds that the hook takes before there is a SIGTERM."""
    stubborn: bool = False
    """Whether it ignores SIGTERM."""


class RealWorld(World):
    """Everything of one test on a real node."""

    node: RealNode
    devices: DriverProcess
    """The driver."""

    def _pod_spec(self, image: str) -> dict[str, Any]:
        # A stranger's image is named by the world that we are like.
        spec = super()._pod_spec(GOOD if image == SIMULATED else image)
        shape = cast("RealShape", self.shape)
        (container,) = spec["containers"]
        container |= workload.container(
            letting_go=shape.letting_go, pre_stop=shape.pre_stop, stubborn=shape.stubborn
        )
        # There is no network for pods.
        return spec | {"hostNetwork": True, "automountServiceAccountToken": False}

    def read_ledger(self) -> Ledger:
        """What the driver has done so far."""
        self.ledger = self.devices.ledger()
        return self.ledger

    def assert_promises(self) -> None:
        """Assert what holds whatever happened."""
        self.read_ledger()
        super().assert_promises()

    async def happenings(self) -> list[Happening]:
        """What happened to the workload so far."""
        await self.recorder.caught_up()
        return happenings(self.recorder, self.read_ledger(), self.name)

    async def figures(self, title: str) -> list[str]:
        """For each pod that went, seconds from its deletion to what its successor waited for; and the overlaps.

        The whole timeline comes into a file beside the recording.
        """
        found = await self.happenings()
        await asyncio.to_thread(
            (self.folder / "timeline.txt").write_text, "\n".join([title, *rendered(found), ""])
        )
        return [f"{title}:", *_figures(found), f"  overlaps: {_overlaps(self.ledger)}"]

    async def logs(self, pod: str) -> str:
        """What the pod's process has said, also after its end."""
        found = sorted(self.node.places.pod_logs.glob(f"{self.namespace}_{pod}_*/model/*.log"))
        return "\n".join(one.read_text(errors="replace") for one in found)


@asynccontextmanager
async def real_world(
    admin: Api, node: RealNode, namespace: str, folder: Path, shape: RealShape, *, devices: int
) -> AsyncIterator[RealWorld]:
    """A world on the node with so many devices, in a namespace that exists; nothing of it is left afterwards."""
    driver = f"{namespace}.example.dev"
    async with AsyncExitStack() as stack:
        process = DriverProcess(
            kubeconfig=node.control_plane.kubeconfig,
            node=node.name,
            driver=driver,
            devices=devices,
            folders=DriverFolders(node.places.plugins, node.places.registry, node.places.cdi),
            folder=folder,
        )
        await stack.enter_async_context(process)
        await process.wait_registered()
        recorder = Recorder(admin, folder / "recording.jsonl", namespace=namespace)
        await stack.enter_async_context(recorder)
        # The simulated nodes are for tests that do something to them, which none on a real node may.
        absent = cast("SimulatedNodes", None)
        world = RealWorld(admin, namespace, absent, Ledger(), recorder, shape, folder)
        world.node, world.devices = node, process
        stack.push_async_callback(_empty, world)
        yield world


async def _empty(world: RealWorld) -> None:
    """Let the world's pods end in order, so that the node is as it was; the driver must be there for it."""
    world.devices.order()
    if not world.devices.is_running:
        world.devices.start()
        await world.devices.wait_registered()
    await world.clean()
    await remove_namespace(world.api, world.namespace)
    async with asyncio.timeout(_EMPTY_SECONDS):
        while True:  # a pod deleted by force still has its grace period, and nobody tells when it has ended
            if not world.devices.ledger().held():
                break
            await asyncio.sleep(_LOOK_SECONDS)
    for one in (await world.api.list(RESOURCE_SLICES)).items:
        if one["spec"]["driver"] == world.devices.driver:
            await world.api.delete_if_there(RESOURCE_SLICES, one["metadata"]["name"])


def _figures(found: list[Happening]) -> list[str]:
    lines = []
    for gone in (one for one in found if one.what is What.DELETED):
        told = [f"unprepared {_after(gone, found, gone.pod, What.UNPREPARED)}"]
        later = next((one for one in found if one.what is What.OPENED and one.wall > gone.wall), None)
        if later is not None:
            told += [
                f"{word} {_after(gone, found, later.pod, what)}"
                for word, what in (
                    ("gate opened", What.OPENED),
                    ("prepared", What.PREPARED),
                    ("Ready", What.READY),
                )
            ]
        lines.append(f"  pod {gone.pod} told to go at 0; {', '.join(told)}")
    return lines


def _after(gone: Happening, found: list[Happening], pod: int, what: What) -> str:
    """Seconds from a deletion until this happened to a pod."""
    when = next((one.wall for one in found if one.pod == pod and one.what is what), None)
    return "never" if when is None else f"{(when - gone.wall).total_seconds():.2f} s"


def _overlaps(ledger: Ledger) -> str:
    found = ledger.violations()
    return "none" if not found else "; ".join(str(one) for one in found)


def is_up(pod: Object) -> bool:
    """Whether the kubelet says that its containers run."""
    return (pod.get("status") or {}).get("phase") == "Running"
