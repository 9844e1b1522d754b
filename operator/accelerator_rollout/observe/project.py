"""Raw JSON of the API server → one small record, once per change. Pure.

Tolerant where the meaning is clear (a null list is an empty one, an enum value we do not know is no value we act on),
and a `ProjectionError` where it is not: a guess here would become a wrong decision later.
Fields that moved between API versions are looked up in one function each, so that older versions can be added there.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from sys import intern
from typing import Final

import accelerator_rollout.observe.fields as read
from accelerator_rollout.api.models import WorkloadKind
from accelerator_rollout.api.parse import parse
from accelerator_rollout.names import (
    DELETION_COST_ANNOTATION,
    MANAGED_LABEL,
    MANAGED_LABEL_VALUE,
    PARKED_ANNOTATION,
)
from accelerator_rollout.observe.devices import claim, resource_slice, taint_rule
from accelerator_rollout.observe.errors import ProjectionError
from accelerator_rollout.observe.fields import Raw, UnclearError
from accelerator_rollout.observe.kinds import SOURCES, Kind
from accelerator_rollout.observe.owners import applier_of_pause, owner_of_templates
from accelerator_rollout.records import (
    BudgetRecord,
    ClaimRecord,
    DaemonSetRecord,
    DeploymentRecord,
    NodeRecord,
    Phase,
    PodClaim,
    PodRecord,
    ReplicaSetRecord,
    RevisionRecord,
    Rollout,
    SelectorTerm,
    SliceRecord,
    StatefulSetRecord,
    TaintRuleRecord,
    Template,
    comes_gated,
)

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
    | DaemonSetRecord
    | RevisionRecord
    | Rollout
)

KUBELET_MANAGERS: Final = frozenset({"kubelet"})

_HASH_LABEL: Final = "pod-template-hash"
_REVISION_LABEL: Final = "controller-revision-hash"
_NUMBER_ANNOTATION: Final = "deployment.kubernetes.io/revision"
_KEEP_REVISIONS: Final = (WorkloadKind.STATEFUL_SET, WorkloadKind.DAEMON_SET)
_DEFAULT_GRACE: Final = 30  # seconds, as the API server defaults it
_LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_SIGKILL_EXIT: Final = 137
_NOT_BY_TIME: Final = frozenset({"OOMKilled", "ContainerStatusUnknown"})  # other reasons for that exit code
_MOST_SAID: Final = 1024  # characters of a termination message: the end of a log says what went wrong
_NOBODY: Final = (SelectorTerm(key="", operator="In"),)  # no value satisfies it


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
    except (UnclearError, KeyError, TypeError, ValueError, AttributeError) as error:
        meta = raw.get("metadata") if isinstance(raw, Mapping) else None
        found = meta if isinstance(meta, Mapping) else {}
        namespace, name, uid = (str(found.get(key) or "") for key in ("namespace", "name", "uid"))
        why = str(error) if isinstance(error, UnclearError) else f"{type(error).__name__}: {error}"
        raise ProjectionError(SOURCES[kind].title, namespace, name, uid, why) from error


# Pods


def pod(raw: Raw, *, kubelet_managers: frozenset[str] = KUBELET_MANAGERS) -> PodRecord:
    """Return the record of a Pod."""
    meta, spec, status = read.mapping(raw, "metadata"), read.mapping(raw, "spec"), read.mapping(raw, "status")
    labels, annotations = read.mapping(meta, "labels"), read.mapping(meta, "annotations")
    conditions = {str(c.get("type")): c for c in read.items(status, "conditions")}
    ready = conditions.get("Ready", {})
    scheduled = conditions.get("PodScheduled", {})
    disruption = conditions.get("DisruptionTarget", {})
    phase = _phase(read.text(status, "phase"))
    terminal = phase in (Phase.SUCCEEDED, Phase.FAILED)
    containers = [
        entry
        for field in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        for entry in read.items(status, field)
    ]
    waiting = next((w for c in containers if (w := read.mapping(read.mapping(c, "state"), "waiting"))), {})
    last = _last_exit(containers)
    unschedulable = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    return PodRecord(
        namespace=intern(read.need(meta, "namespace")),
        name=read.need(meta, "name"),
        uid=read.need(meta, "uid"),
        resource_version=read.version(meta),
        created=read.moment(meta, "creationTimestamp"),
        owner=read.controller(meta),
        revision=intern(read.text(labels, _HASH_LABEL) or read.text(labels, _REVISION_LABEL)),
        node=intern(read.text(spec, "nodeName")),
        phase=phase,
        gates=_gates(spec),
        ready=ready.get("status") == "True",
        ready_since=read.time(ready, "lastTransitionTime") if ready.get("status") == "True" else None,
        deletion=read.time(meta, "deletionTimestamp"),
        deletion_grace=read.maybe_integer(meta, "deletionGracePeriodSeconds"),
        grace_seconds=read.integer(spec, "terminationGracePeriodSeconds", _DEFAULT_GRACE),
        claims=_pod_claims(spec, status),
        extended_claim=read.text(read.mapping(status, "extendedResourceClaimStatus"), "resourceClaimName")
        or None,
        kubelet_terminal=terminal and _wrote_phase(meta, kubelet_managers),
        containers_terminated=_nothing_runs(containers, bound=bool(spec.get("nodeName")), terminal=terminal),
        by_pod_gc=disruption.get("status") == "True" and disruption.get("reason") == "DeletionByPodGC",
        finalizers=read.texts(meta, "finalizers"),
        waiting_reason=intern(read.text(waiting, "reason")),
        waiting_message=read.text(waiting, "message"),
        restarts=sum(read.integer(c, "restartCount", 0) for c in containers),
        exit_code=read.maybe_integer(last, "exitCode"),
        exit_reason=intern(read.text(last, "reason")),
        exit_message=read.text(last, "message")[-_MOST_SAID:],
        killed_at=_killed_at(containers),
        ended_at=_ended_at(containers) if terminal else None,
        unschedulable_message=read.text(scheduled, "message") if unschedulable else "",
        sandboxed=conditions.get("PodReadyToStartContainers", {}).get("status") == "True",
        deletion_cost=read.number(annotations.get(DELETION_COST_ANNOTATION)),
        aimed_at=intern(_aimed_at(spec)),
    )


def _last_exit(containers: list[Raw]) -> Raw:
    """Return the last termination of the container that waits to be started again, else of one that failed."""

    def ended(container: Raw) -> Raw:
        now = read.mapping(read.mapping(container, "state"), "terminated")
        return now or read.mapping(read.mapping(container, "lastState"), "terminated")

    waiting = [c for c in containers if read.mapping(read.mapping(c, "state"), "waiting")]
    failed = [c for c in containers if not c.get("ready") and ended(c).get("exitCode")]
    return next((e for c in (*waiting, *failed) if (e := ended(c))), {})


def _killed_at(containers: list[Raw]) -> datetime | None:
    for container in containers:
        ended = read.mapping(read.mapping(container, "state"), "terminated")
        if ended.get("exitCode") == _SIGKILL_EXIT and ended.get("reason") not in _NOT_BY_TIME:
            return read.time(ended, "finishedAt")
    return None


def _ended_at(containers: list[Raw]) -> datetime | None:
    ends = (read.time(read.mapping(read.mapping(c, "state"), "terminated"), "finishedAt") for c in containers)
    return max((end for end in ends if end is not None), default=None)


def _aimed_at(spec: Raw) -> str:
    """Return the node that required affinity allows by name, if each of its terms allows that one alone."""
    path = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = read.items(read.mapping(spec, *path), "nodeSelectorTerms")
    named = [_named_node(term) for term in terms]
    return named[0] if named and len(set(named)) == 1 else ""


def _named_node(term: Raw) -> str:
    for field in read.items(term, "matchFields"):
        values = read.texts(field, "values")
        if (field.get("key"), field.get("operator"), len(values)) == ("metadata.name", "In", 1):
            return values[0]
    return ""


def _phase(value: str) -> Phase:
    try:
        return Phase(value or Phase.PENDING)
    except ValueError:
        return Phase.UNKNOWN


def _wrote_phase(meta: Raw, managers: frozenset[str]) -> bool:
    """Return whether one of `managers` owns status.phase: whoever wrote its present value does."""
    for entry in read.items(meta, "managedFields"):
        if entry.get("subresource") == "status" and entry.get("manager") in managers:
            owned = read.mapping(read.mapping(entry, "fieldsV1"), "f:status")
            if "f:phase" in owned:
                return True
    return False


def _nothing_runs(containers: list[Raw], *, bound: bool, terminal: bool) -> bool:
    """Return whether no container of the pod runs, as far as its status says.

    A container that never started waits for ever in a pod that ended. Before the end, waiting means that it will
    start, and a node that has reported no container yet may have started one already.
    """
    states = [read.mapping(container, "state") for container in containers]
    if terminal:
        return all(state.get("running") is None for state in states)
    if not containers:
        return not bound
    return all(state.get("terminated") is not None for state in states)


def _pod_claims(spec: Raw, status: Raw) -> tuple[PodClaim, ...]:
    entries = read.items(spec, "resourceClaims")
    if not entries:
        return ()
    generated = {
        str(s.get("name")): read.text(s, "resourceClaimName")
        for s in read.items(status, "resourceClaimStatuses")
    }
    return tuple(_pod_claim(entry, generated) for entry in entries)


def _pod_claim(entry: Raw, generated: Mapping[str, str]) -> PodClaim:
    name = intern(read.need(entry, "name"))
    if entry.get("resourceClaimTemplateName"):
        template_name = intern(read.need(entry, "resourceClaimTemplateName"))
        return PodClaim(name, generated.get(name) or None, named=False, template=template_name)
    # A source that we do not know names a claim that is not the pod's own, as far as we can tell.
    return PodClaim(name, read.text(entry, "resourceClaimName") or generated.get(name) or None, named=True)


def _gates(spec: Raw) -> tuple[str, ...]:
    return tuple(intern(read.need(gate, "name")) for gate in read.items(spec, "schedulingGates"))


# Well-known conditions that an administrator sets (KEP-5683). MaintenancePlanned is none of them: until it begins, the node
# serves as before.
_LEAVING: Final = ("GracefulNodeShutdownInProgress", "DrainInProgress", "Drained", "MaintenanceInProgress")


def node(raw: Raw) -> NodeRecord:
    """Return the record of a Node."""
    meta, status = read.mapping(raw, "metadata"), read.mapping(raw, "status")
    told = read.items(status, "conditions")
    ready: Raw = next((c for c in told if c.get("type") == "Ready"), {})
    true = {c.get("type") for c in told if c.get("status") == "True"}
    return NodeRecord(
        name=intern(read.need(meta, "name")),
        uid=read.need(meta, "uid"),
        resource_version=read.version(meta),
        boot_id=read.text(read.mapping(status, "nodeInfo"), "bootID"),
        ready=ready.get("status") == "True",
        ready_since=read.time(ready, "lastTransitionTime") if ready.get("status") == "True" else None,
        unschedulable=read.flag(read.mapping(raw, "spec"), "unschedulable"),
        labels=dict(read.mapping(meta, "labels")),
        leaving=next((kind for kind in _LEAVING if kind in true), ""),
    )


def budget(raw: Raw) -> BudgetRecord:
    """Return the record of a PodDisruptionBudget."""
    meta, spec, status = read.mapping(raw, "metadata"), read.mapping(raw, "spec"), read.mapping(raw, "status")
    return BudgetRecord(
        namespace=intern(read.need(meta, "namespace")),
        name=read.need(meta, "name"),
        uid=read.need(meta, "uid"),
        resource_version=read.version(meta),
        # policy/v1: an empty selector takes every pod of the namespace, a missing one takes none
        selector=_NOBODY if spec.get("selector") is None else _selector(read.mapping(spec, "selector")),
        disruptions_allowed=read.integer(status, "disruptionsAllowed", 0),
        generation=read.integer(meta, "generation", 0),
        observed_generation=read.integer(status, "observedGeneration", 0),
        unhealthy_policy=read.text(spec, "unhealthyPodEvictionPolicy"),
        failure=_failure(status),
    )


def _failure(status: Raw) -> str:
    for condition in read.items(status, "conditions"):
        if (condition.get("type"), condition.get("reason")) == ("DisruptionAllowed", "SyncFailed"):
            return read.text(condition, "message") or "SyncFailed"
    return ""


def _selector(selector: Raw) -> tuple[SelectorTerm, ...]:
    terms = [
        SelectorTerm(str(key), "In", (str(value),))
        for key, value in read.mapping(selector, "matchLabels").items()
    ]
    return (*terms, *read.requirements(selector, "matchExpressions", _LABEL_OPERATORS, "label"))


# Workloads


def deployment(raw: Raw) -> DeploymentRecord:
    """Return the record of a Deployment."""
    meta, spec, status = read.mapping(raw, "metadata"), read.mapping(raw, "spec"), read.mapping(raw, "status")
    strategy = read.mapping(spec, "strategy")
    rolling = read.mapping(strategy, "rollingUpdate")
    parked = read.mapping(meta, "annotations").get(PARKED_ANNOTATION)
    return DeploymentRecord(
        namespace=intern(read.need(meta, "namespace")),
        name=read.need(meta, "name"),
        uid=read.need(meta, "uid"),
        resource_version=read.version(meta),
        generation=read.integer(meta, "generation", 0),
        observed_generation=read.integer(status, "observedGeneration", 0),
        deletion=read.time(meta, "deletionTimestamp"),
        replicas=read.integer(spec, "replicas", 1),
        paused=read.flag(spec, "paused"),
        parked=None if parked is None else str(parked),
        managed=read.mapping(meta, "labels").get(MANAGED_LABEL) == MANAGED_LABEL_VALUE,
        strategy=read.text(strategy, "type") or "RollingUpdate",
        max_surge=read.int_or_percent(rolling, "maxSurge"),
        max_unavailable=read.int_or_percent(rolling, "maxUnavailable"),
        min_ready_seconds=read.integer(spec, "minReadySeconds", 0),
        template=template(read.mapping(spec, "template")),
        managed_by=owner_of_templates(meta),
        pause_written_by=applier_of_pause(meta),
    )


def replica_set(raw: Raw) -> ReplicaSetRecord:
    """Return the record of a ReplicaSet."""
    meta, spec, status = read.mapping(raw, "metadata"), read.mapping(raw, "spec"), read.mapping(raw, "status")
    owner = read.controller(meta)
    pods = template(read.mapping(spec, "template"))
    return ReplicaSetRecord(
        namespace=intern(read.need(meta, "namespace")),
        name=read.need(meta, "name"),
        uid=intern(read.need(meta, "uid")),
        resource_version=read.version(meta),
        created=read.moment(meta, "creationTimestamp"),
        owner_uid=owner.uid if owner else "",
        generation=read.integer(meta, "generation", 0),
        observed_generation=read.integer(status, "observedGeneration", 0),
        replicas=read.integer(spec, "replicas", 1),
        status_replicas=read.integer(status, "replicas", 0),
        available=read.integer(status, "availableReplicas", 0),
        revision=intern(read.text(read.mapping(meta, "labels"), _HASH_LABEL)),
        template_digest=pods.digest,
        template_gates=pods.gates,
        template_labels=pods.labels,
        number=read.number(read.mapping(meta, "annotations").get(_NUMBER_ANNOTATION)),
    )


def stateful_set(raw: Raw) -> StatefulSetRecord:
    """Return the record of a StatefulSet."""
    meta, spec, status = read.mapping(raw, "metadata"), read.mapping(raw, "spec"), read.mapping(raw, "status")
    return StatefulSetRecord(
        namespace=intern(read.need(meta, "namespace")),
        name=read.need(meta, "name"),
        uid=intern(read.need(meta, "uid")),
        resource_version=read.version(meta),
        generation=read.integer(meta, "generation", 0),
        observed_generation=read.integer(status, "observedGeneration", 0),
        deletion=read.time(meta, "deletionTimestamp"),
        replicas=read.integer(spec, "replicas", 1),
        update_strategy=read.text(read.mapping(spec, "updateStrategy"), "type") or "RollingUpdate",
        min_ready_seconds=read.integer(spec, "minReadySeconds", 0),
        current_revision=read.text(status, "currentRevision"),
        update_revision=read.text(status, "updateRevision"),
        template=template(read.mapping(spec, "template")),
        managed_by=owner_of_templates(meta),
    )


def daemon_set(raw: Raw) -> DaemonSetRecord:
    """Return the record of a DaemonSet."""
    meta, spec, status = read.mapping(raw, "metadata"), read.mapping(raw, "spec"), read.mapping(raw, "status")
    return DaemonSetRecord(
        namespace=intern(read.need(meta, "namespace")),
        name=read.need(meta, "name"),
        uid=intern(read.need(meta, "uid")),
        resource_version=read.version(meta),
        generation=read.integer(meta, "generation", 0),
        observed_generation=read.integer(status, "observedGeneration", 0),
        deletion=read.time(meta, "deletionTimestamp"),
        replicas=read.integer(status, "desiredNumberScheduled", 0),
        update_strategy=read.text(read.mapping(spec, "updateStrategy"), "type") or "RollingUpdate",
        min_ready_seconds=read.integer(spec, "minReadySeconds", 0),
        template=template(read.mapping(spec, "template")),
        managed_by=owner_of_templates(meta),
    )


def controller_revision(raw: Raw) -> RevisionRecord:
    """Return the record of a ControllerRevision. Its `data` may be anything: other operators keep theirs here, too."""
    meta = read.mapping(raw, "metadata")
    owner = read.controller(meta)
    held = held_template(raw) if owner is not None and owner.kind in _KEEP_REVISIONS else {}
    pods = template(held) if held else None
    name = read.need(meta, "name")
    # A StatefulSet's pods carry the name, a DaemonSet's a label of it.
    by_name = owner is not None and owner.kind == WorkloadKind.STATEFUL_SET
    return RevisionRecord(
        namespace=intern(read.need(meta, "namespace")),
        name=name,
        uid=read.need(meta, "uid"),
        resource_version=read.version(meta),
        owner_uid=owner.uid if owner else "",
        number=read.integer(raw, "revision", 0),
        revision=intern(name if by_name else read.text(read.mapping(meta, "labels"), _REVISION_LABEL)),
        template_digest=pods.digest if pods else "",
        gated=pods is not None and comes_gated(pods.gates, pods.labels),
    )


def held_template(raw: Raw) -> dict[str, object]:
    """Return the whole pod template that a ReplicaSet or a ControllerRevision keeps, as its workload had it."""
    if "data" in raw:
        # A patch as the controllers write it [daemon/update.go and stateful_set_utils.go getPatch], less the directive.
        held = read.mapping(raw, "data", "spec", "template")
        return {key: value for key, value in held.items() if key != "$patch"}
    held = read.mapping(raw, "spec", "template")
    meta = dict(read.mapping(held, "metadata"))
    meta["labels"] = {k: v for k, v in read.mapping(meta, "labels").items() if k != _HASH_LABEL}
    return {**held, "metadata": meta}


def template(raw: Raw) -> Template:
    """Return what a pod template says that decisions hang on."""
    meta, spec = read.mapping(raw, "metadata"), read.mapping(raw, "spec")
    containers = read.items(spec, "containers")
    return Template(
        digest=template_digest(raw),
        gates=_gates(spec),
        labels={intern(str(key)): intern(str(value)) for key, value in read.mapping(meta, "labels").items()},
        claims=tuple(_pod_claim(entry, {}) for entry in read.items(spec, "resourceClaims")),
        grace_seconds=read.integer(spec, "terminationGracePeriodSeconds", _DEFAULT_GRACE),
        pre_stop=any(read.mapping(read.mapping(c, "lifecycle"), "preStop") for c in containers),
    )


def template_digest(raw: Raw) -> str:
    """Return what a Deployment's template and its ReplicaSets' copies of it share: a hash, less the label they add."""
    meta = dict(read.mapping(raw, "metadata"))
    meta["labels"] = {k: v for k, v in read.mapping(raw, "metadata", "labels").items() if k != _HASH_LABEL}
    said = {key: value for key, value in meta.items() if value not in (None, {}, [])}
    text = json.dumps(
        {**raw, "metadata": said}, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=dict
    )
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def rollout(raw: Raw) -> Rollout:
    """Return our own object; one that cannot be read in full is a record too, if only it can be told apart."""
    meta = read.mapping(raw, "metadata")
    for key in ("namespace", "name", "uid"):
        read.need(meta, key)
    read.version(meta)
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
    Kind.DAEMON_SETS: daemon_set,
    Kind.REVISIONS: controller_revision,
    Kind.ROLLOUTS: rollout,
}
