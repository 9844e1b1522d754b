"""Worlds that the small API server has: raw objects, as the API sends them."""

from typing import Any

from accelerator_rollout.names import FINALIZER
from unit.cli.server import APPS, CORE, DEVICES, OURS, Server
from unit.observe import objects as o

SINCE = "2026-01-31T12:00:00Z"


def condition(kind: str, reason: str, message: str = "a message", status: str = "True") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": SINCE,
        "observedGeneration": 1,
    }


COMPLETE = [
    condition("Ready", "Complete", "2 of 2 pods"),
    condition("Progressing", "Complete", "2 of 2 pods", "False"),
]
RELEASING = [
    condition("Ready", "Releasing", "soon", "False"),
    condition("Progressing", "Releasing", "replacement of pod db-1: Releasing"),
    condition("Reconciling", "Releasing"),
    condition("DevicesReleased", "ClaimAllocated", "devices of db-1: still allocated", "False"),
]
STALLED = [
    condition("Ready", "ReleaseTimeout", "devices of db-1 are not free", "False"),
    condition("Progressing", "Releasing", "replacement of pod db-1: Releasing", "False"),
    condition("Stalled", "ReleaseTimeout", "devices of db-1 are not free"),
]


def status(conditions: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    counts = {"replicas": 2, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
    return {
        "observedGeneration": 1,
        "adoptedAt": SINCE,
        "updateRevision": "db-2",
        "conditions": conditions,
        **counts,
        **more,
    }


def rollout(server: Server, conditions: list[dict[str, Any]], name: str = "db", **more: Any) -> str:
    """Put an AcceleratorRollout of the StatefulSet db; return its path."""
    meta = {k: more.pop(k) for k in ("namespace",) if k in more}
    raw = o.rollout(name, kind="StatefulSet", workload="db", status=status(conditions, **more), **meta)
    raw["metadata"]["finalizers"] = [FINALIZER]
    return server.put(OURS, "acceleratorrollouts", raw)


def workload(server: Server, pods: int = 2, updated: int = 1) -> None:
    """Put the StatefulSet db; the first so many of its pods are at its target, and all are ready on a device of their own."""
    stateful = o.stateful_set()
    stateful["spec"]["replicas"] = pods
    stateful["status"] |= {"observedGeneration": 1, "replicas": pods}
    server.put(APPS, "statefulsets", stateful)
    for number in range(pods):
        node = f"node-{number}"
        name = f"db-{number}"
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": SINCE}]
        pod = o.pod(
            name,
            owner=("StatefulSet", "db", "uid-db"),
            node=node,
            claims={"lpu": f"{name}-lpu"},
            status={"conditions": conditions},
        )
        pod["metadata"]["labels"] = {"controller-revision-hash": "db-2" if number < updated else "db-1"}
        server.put(CORE, "pods", pod)
        claim = o.claim(f"{name}-lpu", pod_uid=f"uid-{name}", device="dev-0", pool=node)
        server.put(DEVICES, "resourceclaims", claim)
        server.put(
            DEVICES, "resourceslices", o.resource_slice(f"slice-{number}", pool=node, devices=("dev-0",))
        )
        server.put(CORE, "nodes", o.node(node))
