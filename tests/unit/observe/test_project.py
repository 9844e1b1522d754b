"""What the API server sends becomes the record that decisions expect, or a ProjectionError that names the object."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from accelerator_rollout.api.models import RolloutObject, Unreadable
from accelerator_rollout.names import GATE_LABEL, GATE_LABEL_VALUE
from accelerator_rollout.observe import devices as d
from accelerator_rollout.observe import project as p
from accelerator_rollout.observe.errors import ProjectionError
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.observe.project import project
from accelerator_rollout.observe.snapshots import selects
from accelerator_rollout.records import Device, DeviceUse, Owner, Phase, PodClaim

from . import objects as o


def test_a_running_pod() -> None:
    record = p.pod(o.pod("a", claims={"lpu": "a-lpu-x"}))
    assert (record.namespace, record.name, record.uid, record.node) == ("team", "a", "uid-a", "node-1")
    assert record.owner == Owner("ReplicaSet", "web-1", "uid-web-1")
    assert record.created == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert record.claims == (PodClaim("lpu", "a-lpu-x", named=False, template="lpu"),)
    assert record.grace_seconds == 120
    assert record.live
    assert record.bound


def test_null_lists_and_absent_parts_are_empty() -> None:
    raw: dict[str, Any] = {"metadata": o.meta("a"), "spec": {"schedulingGates": None}, "status": None}
    raw["metadata"]["ownerReferences"] = None
    record = p.pod(raw)
    assert record.gates == ()
    assert record.owner is None
    assert record.phase is Phase.PENDING
    assert record.grace_seconds == 30


def test_a_phase_that_we_do_not_know_is_neither_running_nor_ended() -> None:
    record = p.pod(o.pod("a", phase="Hibernating"))
    assert record.phase is Phase.UNKNOWN
    assert not record.terminal


@pytest.mark.parametrize(
    ("manager", "proven"), [("kubelet", True), ("kube-controller-manager", False), ("kubectl", False)]
)
def test_only_the_kubelets_word_ends_a_pod(manager: str, proven: bool) -> None:
    record = p.pod(o.ended_by(manager, o.pod("a")))
    assert record.terminal
    assert record.kubelet_terminal is proven
    assert record.containers_terminated


def test_a_renamed_kubelet_is_believed_when_it_is_named() -> None:
    raw = o.ended_by("k3s-agent", o.pod("a"))
    record = project(Kind.PODS, raw, kubelet_managers=frozenset({"k3s-agent"}))
    assert record.kubelet_terminal  # type: ignore[union-attr]


def test_a_running_phase_of_the_kubelet_is_no_end() -> None:
    raw = o.ended_by("kubelet", o.pod("a"))
    raw["status"]["phase"] = "Running"
    assert not p.pod(raw).kubelet_terminal


def test_a_phase_owned_outside_the_status_subresource_is_no_proof() -> None:
    raw = o.ended_by("kubelet", o.pod("a"))
    del raw["metadata"]["managedFields"][0]["subresource"]
    assert not p.pod(raw).kubelet_terminal


@pytest.mark.parametrize(
    ("node", "phase", "states", "ended"),
    [
        ("node-1", "Failed", [{"terminated": {}}], True),
        ("node-1", "Failed", [{"terminated": {}}, {"running": {}}], False),
        ("node-1", "Failed", [{"waiting": {"reason": "ImagePullBackOff"}}], True),  # it never started
        ("node-1", "Failed", [], True),  # refused by the kubelet
        ("node-1", "Running", [{"terminated": {}}], True),
        ("node-1", "Pending", [{"waiting": {}}], False),  # it may start at any moment
        ("node-1", "Pending", [], False),  # the kubelet has not spoken yet
        ("", "Pending", [], True),  # there never was a container
    ],
)
def test_whether_anything_of_the_pod_runs(node: str, phase: str, states: list[Any], ended: bool) -> None:
    statuses = [{"name": str(i), "state": state} for i, state in enumerate(states)]
    raw = o.pod("a", node=node, phase=phase, status={"containerStatuses": statuses})
    assert p.pod(raw).containers_terminated is ended


def test_an_end_by_pod_garbage_collection_is_marked() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    assert p.pod(o.pod("a", status={"conditions": [condition]})).by_pod_gc
    assert not p.pod(
        o.pod("a", status={"conditions": [condition | {"reason": "EvictionByEvictionAPI"}]})
    ).by_pod_gc


def test_why_a_pod_waits() -> None:
    status = {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"},
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-31T12:00:01Z"},
        ],
        "containerStatuses": [
            {"name": "a", "state": {"running": {}}, "restartCount": 1},
            {"name": "b", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
        ],
    }
    record = p.pod(o.pod("a", status=status))
    assert record.unschedulable_message == "0/3 nodes"
    assert (record.waiting_reason, record.waiting_message) == ("ImagePullBackOff", "no such image")
    assert record.restarts == 1
    assert record.ready_since is None


CRASHED = {"exitCode": 1, "reason": "Error", "message": "x" * 2000 + " the end"}
DONE = {"exitCode": 0, "reason": "Completed"}


@pytest.mark.parametrize(
    ("containers", "found"),
    [
        ([{"state": {"running": {}}, "lastState": {"terminated": CRASHED}}], (1, "Error")),
        ([{"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": DONE}}], (0, "Completed")),
        ([{"state": {"terminated": DONE}}, {"state": {"terminated": CRASHED}}], (1, "Error")),
        ([{"state": {"running": {}}, "ready": True, "lastState": {"terminated": CRASHED}}], (None, "")),
        ([{"state": {"terminated": DONE}}], (None, "")),
        ([{"state": {"terminated": None}, "lastState": None}], (None, "")),
        ([], (None, "")),
    ],
)  # fmt: skip
def test_how_the_container_ended_that_keeps_the_pod_from_being_ready(
    containers: list[dict[str, Any]], found: tuple[int | None, str]
) -> None:
    record = p.pod(o.pod("a", status={"containerStatuses": containers}))
    assert (record.exit_code, record.exit_reason) == found
    assert len(record.exit_message) <= 1024
    assert record.exit_message.endswith("the end") is (found[0] == 1)


@pytest.mark.parametrize(
    ("reason", "code", "killed"),
    [
        ("Error", 137, True),
        ("OOMKilled", 137, False),
        ("ContainerStatusUnknown", 137, False),
        ("Error", 143, False),
    ],
)
def test_a_kill_that_no_memory_limit_sent(reason: str, code: int, *, killed: bool) -> None:
    ended = {"exitCode": code, "reason": reason, "finishedAt": "2026-01-31T12:00:01Z"}
    record = p.pod(o.pod("a", status={"containerStatuses": [{"state": {"terminated": ended}}]}))
    assert (record.killed_at is not None) is killed


def test_claims_of_a_pod_by_name_by_template_and_for_extended_resources() -> None:
    raw = o.pod(
        "a", claims={"lpu": None}, status={"extendedResourceClaimStatus": {"resourceClaimName": "a-ext"}}
    )
    raw["spec"]["resourceClaims"].append({"name": "shared", "resourceClaimName": "shared-lpu"})
    raw["spec"]["resourceClaims"].append({"name": "new", "someLaterSource": "x"})
    record = p.pod(raw)
    assert record.claims == (
        PodClaim("lpu", None, named=False, template="lpu"),
        PodClaim("shared", "shared-lpu", named=True),
        PodClaim("new", None, named=True),
    )
    assert record.extended_claim == "a-ext"


@pytest.mark.parametrize(("value", "cost"), [("-10", -10), ("7", 7), ("many", 0), (None, 0)])
def test_deletion_cost(value: str | None, cost: int) -> None:
    annotations = {"controller.kubernetes.io/pod-deletion-cost": value} if value else None
    assert p.pod(o.pod("a", annotations=annotations)).deletion_cost == cost


def test_only_a_claim_without_allocation_holds_nothing() -> None:
    assert d.claim(o.claim("c")).uses is None
    empty = o.claim("c") | {"status": {"allocation": {}}}
    assert d.claim(empty).uses == ()


def test_an_allocated_claim() -> None:
    raw = o.claim("c", pod_uid="uid-a", device="lpu-0")
    results = raw["status"]["allocation"]["devices"]["results"]
    results.append(
        {"driver": o.DRIVER, "pool": "node-1", "device": "lpu-1", "adminAccess": True, "shareID": "s"}
    )
    record = d.claim(raw)
    assert record.owner_pod_uid == "uid-a"
    assert [r.uid for r in record.reserved_for] == ["uid-a"]
    assert record.uses == (
        DeviceUse(Device(o.DRIVER, "node-1", "lpu-0"), request="r"),
        DeviceUse(Device(o.DRIVER, "node-1", "lpu-1"), admin=True, share_id="s"),
    )


def test_a_claim_of_a_pod_group_belongs_to_no_pod() -> None:
    raw = o.claim("c", owner=("PodGroup", "g", "uid-g"))
    assert d.claim(raw).owner_pod_uid == ""


@pytest.mark.parametrize(
    "wrap", [lambda d: d, lambda d: {"name": d["name"], "basic": {"taints": d["taints"]}}]
)
def test_taints_of_a_device_in_v1_and_where_v1beta1_had_them(wrap: Any) -> None:
    raw = o.resource_slice("s")
    raw["spec"]["devices"] = [wrap({"name": "lpu-0", "taints": [{"key": "k", "effect": "NoExecute"}]})]
    (device,) = d.resource_slice(raw).devices
    assert device.name == "lpu-0"
    assert [t.blocks for t in device.taints] == [True]


def test_a_taint_rule_without_selector_taints_nothing() -> None:
    assert not d.taint_rule(o.taint_rule("t", selector=None)).taint.blocks
    everything = d.taint_rule(o.taint_rule("t", selector={}))
    assert everything.taint.blocks
    assert (everything.driver, everything.pool, everything.device) == ("", "", "")


def test_a_node() -> None:
    record = p.node(o.node("node-1"))
    assert (record.boot_id, record.ready) == ("boot-1", True)
    assert not p.node(o.node("node-1", ready="Unknown")).ready


@pytest.mark.parametrize(
    ("conditions", "leaving"),
    [
        pytest.param({"DrainInProgress": "True"}, "DrainInProgress", id="a drain"),
        pytest.param({"Drained": "True", "MaintenanceInProgress": "True"}, "Drained", id="maintenance"),
        pytest.param(
            {"GracefulNodeShutdownInProgress": "True"}, "GracefulNodeShutdownInProgress", id="shutdown"
        ),
        pytest.param({"DrainInProgress": "False", "Drained": "Unknown"}, "", id="over, or unknown"),
        pytest.param({"MaintenancePlanned": "True"}, "", id="planned only"),
    ],
)
def test_a_node_that_an_administrator_takes_out_of_service(conditions: dict[str, str], leaving: str) -> None:
    raw = o.node("node-1")
    raw["status"]["conditions"] += [{"type": t, "status": s} for t, s in conditions.items()]
    record = p.node(raw)
    assert (record.leaving, record.ready) == (leaving, True)


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({}, True),  # policy/v1: empty takes all
        (None, False),  # and absent takes none
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}, False),
    ],
)
def test_whom_a_budget_takes(selector: Any, taken: bool) -> None:
    record = p.budget(o.budget(selector=selector))
    assert selects(record.selector, {"app": "web"}) is taken


def test_a_deployment_and_whose_pause_it_is() -> None:
    raw = o.deployment()
    raw["spec"]["paused"] = True
    record = p.deployment(raw)
    assert (record.max_surge, record.max_unavailable, record.replicas) == (0, 1, 2)
    assert (record.paused, record.parked, record.managed) == (True, None, False)
    raw["metadata"]["annotations"] = {"accelerator-rollout.dev/parked": "template-changed"}
    raw["metadata"]["labels"] = {"accelerator-rollout.dev/managed": "true"}
    record = p.deployment(raw)
    assert (record.parked, record.managed) == ("template-changed", True)


def test_defaults_of_a_deployment_are_those_of_the_api() -> None:
    record = p.deployment({"metadata": o.meta("web"), "spec": {"template": {}}})
    assert (record.replicas, record.strategy) == (1, "RollingUpdate")
    assert (record.max_surge, record.max_unavailable) == ("25%", "25%")


def test_a_deployment_and_its_replica_set_have_the_same_template() -> None:
    deployment, replica_set = p.deployment(o.deployment()), p.replica_set(o.replica_set())
    assert deployment.template.digest == replica_set.template_digest
    assert replica_set.revision == "abc"
    assert p.replica_set(o.replica_set(image="v2")).template_digest != deployment.template.digest
    assert deployment.template.pre_stop
    assert deployment.template.gates == (o.GATE,)


def test_a_template_without_labels_has_the_digest_of_its_copy_with_the_hash_alone() -> None:
    bare = o.template(labels={})
    bare["metadata"] = None
    assert p.template_digest(bare) == p.template_digest(o.template(labels={"pod-template-hash": "abc"}))


def test_a_template_of_300_kilobytes() -> None:
    big = o.template()
    big["spec"]["containers"][0]["env"] = [{"name": f"V{i}", "value": "x" * 1000} for i in range(300)]
    first = p.template_digest(big)
    other = copy.deepcopy(big)
    other["spec"]["containers"][0]["env"][299]["value"] = "y"
    assert p.template_digest(other) != first


def test_a_stateful_set() -> None:
    record = p.stateful_set(o.stateful_set())
    assert (record.update_strategy, record.current_revision, record.update_revision) == (
        "OnDelete",
        "db-1",
        "db-2",
    )


def test_a_daemon_set_and_its_revision_have_the_same_template() -> None:
    record = p.daemon_set(o.daemon_set())
    assert (record.replicas, record.update_strategy, record.min_ready_seconds) == (2, "OnDelete", 3)
    same, other = (p.controller_revision(o.controller_revision(image=i)) for i in ("v1", "v2"))
    assert (same.owner_uid, same.number, same.revision) == ("uid-ds", 1, "1")
    assert same.template_digest == record.template.digest != other.template_digest


def test_a_stateful_sets_pods_carry_the_name_of_their_revision() -> None:
    raw = o.controller_revision("db-6c5f")
    raw["metadata"]["ownerReferences"][0] |= {"kind": "StatefulSet", "name": "db", "uid": "uid-db"}
    record = p.controller_revision(raw)
    assert (record.revision, record.owner_uid) == ("db-6c5f", "uid-db")
    assert record.template_digest == p.stateful_set(o.stateful_set()).template.digest


def test_whether_a_revisions_pods_come_gated() -> None:
    raw = o.controller_revision()
    assert p.controller_revision(raw).gated
    template = raw["data"]["spec"]["template"]
    template["spec"]["schedulingGates"] = []
    assert not p.controller_revision(raw).gated
    template["metadata"]["labels"] = {GATE_LABEL: GATE_LABEL_VALUE}
    assert p.controller_revision(raw).gated


def test_what_a_revision_keeps_is_the_whole_template() -> None:
    """Also what this version does not know, and less what its controller has added."""
    revision, replica_set = o.controller_revision(), o.replica_set()
    for raw in (revision["data"]["spec"]["template"], replica_set["spec"]["template"]):
        raw["spec"]["fieldOfTomorrow"] = {"a": [1, None]}
    for raw in (revision, replica_set):
        held = p.held_template(raw)
        assert held["metadata"]["labels"] == {"app": "web"}  # type: ignore[index]
        assert held["spec"]["fieldOfTomorrow"] == {"a": [1, None]}  # type: ignore[index]
        assert "$patch" not in held
        expected = o.template()
        expected["spec"]["fieldOfTomorrow"] = {"a": [1, None]}
        assert p.template(held).digest == p.template(expected).digest


def test_a_replica_sets_number() -> None:
    raw = o.replica_set()
    assert p.replica_set(raw).number == 0
    raw["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "7"}
    assert p.replica_set(raw).number == 7


@pytest.mark.parametrize(
    ("meta", "tool"),
    [
        ({}, ""),
        ({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, "Helm"),
        ({"annotations": {"meta.helm.sh/release-name": "llm"}}, "Helm"),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "x"}}, "Argo CD"),
        ({"managedFields": [{"manager": "argocd-controller"}]}, "Argo CD"),
        ({"managedFields": [{"manager": "kubectl-client-side-apply"}]}, ""),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}, "Flux"),
        (
            {
                "labels": {
                    "helm.toolkit.fluxcd.io/name": "llm",
                    "app.kubernetes.io/managed-by": "Helm",
                }
            },
            "Flux",
        ),
    ],
)
def test_which_tool_owns_the_template(meta: dict[str, Any], tool: str) -> None:
    for raw, projected in (
        (o.deployment(), p.deployment),
        (o.stateful_set(), p.stateful_set),
        (o.daemon_set(), p.daemon_set),
    ):
        raw["metadata"] |= meta
        assert projected(raw).managed_by == tool


def _applied(manager: str, operation: str, field: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"f:spec": {field: {}}}
    return {"managedFields": [{"manager": manager, "operation": operation, "fieldsV1": fields}]}


def _by_kubectl(manifest: str) -> dict[str, Any]:
    return {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": manifest}}


@pytest.mark.parametrize(
    ("meta", "who"),
    [
        pytest.param({}, "", id="nobody"),
        pytest.param(
            _applied("argocd-controller", "Apply", "f:paused"), "argocd-controller", id="server-side"
        ),
        pytest.param(_applied("kubectl", "Update", "f:paused"), "", id="a policy's part of the write"),
        pytest.param(_applied("argocd-controller", "Apply", "f:replicas"), "", id="about something else"),
        pytest.param(_by_kubectl('{"spec": {"paused": false}}'), "kubectl apply", id="client-side"),
        pytest.param(_by_kubectl('{"spec": {"x": "paused"}}'), "", id="the word only"),
        pytest.param(_by_kubectl('{"spec": ["paused"'), "", id="not readable"),
        pytest.param(_by_kubectl('["paused"]'), "", id="not an object"),
    ],
)
def test_who_applies_a_manifest_with_a_pause_of_its_own(meta: dict[str, Any], who: str) -> None:
    raw = o.deployment()
    raw["metadata"] |= meta
    assert p.deployment(raw).pause_written_by == who


@pytest.mark.parametrize("data", [None, {}, {"anything": 1}, {"spec": {"template": None}}])
def test_a_revision_may_hold_anything(data: Any) -> None:
    raw = o.controller_revision() | {"data": data}
    assert p.controller_revision(raw).template_digest == ""


def test_of_somebody_elses_revision_the_data_is_not_looked_at() -> None:
    raw = o.controller_revision() | {"data": ["theirs"]}
    raw["metadata"]["ownerReferences"][0]["kind"] = "VirtualMachine"
    assert p.controller_revision(raw).template_digest == ""


@pytest.mark.parametrize(
    ("affinity", "node"),
    [
        (None, ""),
        ({"nodeAffinity": None}, ""),
        (o.aimed_at("node-1"), "node-1"),
        (o.aimed_at("node-1", "node-1"), "node-1"),
        (o.aimed_at("node-1", "node-2"), ""),
    ],
)
def test_for_which_node_a_pod_is_made(affinity: Any, node: str) -> None:
    raw = o.pod("a", node="")
    raw["spec"]["affinity"] = affinity
    assert p.pod(raw).place == p.pod(raw).aimed_at == node


def test_a_bound_pod_is_where_it_is_bound() -> None:
    raw = o.pod("a", node="node-3")
    raw["spec"]["affinity"] = o.aimed_at("node-1")
    assert p.pod(raw).place == "node-3"


def test_a_budget_that_its_controller_cannot_evaluate() -> None:
    raw = o.budget(selector={})
    raw["status"] = {
        "conditions": [{"type": "DisruptionAllowed", "reason": "SyncFailed", "message": "no scale"}]
    }
    assert p.budget(raw).failure == "no scale"


def test_our_own_object_readable_or_not() -> None:
    assert isinstance(p.rollout(o.rollout()), RolloutObject)
    newer = o.rollout()
    newer["spec"]["telepathy"] = True
    assert isinstance(p.rollout(newer), Unreadable)


def _without(raw: dict[str, Any], *path: str) -> dict[str, Any]:
    found = raw
    for key in path[:-1]:
        found = found[key]
    del found[path[-1]]
    return raw


@pytest.mark.parametrize(
    ("kind", "raw", "why"),
    [
        (Kind.PODS, _without(o.pod("a"), "metadata", "uid"), "uid is missing"),
        (Kind.PODS, o.pod("a", version="abc"), "resourceVersion 'abc' is not a number"),
        (Kind.PODS, o.pod("a") | {"spec": "none"}, "spec is str"),
        (Kind.PODS, o.pod("a", status={"conditions": {}}), "conditions is not a list"),
        (Kind.PODS, o.pod("a", deletionTimestamp="soon"), "Invalid isoformat"),
        (
            Kind.CLAIMS,
            o.claim("c") | {"status": {"allocation": {"devices": {"results": [{}]}}}},
            "driver is missing",
        ),
        (Kind.SLICES, _without(o.resource_slice("s"), "spec", "pool"), "name is missing"),
        (Kind.BUDGETS, o.budget(selector={"matchExpressions": [{"key": "a", "operator": "Near"}]}), "'Near'"),
        (Kind.DEPLOYMENTS, o.deployment(replicas="two"), "replicas is str"),  # type: ignore[arg-type]
        (Kind.ROLLOUTS, _without(o.rollout(), "metadata", "uid"), "uid is missing"),
    ],
)
def test_what_is_unclear_is_refused_by_name(kind: Kind, raw: dict[str, Any], why: str) -> None:
    with pytest.raises(ProjectionError, match=why) as refused:
        project(kind, raw)
    assert refused.value.name == raw["metadata"]["name"]
    assert refused.value.name in str(refused.value)


@pytest.mark.parametrize(("phase", "ended"), [("Failed", "2026-01-31T12:00:03+00:00"), ("Running", None)])
def test_a_pod_ended_when_its_last_container_did(phase: str, ended: str | None) -> None:
    containers = [
        {"state": {"terminated": {"exitCode": 0, "finishedAt": f"2026-01-31T12:00:0{second}Z"}}}
        for second in (3, 1)
    ]
    record = p.pod(o.pod("a", phase=phase, status={"containerStatuses": containers}))
    assert (record.ended_at and record.ended_at.isoformat()) == ended
    assert p.pod(o.pod("a", phase=phase, status={"containerStatuses": [{"state": {}}]})).ended_at is None
