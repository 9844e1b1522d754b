"""Objects as the API server sends them, small, for tests of what we make of them."""

from itertools import count
from typing import Any

from accelerator_rollout.names import GROUP, PLURAL

DRIVER = "lpu.example.com"
GATE = "accelerator-rollout.dev/device-release"

_versions = count(100)


def next_version() -> str:
    return str(next(_versions))


def meta(
    name: str,
    *,
    namespace: str = "team",
    uid: str = "",
    version: str = "",
    owner: tuple[str, str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "uid": uid or f"uid-{name}",
        "resourceVersion": version or next_version(),
        "creationTimestamp": "2026-01-31T12:00:00Z",
        "generation": 1,
    }
    if namespace:
        found["namespace"] = namespace
    if owner:
        kind, owner_name, owner_uid = owner
        found["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": kind, "name": owner_name, "uid": owner_uid, "controller": True}
        ]
    return found | more


def pod(
    name: str,
    *,
    owner: tuple[str, str, str] | None = ("ReplicaSet", "web-1", "uid-web-1"),
    node: str = "node-1",
    phase: str = "Running",
    gated: bool = False,
    claims: dict[str, str | None] | None = None,
    status: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    claims = {} if claims is None else claims
    return {
        "metadata": meta(name, owner=owner, **more),
        "spec": {
            "nodeName": node or None,
            "schedulingGates": [{"name": GATE}] if gated else None,
            "terminationGracePeriodSeconds": 120,
            "resourceClaims": [{"name": entry, "resourceClaimTemplateName": "lpu"} for entry in claims],
        },
        "status": {
            "phase": phase,
            "resourceClaimStatuses": [
                {"name": entry, "resourceClaimName": claim} for entry, claim in claims.items()
            ],
        }
        | (status or {}),
    }


def ended_by(manager: str, raw: dict[str, Any]) -> dict[str, Any]:
    """The pod in phase Failed, its containers terminated, as `manager` writes it."""
    raw["status"] |= {
        "phase": "Failed",
        "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 143}}}],
    }
    raw["metadata"]["managedFields"] = [
        {
            "manager": manager,
            "operation": "Update",
            "subresource": "status",
            "fieldsV1": {"f:status": {"f:phase": {}}},
        }
    ]
    return raw


def claim(
    name: str,
    *,
    pod_uid: str | None = None,
    device: str | None = None,
    pool: str = "node-1",
    owner: tuple[str, str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    status: dict[str, Any] = {}
    if device:
        results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": device}]
        status["allocation"] = {"devices": {"results": results}}
        if pod_uid:
            status["reservedFor"] = [{"resource": "pods", "name": "p", "uid": pod_uid}]
    owner = ("Pod", "p", pod_uid) if pod_uid else owner
    return {"metadata": meta(name, owner=owner, **more), "spec": {}, "status": status}


def reserved_for_rollout(name: str, uid: str) -> dict[str, Any]:
    """The entry of an AcceleratorRollout in a claim's reservedFor."""
    return {"apiGroup": GROUP, "resource": PLURAL, "name": name, "uid": uid}


def resource_slice(
    name: str, *, devices: tuple[str, ...] = ("lpu-0",), pool: str = "node-1"
) -> dict[str, Any]:
    return {
        "metadata": meta(name, namespace=""),
        "spec": {
            "driver": DRIVER,
            "nodeName": pool,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": device} for device in devices],
        },
    }


def taint_rule(name: str, *, selector: dict[str, str] | None) -> dict[str, Any]:
    return {
        "metadata": meta(name, namespace=""),
        "spec": {"deviceSelector": selector, "taint": {"key": "broken", "effect": "NoSchedule"}},
    }


def node(name: str, *, boot: str = "boot-1", ready: str = "True", **more: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-31T12:00:00Z"}]
    return {
        "metadata": meta(name, namespace="", **more),
        "spec": {},
        "status": {"conditions": conditions, "nodeInfo": {"bootID": boot}},
    }


def template(image: str = "v1", *, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"creationTimestamp": None, "labels": {"app": "web"} if labels is None else labels},
        "spec": {
            "containers": [
                {"name": "main", "image": image, "lifecycle": {"preStop": {"exec": {"command": ["drain"]}}}}
            ],
            "schedulingGates": [{"name": GATE}],
            "terminationGracePeriodSeconds": 120,
            "resourceClaims": [{"name": "lpu", "resourceClaimTemplateName": "lpu"}],
        },
    }


def deployment(name: str = "web", *, replicas: int | None = 2, **more: Any) -> dict[str, Any]:
    return {
        "metadata": meta(name, **more),
        "spec": {
            "replicas": replicas,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": template(),
        },
        "status": {"observedGeneration": 1},
    }


def replica_set(
    name: str = "web-1", *, owner_uid: str = "uid-web", image: str = "v1", **more: Any
) -> dict[str, Any]:
    labels = {"app": "web", "pod-template-hash": "abc"}
    return {
        "metadata": meta(name, owner=("Deployment", "web", owner_uid), **more) | {"labels": labels},
        "spec": {"replicas": 2, "template": template(image, labels=labels)},
        "status": {"replicas": 2, "observedGeneration": 1},
    }


def stateful_set(name: str = "db", **more: Any) -> dict[str, Any]:
    return {
        "metadata": meta(name, **more),
        "spec": {"replicas": 2, "updateStrategy": {"type": "OnDelete"}, "template": template()},
        "status": {"currentRevision": "db-1", "updateRevision": "db-2"},
    }


def daemon_set(name: str = "ds", **more: Any) -> dict[str, Any]:
    return {
        "metadata": meta(name, **more),
        "spec": {"updateStrategy": {"type": "OnDelete"}, "template": template(), "minReadySeconds": 3},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 2},
    }


def controller_revision(name: str = "ds-1", *, image: str = "v1", **more: Any) -> dict[str, Any]:
    """As the DaemonSet controller writes one: a patch of the template."""
    made = meta(name, owner=("DaemonSet", "ds", "uid-ds"), **more)
    made["labels"] = {"app": "web", "controller-revision-hash": "1"}
    return {
        "metadata": made,
        "revision": 1,
        "data": {"spec": {"template": template(image) | {"$patch": "replace"}}},
    }


def aimed_at(*nodes: str) -> dict[str, Any]:
    """Affinity that requires each of these nodes by its name, one term each."""
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def budget(name: str = "web", *, selector: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    return {
        "metadata": meta(name, uid=f"uid-pdb-{name}", **more),
        "spec": {"selector": selector, "maxUnavailable": 1},
        "status": {"disruptionsAllowed": 1, "observedGeneration": 1},
    }


def rollout(
    name: str = "web",
    *,
    kind: str = "Deployment",
    workload: str = "web",
    status: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": "accelerator-rollout.dev/v1alpha1",
        "kind": "AcceleratorRollout",
        "metadata": meta(name, uid=f"uid-arol-{name}", **more),
        "spec": {"workloadRef": {"apiVersion": "apps/v1", "kind": kind, "name": workload}},
        "status": status or {},
    }


def replacement(
    pod_name: str,
    *,
    claim_name: str,
    device: str,
    pool: str = "node-1",
    node_name: str = "node-1",
) -> dict[str, Any]:
    return {
        "id": pod_name,
        "podUID": f"uid-{pod_name}",
        "podName": pod_name,
        "nodeName": node_name,
        "stage": "Releasing",
        "cause": "Rollout",
        "stageStartedAt": "2026-01-31T12:00:00Z",
        "startedAt": "2026-01-31T12:00:00Z",
        "claims": [
            {
                "name": claim_name,
                "uid": f"uid-{claim_name}",
                "devices": [{"driver": DRIVER, "pool": pool, "device": device}],
            }
        ],
    }
