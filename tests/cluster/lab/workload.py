"""Small workloads with devices, for the tests of the test bed itself."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from lab.client import Api, Object, PatchType, has_condition
from lab.ledger import Entry
from lab.nodes import SimulatedNodes, annotations_of
from lab.nodes.faults import PREFIX, Value
from lab.recorder import Recorded
from lab.resources import (
    DEPLOYMENTS,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)

TEMPLATE = "lpu"


@dataclass(frozen=True, slots=True)
class Bench:
    """One test's namespace, and the simulated nodes whose devices nobody else's pods can get."""

    api: Api
    namespace: str
    nodes: SimulatedNodes

    async def prepare(self) -> None:
        """Make the DeviceClass and the claim template."""
        device_class = await self.nodes.ensure_device_class()
        await self.api.create(
            RESOURCE_CLAIM_TEMPLATES,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": TEMPLATE},
                "spec": {"spec": claim_spec(device_class)},
            },
            self.namespace,
        )

    async def clear(self) -> None:
        """Take the workloads away, owners first, so that nothing is made anew."""
        for resource in (DEPLOYMENTS, REPLICA_SETS):
            for one in (await self.api.list(resource, self.namespace)).items:
                await self.api.delete_if_there(resource, one["metadata"]["name"], self.namespace)

    async def pod(
        self,
        name: str = "llm",
        *,
        image: str = "example.com/llm:v1",
        grace: int = 30,
        restart_policy: str = "Always",
        claim: str | None = None,
        pre_stop: Object | None = None,
        finalizer: str | None = None,
        readiness_gate: str | None = None,
        **faults: Value,
    ) -> Object:
        """Create a pod with one device and these faults."""
        body: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "annotations": annotations_of(**faults),
                "finalizers": [finalizer] if finalizer else [],
            },
            "spec": pod_spec(
                image, grace=grace, restart_policy=restart_policy, claim=claim, pre_stop=pre_stop
            ),
        }
        if readiness_gate:
            body["spec"]["readinessGates"] = [{"conditionType": readiness_gate}]
        return await self.api.create(PODS, body, self.namespace)

    async def deployment(
        self, name: str = "llm", *, replicas: int = 1, grace: int = 30, **faults: Value
    ) -> Object:
        """Create a Deployment with surge 0 whose pods have one device each."""
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}, "annotations": annotations_of(**faults)},
                    "spec": pod_spec("example.com/llm:v1", grace=grace),
                },
            },
        }
        return await self.api.create(DEPLOYMENTS, body, self.namespace)

    async def heal(self, name: str, *faults: str) -> None:
        """Take faults off a pod that exists."""
        gone = {PREFIX + fault.replace("_", "-"): None for fault in faults}
        await self.api.patch(PODS, name, {"metadata": {"annotations": gone}}, self.namespace)

    async def until(self, name: str, holds: Callable[[Object | None], bool]) -> Object:
        """Await a state of a pod that exists."""
        found = await self.api.wait_for(PODS, name, holds, self.namespace, timeout=15)
        assert found is not None
        return found

    async def ready(self, name: str = "llm") -> Object:
        """Await that the pod is Ready."""
        return await self.until(name, is_ready)

    async def delete(self, name: str = "llm", *, force: bool = False) -> None:
        """Delete the pod, with its own grace or with none."""
        await self.api.delete(PODS, name, self.namespace, grace_seconds=0 if force else None)

    async def patch_status(self, name: str, patch: Object) -> None:
        """Write into a pod's status as some other controller would."""
        await self.api.patch(
            PODS, name, patch, self.namespace, patch_type=PatchType.STRATEGIC, subresource="status"
        )

    async def let_go(self, name: str) -> None:
        """Take all finalizers off the pod."""
        await self.api.patch(PODS, name, {"metadata": {"finalizers": None}}, self.namespace)

    async def available(self, replicas: int, name: str = "llm") -> None:
        """Await that so many of the Deployment's pods are available."""

        def holds(one: Object | None) -> bool:
            return one is not None and one["status"].get("availableReplicas") == replicas

        await self.api.wait_for(DEPLOYMENTS, name, holds, self.namespace, timeout=60)

    async def gone(self, name: str = "llm") -> None:
        """Await that no pod has the name."""
        await self.api.wait_gone(PODS, name, self.namespace, timeout=15)

    async def released(self) -> Entry:
        """Await that nothing is prepared any more; the ledger's last entry."""
        async with asyncio.timeout(15):
            while self.nodes.ledger.held():  # noqa: ASYNC110 - the ledger tells nobody of its changes
                await asyncio.sleep(0.02)
        return self.nodes.ledger.entries()[-1]

    async def nodes_failed(self) -> None:
        """Await that something went wrong inside the simulation, and raise it as leaving the fleet would."""
        async with asyncio.timeout(15):
            while not self.nodes.errors:  # noqa: ASYNC110 - errors are looked at only when the fleet is left
                await asyncio.sleep(0.02)
        self.nodes.raise_errors()

    async def claims(self) -> list[Object]:
        """The claims of the namespace."""
        return (await self.api.list(RESOURCE_CLAIMS, self.namespace)).items

    async def slices(self, node: str = "node-a") -> list[Object]:
        """The node's slices."""
        return (await self.api.list(RESOURCE_SLICES, field_selector=f"spec.nodeName={node}")).items

    async def node(self, name: str = "node-a") -> Object:
        """The Node object."""
        return await self.api.get(NODES, name)


def claim_spec(device_class: str) -> Object:
    """A claim for one device of the class."""
    return {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": device_class}}]}}


def pod_spec(
    image: str,
    *,
    grace: int = 30,
    restart_policy: str = "Always",
    claim: str | None = None,
    pre_stop: Object | None = None,
) -> Object:
    """A pod with one container that uses one device: of the named claim, or of one made from the template."""
    container: Object = {"name": "vllm", "image": image, "resources": {"claims": [{"name": "device"}]}}
    if pre_stop is not None:
        container["lifecycle"] = {"preStop": pre_stop}
    source = {"resourceClaimTemplateName": TEMPLATE} if claim is None else {"resourceClaimName": claim}
    return {
        "terminationGracePeriodSeconds": grace,
        "restartPolicy": restart_policy,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "resourceClaims": [{"name": "device", **source}],
    }


def is_ready(pod: Object | None) -> bool:
    """Whether the pod exists and is Ready."""
    return has_condition(pod, "Ready")


def phase_is(phase: str) -> Callable[[Object | None], bool]:
    """Whether the pod exists and is in this phase."""
    return lambda pod: pod is not None and pod["status"]["phase"] == phase


def waiting_for(reason: str) -> Callable[[Object | None], bool]:
    """Whether the pod's container waits with this reason."""
    return lambda pod: pod is not None and container_state(pod).get("waiting", {}).get("reason") == reason


def container_state(pod: Object) -> Object:
    """The state of the pod's first container."""
    statuses = pod["status"].get("containerStatuses") or [{}]
    return dict(statuses[0].get("state") or {})


def restarts(pod: Object) -> int:
    """The restart count of the pod's first container."""
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def is_terminal(one: Recorded) -> bool:
    """Whether a pod's change shows a terminal phase."""
    return one.kind == "Pod" and one.status.get("phase") in {"Succeeded", "Failed"}
