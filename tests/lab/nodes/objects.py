"""Manifests of the cluster-wide objects that a simulated node stands for."""

from typing import Any, Final

from lab.nodes.faults import PREFIX
from lab.nodes.status import api_time

Json = dict[str, Any]

SIMULATED: Final = PREFIX + "simulated"  # label on all that we create, and the only things that we delete
LEASE_NAMESPACE: Final = "kube-node-lease"


def node_manifest(
    name: str,
    *,
    cpu: str,
    memory: str,
    pods: int,
    boot_id: str,
    labels: dict[str, str],
    annotations: dict[str, str],
) -> Json:
    """A Node that is Ready and has room."""
    room = {"cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "1Ti"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                SIMULATED: "true",
                **labels,
            },
            "annotations": annotations,
        },
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": node_conditions(ready="True"),
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": {
                "machineID": name,
                "systemUUID": name,
                "bootID": boot_id,
                "kernelVersion": "simulated",
                "osImage": "simulated",
                "containerRuntimeVersion": "simulated://0",
                "kubeletVersion": "v1.37.2",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def node_conditions(*, ready: str) -> list[Json]:
    """The conditions of a Node without any pressure; `ready` is True, False or Unknown."""
    now = api_time()
    reason = {"True": "KubeletReady", "False": "KubeletNotReady"}.get(ready, "NodeStatusUnknown")
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    pressure = "Unknown" if ready == "Unknown" else "False"
    return [
        *(
            {"type": kind, "status": pressure, "reason": "Simulated", "message": "simulated node", **times}
            for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
        ),
        {"type": "Ready", "status": ready, "reason": reason, "message": "simulated node", **times},
    ]


def lease_manifest(node: Json, *, seconds: int, renewed: str) -> Json:
    """The Lease by which a kubelet shows that it lives."""
    name = node["metadata"]["name"]
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [node_owner(node)]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": seconds, "renewTime": renewed},
    }


def node_owner(node: Json) -> Json:
    """The owner reference that lets the garbage collector clean up after a Node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "name": node["metadata"]["name"],
        "uid": node["metadata"]["uid"],
    }


def device_class_manifest(name: str, driver: str, *, extended_resource: str | None = None) -> Json:
    """A DeviceClass that means every device of one driver."""
    spec: Json = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}
    if extended_resource is not None:
        spec["extendedResourceName"] = extended_resource
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, "labels": {SIMULATED: "true"}},
        "spec": spec,
    }
