"""Raw JSON of the API server → one small record, once per change. Pure.

Tolerant where the meaning is clear (a null list is an empty one, an enum value we do not know is no value we act on),
and a `ProjectionError` where it is not: a guess here would become a wrong decision later.
Fields that moved between API versions are looked up in one function each, so that older versions can be added there.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from sys import intern
from typing import Any, Final

from accelerator_rollout.api.parse import parse
from accelerator_rollout.names import (
    DELETION_COST_ANNOTATION,
    MANAGED_LABEL,
    MANAGED_LABEL_VALUE,
    PARKED_ANNOTATION,
)
from accelerator_rollout.observe.errors import ProjectionError
from accelerator_rollout.observe.kinds import SOURCES, Kind
from accelerator_rollout.records import (
    BudgetRecord,
    ClaimRecord,
    DeploymentRecord,
    Device,
    DeviceUse,
    NodeRecord,
    Owner,
    Phase,
    PodClaim,
    PodRecord,
    PublishedDevice,
    ReplicaSetRecord,
    Reservation,
    Rollout,
    SelectorTerm,
    SliceRecord,
    StatefulSetRecord,
    Taint,
    TaintRuleRecord,
    Template,
)

Raw = Mapping[str, Any]
Record = (
    PodRecord
    | ClaimRecord
    | SliceRecord
    | TaintRuleRecord
    | NodeRecord
    | BudgetRecord
    | DeploymentRecord
    | ReplicaSetRecord
    | StatefulSetRecord
    | Rollout
)

KUBELET_MANAGERS: Final = frozenset({"kubelet"})

_HASH_LABEL: Final = "pod-template-hash"
_REVISION_LABEL: Final = "controller-revision-hash"
_DEFAULT_GRACE: Final = 30  # seconds, as the API server defaults it
_NOBODY: Final = (SelectorTerm(key="", operator="In"),)  # no value satisfies it


class _UnclearError(ValueError):
    """Part of an object whose meaning is not clear; becomes a ProjectionError that names the object."""


def project(kind: Kind, raw: Raw, *, kubelet_managers: frozenset[str] = KUBELET_MANAGERS) -> Record:
    """Return the record of `raw`.

    `kubelet_managers` are the field managers whose word on a pod's end counts as the kubelet's: distributions that
    rename the kubelet's binary rename its field manager too.

    Raises ProjectionError if the object's meaning is not clear.
    """
    try:
        if kind is Kind.PODS:
            return pod(raw, kubelet_managers=kubelet_managers)
        return _PROJECTIONS[kind](raw)
    except (_UnclearError, KeyError, TypeError, ValueError, AttributeError) as error:
        meta = raw.get("metadata") if isinstance(raw, Mapping) else None
        found = meta if isinstance(meta, Mapping) else {}
        namespace, name, uid = (str(found.get(key) or "") for key in ("namespace", "name", "uid"))
        why = str(error) if isinstance(error, _UnclearError) else f"{type(error).__name__}: {error}"
        raise ProjectionError(SOURCES[kind].title, namespace, name, uid, why) from error


# Pods


def pod(raw: Raw, *, kubelet_managers: frozenset[str] = KUBELET_MANAGERS) -> PodRecord:
    """Return the record of a Pod."""
    meta, spec, status = _map(raw, "metadata"), _map(raw, "spec"), _map(raw, "status")
    labels, annotations = _map(meta, "labels"), _map(meta, "annotations")
    conditions = {str(c.get("type")): c for c in _items(status, "conditions")}
    ready = conditions.get("Ready", {})
    scheduled = conditions.get("PodScheduled", {})
    disruption = conditions.get("DisruptionTarget", {})
    phase = _phase(_text(status, "phase"))
    terminal = phase in (Phase.SUCCEEDED, Phase.FAILED)
    containers = [
        entry
        for field in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        for entry in _items(status, field)
    ]
    waiting = next((w for c in containers if (w := _map(_map(c, "state"), "waiting"))), {})
    unschedulable = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    return PodRecord(
        namespace=intern(_need(meta, "namespace")),
        name=_need(meta, "name"),
        uid=_need(meta, "uid"),
        resource_version=_version(meta),
        created=_moment(meta, "creationTimestamp"),
        owner=_controller(meta),
        revision=intern(_text(labels, _HASH_LABEL) or _text(labels, _REVISION_LABEL)),
        node=intern(_text(spec, "nodeName")),
        phase=phase,
        gates=_gates(spec),
        ready=ready.get("status") == "True",
        ready_since=_time(ready, "lastTransitionTime") if ready.get("status") == "True" else None,
        deletion=_time(meta, "deletionTimestamp"),
        deletion_grace=_maybe_int(meta, "deletionGracePeriodSeconds"),
        grace_seconds=_int(spec, "terminationGracePeriodSeconds", _DEFAULT_GRACE),
        claims=_pod_claims(spec, status),
        extended_claim=_text(_map(status, "extendedResourceClaimStatus"), "resourceClaimName") or None,
        kubelet_terminal=terminal and _wrote_phase(meta, kubelet_managers),
        containers_terminated=_nothing_runs(containers, bound=bool(spec.get("nodeName")), terminal=terminal),
        by_pod_gc=disruption.get("status") == "True" and disruption.get("reason") == "DeletionByPodGC",
        finalizers=_texts(meta, "finalizers"),
        waiting_reason=intern(_text(waiting, "reason")),
        waiting_message=_text(waiting, "message"),
        restarts=sum(_int(c, "restartCount", 0) for c in containers),
        unschedulable_message=_text(scheduled, "message") if unschedulable else "",
        deletion_cost=_number(annotations.get(DELETION_COST_ANNOTATION)),
    )


def _phase(value: str) -> Phase:
    try:
        return Phase(value or Phase.PENDING)
    except ValueError:
        return Phase.UNKNOWN


def _wrote_phase(meta: Raw, managers: frozenset[str]) -> bool:
    """Return whether one of `managers` owns status.phase: whoever wrote its present value does."""
    for entry in _items(meta, "managedFields"):
        if entry.get("subresource") == "status" and entry.get("manager") in managers:
            owned = _map(_map(entry, "fieldsV1"), "f:status")
            if "f:phase" in owned:
                return True
    return False


def _nothing_runs(containers: list[Raw], *, bound: bool, terminal: bool) -> bool:
    """Return whether no container of the pod runs, as far as its status says.

    A container that never started waits for ever in a pod that ended. Before the end, waiting means that it will
    start, and a node that has reported no container yet may have started one already.
    """
    states = [_map(container, "state") for container in containers]
    if terminal:
        return all(state.get("running") is None for state in states)
    if not containers:
        return not bound
    return all(state.get("terminated") is not None for state in states)


def _pod_claims(spec: Raw, status: Raw) -> tuple[PodClaim, ...]:
    entries = _items(spec, "resourceClaims")
    if not entries:
        return ()
    generated = {
        str(s.get("name")): _text(s, "resourceClaimName") for s in _items(status, "resourceClaimStatuses")
    }
    return tuple(_pod_claim(entry, generated) for entry in entries)


def _pod_claim(entry: Raw, generated: Mapping[str, str]) -> PodClaim:
    name = intern(_need(entry, "name"))
    if entry.get("resourceClaimTemplateName"):
        return PodClaim(name, generated.get(name) or None, named=False)
    # A source that we do not know names a claim that is not the pod's own, as far as we can tell.
    return PodClaim(name, _text(entry, "resourceClaimName") or generated.get(name) or None, named=True)


def _gates(spec: Raw) -> tuple[str, ...]:
    return tuple(intern(_need(gate, "name")) for gate in _items(spec, "schedulingGates"))


# Devices


def claim(raw: Raw) -> ClaimRecord:
    """Return the record of a ResourceClaim."""
    meta, status = _map(raw, "metadata"), _map(raw, "status")
    owner = _controller(meta)
    return ClaimRecord(
        namespace=intern(_need(meta, "namespace")),
        name=_need(meta, "name"),
        uid=_need(meta, "uid"),
        resource_version=_version(meta),
        owner_pod_uid=owner.uid if owner and owner.kind == "Pod" else "",
        deletion=_time(meta, "deletionTimestamp"),
        reserved_for=tuple(
            Reservation(
                api_group=intern(_text(entry, "apiGroup")),
                resource=intern(_text(entry, "resource")),
                name=_text(entry, "name"),
                uid=_text(entry, "uid"),
            )
            for entry in _items(status, "reservedFor")
        ),
        uses=_uses(status),
        finalizers=_texts(meta, "finalizers"),
    )


def _uses(status: Raw) -> tuple[DeviceUse, ...] | None:
    if status.get("allocation") is None:
        return None
    results = _items(_map(_map(status, "allocation"), "devices"), "results")
    return tuple(
        DeviceUse(
            device=Device(
                driver=intern(_need(result, "driver")),
                pool=intern(_need(result, "pool")),
                name=intern(_need(result, "device")),
            ),
            admin=_flag(result, "adminAccess"),
            share_id=_text(result, "shareID"),
        )
        for result in results
    )


def resource_slice(raw: Raw) -> SliceRecord:
    """Return the record of a ResourceSlice."""
    meta, spec = _map(raw, "metadata"), _map(raw, "spec")
    pool = _map(spec, "pool")
    return SliceRecord(
        name=_need(meta, "name"),
        uid=_need(meta, "uid"),
        resource_version=_version(meta),
        driver=intern(_need(spec, "driver")),
        pool=intern(_need(pool, "name")),
        generation=_int(pool, "generation", 0),
        slice_count=_int(pool, "resourceSliceCount", 0),
        node=intern(_text(spec, "nodeName")),
        devices=tuple(
            PublishedDevice(
                intern(_need(device, "name")),
                tuple(_taint(taint) for taint in _items(_device_fields(device), "taints")),
            )
            for device in _items(spec, "devices")
        ),
    )


def _device_fields(device: Raw) -> Raw:
    """Return where a device's own fields stand: in itself as of v1beta2, under `basic` before."""
    return _map(device, "basic") or device


def _taint(raw: Raw) -> Taint:
    return Taint(
        key=intern(_text(raw, "key")), value=_text(raw, "value"), effect=intern(_need(raw, "effect"))
    )


def taint_rule(raw: Raw) -> TaintRuleRecord:
    """Return the record of a DeviceTaintRule."""
    meta, spec = _map(raw, "metadata"), _map(raw, "spec")
    selector, taint = _map(spec, "deviceSelector"), _taint(_map(spec, "taint"))
    if (
        spec.get("deviceSelector") is None
    ):  # KEP-5055: without a selector it matches nothing, so it taints nothing
        taint = Taint(taint.key, taint.value, "None")
    # A criterion that we do not know can only narrow the rule: ignored, we see too many taints, never too few.
    return TaintRuleRecord(
        name=_need(meta, "name"),
        uid=_need(meta, "uid"),
        resource_version=_version(meta),
        driver=_text(selector, "driver"),
        pool=_text(selector, "pool"),
        device=_text(selector, "device"),
        taint=taint,
    )


def node(raw: Raw) -> NodeRecord:
    """Return the record of a Node."""
    meta, status = _map(raw, "metadata"), _map(raw, "status")
    ready: Raw = next((c for c in _items(status, "conditions") if c.get("type") == "Ready"), {})
    return NodeRecord(
        name=intern(_need(meta, "name")),
        uid=_need(meta, "uid"),
        resource_version=_version(meta),
        boot_id=_text(_map(status, "nodeInfo"), "bootID"),
        ready=ready.get("status") == "True",
        ready_since=_time(ready, "lastTransitionTime") if ready.get("status") == "True" else None,
        unschedulable=_flag(_map(raw, "spec"), "unschedulable"),
    )


def budget(raw: Raw) -> BudgetRecord:
    """Return the record of a PodDisruptionBudget."""
    meta, spec, status = _map(raw, "metadata"), _map(raw, "spec"), _map(raw, "status")
    return BudgetRecord(
        namespace=intern(_need(meta, "namespace")),
        name=_need(meta, "name"),
        uid=_need(meta, "uid"),
        resource_version=_version(meta),
        # policy/v1: an empty selector takes every pod of the namespace, a missing one takes none
        selector=_NOBODY if spec.get("selector") is None else _selector(_map(spec, "selector")),
        disruptions_allowed=_int(status, "disruptionsAllowed", 0),
        generation=_int(meta, "generation", 0),
        observed_generation=_int(status, "observedGeneration", 0),
        unhealthy_policy=_text(spec, "unhealthyPodEvictionPolicy"),
    )


def _selector(selector: Raw) -> tuple[SelectorTerm, ...]:
    terms = [
        SelectorTerm(str(key), "In", (str(value),)) for key, value in _map(selector, "matchLabels").items()
    ]
    for entry in _items(selector, "matchExpressions"):
        operator = _need(entry, "operator")
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise _UnclearError(f"the label selector's operator {operator!r} is not known")
        terms.append(SelectorTerm(_need(entry, "key"), operator, _texts(entry, "values")))
    return tuple(terms)


# Workloads


def deployment(raw: Raw) -> DeploymentRecord:
    """Return the record of a Deployment."""
    meta, spec, status = _map(raw, "metadata"), _map(raw, "spec"), _map(raw, "status")
    strategy = _map(spec, "strategy")
    rolling = _map(strategy, "rollingUpdate")
    parked = _map(meta, "annotations").get(PARKED_ANNOTATION)
    return DeploymentRecord(
        namespace=intern(_need(meta, "namespace")),
        name=_need(meta, "name"),
        uid=_need(meta, "uid"),
        resource_version=_version(meta),
        generation=_int(meta, "generation", 0),
        observed_generation=_int(status, "observedGeneration", 0),
        deletion=_time(meta, "deletionTimestamp"),
        replicas=_int(spec, "replicas", 1),
        paused=_flag(spec, "paused"),
        parked=None if parked is None else str(parked),
        managed=_map(meta, "labels").get(MANAGED_LABEL) == MANAGED_LABEL_VALUE,
        strategy=_text(strategy, "type") or "RollingUpdate",
        max_surge=_int_or_percent(rolling, "maxSurge"),
        max_unavailable=_int_or_percent(rolling, "maxUnavailable"),
        min_ready_seconds=_int(spec, "minReadySeconds", 0),
        template=template(_map(spec, "template")),
    )


def replica_set(raw: Raw) -> ReplicaSetRecord:
    """Return the record of a ReplicaSet."""
    meta, spec, status = _map(raw, "metadata"), _map(raw, "spec"), _map(raw, "status")
    owner = _controller(meta)
    pods = template(_map(spec, "template"))
    return ReplicaSetRecord(
        namespace=intern(_need(meta, "namespace")),
        name=_need(meta, "name"),
        uid=intern(_need(meta, "uid")),
        resource_version=_version(meta),
        created=_moment(meta, "creationTimestamp"),
        owner_uid=owner.uid if owner else "",
        generation=_int(meta, "generation", 0),
        observed_generation=_int(status, "observedGeneration", 0),
        replicas=_int(spec, "replicas", 1),
        status_replicas=_int(status, "replicas", 0),
        available=_int(status, "availableReplicas", 0),
        revision=intern(_text(_map(meta, "labels"), _HASH_LABEL)),
        template_digest=pods.digest,
        template_gates=pods.gates,
        template_labels=pods.labels,
    )


def stateful_set(raw: Raw) -> StatefulSetRecord:
    """Return the record of a StatefulSet."""
    meta, spec, status = _map(raw, "metadata"), _map(raw, "spec"), _map(raw, "status")
    return StatefulSetRecord(
        namespace=intern(_need(meta, "namespace")),
        name=_need(meta, "name"),
        uid=intern(_need(meta, "uid")),
        resource_version=_version(meta),
        generation=_int(meta, "generation", 0),
        observed_generation=_int(status, "observedGeneration", 0),
        deletion=_time(meta, "deletionTimestamp"),
        replicas=_int(spec, "replicas", 1),
        update_strategy=_text(_map(spec, "updateStrategy"), "type") or "RollingUpdate",
        min_ready_seconds=_int(spec, "minReadySeconds", 0),
        current_revision=_text(status, "currentRevision"),
        update_revision=_text(status, "updateRevision"),
        template=template(_map(spec, "template")),
    )


def template(raw: Raw) -> Template:
    """Return what a pod template says that decisions hang on."""
    meta, spec = _map(raw, "metadata"), _map(raw, "spec")
    containers = _items(spec, "containers")
    return Template(
        digest=template_digest(raw),
        gates=_gates(spec),
        labels={intern(str(key)): intern(str(value)) for key, value in _map(meta, "labels").items()},
        claims=tuple(_pod_claim(entry, {}) for entry in _items(spec, "resourceClaims")),
        grace_seconds=_int(spec, "terminationGracePeriodSeconds", _DEFAULT_GRACE),
        pre_stop=any(_map(_map(c, "lifecycle"), "preStop") for c in containers),
    )


def template_digest(raw: Raw) -> str:
    """Return what a Deployment's template and its ReplicaSets' copies of it share: a hash, less the label they add."""
    meta = dict(_map(raw, "metadata"))
    meta["labels"] = {k: v for k, v in _map(raw, "metadata", "labels").items() if k != _HASH_LABEL}
    said = {key: value for key, value in meta.items() if value not in (None, {}, [])}
    text = json.dumps(
        {**raw, "metadata": said}, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=dict
    )
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def rollout(raw: Raw) -> Rollout:
    """Return our own object; one that cannot be read in full is a record too, if only it can be told apart."""
    meta = _map(raw, "metadata")
    for key in ("namespace", "name", "uid"):
        _need(meta, key)
    _version(meta)
    return parse(raw)


_PROJECTIONS: Final[Mapping[Kind, Callable[[Raw], Record]]] = {
    Kind.PODS: pod,
    Kind.CLAIMS: claim,
    Kind.SLICES: resource_slice,
    Kind.TAINT_RULES: taint_rule,
    Kind.NODES: node,
    Kind.BUDGETS: budget,
    Kind.DEPLOYMENTS: deployment,
    Kind.REPLICA_SETS: replica_set,
    Kind.STATEFUL_SETS: stateful_set,
    Kind.ROLLOUTS: rollout,
}


# Reading JSON. Absent and null are the same to the API; another type than expected is unclear.


def _map(raw: Raw, *path: str) -> Raw:
    found: Any = raw
    for key in path:
        found = found.get(key)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise _UnclearError(f"{key} is {type(found).__name__}, not an object")
    return found  # type: ignore[no-any-return]


def _items(raw: Raw, key: str) -> list[Raw]:
    found = raw.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise _UnclearError(f"{key} is not a list of objects")
    return found


def _texts(raw: Raw, key: str) -> tuple[str, ...]:
    found = raw.get(key)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise _UnclearError(f"{key} is not a list of strings")
    return tuple(map(intern, found))


def _text(raw: Raw, key: str) -> str:
    found = raw.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise _UnclearError(f"{key} is {type(found).__name__}, not a string")
    return found


def _need(raw: Raw, key: str) -> str:
    found = _text(raw, key)
    if not found:
        raise _UnclearError(f"{key} is missing")
    return found


def _version(meta: Raw) -> str:
    """Return the resourceVersion. Those of one resource can be compared as numbers (KEP-5504)."""
    found = _need(meta, "resourceVersion")
    if not found.isdecimal():
        raise _UnclearError(f"resourceVersion {found!r} is not a number")
    return found


def _maybe_int(raw: Raw, key: str) -> int | None:
    found = raw.get(key)
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool):
        raise _UnclearError(f"{key} is {type(found).__name__}, not a number")
    return found


def _int(raw: Raw, key: str, default: int) -> int:
    found = _maybe_int(raw, key)
    return default if found is None else found


def _number(value: object) -> int:
    """Return the number an annotation holds; 0 for anything else, as its reader in Kubernetes does."""
    try:
        return int(value) if isinstance(value, str) else 0
    except ValueError:
        return 0


def _int_or_percent(raw: Raw, key: str) -> int | str:
    found = raw.get(key)
    if found is None:
        return "25%"  # as the API server defaults it
    if isinstance(found, bool) or not isinstance(found, int | str):
        raise _UnclearError(f"{key} is {type(found).__name__}, neither a number nor a percentage")
    return found


def _flag(raw: Raw, key: str) -> bool:
    found = raw.get(key)
    if found is None:
        return False
    if not isinstance(found, bool):
        raise _UnclearError(f"{key} is {type(found).__name__}, not true or false")
    return found


def _time(raw: Raw, key: str) -> datetime | None:
    found = raw.get(key)
    if found is None:
        return None
    if not isinstance(found, str):
        raise _UnclearError(f"{key} is {type(found).__name__}, not a time")
    moment = datetime.fromisoformat(found)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _moment(raw: Raw, key: str) -> datetime:
    found = _time(raw, key)
    if found is None:
        raise _UnclearError(f"{key} is missing")
    return found


def _controller(meta: Raw) -> Owner | None:
    for reference in _items(meta, "ownerReferences"):
        if reference.get("controller") is True:
            uid = intern(_need(reference, "uid"))  # one string for all the pods of an owner
            return Owner(kind=intern(_need(reference, "kind")), name=_need(reference, "name"), uid=uid)
    return None
