"""A small world for one test: simulated nodes, a workload on their devices, an AcceleratorRollout, and witnesses.

Devices, DeviceClass and nodes are named after the namespace, so that worlds side by side do not meet. The ledger and the
recorder are the witnesses; `assert_promises` asks them what must hold in every run.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from accelerator_rollout.api.models import RolloutStatus
from accelerator_rollout.names import API_VERSION, GATE, GATE_LABEL, KIND, RESERVED_TAINT
from lab.client import Api, EventType, Object, PatchType
from lab.ledger import Ledger
from lab.nodes import SimulatedNodes
from lab.nodes.faults import annotations_of
from lab.recorder import Recorded, Recorder
from lab.resources import (
    ACCELERATOR_ROLLOUTS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIMS,
    STATEFUL_SETS,
    Resource,
)

GOOD: Final = "example.com/llm:v1"
NEWER: Final = "example.com/llm:v2"
BROKEN: Final = "example.com/llm:broken"  # the simulated nodes cannot pull it

GROUP_LABEL: Final = "lab.example.com/group"  # of nodes: the namespace of the world that they are of

STRANGERS: Final = "strangers"  # their claim template

_RESOURCES: Final[Mapping[str, Resource]] = {
    "Deployment": DEPLOYMENTS,
    "StatefulSet": STATEFUL_SETS,
    "DaemonSet": DAEMON_SETS,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the workload looks like. `faults` are of the simulated nodes, e.g. unprepare_seconds=2.

    A DaemonSet has as many pods as its world has nodes, whatever `replicas` says.
    """

    kind: str = "Deployment"
    replicas: int = 3
    image: str = GOOD
    grace: int = 5
    gate: str = "template"  # or "label", or "none"
    foreign_gate: str = ""
    faults: Mapping[str, Any] = field(default_factory=dict)
    surge: int = 0
    unavailable: int = 1
    strategy: str = ""  # another than the one we drive
    named_claim: str = ""
    extended: bool = False  # ask by an extended resource that the DeviceClass names, and by no claim
    tolerates: str = ""  # the value of our taint that the claim template tolerates
    hold: str = "Never"  # spec.release.hold: the cluster would let us


@dataclass(slots=True)
class World:
    """Everything of one test. Names: the workload is `worker`, the AcceleratorRollout `worker`."""

    api: Api
    namespace: str
    nodes: SimulatedNodes
    ledger: Ledger
    recorder: Recorder
    shape: Shape
    folder: Path
    name: str = "worker"
    driver: str = ""  # of the devices, where several worlds share them

    @property
    def workload(self) -> Resource:
        """The workload's resource."""
        return _RESOURCES[self.shape.kind]

    @property
    def device_class(self) -> str:
        """The DeviceClass of this world's devices alone, or of the shared driver's."""
        return self.driver or f"{self.namespace}.example.dev"

    # Making things

    async def settle_in(self, *, spec: Mapping[str, Any] | None = None) -> Object:
        """Create class, template, workload and rollout, and await that all pods are ready."""
        await self.make_workload()
        await self.make_rollout(spec)
        return await self.until_ready()

    async def make_workload(self) -> None:
        """Create the workload with what it needs."""
        await self.api.apply_manifest([self._class(), self._claim_template(), self._workload()])

    async def make_rollout(self, spec: Mapping[str, Any] | None = None, name: str = "") -> None:
        """Create the AcceleratorRollout."""
        ref = {"apiVersion": "apps/v1", "kind": self.shape.kind, "name": self.name}
        asked = dict(spec or {})
        asked["release"] = {"hold": self.shape.hold, **asked.get("release", {})}
        await self.api.create(
            ACCELERATOR_ROLLOUTS,
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"name": name or self.name, "namespace": self.namespace},
                "spec": {"workloadRef": ref, **asked},
            },
        )

    async def set_image(self, image: str) -> None:
        """Change the workload's image, as `kubectl set image` does."""
        containers = [{"name": "model", "image": image}]
        await self._patch_workload({"spec": {"template": {"spec": {"containers": containers}}}})

    async def apply_workload(self, *, image: str, **spec: Any) -> None:
        """Apply the workload's manifest again, with this image and whatever else its spec says."""
        body = self._workload()
        body["spec"] |= spec
        body["spec"]["template"]["spec"]["containers"][0]["image"] = image
        await self.api.apply_manifest([body])

    async def scale(self, replicas: int) -> None:
        """Change the number of replicas."""
        await self._patch_workload({"spec": {"replicas": replicas}})

    async def change_rollout(self, spec: Mapping[str, Any]) -> None:
        """Merge into the rollout's spec."""
        await self.api.patch(
            ACCELERATOR_ROLLOUTS, self.name, {"spec": spec}, self.namespace, patch_type=PatchType.MERGE
        )

    async def make_pod(self, name: str) -> None:
        """Create a stranger's pod that wants a device of this world, by a claim template of its own."""
        await self.api.apply_manifest([self._claim_template(STRANGERS)])
        spec = self._pod_spec(GOOD)
        spec["resourceClaims"] = [{"name": "device", "resourceClaimTemplateName": STRANGERS}]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }
        await self.api.create(PODS, pod)

    async def _patch_workload(self, body: Object) -> None:
        await self.api.patch(self.workload, self.name, body, self.namespace, patch_type=PatchType.STRATEGIC)

    def _class(self) -> Object:
        expression = f"device.driver == '{self.device_class}'"
        spec: dict[str, Any] = {"selectors": [{"cel": {"expression": expression}}]}
        if self.shape.extended:
            spec["extendedResourceName"] = f"{self.device_class}/lpu"
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": self.device_class},
            "spec": spec,
        }

    def _claim_template(self, name: str = "") -> Object:
        asked: dict[str, Any] = {"deviceClassName": self.device_class}
        if self.shape.tolerates and not name:
            ours = {"key": RESERVED_TAINT, "operator": "Equal", "value": self.shape.tolerates}
            asked["tolerations"] = [ours | {"effect": "NoSchedule"}]
        request = {"name": "device", "exactly": asked}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name or f"{self.name}-devices", "namespace": self.namespace},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }

    def _pod_spec(self, image: str) -> dict[str, Any]:
        claim = (
            {"resourceClaimName": self.shape.named_claim}
            if self.shape.named_claim
            else {"resourceClaimTemplateName": f"{self.name}-devices"}
        )
        container: dict[str, Any] = {"name": "model", "image": image}
        spec: dict[str, Any] = {
            "terminationGracePeriodSeconds": self.shape.grace,
            "containers": [container],
        }
        if self.shape.extended:
            container["resources"] = {"limits": {f"{self.device_class}/lpu": "1"}}
            return spec
        container["resources"] = {"claims": [{"name": "device"}]}
        return spec | {"resourceClaims": [{"name": "device", **claim}]}

    def _workload(self) -> Object:
        shape = self.shape
        labels = {"app": self.name}
        spec = self._pod_spec(shape.image)
        gates = [{"name": GATE}] if shape.gate == "template" else []
        gates += [{"name": shape.foreign_gate}] if shape.foreign_gate else []
        if gates:
            spec["schedulingGates"] = gates
        template = {
            "metadata": {
                "labels": labels | ({GATE_LABEL: "true"} if shape.gate == "label" else {}),
                "annotations": annotations_of(**shape.faults),
            },
            "spec": spec,
        }
        body: dict[str, Any] = {
            "replicas": shape.replicas,
            "selector": {"matchLabels": labels},
            "template": template,
        }
        if shape.kind == "DaemonSet":
            del body["replicas"]
            spec["nodeSelector"] = {GROUP_LABEL: self.namespace}
            body["updateStrategy"] = {"type": shape.strategy or "OnDelete"}
        elif shape.kind == "StatefulSet":
            body |= {"serviceName": self.name, "updateStrategy": {"type": shape.strategy or "OnDelete"}}
        elif shape.strategy:
            body["strategy"] = {"type": shape.strategy}
        else:
            rolling = {"maxSurge": shape.surge, "maxUnavailable": shape.unavailable}
            body["strategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}
        meta = {"name": self.name, "namespace": self.namespace}
        return {"apiVersion": "apps/v1", "kind": shape.kind, "metadata": meta, "spec": body}

    # Looking and waiting

    async def rollout(self) -> Object:
        """The AcceleratorRollout as it is."""
        return await self.api.get(ACCELERATOR_ROLLOUTS, self.name, self.namespace)

    async def pods(self) -> list[Object]:
        """The workload's pods, terminating ones too, oldest first."""
        found = (await self.api.list(PODS, self.namespace)).items
        mine = [p for p in found if (p["metadata"].get("labels") or {}).get("app") == self.name]
        return sorted(mine, key=lambda p: (p["metadata"]["creationTimestamp"], p["metadata"]["name"]))

    async def until(
        self, predicate: Callable[[Object], bool], what: str, *, seconds: float = 60.0, name: str = ""
    ) -> Object:
        """Await a state of the AcceleratorRollout; the failure shows its status and the timeline."""
        wanted = name or self.name
        try:
            return await self.api.wait_for(
                ACCELERATOR_ROLLOUTS, wanted, predicate, self.namespace, timeout=seconds
            )
        except TimeoutError as error:
            last = await self.api.find(ACCELERATOR_ROLLOUTS, wanted, self.namespace)
            said = (last or {}).get("status")
            raise AssertionError(
                f"{what} did not come within {seconds:g} s; status: {said}\n"
                + self.recorder.render(namespace=self.namespace)
            ) from error

    async def until_ready(self, *, image: str = "", seconds: float = 60.0) -> Object:
        """Await Ready=True for the newest generation and (if given) that every pod runs the image."""
        found = await self.until(is_ready, "Ready=True", seconds=seconds)
        if image:
            await self._until_image(image, seconds)
            found = await self.until(is_ready, "Ready=True", seconds=seconds)
        return found

    async def _until_image(self, image: str, seconds: float) -> None:
        replicas = wanted(await self.api.get(self.workload, self.name, self.namespace))

        def done(rollout: Object) -> bool:
            status = rollout.get("status") or {}
            return bool(is_ready(rollout) and status.get("updatedReplicas") == replicas)

        # Ready may speak of the template as it was, or an old pod's object has yet to go: then pods change once more.
        async with asyncio.timeout(seconds), aclosing(self.api.follow(PODS, self.namespace)) as changes:
            async for _ in changes:
                await self.until(done, f"all pods at {image}", seconds=seconds)
                pods = await self.pods()
                if len(pods) == replicas and all(image_of(p) == image for p in pods):
                    return

    async def until_replaced(self, uid: str, *, seconds: float = 30.0) -> None:
        """Await that all pods that are wanted are ready, and the one with this UID is none of them."""
        async with asyncio.timeout(seconds), aclosing(self.api.follow(PODS, self.namespace)) as changes:
            async for _ in changes:
                well = [p["metadata"]["uid"] for p in await self.pods() if pod_is_ready(p)]
                if len(well) == self.shape.replicas and uid not in well:
                    return

    async def until_reason(
        self, condition: str, reason: str, *, seconds: float = 30.0, name: str = ""
    ) -> Object:
        """Await that a condition has this reason."""

        def there(rollout: Object) -> bool:
            found = condition_of(rollout, condition)
            return found is not None and found["reason"] == reason

        return await self.until(there, f"{condition} with reason {reason}", seconds=seconds, name=name)

    async def until_stage(self, *stages: str, seconds: float = 30.0) -> Object:
        """Await that a replacement in flight is at one of these stages."""

        def there(rollout: Object) -> bool:
            return any(r["stage"] in stages for r in (rollout.get("status") or {}).get("replacements") or [])

        return await self.until(there, f"a replacement at {' or '.join(stages)}", seconds=seconds)

    # What must hold in every run

    def deletions(self) -> list[Recorded]:
        """The workload's pods that were seen to be deleted, each once."""
        seen: dict[str, Recorded] = {}
        for one in self.recorder.events(kind="Pod", predicate=self._mine):
            if (one.deleting or one.type is EventType.DELETED) and one.uid not in seen:
                seen[one.uid] = one
        return list(seen.values())

    async def gone(self) -> int:
        """How many of the workload's pods were deleted so far."""
        await self.recorder.caught_up()
        return len(self.deletions())

    def most_down(self) -> int:
        """Return how many pods were not Ready at once at most, once all that are wanted had been."""
        wanted_now = most = 0
        ready: set[str] = set()
        complete = False
        for one in self.recorder.events():
            if one.kind == self.shape.kind and one.name == self.name:
                wanted_now = wanted(one.object)
            elif one.kind == "Pod" and self._mine(one):
                well = one.type is not EventType.DELETED and not one.deleting and pod_is_ready(one.object)
                (ready.add if well else ready.discard)(one.uid)
            complete = complete or 0 < wanted_now == len(ready)
            if complete:
                most = max(most, wanted_now - len(ready))
        return most

    def assert_promises(self) -> None:
        """Assert what holds whatever happened: no device twice, no early gate, no success for an old generation."""
        self.ledger.assert_clean()
        self._assert_devices_never_exceed_replicas()
        for status in self.recorder.statuses(self.name, namespace=self.namespace):
            RolloutStatus.from_raw(status)
            for condition in status.get("conditions") or []:
                assert condition.get("observedGeneration"), condition

    def _assert_devices_never_exceed_replicas(self) -> None:
        most = 0
        held: set[str] = set()
        claims = self.recorder.events(kind="ResourceClaim")
        for one in claims:
            allocated = one.type is not EventType.DELETED and one.status.get("allocation") is not None
            if allocated and one.name.startswith(f"{self.name}-"):
                held.add(one.uid)
            else:
                held.discard(one.uid)
            most = max(most, len(held))
        replicas = max(wanted(o.object) for o in self.recorder.events(kind=self.shape.kind, name=self.name))
        assert most <= replicas, f"{most} claims were allocated at once, for {replicas} replicas"

    def assert_gates_after_release(self) -> int:
        """Assert that each replacement's gate opened after its predecessor's claim was free; return how many."""
        last = (self.recorder.statuses(self.name, namespace=self.namespace) or [{}])[-1]
        pairs = [
            (r["podName"], r["replacedBy"])
            for past in last.get("history") or []
            for r in past.get("replacements") or []
            if r.get("replacedBy") and r.get("podName")
        ]
        for old, new in pairs:
            claims = self.recorder.events(
                kind="ResourceClaim",
                predicate=lambda c, o=old: o in str(c.object["metadata"]["name"]),  # type: ignore[misc]
            )
            if old == new:  # a StatefulSet: the namesake's opening is the later one
                self._assert_namesake(old)
                continue
            free = next(
                c
                for c in claims
                if c.type is EventType.DELETED
                or (
                    c.status.get("allocation") is None
                    and any(b.status.get("allocation") for b in claims if b.version < c.version)
                )
            )
            opened = self.recorder.first(
                f"opening of {new}", kind="Pod", name=new, predicate=lambda p: not gated(p.object)
            )
            self.recorder.order(free, opened)
        return len(pairs)

    def _assert_namesake(self, name: str) -> None:
        """Assert for one ordinal that each claim was free before the next pod of the name opened."""
        opened = [
            p
            for p in self.recorder.events(kind="Pod", name=name)
            if p.type is not EventType.DELETED and not gated(p.object)
        ]
        firsts = list({p.uid: p for p in reversed(opened)}.values())[::-1]
        for earlier, later in itertools.pairwise(firsts):
            gone = [
                c
                for c in self.recorder.events(kind="ResourceClaim")
                if _owner(c.object) == earlier.uid
                and (c.type is EventType.DELETED or c.status.get("allocation") is None)
                and c.version > earlier.version
            ]
            assert gone, f"the claim of {name} ({earlier.uid}) was never seen free"
            self.recorder.order(gone[0], later)

    def _mine(self, one: Recorded) -> bool:
        return (one.object["metadata"].get("labels") or {}).get("app") == self.name

    async def claims(self) -> list[Object]:
        """All claims of the namespace."""
        return (await self.api.list(RESOURCE_CLAIMS, self.namespace)).items

    async def clean(self) -> None:
        """Remove what outlives the namespace."""
        await self.api.delete_if_there(DEVICE_CLASSES, self.device_class)


MakeWorld = Callable[
    ..., Awaitable[World]
]  # (shape, *, devices=(2, 2), slices=1): a fixture's way to make one


def condition_of(rollout: Object, kind: str) -> dict[str, Any] | None:
    """The condition of that type, or None."""
    found = (rollout.get("status") or {}).get("conditions") or []
    return next((c for c in found if c["type"] == kind), None)


def wanted(workload: Object) -> int:
    """How many pods the workload is to have; a DaemonSet's controller counts them."""
    found = workload["spec"].get("replicas")
    if found is None:
        found = (workload.get("status") or {}).get("desiredNumberScheduled")
    return int(found or 0)


def is_ready(rollout: Object) -> bool:
    """Whether Ready is true for the object's newest generation."""
    found = condition_of(rollout, "Ready")
    generation = rollout["metadata"]["generation"]
    return found is not None and found["status"] == "True" and found["observedGeneration"] == generation


def pod_is_ready(pod: Object) -> bool:
    """Whether the pod's own condition says so."""
    found = condition_of(pod, "Ready")
    return found is not None and found["status"] == "True"


def gated(pod: Object) -> bool:
    """Whether our gate is on the pod."""
    return any(g["name"] == GATE for g in pod["spec"].get("schedulingGates") or [])


def image_of(pod: Object) -> str:
    """The image of its first container."""
    return str(pod["spec"]["containers"][0]["image"])


def _owner(body: Object) -> str:
    return next((str(r["uid"]) for r in body["metadata"].get("ownerReferences") or []), "")
