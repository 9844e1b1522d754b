"""Many simulated nodes in one process, fed by one watch per kind: pods, claims and nodes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Self, TypeVar

from lab.client import Api, ApiError, EventType, WatchEvent, has_condition
from lab.ledger import Ledger
from lab.nodes.claims import ClaimStore
from lab.nodes.node import NodeSpec, SimulatedNode
from lab.nodes.objects import device_class_manifest
from lab.nodes.timing import Timing
from lab.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, Resource

T = TypeVar("T")

DRIVER: Final = "lpu.example.dev"
_PARALLEL: Final = 16  # requests at once when many nodes come, go or renew
_log = logging.getLogger(__name__)


class SimulatedNodes:
    """A fleet; use as `async with SimulatedNodes(api) as nodes`. Leaving it removes the nodes and their pods.

    An error inside the simulation (a fault that cannot be read, a refused request) is raised when the fleet is left:
    a node that silently stopped to act would look like a bug of whatever is being tested.
    """

    def __init__(
        self, api: Api, *, ledger: Ledger | None = None, timing: Timing | None = None, driver: str = DRIVER
    ) -> None:
        self.api = api
        self.ledger = ledger or Ledger()
        self.timing = timing or Timing()
        self.driver = driver
        self.errors: list[BaseException] = []
        self._claims = ClaimStore()
        self._nodes: dict[str, SimulatedNode] = {}
        self._bound: dict[str, str] = {}  # pod UID → node name
        self._tasks: list[asyncio.Task[None]] = []
        self._limit = asyncio.Semaphore(_PARALLEL)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close()
        if kind is None:
            self.raise_errors()

    async def start(self) -> None:
        """Start watching. The claims are known from here on: pods found running must be matched with theirs at once."""
        for claim in (await self.api.list(RESOURCE_CLAIMS)).items:
            self._claims.put(claim)
        handlers: list[tuple[Resource, Callable[[WatchEvent], None]]] = [
            (PODS, self._see_pod),
            (RESOURCE_CLAIMS, self._see_claim),
            (NODES, self._see_node),
        ]
        self._tasks = [
            asyncio.create_task(self._follow(resource, handle), name=f"watch {resource.plural}")
            for resource, handle in handlers
        ]
        self._tasks.append(asyncio.create_task(self._renew(), name="renew leases"))
        for task in self._tasks:
            task.add_done_callback(self._collect)

    async def close(self, *, clean: bool = True) -> None:
        """Stop; with `clean` the nodes, their slices and their pods leave the cluster too."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await asyncio.gather(*(self._limited(node.close(clean=clean)) for node in self._nodes.values()))
        self._nodes.clear()

    def raise_errors(self) -> None:
        """Raise what went wrong inside the simulation so far."""
        if self.errors:
            errors, self.errors = self.errors, []
            raise BaseExceptionGroup("the simulated nodes failed", errors)

    # Nodes

    async def add(
        self,
        name: str,
        *,
        devices: int | tuple[str, ...] = 4,
        slices: int = 1,
        published: bool = True,
        driver: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        cpu: str = "64",
        memory: str = "512Gi",
        pods: int = 110,
    ) -> SimulatedNode:
        """Add a node with devices `lpu-0`… (or these names); returns once the scheduler may use it.

        Without `published` it is Ready before its slices exist: they come with its `publish`.
        """
        node = await self._register(
            NodeSpec(
                name=name,
                devices=tuple(f"lpu-{index}" for index in range(devices))
                if isinstance(devices, int)
                else devices,
                driver=driver or self.driver,
                slices=slices,
                published=published,
                cpu=cpu,
                memory=memory,
                pods=pods,
                labels=labels or {},
                annotations=annotations or {},
            )
        )
        await self._await_schedulable([name])
        return node

    async def add_many(
        self, count: int, *, prefix: str = "sim", devices: int = 4, slices: int = 1
    ) -> list[SimulatedNode]:
        """Add `count` like nodes named `PREFIX-0`…"""
        names = tuple(f"lpu-{index}" for index in range(devices))
        specs = [
            NodeSpec(name=f"{prefix}-{index}", devices=names, driver=self.driver, slices=slices)
            for index in range(count)
        ]
        nodes = await asyncio.gather(*(self._limited(self._register(spec)) for spec in specs))
        await self._await_schedulable([node.name for node in nodes])
        return list(nodes)

    def node(self, name: str) -> SimulatedNode:
        """The node of that name; raises KeyError."""
        return self._nodes[name]

    def node_of(self, pod: Mapping[str, Any]) -> SimulatedNode:
        """The node that a pod is bound to; raises KeyError."""
        return self._nodes[pod["spec"]["nodeName"]]

    async def ensure_device_class(
        self, name: str | None = None, *, extended_resource: str | None = None
    ) -> str:
        """Create the DeviceClass of the fleet's driver if it is not there; returns its name."""
        name = name or self.driver
        manifest = device_class_manifest(name, self.driver, extended_resource=extended_resource)
        try:
            await self.api.create(DEVICE_CLASSES, manifest)
        except ApiError as error:
            if not error.is_already_exists:
                raise
        return name

    # Inside

    async def _register(self, spec: NodeSpec) -> SimulatedNode:
        if spec.name in self._nodes:
            raise ValueError(
                f"there is a simulated node {spec.name!r} already; use its come_back() to revive it"
            )
        node = SimulatedNode(
            spec,
            api=self.api,
            claims=self._claims,
            ledger=self.ledger,
            timing=self.timing,
            address_block=len(self._nodes),
            report=self._collect,
        )
        self._nodes[spec.name] = node  # before it registers: its first pods must not be missed
        try:
            await node.register()
        except BaseException:
            del self._nodes[spec.name]
            await node.close(clean=True)
            raise
        return node

    async def _await_schedulable(self, names: list[str]) -> None:
        """The API server taints each new Node as not ready; the node lifecycle controller takes that away."""
        waiting = set(names)
        async with asyncio.timeout(30):
            while waiting:
                page = await self.api.list(NODES)
                for node in page.items:
                    taints = {taint["key"] for taint in node["spec"].get("taints") or ()}
                    if has_condition(node, "Ready") and "node.kubernetes.io/not-ready" not in taints:
                        waiting.discard(node["metadata"]["name"])
                if waiting:
                    await asyncio.sleep(0.1)

    async def _follow(self, resource: Resource, handle: Callable[[WatchEvent], None]) -> None:
        events: AsyncIterator[WatchEvent] = self.api.follow(resource)
        async for event in events:
            handle(event)

    def _see_pod(self, event: WatchEvent) -> None:
        pod = event.object
        node = self._nodes.get(pod["spec"].get("nodeName") or "")
        if node is None:
            return
        if event.type is EventType.DELETED:
            node.miss_pod(pod["metadata"]["uid"])
        else:
            node.see_pod(pod)

    def _see_claim(self, event: WatchEvent) -> None:
        if event.type is EventType.DELETED:
            self._claims.drop(event.object)
        else:
            self._claims.put(event.object)

    def _see_node(self, event: WatchEvent) -> None:
        node = self._nodes.get(event.object["metadata"]["name"])
        if node is not None and event.type is not EventType.DELETED:
            node.see_node(event.object)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self.timing.lease)
            acting = [node for node in self._nodes.values() if node.acts]
            outcomes = await asyncio.gather(
                *(self._limited(node.renew_lease()) for node in acting), return_exceptions=True
            )
            for node, outcome in zip(acting, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    _log.warning("node %s could not renew its lease: %r", node.name, outcome)

    async def _limited(self, work: Awaitable[T]) -> T:
        async with self._limit:
            return await work

    def _collect(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", task.get_name(), exc_info=error)
            self.errors.append(error)
