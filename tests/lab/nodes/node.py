"""One simulated node: its Node object, its driver's pool, its pods, and the faults that can befall it."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp

from lab.client import Api, ApiError, PatchType
from lab.ledger import Ledger
from lab.nodes.claims import ClaimStore
from lab.nodes.driver import NodeDriver
from lab.nodes.faults import PREFIX, Behaviour, Value, annotations_of, behaviour_of
from lab.nodes.objects import (
    LEASE_NAMESPACE,
    SIMULATED,
    lease_manifest,
    node_conditions,
    node_manifest,
    node_owner,
)
from lab.nodes.pool import DeviceTaint, PoolFault, ResourcePool, TaintEffect
from lab.nodes.status import FIELD_MANAGER
from lab.nodes.timing import Timing
from lab.nodes.worker import PodWorker
from lab.resources import LEASES, NODES, PODS, RESOURCE_SLICES

Json = dict[str, Any]
Reporter = Callable[[asyncio.Task[None]], None]

TAINT_KEY: Final = "lpu.example.dev/unhealthy"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What a simulated node offers."""

    name: str
    devices: tuple[str, ...]
    driver: str
    slices: int = 1
    published: bool = True  # from the start; else with the first `publish`, as where the driver starts late
    cpu: str = "64"
    memory: str = "512Gi"
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class SimulatedNode:
    """The Python API of one node. Methods return once the API server has taken what they publish."""

    def __init__(
        self,
        spec: NodeSpec,
        *,
        api: Api,
        claims: ClaimStore,
        ledger: Ledger,
        timing: Timing,
        address_block: int,
        report: Reporter,
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.api = api
        self.claims = claims
        self.timing = timing
        self.driver = NodeDriver(spec.name, spec.driver, ledger)
        self.pool = ResourcePool(
            driver=spec.driver, name=spec.name, node=spec.name, devices=spec.devices, slices=spec.slices
        )
        self.boot_id = str(uuid.uuid4())
        self._report = report
        self._address_block = address_block
        self._addresses: dict[str, str] = {}
        self._addresses_given = 0
        self._awake = asyncio.Event()
        self._object: Json = {}  # empty until the Node in the cluster is known to be ours
        self._annotations: dict[str, str] = {}
        self._pods: dict[str, Json] = {}
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._published: set[str] = set()
        self._publishing = asyncio.Lock()
        self._wipe: asyncio.Task[None] | None = None

    # Coming and going

    async def register(self) -> None:
        """Create the Node, its Lease and its slices, and start to act."""
        manifest = node_manifest(
            self.name,
            cpu=self.spec.cpu,
            memory=self.spec.memory,
            pods=self.spec.pods,
            boot_id=self.boot_id,
            labels=dict(self.spec.labels),
            annotations=dict(self.spec.annotations),
        )
        try:
            self._object = await self.api.create(NODES, manifest)
        except ApiError as error:
            if not error.is_already_exists:
                raise
            found = await self.api.get(NODES, self.name)
            if found["metadata"].get("labels", {}).get(SIMULATED) != "true":
                raise RuntimeError(
                    f"node {self.name} exists and is not a simulated one: choose another name"
                ) from error
            self._object = found
            await self._patch_node_status({"status": manifest["status"]})
        self._annotations = dict(self._object["metadata"].get("annotations") or {})
        await self.renew_lease()
        await self._adopt_slices()
        if self.spec.published:
            await self.publish()
        # Pods may be bound to this name already: from an earlier life, or while the Node was away.
        page = await self.api.list(PODS, field_selector=f"spec.nodeName={self.name}")
        self._awake.set()
        for pod in page.items:
            self._pods[pod["metadata"]["uid"]] = pod
        self._resync()

    async def remove(self) -> None:
        """Stop to act and delete the Node object, as when a machine is taken out: nobody unprepares anything."""
        self._awake.clear()
        with contextlib.suppress(ApiError):
            await self.api.delete(NODES, self.name)

    async def lose(self, *, noticed: bool = False) -> None:
        """Stop to act at all, as when the network or the kubelet dies. The ledger stays as it is.

        The control plane notices by itself after about 40 s; with `noticed` the Node says Ready=Unknown at once.
        """
        self._awake.clear()
        if noticed:
            await self._patch_node_status(
                {"status": {"conditions": node_conditions(ready="Unknown")}},
                manager="kube-controller-manager",
            )

    async def come_back(self) -> None:
        """Act again after `lose` or `remove`: what happened meanwhile is noticed now, with the same boot."""
        if await self.api.find(NODES, self.name) is None:
            await self.register()
            return
        await self._patch_node_status({"status": {"conditions": node_conditions(ready="True")}})
        await self.renew_lease()
        self._awake.set()
        self._resync()

    async def reboot(self) -> None:
        """All containers stop at once and nothing stays prepared; then the node starts its pods again."""
        self._awake.clear()
        await self._cancel_workers()
        self.driver.forget_all("reboot")
        self.boot_id = str(uuid.uuid4())
        await self._patch_node_status(
            {"status": {"nodeInfo": {"bootID": self.boot_id}, "conditions": node_conditions(ready="True")}}
        )
        await self.renew_lease()
        self._awake.set()
        for pod in list(self._pods.values()):
            self._start(pod, rebooted=True)

    async def close(self, *, clean: bool) -> None:
        """Stop everything; with `clean` also take the node and its pods out of the cluster."""
        await self._cancel_workers()
        if self._wipe is not None:
            self._wipe.cancel()
        if not clean or not self._object:
            return  # a Node that was refused is somebody else's, with all that runs on it
        doomed = [
            self.api.delete(
                PODS, pod["metadata"]["name"], pod["metadata"]["namespace"], grace_seconds=0, uid=uid
            )
            for uid, pod in self._pods.items()
        ]
        doomed += [self.api.delete(RESOURCE_SLICES, name) for name in self._published]
        doomed += [self.api.delete(LEASES, self.name, LEASE_NAMESPACE), self.api.delete(NODES, self.name)]
        for outcome in await asyncio.gather(*doomed, return_exceptions=True):
            if isinstance(outcome, BaseException) and not _gone(outcome):
                raise outcome

    # The driver and its pool

    async def driver_down(self) -> None:
        """The driver unregisters: prepares and unprepares fail, and after a while its slices are wiped."""
        self.driver.up = False
        if self._wipe is None:
            self._wipe = asyncio.create_task(self._wipe_later(), name=f"wipe slices of {self.name}")

    async def driver_up(self) -> None:
        """The driver is back, and publishes its pool anew."""
        if self._wipe is not None:
            self._wipe.cancel()
            self._wipe = None
        self.driver.up = True
        await self.publish()

    async def publish(self) -> None:
        """Publish a new generation of the whole pool, with no fault in it."""
        await self._publish(PoolFault.NONE)

    async def publish_incomplete(self) -> None:
        """Publish a new generation whose last slice is missing."""
        await self._publish(PoolFault.INCOMPLETE)

    async def publish_disagreeing(self) -> None:
        """Publish a new generation whose slices name different counts."""
        await self._publish(PoolFault.DISAGREEING)

    async def publish_duplicate(self) -> None:
        """Publish a new generation that lists one device twice."""
        await self._publish(PoolFault.DUPLICATE)

    async def publish_nothing(self) -> None:
        """Take all slices of the pool away."""
        await self._publish(PoolFault.MISSING)

    async def withdraw_device(self, device: str) -> None:
        """Publish the pool without the device."""
        self.pool.withdrawn.add(self.pool.require(device))
        await self._publish(self.pool.fault)

    async def restore_device(self, device: str) -> None:
        """Publish the pool with the device again."""
        self.pool.withdrawn.discard(self.pool.require(device))
        await self._publish(self.pool.fault)

    async def taint_device(
        self,
        device: str,
        *,
        key: str = TAINT_KEY,
        value: str = "",
        effect: TaintEffect = TaintEffect.NO_SCHEDULE,
    ) -> None:
        """Publish the device with one more taint."""
        taints = self.pool.taints.setdefault(self.pool.require(device), [])
        taints.append(DeviceTaint(key=key, value=value, effect=effect))
        await self._publish(self.pool.fault)

    async def untaint_device(self, device: str, *, key: str = TAINT_KEY) -> None:
        """Publish the device without the taints of that key."""
        taints = self.pool.taints.get(self.pool.require(device), [])
        taints[:] = [taint for taint in taints if taint.key != key]
        await self._publish(self.pool.fault)

    # Pods

    async def set_faults(self, **faults: Value) -> None:
        """Set defaults for the pods of this node, e.g. `set_faults(unprepare_seconds=20)`; None takes one away."""
        gone = {PREFIX + name.replace("_", "-"): None for name, value in faults.items() if value is None}
        given = annotations_of(**{name: value for name, value in faults.items() if value is not None})
        self._object = await self.api.patch(
            NODES, self.name, {"metadata": {"annotations": {**gone, **given}}}, field_manager="lab"
        )
        self.see_node(self._object)

    def evict(self, pod_uid: str, message: str = "The node was low on resource: memory (simulated)") -> None:
        """The kubelet evicts the pod: Failed with reason Evicted, held back until unprepared."""
        self._workers[pod_uid].evict(message)

    def behaviour(self, pod: Mapping[str, Any]) -> Behaviour:
        """How this pod behaves on this node."""
        return behaviour_of(pod, self._annotations)

    def address(self, pod_uid: str) -> str:
        """An address of its own for each pod, from the benchmarking block of RFC 2544."""
        if pod_uid not in self._addresses:
            self._addresses_given += 1
            index = self._address_block * 256 + self._addresses_given % 256
            self._addresses[pod_uid] = f"198.{18 + (index >> 16) % 2}.{(index >> 8) % 256}.{index % 256}"
        return self._addresses[pod_uid]

    async def awake(self) -> None:
        """Return once the node acts."""
        await self._awake.wait()

    # What the fleet tells it

    def see_node(self, node: Json) -> None:
        """The Node object was seen."""
        annotations = dict(node["metadata"].get("annotations") or {})
        if annotations == self._annotations:
            return
        self._annotations = annotations
        for worker in self._workers.values():
            worker.update(worker.pod)

    def see_pod(self, pod: Json) -> None:
        """A pod of this node was seen."""
        uid = pod["metadata"]["uid"]
        self._pods[uid] = pod
        if self._awake.is_set():
            self._forward(pod)

    def miss_pod(self, uid: str) -> None:
        """A pod of this node is gone."""
        self._pods.pop(uid, None)
        if self._awake.is_set() and uid in self._workers:
            self._workers[uid].vanish()

    async def renew_lease(self) -> None:
        """Show that the node lives."""
        lease = lease_manifest(self._object, seconds=40, renewed=_micro_now())
        try:
            await self.api.patch(
                LEASES, self.name, {"spec": lease["spec"]}, LEASE_NAMESPACE, field_manager=FIELD_MANAGER
            )
        except ApiError as error:
            if not error.is_not_found:
                raise
            with contextlib.suppress(ApiError):
                await self.api.create(LEASES, lease, LEASE_NAMESPACE)

    @property
    def acts(self) -> bool:
        """Whether the node does anything at present."""
        return self._awake.is_set()

    # Inside

    def _resync(self) -> None:
        for uid, worker in list(self._workers.items()):
            if uid not in self._pods:
                worker.vanish()
        for pod in list(self._pods.values()):
            self._forward(pod)

    def _forward(self, pod: Json) -> None:
        worker = self._workers.get(pod["metadata"]["uid"])
        if worker is None:
            self._start(pod)
        else:
            worker.update(pod)

    def _start(self, pod: Json, *, rebooted: bool = False) -> None:
        worker = PodWorker(self, pod, rebooted=rebooted)
        uid = worker.uid
        self._workers[uid] = worker
        task = asyncio.create_task(worker.run(), name=f"pod {worker.name} on {self.name}")
        self._tasks[uid] = task
        task.add_done_callback(lambda done: self._finished(uid, done))

    def _finished(self, uid: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(uid) is task:
            self._tasks.pop(uid)
            self._workers.pop(uid, None)
            self._addresses.pop(uid, None)
        self._report(task)

    async def _cancel_workers(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        self._workers.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _patch_node_status(self, patch: Json, *, manager: str = FIELD_MANAGER) -> None:
        await self.api.patch(
            NODES,
            self.name,
            patch,
            patch_type=PatchType.STRATEGIC,
            subresource="status",
            field_manager=manager,
        )

    async def _publish(self, fault: PoolFault) -> None:
        async with self._publishing:
            self.pool.fault = fault
            wanted = self.pool.next_generation()
            for manifest in wanted:
                await self._put_slice(manifest)
            for name in self._published - {manifest["metadata"]["name"] for manifest in wanted}:
                await self.api.delete_if_there(RESOURCE_SLICES, name)
            self._published = {manifest["metadata"]["name"] for manifest in wanted}

    async def _put_slice(self, manifest: Json) -> None:
        name = manifest["metadata"]["name"]
        manifest["metadata"]["ownerReferences"] = [{**node_owner(self._object), "controller": True}]
        try:
            await self.api.patch(
                RESOURCE_SLICES, name, {"spec": manifest["spec"], "metadata": manifest["metadata"]}
            )
        except ApiError as error:
            if not error.is_not_found:
                raise
            await self.api.create(RESOURCE_SLICES, manifest)

    async def _adopt_slices(self) -> None:
        page = await self.api.list(RESOURCE_SLICES, field_selector=f"spec.nodeName={self.name}")
        for one in page.items:
            if one["spec"]["driver"] == self.pool.driver:
                self._published.add(one["metadata"]["name"])
                self.pool.generation = max(self.pool.generation, one["spec"]["pool"]["generation"])

    async def _wipe_later(self) -> None:
        await asyncio.sleep(self.timing.slice_wipe)
        await self._publish(PoolFault.MISSING)


def _gone(error: BaseException) -> bool:
    """Whether a deletion failed because there is nothing left to delete."""
    if isinstance(error, aiohttp.ClientError):
        return True  # the cluster itself is going down
    return isinstance(error, ApiError) and error.status in {404, 409}


def _micro_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
