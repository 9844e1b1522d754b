"""What one decision costs while a release is awaited, in a store that is full of claims which concern nobody here."""

import time
from datetime import UTC, datetime, timedelta
from itertools import count
from statistics import median
from typing import Any, Final

from accelerator_rollout.api.models import RolloutObject
from accelerator_rollout.decide.plan import plan
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.names import API_VERSION, FINALIZER, GATE
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.observe.store import Store

DRIVER: Final = "lpu.example.com"
REPLICAS: Final = 4
_TIMES: Final = 300
_PER_NODE: Final = 8  # unrelated claims

Json = dict[str, Any]
_versions = count(1)


def _meta(name: str, *, owner: tuple[str, str] | None = None, space: str = "bench") -> Json:
    meta: Json = {
        "name": name,
        "namespace": space,
        "uid": f"uid-{name}",
        "resourceVersion": str(next(_versions)),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "generation": 1,
    }
    if owner is not None:
        kind, owner_name = owner
        reference = {"kind": kind, "name": owner_name, "uid": f"uid-{owner_name}", "controller": True}
        meta["ownerReferences"] = [reference]
    return meta


def _claim(name: str, pod: str, node: str, device: str) -> Json:
    result = {"request": "device", "driver": DRIVER, "pool": node, "device": device}
    return {
        "metadata": _meta(name, owner=("Pod", pod)),
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"}],
        },
    }


def _slice(node: str, devices: int) -> Json:
    return {
        "metadata": _meta(f"slice-{node}", space=""),
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"lpu-{number}"} for number in range(devices)],
        },
    }


def _pod(number: int) -> Json:
    name = f"web-{number}"
    return {
        "metadata": _meta(name, owner=("StatefulSet", "web"))
        | {"labels": {"controller-revision-hash": "old"}},
        "spec": {
            "nodeName": f"node-{number}",
            "terminationGracePeriodSeconds": 30,
            "resourceClaims": [{"name": "device", "resourceClaimTemplateName": "lpu"}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "resourceClaimStatuses": [{"name": "device", "resourceClaimName": f"{name}-claim"}],
        },
    }


def filled(unrelated: int) -> Store:
    """A store with a workload of which one pod is leaving, and so many claims of others on nodes of their own."""
    store = Store()
    template: Json = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "schedulingGates": [{"name": GATE}],
            "resourceClaims": [{"name": "device", "resourceClaimTemplateName": "lpu"}],
        },
    }
    workload = {
        "metadata": _meta("web"),
        "spec": {"replicas": REPLICAS, "updateStrategy": {"type": "OnDelete"}, "template": template},
        "status": {"observedGeneration": 1, "currentRevision": "old", "updateRevision": "new"},
    }
    store.apply(Kind.STATEFUL_SETS, "ADDED", workload)
    for number in range(REPLICAS):
        node = f"node-{number}"
        store.apply(Kind.NODES, "ADDED", {"metadata": _meta(node, space=""), "spec": {}, "status": {}})
        store.apply(Kind.SLICES, "ADDED", _slice(node, 2))
        store.apply(Kind.PODS, "ADDED", _pod(number))
        store.apply(Kind.CLAIMS, "ADDED", _claim(f"web-{number}-claim", f"web-{number}", node, "lpu-0"))
    for number in range(unrelated):
        node, device = f"far-{number // _PER_NODE}", number % _PER_NODE
        if not device:
            store.apply(Kind.SLICES, "ADDED", _slice(node, _PER_NODE))
        store.apply(Kind.CLAIMS, "ADDED", _claim(f"claim-{number}", f"pod-{number}", node, f"lpu-{device}"))
    rollout = {
        "apiVersion": API_VERSION,
        "metadata": _meta("web") | {"finalizers": [FINALIZER]},
        "spec": {"workloadRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}},
    }
    store.apply(Kind.ROLLOUTS, "ADDED", rollout)
    leaving = _pod(0)
    leaving["metadata"] |= {"deletionTimestamp": "2026-01-01T00:10:00Z", "deletionGracePeriodSeconds": 30}
    store.apply(Kind.PODS, "MODIFIED", leaving)
    store.believe(datetime.now(UTC) + timedelta(hours=1))
    return store


def milliseconds(*unrelated: int) -> list[float]:
    """Return what an event about the claim that is awaited costs, and the decision that follows (medians).

    The stores take turns, so that a busy moment of the machine falls on all of them alike.
    """
    stores = [filled(claims) for claims in unrelated]
    spent: list[list[float]] = [[] for _ in stores]
    for _ in range(_TIMES):
        for store, times in zip(stores, spent, strict=True):
            times.append(_seconds(store))
    return [1000 * median(times) for times in spent]


def _seconds(store: Store) -> float:
    event = _claim("web-0-claim", "web-0", "node-0", "lpu-0")
    event["status"]["reservedFor"] = []
    now = datetime.now(UTC)
    begin = time.perf_counter()
    keys = store.apply(Kind.CLAIMS, "MODIFIED", event)
    (key,) = keys or store.keys()
    snapshot = store.snapshot(key, now)
    assert isinstance(snapshot, Snapshot)
    assert isinstance(snapshot.rollout, RolloutObject)
    decided = plan(snapshot, now)
    spent = time.perf_counter() - begin
    assert decided.status.replacements, "the departure must be in flight"
    return spent
