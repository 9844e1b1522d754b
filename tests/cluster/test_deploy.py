"""What a user installs does what it says on a real API server: gates, parks, allows what is needed and no more."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from accelerator_rollout import names
from accelerator_rollout.decide.actions import ParkReason
from lab.client import Api, ApiError, EventType, Object, PatchType
from lab.controlplane import ControlPlane
from lab.install import BASE, Account, manifests
from lab.resources import (
    ACCELERATOR_ROLLOUTS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICE_TAINT_RULES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    Resource,
)
from lab.toolchain import find_kubectl

pytestmark = pytest.mark.cluster

OVERLAYS: Final = BASE.parent / "overlays"
FOREIGN_GATE: Final = {"name": "example.com/quota"}
GATE: Final = {"name": names.GATE}
GATED: Final = {names.GATE_LABEL: names.GATE_LABEL_VALUE}
MANAGED: Final = {names.MANAGED_LABEL: names.MANAGED_LABEL_VALUE}
DRY_RUN: Final = {"dryRun": "All"}
VALIDATING_POLICIES: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", namespaced=False
)

Kubectl = Callable[..., Awaitable[str]]


@pytest_asyncio.fixture
async def operator(admin: Api, account: Account) -> AsyncIterator[Api]:
    """The API as the operator's own ServiceAccount sees it."""
    async with Api(await account.connection(admin), field_manager=names.FIELD_MANAGER) as api:
        yield api


@pytest.fixture
def kubectl(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Kubectl:
    """A person's kubectl in the test's namespace; a warning of the API server is an error."""

    async def run(*arguments: str, manifest: Object | None = None) -> str:
        command = [str(find_kubectl()), "--warnings-as-errors", *arguments]
        if "-k" not in arguments:
            command += ["--namespace", namespace]
        if manifest is not None:
            path = tmp_path / "manifest.yaml"
            path.write_text(yaml.safe_dump(manifest))
            command += ["-f", str(path)]
        environment = os.environ | {
            "KUBECONFIG": str(control_plane.kubeconfig),
            "HOME": str(tmp_path),
            # A person's own kubectl settings must not change what is tried here.
            "KUBECTL_KUBERC": "false",
        }
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)} failed: {done.stderr}"
        return done.stdout

    return run


def template(
    labels: Mapping[str, str] | None = None,
    image: str = "server:v1",
    spec: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    container = {"name": "server", "image": image}
    return {
        "metadata": {"labels": {"app": "llm", **(labels or {})}},
        "spec": {"containers": [container], **(spec or {})},
    }


def pod(namespace: str, labels: Mapping[str, str] | None = None, name: str = "llm", **spec: object) -> Object:
    made = template(labels, spec=spec)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": made["metadata"]["labels"]},
        "spec": made["spec"],
    }


def deployment(namespace: str, *, managed: bool = True, **spec: object) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llm", "namespace": namespace, "labels": {**MANAGED} if managed else {}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "llm"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": template(GATED),
            **spec,
        },
    }


def gates(body: Object) -> list[Object]:
    return list(body["spec"].get("schedulingGates") or [])


def parked(body: Object) -> str | None:
    reason = body["metadata"].get("annotations", {}).get(names.PARKED_ANNOTATION)
    return None if reason is None else str(reason)


def paused(body: Object) -> bool:
    return bool(body["spec"].get("paused"))


def observed(body: Object) -> bool:
    return bool(body.get("status", {}).get("observedGeneration", 0) >= body["metadata"]["generation"])


async def refusal(attempt: Awaitable[object]) -> str:
    """The message with which the API server forbids the attempt."""
    with pytest.raises(ApiError) as refused:
        await attempt
    assert refused.value.status == 403, refused.value
    return refused.value.message


# Manifests


@pytest_asyncio.fixture
async def monitoring(admin: Api) -> AsyncIterator[None]:
    """The kinds of the Prometheus operator are served: where it is not installed, by stand-ins that take any spec."""
    made = []
    for kind in ("ServiceMonitor", "PrometheusRule"):
        plural = f"{kind.lower()}s"
        name = f"{plural}.monitoring.coreos.com"
        if await admin.find(CUSTOM_RESOURCE_DEFINITIONS, name) is None:
            schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            called = {"kind": kind, "plural": plural, "singular": kind.lower()}
            spec = {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": called}
            body = {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": name},
                "spec": spec | {"versions": [version]},
            }
            await admin.apply_manifest([body])
            made.append(name)
    yield
    for name in made:
        await admin.delete_if_there(CUSTOM_RESOURCE_DEFINITIONS, name)
    async with asyncio.timeout(30):
        while made and await _monitoring_is_shown(admin):  # noqa: ASYNC110 - discovery tells nobody when it follows
            await asyncio.sleep(0.1)


async def _monitoring_is_shown(admin: Api) -> bool:
    return "monitoring.coreos.com" in {g["name"] for g in (await admin.request("GET", "/apis"))["groups"]}


@pytest.mark.usefixtures("monitoring")
@pytest.mark.parametrize(
    "folder", [BASE, *sorted(p for p in OVERLAYS.iterdir() if p.is_dir())], ids=lambda f: f.name
)
async def test_manifests_apply_server_side_without_a_warning(
    account: Account, kubectl: Kubectl, folder: Path
) -> None:
    listed = await kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", str(folder)
    )
    assert "deployment.apps/accelerator-rollout-operator" in listed
    assert len(listed.splitlines()) == len(await asyncio.to_thread(manifests, folder))


async def test_the_operators_pod_passes_the_restricted_pod_security_of_its_namespace(
    admin: Api, account: Account
) -> None:
    own = next(b for b in await asyncio.to_thread(manifests) if b["kind"] == "Deployment")
    made = own["spec"]["template"]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "operator-", "labels": made["metadata"]["labels"]},
        "spec": made["spec"],
    }
    path = PODS.path(namespace=account.namespace)
    await admin.request("POST", path, params=DRY_RUN, body=body)
    body["spec"]["containers"][0].pop("securityContext")
    assert "restricted" in await refusal(admin.request("POST", path, params=DRY_RUN, body=body))


async def test_the_api_server_finds_no_fault_in_the_expressions(admin: Api, account: Account) -> None:
    policies = [b for b in await asyncio.to_thread(manifests) if b["kind"] == "ValidatingAdmissionPolicy"]
    for policy in policies:
        checked = await admin.wait_for(VALIDATING_POLICIES, policy["metadata"]["name"], observed)
        assert not checked["status"].get("typeChecking"), policy["metadata"]["name"]


# The gate


async def test_a_labelled_pod_is_born_gated(admin: Api, account: Account, namespace: str) -> None:
    assert gates(await admin.create(PODS, pod(namespace, GATED))) == [GATE]


@pytest.mark.parametrize("resource", [DEPLOYMENTS, STATEFUL_SETS], ids=["Deployment", "StatefulSet"])
async def test_a_controllers_labelled_pods_are_born_gated(
    admin: Api, account: Account, namespace: str, resource: Resource
) -> None:
    body = deployment(namespace)
    if resource is STATEFUL_SETS:
        body["kind"] = "StatefulSet"
        body["spec"].pop("strategy")
        body["spec"] |= {"serviceName": "llm", "podManagementPolicy": "Parallel"}
    await admin.create(resource, body)
    born = []
    async with asyncio.timeout(30):
        async with aclosing(admin.follow(PODS, namespace, label_selector="app=llm")) as events:
            async for event in events:
                if event.type is EventType.ADDED:
                    born.append(gates(event.object))
                if len(born) == 2:
                    break
    assert born == [[GATE], [GATE]]


async def test_a_pod_that_names_the_gate_itself_gets_it_once_and_keeps_others_gates(
    admin: Api, account: Account, namespace: str
) -> None:
    named = pod(namespace, GATED, schedulingGates=[FOREIGN_GATE, GATE])
    assert gates(await admin.create(PODS, named)) == [FOREIGN_GATE, GATE]
    foreign = pod(namespace, GATED, name="foreign", schedulingGates=[FOREIGN_GATE])
    assert gates(await admin.create(PODS, foreign)) == [FOREIGN_GATE, GATE]


@pytest.mark.parametrize("labels", [{}, {names.GATE_LABEL: "false"}], ids=["none", "false"])
async def test_a_pod_without_the_label_is_not_gated(
    admin: Api, account: Account, namespace: str, labels: dict[str, str]
) -> None:
    assert gates(await admin.create(PODS, pod(namespace, labels))) == []


async def test_a_pod_that_is_born_bound_is_not_gated(admin: Api, account: Account, namespace: str) -> None:
    bound = await admin.create(PODS, pod(namespace, GATED, nodeName="no-such-node"))
    assert gates(bound) == []
    await admin.delete(PODS, "llm", namespace, grace_seconds=0)


# Parking


async def set_image(kubectl: Kubectl, _admin: Api, _namespace: str) -> None:
    await kubectl("set", "image", "deployment/llm", "server=server:v2")


async def restart(kubectl: Kubectl, _admin: Api, _namespace: str) -> None:
    await kubectl("rollout", "restart", "deployment/llm")


async def apply(kubectl: Kubectl, _admin: Api, namespace: str) -> None:
    changed = deployment(namespace, managed=False, template=template(GATED, "server:v2"))
    await kubectl("apply", manifest=changed)


async def server_side_apply(kubectl: Kubectl, _admin: Api, namespace: str) -> None:
    changed = deployment(namespace, managed=False, template=template(GATED, "server:v2"))
    await kubectl("apply", "--server-side", "--force-conflicts", manifest=changed)


async def replace(kubectl: Kubectl, _admin: Api, namespace: str) -> None:
    """The manifest knows nothing of our label, and a replacement takes it away in the same write."""
    await kubectl(
        "replace", manifest=deployment(namespace, managed=False, template=template(GATED, "server:v2"))
    )


async def edit_a_very_large_template(_kubectl: Kubectl, admin: Api, namespace: str) -> None:
    """As large as a stored object may become, so that no cost limit of the expression language can surprise."""
    big = [{"name": f"V{n}", "value": "x" * 1000} for n in range(300)]
    change = {"spec": {"template": {"spec": {"containers": [{"name": "server", "env": big}]}}}}
    await admin.patch(DEPLOYMENTS, "llm", change, namespace, patch_type=PatchType.STRATEGIC)


ways = pytest.mark.parametrize(
    "way", [set_image, restart, apply, server_side_apply, replace, edit_a_very_large_template]
)


@pytest.fixture
async def running(admin: Api, account: Account, kubectl: Kubectl, namespace: str) -> Object:
    """A managed Deployment whose pods exist, applied by a person whose manifest does not know our label."""
    await kubectl("apply", manifest=deployment(namespace, managed=False))
    await admin.patch(DEPLOYMENTS, "llm", {"metadata": {"labels": MANAGED}}, namespace)
    return await admin.wait_for(DEPLOYMENTS, "llm", settled, namespace)


def settled(body: Object) -> bool:
    return observed(body) and body["status"].get("replicas") == 2


async def revisions(admin: Api, namespace: str) -> dict[str, int]:
    """The Deployment's ReplicaSets and how many pods each is to have."""
    page = await admin.list(REPLICA_SETS, namespace)
    return {item["metadata"]["uid"]: item["spec"]["replicas"] for item in page.items}


@ways
async def test_a_change_of_the_template_parks_in_the_same_write_and_no_pod_moves(
    admin: Api,
    kubectl: Kubectl,
    namespace: str,
    running: Object,
    way: Callable[[Kubectl, Api, str], Awaitable[None]],
) -> None:
    before = await revisions(admin, namespace)
    await way(kubectl, admin, namespace)
    after = await admin.get(DEPLOYMENTS, "llm", namespace)
    assert after["spec"]["template"] != running["spec"]["template"]
    assert (paused(after), parked(after)) == (True, ParkReason.TEMPLATE_CHANGED)
    await admin.wait_for(DEPLOYMENTS, "llm", observed, namespace)
    assert await revisions(admin, namespace) == before


async def test_an_undo_parks(admin: Api, kubectl: Kubectl, namespace: str, running: Object) -> None:
    await set_image(kubectl, admin, namespace)
    # The operator lets it move, and it comes to rest at the second revision.
    unpark = {"metadata": {"annotations": {names.PARKED_ANNOTATION: None}}, "spec": {"paused": False}}
    await admin.patch(DEPLOYMENTS, "llm", unpark, namespace)
    await admin.wait_for(
        DEPLOYMENTS, "llm", lambda b: settled(b) and b["status"].get("updatedReplicas", 0) > 0, namespace
    )
    await kubectl("rollout", "undo", "deployment/llm")
    after = await admin.get(DEPLOYMENTS, "llm", namespace)
    assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "server:v1"
    assert (paused(after), parked(after)) == (True, ParkReason.TEMPLATE_CHANGED)


@ways
async def test_a_deployment_without_our_label_is_not_parked(
    admin: Api,
    account: Account,
    kubectl: Kubectl,
    namespace: str,
    way: Callable[[Kubectl, Api, str], Awaitable[None]],
) -> None:
    await kubectl("apply", manifest=deployment(namespace, managed=False))
    await way(kubectl, admin, namespace)
    after = await admin.get(DEPLOYMENTS, "llm", namespace)
    assert (paused(after), parked(after)) == (False, None)


async def test_what_is_no_change_of_the_template_does_not_park(
    admin: Api, kubectl: Kubectl, namespace: str, running: Object
) -> None:
    await kubectl("scale", "deployment/llm", "--replicas=3")
    await kubectl("label", "deployment/llm", "team=a")
    await kubectl("annotate", "deployment/llm", "note=a")
    await kubectl("apply", manifest=deployment(namespace, managed=False, replicas=3, minReadySeconds=1))
    await kubectl(
        "patch",
        "deployment/llm",
        "-p",
        json.dumps({"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 2}}}}),
    )
    after = await admin.get(DEPLOYMENTS, "llm", namespace)
    assert (paused(after), parked(after)) == (False, None)


async def test_a_person_s_pause_stays_a_person_s_pause(
    admin: Api, kubectl: Kubectl, namespace: str, running: Object
) -> None:
    await kubectl("rollout", "pause", "deployment/llm")
    await set_image(kubectl, admin, namespace)
    after = await admin.get(DEPLOYMENTS, "llm", namespace)
    assert (paused(after), parked(after)) == (True, None)


async def test_a_write_that_changes_the_template_and_pauses_is_a_person_s_pause(
    admin: Api, kubectl: Kubectl, namespace: str, running: Object
) -> None:
    changed = deployment(namespace, managed=False, template=template(GATED, "server:v2"), paused=True)
    await kubectl("apply", manifest=changed)
    after = await admin.get(DEPLOYMENTS, "llm", namespace)
    assert (paused(after), parked(after)) == (True, None)


async def test_a_person_who_resumes_and_changes_the_template_in_one_write_is_parked(
    admin: Api, kubectl: Kubectl, namespace: str, running: Object
) -> None:
    await kubectl("rollout", "pause", "deployment/llm")
    changed = deployment(namespace, managed=False, template=template(GATED, "server:v2"), paused=False)
    await kubectl("apply", manifest=changed)
    after = await admin.get(DEPLOYMENTS, "llm", namespace)
    assert (paused(after), parked(after)) == (True, ParkReason.TEMPLATE_CHANGED)


async def test_a_change_while_our_own_pause_holds_tells_its_newest_reason(
    admin: Api, kubectl: Kubectl, namespace: str, running: Object, operator: Api
) -> None:
    await operator.patch(DEPLOYMENTS, "llm", park(ParkReason.STEP_TAKEN), namespace)
    await set_image(kubectl, admin, namespace)
    after = await admin.get(DEPLOYMENTS, "llm", namespace)
    assert (paused(after), parked(after)) == (True, ParkReason.TEMPLATE_CHANGED)


async def test_applying_the_same_manifest_again_leaves_our_pause(
    admin: Api, kubectl: Kubectl, namespace: str, running: Object
) -> None:
    for way in (apply, server_side_apply):
        await way(kubectl, admin, namespace)
        first = await admin.get(DEPLOYMENTS, "llm", namespace)
        await way(kubectl, admin, namespace)
        second = await admin.get(DEPLOYMENTS, "llm", namespace)
        assert second["spec"] == first["spec"]
        assert (paused(second), parked(second)) == (True, ParkReason.TEMPLATE_CHANGED)


def park(reason: ParkReason) -> Object:
    return {"metadata": {"annotations": {names.PARKED_ANNOTATION: reason.value}}, "spec": {"paused": True}}


# The operator's rights

READ: Final = ("get", "list", "watch")
NEEDED: Final = {
    ("", "pods"): (*READ, "patch", "create"),
    ("", "pods/eviction"): ("create",),
    ("", "nodes"): READ,
    ("apps", "deployments"): (*READ, "patch"),
    ("apps", "replicasets"): READ,
    ("apps", "statefulsets"): (*READ, "patch"),  # the optional role of Undo
    ("apps", "daemonsets"): (*READ, "patch"),
    (names.GROUP, "templates"): ("restore",),  # no resource that is served, only one that is asked for
    ("apps", "controllerrevisions"): READ,
    ("policy", "poddisruptionbudgets"): READ,
    ("resource.k8s.io", "resourceclaims"): READ,
    # The optional role; `binding` is no resource that is served, only one that is asked for.
    ("resource.k8s.io", "resourceclaims/status"): ("patch",),
    ("resource.k8s.io", "resourceclaims/binding"): ("patch",),
    ("resource.k8s.io", "resourceslices"): READ,
    ("resource.k8s.io", "devicetaintrules"): (*READ, "create", "delete"),  # the other optional role
    (names.GROUP, names.PLURAL): (*READ, "patch", "update"),
    (names.GROUP, f"{names.PLURAL}/status"): ("patch", "update"),
    (names.GROUP, f"{names.PLURAL}/finalizers"): ("patch", "update"),
    ("events.k8s.io", "events"): ("create", "patch"),
}
# Read where our own policies are concerned, and by name alone.
NAMED: Final = {
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"): "park.accelerator-rollout.dev",
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): "park.accelerator-rollout.dev",
}


async def allowed(operator: Api, group: str, resource: str, verb: str, name: str = "") -> bool:
    plain, _, subresource = resource.partition("/")
    attributes = {"group": group, "resource": plain, "subresource": subresource, "verb": verb, "name": name}
    review = await operator.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        body={
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        },
    )
    return bool(review["status"]["allowed"])


async def test_the_operator_may_do_what_it_needs(operator: Api) -> None:
    for (group, resource), verbs in NEEDED.items():
        for verb in verbs:
            assert await allowed(operator, group, resource, verb), f"{verb} {resource}"
    for (group, resource), name in NAMED.items():
        assert await allowed(operator, group, resource, "get", name), f"get {resource} {name}"


async def served_resources(admin: Api) -> list[tuple[str, str, Sequence[str]]]:
    """Each resource of each group that this API server knows, with its verbs."""
    groups = (await admin.request("GET", "/apis"))["groups"]
    roots = {"": "/api/v1"} | {g["name"]: f"/apis/{g['preferredVersion']['groupVersion']}" for g in groups}
    return [
        (group, item["name"], item["verbs"])
        for group, root in roots.items()
        for item in (await admin.request("GET", root))["resources"]
    ]


async def test_the_operator_may_do_nothing_else(admin: Api, operator: Api, namespace: str) -> None:
    # What any ServiceAccount may do (ask what it may do, for one) is no right of the operator's.
    async with Api(await Account(namespace, "default").connection(admin)) as anybody:
        excess = [
            f"{verb} {group}/{resource}"
            for group, resource, verbs in await served_resources(admin)
            for verb in {*verbs, "escalate", "bind", "impersonate"} - {*NEEDED.get((group, resource), ())}
            if await allowed(operator, group, resource, verb)
            and not await allowed(anybody, group, resource, verb)
        ]
    assert excess == []


async def test_the_operator_creates_pods_by_dry_run_only(admin: Api, operator: Api, namespace: str) -> None:
    path = PODS.path(namespace=namespace)
    body = pod(namespace, GATED)
    assert gates(await operator.request("POST", path, params=DRY_RUN, body=body)) == [GATE]
    assert "dry run only" in await refusal(operator.create(PODS, body))
    assert await admin.find(PODS, "llm", namespace) is None


async def test_the_operator_opens_our_gate_and_no_other(admin: Api, operator: Api, namespace: str) -> None:
    await admin.create(PODS, pod(namespace, GATED, schedulingGates=[FOREIGN_GATE]))

    async def remove(gate: Mapping[str, str]) -> Object:
        change = {"spec": {"schedulingGates": [{**gate, "$patch": "delete"}]}}
        return await operator.patch(PODS, "llm", change, namespace, patch_type=PatchType.STRATEGIC)

    assert "removes no gate but" in await refusal(remove(FOREIGN_GATE))
    assert gates(await remove(GATE)) == [FOREIGN_GATE]


async def test_the_operator_sets_a_deletion_cost_and_changes_nothing_else_of_a_pod(
    admin: Api, operator: Api, namespace: str
) -> None:
    await admin.create(PODS, pod(namespace, GATED))

    async def change(**parts: Object) -> Object:
        return await operator.patch(PODS, "llm", parts, namespace, patch_type=PatchType.STRATEGIC)

    await change(metadata={"annotations": {names.DELETION_COST_ANNOTATION: "-1"}})
    await change(metadata={"annotations": {names.DELETION_COST_ANNOTATION: None}})
    assert "annotations" in await refusal(change(metadata={"annotations": {"note": "x"}}))
    for other in (
        {"metadata": {"labels": {"note": "x"}}},
        {"spec": {"containers": [{"name": "server", "image": "server:v2"}]}},
        {"spec": {"activeDeadlineSeconds": 1}},
    ):
        assert "nothing but its gate" in await refusal(change(**other))
    assert "kubernetes.io/hostname alone" in await refusal(change(spec={"nodeSelector": {"node": "a"}}))
    await change(spec={"nodeSelector": {names.HOSTNAME_LABEL: "node-a"}})
    assert "no finalizer but" in await refusal(change(metadata={"finalizers": ["example.com/mine"]}))
    await change(metadata={"finalizers": [names.GUARD_FINALIZER]})
    await change(metadata={"$deleteFromPrimitiveList/finalizers": [names.GUARD_FINALIZER]})


async def test_the_operator_deletes_no_pod_and_evicts_by_uid_with_the_pods_own_grace(
    admin: Api, operator: Api, namespace: str
) -> None:
    made = await admin.create(PODS, pod(namespace, GATED))
    uid = made["metadata"]["uid"]
    assert "cannot delete" in await refusal(operator.delete(PODS, "llm", namespace))
    assert "UID as precondition" in await refusal(operator.evict("llm", namespace))
    assert "grace period" in await refusal(operator.evict("llm", namespace, uid=uid, grace_seconds=0))
    with pytest.raises(ApiError) as stale:
        await operator.evict("llm", namespace, uid="somebody-else")
    assert stale.value.is_conflict
    await operator.evict("llm", namespace, uid=uid)
    await admin.wait_gone(PODS, "llm", namespace)


async def test_the_operator_pauses_and_labels_a_deployment_and_changes_nothing_else(
    admin: Api, operator: Api, namespace: str, account: Account
) -> None:
    await admin.create(DEPLOYMENTS, deployment(namespace, managed=False))

    async def change(parts: Object) -> Object:
        return await operator.patch(DEPLOYMENTS, "llm", parts, namespace, patch_type=PatchType.STRATEGIC)

    await change({"metadata": {"labels": MANAGED}})
    await change(park(ParkReason.HALTED))
    free = {"labels": {names.MANAGED_LABEL: None}, "annotations": {names.PARKED_ANNOTATION: None}}
    await change({"metadata": free, "spec": {"paused": None}})
    assert "annotations" in await refusal(change({"metadata": {"annotations": {"note": "x"}}}))
    assert "labels" in await refusal(change({"metadata": {"labels": {"note": "x"}}}))
    image = {"containers": [{"name": "server", "image": "server:v2"}]}
    for other in (
        {"metadata": {"finalizers": ["example.com/mine"]}},
        {"spec": {"replicas": 0}},
        {"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 2}}}},
    ):
        assert "nothing but the pause" in await refusal(change(other))
    # With the optional role a template, too, where nothing moves at once and the pods come gated.
    moving = {"spec": {"template": {"spec": image}}}
    assert "paused in the same write" in await refusal(change(moving))
    parked_with = park(ParkReason.TEMPLATE_CHANGED)
    bare = {"metadata": {"labels": {names.GATE_LABEL: None}}}
    open_pods = parked_with | {"spec": {"paused": True, "template": bare}}
    assert "come gated" in await refusal(change(open_pods))
    await change(parked_with | {"spec": {"paused": True, "template": {"spec": image}}})


@pytest.mark.parametrize(("kind", "resource"), [("StatefulSet", STATEFUL_SETS), ("DaemonSet", DAEMON_SETS)])
async def test_the_operator_writes_a_template_and_nothing_else_of_the_other_kinds(
    admin: Api, operator: Api, namespace: str, account: Account, kind: str, resource: Resource
) -> None:
    body = deployment(namespace, managed=False)
    spec = {k: v for k, v in body["spec"].items() if k in ("selector", "template")}
    strategy = {"updateStrategy": {"type": "OnDelete"}}
    if resource is STATEFUL_SETS:
        spec |= {"serviceName": "llm", "replicas": 0}
    else:
        spec["template"]["spec"]["nodeSelector"] = {"no": "node"}
    await admin.create(resource, body | {"kind": kind, "spec": spec | strategy})

    async def change(parts: Object) -> Object:
        return await operator.patch(resource, "llm", parts, namespace, patch_type=PatchType.STRATEGIC)

    image = {"containers": [{"name": "server", "image": "server:v2"}]}
    restore = {"spec": {"template": {"spec": image}}}
    await change(restore)
    for other in (
        {"metadata": {"labels": {"note": "x"}}},
        {"metadata": {"finalizers": ["example.com/mine"]}},
        {"metadata": {"annotations": {"note": "x"}}},
        {"spec": {"minReadySeconds": 7}},
        {"spec": {"updateStrategy": {"type": "RollingUpdate"}}},
    ):
        assert "nothing but the pod template" in await refusal(change(other))
    bare = {"spec": {"template": {"metadata": {"labels": {names.GATE_LABEL: None}}}}}
    assert "without our gate" in await refusal(change(bare))
    rolling = {"spec": {"updateStrategy": {"type": "RollingUpdate"}}}
    await admin.patch(resource, "llm", rolling, namespace)
    image["containers"][0]["image"] = "server:v3"
    assert "only where the update strategy is OnDelete" in await refusal(change(restore))


async def test_without_the_optional_role_no_template_is_written(
    admin: Api, account: Account, namespace: str
) -> None:
    """The account is known by its name, in whichever namespace: here it has the base's role alone."""
    await admin.create(DEPLOYMENTS, deployment(namespace))
    rbac = "rbac.authorization.k8s.io"
    lesser = Account(namespace, account.name)
    meta = {"name": account.name, "namespace": namespace}
    await admin.create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    bound = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "accelerator-rollout-operator"},
        "subjects": [{"kind": "ServiceAccount", **meta}],
    }
    await admin.request("POST", f"/apis/{rbac}/v1/namespaces/{namespace}/rolebindings", body=bound)
    image = {"containers": [{"name": "server", "image": "server:v2"}]}
    write = park(ParkReason.TEMPLATE_CHANGED) | {"spec": {"paused": True, "template": {"spec": image}}}
    async with Api(await lesser.connection(admin)) as api:
        for _ in range(100):  # until the API server knows of the binding
            attempt = api.patch(DEPLOYMENTS, "llm", write, namespace, patch_type=PatchType.STRATEGIC)
            said = await refusal(attempt)
            if "cannot patch" not in said:
                break
            await asyncio.sleep(0.1)
        assert "nothing but the pause" in said


async def test_the_operator_writes_status_and_finalizer_of_a_rollout_and_never_its_spec(
    admin: Api, operator: Api, namespace: str
) -> None:
    rollout = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "llm", "namespace": namespace, "finalizers": ["example.com/mine"]},
        "spec": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"}},
    }
    await admin.create(ACCELERATOR_ROLLOUTS, rollout)

    async def change(parts: Object, subresource: str | None = None) -> Object:
        return await operator.patch(ACCELERATOR_ROLLOUTS, "llm", parts, namespace, subresource=subresource)

    await change({"metadata": {"finalizers": ["example.com/mine", names.FINALIZER]}})
    await change({"status": {"observedGeneration": 1}}, "status")
    assert "never what people ask for" in await refusal(change({"spec": {"paused": True}}))
    assert "never what people ask for" in await refusal(change({"metadata": {"labels": {"note": "x"}}}))
    assert "no finalizer but" in await refusal(change({"metadata": {"finalizers": [names.FINALIZER]}}))
    assert "cannot delete" in await refusal(operator.delete(ACCELERATOR_ROLLOUTS, "llm", namespace))
    # Gone for good: the operator's finalizer by the operator, the other by its owner.
    await admin.delete(ACCELERATOR_ROLLOUTS, "llm", namespace)
    await change({"metadata": {"finalizers": ["example.com/mine"]}})
    await admin.patch(ACCELERATOR_ROLLOUTS, "llm", {"metadata": {"finalizers": []}}, namespace)
    await admin.wait_gone(ACCELERATOR_ROLLOUTS, "llm", namespace)


async def test_the_operator_holds_a_claim_and_changes_nothing_else_of_it(
    admin: Api, operator: Api, namespace: str
) -> None:
    request = {"name": "device", "exactly": {"deviceClassName": "any"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "llm", "namespace": namespace},
        "spec": {"devices": {"requests": [request]}},
    }
    result = {"request": "device", "driver": "x.example.dev", "pool": "p", "device": "d"}
    theirs = {"apiGroup": "example.com", "resource": "things", "name": "llm", "uid": "of-theirs"}
    ours = {"apiGroup": names.GROUP, "resource": names.PLURAL, "name": "llm", "uid": "of-ours"}
    allocated = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [theirs]}

    async def become(status: Object) -> None:
        await admin.patch(RESOURCE_CLAIMS, "llm", {"status": status}, namespace, subresource="status")

    async def change(status: Object) -> Object:
        return await operator.patch(
            RESOURCE_CLAIMS, "llm", {"status": status}, namespace, subresource="status"
        )

    await admin.create(RESOURCE_CLAIMS, claim)
    await become(allocated)
    away = {"reservedFor": None, "allocation": None}
    for wrong in (away, {"reservedFor": [ours]}, {"reservedFor": [theirs, {**theirs, "uid": "of-another"}]}):
        assert "its own entry in reservedFor" in await refusal(change(wrong))
    await change({"reservedFor": [theirs, ours]})
    assert "its own entry" in await refusal(change({"reservedFor": [ours]}))
    await change({"reservedFor": [theirs]})
    await change({"reservedFor": [theirs, ours]})
    await change(away)  # whole, from a claim that carries our entry
    found = await admin.get(RESOURCE_CLAIMS, "llm", namespace)
    assert not found.get("status")
    assert "cannot patch" in await refusal(
        operator.patch(RESOURCE_CLAIMS, "llm", {"metadata": {"labels": {"note": "x"}}}, namespace)
    )


async def test_the_operator_reserves_one_device_with_its_own_taint(
    admin: Api, operator: Api, namespace: str
) -> None:
    one = {"driver": "x.example.dev", "pool": "p", "device": "d"}
    ours = {"key": names.RESERVED_TAINT, "value": "llm", "effect": "NoSchedule"}
    label = {names.RESERVED_BY_LABEL: "of-ours"}

    def rule(selector: Object | None, taint: Object, labels: Object) -> Object:
        meta = {"name": namespace, "labels": labels}
        return {"metadata": meta, "spec": {"deviceSelector": selector, "taint": taint}}

    async def create(by: Api, body: Object) -> Object:
        return await by.request("POST", DEVICE_TAINT_RULES.path(), body=body)

    for selector, taint, labels, words in (
        (one, ours | {"effect": "NoExecute"}, label, "with effect NoSchedule"),
        (one, ours | {"key": "example.com/other"}, label, "own label and taint"),
        (one, ours, {}, "own label and taint"),
        ({"driver": "x.example.dev"}, ours, label, "about one device"),
        (None, ours, label, "about one device"),
    ):
        assert words in await refusal(create(operator, rule(selector, taint, labels)))
    try:
        await create(admin, rule(one, ours, {}))
        assert "own label and taint" in await refusal(operator.delete(DEVICE_TAINT_RULES, namespace))
        await admin.delete(DEVICE_TAINT_RULES, namespace)
        await create(operator, rule(one, ours, label))
        assert "cannot patch" in await refusal(
            operator.patch(DEVICE_TAINT_RULES, namespace, {"metadata": {"labels": {"note": "x"}}})
        )
        await operator.delete(DEVICE_TAINT_RULES, namespace)
    finally:
        await admin.delete_if_there(DEVICE_TAINT_RULES, namespace)


async def test_the_limits_bind_the_operator_alone(admin: Api, account: Account, namespace: str) -> None:
    await admin.create(PODS, pod(namespace))
    await admin.patch(PODS, "llm", {"metadata": {"labels": {"note": "x"}}}, namespace)
    await admin.evict("llm", namespace)


@pytest.mark.parametrize(("role", "may_create"), [("admin", True), ("edit", True), ("view", False)])
async def test_who_may_edit_workloads_may_edit_rollouts(
    admin: Api, account: Account, namespace: str, role: str, may_create: bool
) -> None:
    await admin.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "person", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "person"}],
        }
    )

    async def may(verb: str) -> bool:
        attributes = {"namespace": namespace, "group": names.GROUP, "resource": names.PLURAL, "verb": verb}
        review = await admin.request(
            "POST",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            body={
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": "person", "resourceAttributes": attributes},
            },
        )
        return bool(review["status"]["allowed"])

    async with asyncio.timeout(30):
        # The aggregation of roles and the authorizer's view of them lag a moment, and no event tells when they are there.
        while not await may("get"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert await may("create") is may_create
