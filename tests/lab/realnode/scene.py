"""Plain pods with devices on a real node, without an operator: what Kubernetes does of itself, and when.

Times are those of the machine's clock: the ledger's as the driver wrote them, the API's as its watches told of them, so a
change in the API has happened before its time here, and never after.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from lab.client import Api, EventType, Object
from lab.ledger import Deed, Entry
from lab.realnode import workload
from lab.realnode.driver_process import DriverFolders, DriverProcess
from lab.realnode.node import RealNode
from lab.recorder import Recorded, Recorder
from lab.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, RESOURCE_SLICES

IMAGE: Final = workload.tag("v1")
READY_SECONDS: Final = 60.0
GONE_SECONDS: Final = 120.0

_TEMPLATE: Final = "device"
_TERMINAL: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Scene:
    """A namespace with one driver's devices on the node, and witnesses."""

    api: Api
    node: RealNode
    namespace: str
    driver: DriverProcess
    recorder: Recorder

    # Pods

    async def pod(
        self,
        name: str,
        *,
        grace: int = 10,
        finalizers: tuple[str, ...] = (),
        command: tuple[str, ...] = (),
        **manner: Any,
    ) -> Object:
        """Create a pod that wants one device; `manner` as of `workload.container`, `command` instead of its own program."""
        container = {
            "name": "model",
            "image": IMAGE,
            "resources": {"claims": [{"name": _TEMPLATE}]},
            **workload.container(**manner),
        }
        if command:
            container["command"] = list(command)
            del container["readinessProbe"]
        return await self.api.create(
            PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": self.namespace, "finalizers": list(finalizers)},
                "spec": {
                    "hostNetwork": True,  # the node has no network for pods
                    "automountServiceAccountToken": False,
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": grace,
                    "containers": [container],
                    "resourceClaims": [{"name": _TEMPLATE, "resourceClaimTemplateName": _TEMPLATE}],
                },
            },
        )

    async def ready_pod(self, name: str, **more: Any) -> Object:
        """Create one and await that it is ready: its process has the device."""
        await self.pod(name, **more)
        return await self.api.wait_for(PODS, name, _ready, self.namespace, timeout=READY_SECONDS)

    async def claim_of(self, pod: str) -> Object:
        """The claim that was generated for a pod."""
        body = await self.api.get(PODS, pod, self.namespace)
        (status,) = body["status"]["resourceClaimStatuses"]
        return await self.api.get(RESOURCE_CLAIMS, status["resourceClaimName"], self.namespace)

    async def delete(self, pod: str, **options: Any) -> None:
        """Tell a pod to go; options as of `Api.delete`."""
        await self.api.delete(PODS, pod, self.namespace, **options)

    async def gone(self, pod: Object) -> None:
        """Await that a pod's object is gone, and that the recorder knows."""
        metadata = pod["metadata"]
        await self.api.wait_gone(
            PODS, metadata["name"], self.namespace, uid=metadata["uid"], timeout=GONE_SECONDS
        )
        await self.recorder.caught_up()

    # What happened

    async def deed(self, deed: Deed, pod: str, *, seconds: float = GONE_SECONDS) -> Entry:
        """The driver's first deed of this kind for a pod, awaited."""
        await self.driver.wait_until(lambda: self.deeds(deed, pod), f"{deed} for {pod}", seconds=seconds)
        return self.deeds(deed, pod)[0]

    def deeds(self, deed: Deed, pod: str) -> list[Entry]:
        """All that the driver did of this kind for a pod so far."""
        return [
            entry
            for entry in self.driver.ledger().entries()
            if entry.deed is deed and entry.holder.pod_name == pod
        ]

    def first(self, what: str, *, kind: str, predicate: Callable[[Recorded], bool]) -> Recorded:
        """The first such change in this namespace."""
        return self.recorder.first(what, kind=kind, namespace=self.namespace, predicate=predicate)

    def told_to_go(self, pod: Object) -> Recorded:
        """When a pod got its deletionTimestamp, or was gone without one."""
        uid = pod["metadata"]["uid"]
        return self.first(
            "the deletion",
            kind="Pod",
            predicate=lambda one: one.uid == uid and (one.deleting or one.type is EventType.DELETED),
        )

    def ended(self, pod: Object) -> Recorded:
        """When a pod had a terminal phase."""
        uid = pod["metadata"]["uid"]
        return self.first(
            "a terminal phase",
            kind="Pod",
            predicate=lambda one: one.uid == uid and one.status.get("phase") in _TERMINAL,
        )

    def vanished(self, pod: Object) -> Recorded:
        """When a pod's object was gone."""
        uid = pod["metadata"]["uid"]
        return self.first(
            "the end of the object",
            kind="Pod",
            predicate=lambda one: one.uid == uid and one.type is EventType.DELETED,
        )

    def freed(self, claim: Object) -> Recorded:
        """When a claim, once allocated, was so no more, or was gone."""
        uid = claim["metadata"]["uid"]
        since = self.first(
            "the allocation",
            kind="ResourceClaim",
            predicate=lambda one: one.uid == uid and is_allocated(one.object),
        )
        return self.first(
            "the deallocation",
            kind="ResourceClaim",
            predicate=lambda one: (
                one.uid == uid
                and one.version > since.version
                and (one.type is EventType.DELETED or not is_allocated(one.object))
            ),
        )


def is_allocated(claim: Object) -> bool:
    """Whether devices are allocated to the claim."""
    return (claim.get("status") or {}).get("allocation") is not None


def seconds_between(earlier: datetime, later: datetime) -> float:
    """Negative if they came the other way round."""
    return (later - earlier).total_seconds()


@asynccontextmanager
async def scene(
    api: Api, node: RealNode, namespace: str, folder: Path, *, devices: int = 1
) -> AsyncIterator[Scene]:
    """A scene in a namespace that exists; afterwards nothing of it is left on the node."""
    name = f"{namespace}.example.dev"
    driver = DriverProcess(
        kubeconfig=node.control_plane.kubeconfig,
        node=node.name,
        driver=name,
        devices=devices,
        folders=DriverFolders(node.places.plugins, node.places.registry, node.places.cdi),
        folder=folder,
    )
    await asyncio.to_thread(_ensure_image, node, folder)
    async with driver, Recorder(api, folder / "recording.jsonl", namespace=namespace) as recorder:
        await driver.wait_registered()
        one = Scene(api, node, namespace, driver, recorder)
        await _furnish(api, namespace, name)
        try:
            yield one
        finally:
            await _clear(one)


def _ensure_image(node: RealNode, folder: Path) -> None:
    if IMAGE not in node.images():
        archive = folder / "workload.tar"
        workload.write_images(node.programs.busybox, archive, (IMAGE,))
        node.import_image(archive)


async def _furnish(api: Api, namespace: str, driver: str) -> None:
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    await api.create(
        DEVICE_CLASSES,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": driver},
            "spec": {"selectors": [selector]},
        },
    )
    request = {"name": _TEMPLATE, "exactly": {"deviceClassName": driver}}
    await api.create(
        RESOURCE_CLAIM_TEMPLATES,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": _TEMPLATE, "namespace": namespace},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        },
    )


async def _clear(one: Scene) -> None:
    """The node unprepares by the driver, so that must be there until the last pod is gone."""
    one.driver.order()
    if not one.driver.is_running:
        one.driver.start()
    await one.driver.wait_registered()
    for pod in (await one.api.list(PODS, one.namespace)).items:
        name = pod["metadata"]["name"]
        if pod["metadata"].get("finalizers"):
            await one.api.patch(PODS, name, {"metadata": {"finalizers": None}}, one.namespace)
        await one.api.delete_if_there(PODS, name, one.namespace)
    for pod in (await one.api.list(PODS, one.namespace)).items:
        await one.api.wait_gone(PODS, pod["metadata"]["name"], one.namespace, timeout=GONE_SECONDS)
    await one.driver.wait_until(
        lambda: not one.driver.ledger().held(), "let go of everything", seconds=GONE_SECONDS
    )
    await one.api.delete_if_there(DEVICE_CLASSES, one.driver.driver)
    await one.driver.stop()
    selector = f"spec.driver={one.driver.driver}"
    for published in (await one.api.list(RESOURCE_SLICES, field_selector=selector)).items:
        await one.api.delete_if_there(RESOURCE_SLICES, published["metadata"]["name"])


def _ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
