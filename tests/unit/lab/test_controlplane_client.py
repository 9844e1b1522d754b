"""The client and the identities against the real API server: preconditions, patch types, watches, refusals."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from lab.client import Api, ApiError, EventType, Object, PatchType
from lab.controlplane import ControlPlane
from lab.identities import IdentityError, service_account_kubeconfig, user
from lab.kubeconfig import Connection
from lab.resources import (
    CONFIG_MAPS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
    Resource,
)

pytestmark = pytest.mark.cluster


def config(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_an_object_lives_from_create_to_delete(admin: Api, namespace: str) -> None:
    created = await admin.create(CONFIG_MAPS, config("one", a="1"), namespace)
    with pytest.raises(ApiError) as again:
        await admin.create(CONFIG_MAPS, config("one"), namespace)
    assert again.value.is_already_exists

    created["data"]["a"] = "2"
    replaced = await admin.replace(CONFIG_MAPS, created, namespace)
    with pytest.raises(ApiError) as stale:
        await admin.replace(CONFIG_MAPS, created, namespace)
    assert stale.value.is_conflict

    patched = await admin.patch(CONFIG_MAPS, "one", {"data": {"b": "3"}}, namespace)
    assert patched["data"] == {"a": "2", "b": "3"}
    assert replaced["metadata"]["uid"] == patched["metadata"]["uid"]

    await admin.delete(CONFIG_MAPS, "one", namespace)
    assert await admin.find(CONFIG_MAPS, "one", namespace) is None


async def test_each_patch_type_is_understood(admin: Api, namespace: str) -> None:
    await admin.create(CONFIG_MAPS, config("one", a="1"), namespace)
    await admin.patch(
        CONFIG_MAPS,
        "one",
        [{"op": "add", "path": "/data/b", "value": "2"}],
        namespace,
        patch_type=PatchType.JSON,
    )
    await admin.patch(CONFIG_MAPS, "one", {"data": {"c": "3"}}, namespace, patch_type=PatchType.STRATEGIC)
    applied = await admin.apply(config("one", d="4"), namespace, field_manager="someone")

    assert applied["data"] == {"a": "1", "b": "2", "c": "3", "d": "4"}
    assert {entry["manager"] for entry in applied["metadata"]["managedFields"]} == {"lab", "someone"}


async def test_a_uid_precondition_saves_the_next_object_of_that_name(admin: Api, namespace: str) -> None:
    first = await admin.create(CONFIG_MAPS, config("one"), namespace)
    await admin.delete(CONFIG_MAPS, "one", namespace)
    await admin.create(CONFIG_MAPS, config("one"), namespace)
    with pytest.raises(ApiError) as caught:
        await admin.delete(CONFIG_MAPS, "one", namespace, uid=first["metadata"]["uid"])
    assert caught.value.is_conflict


async def test_a_list_names_the_kind_of_its_items_and_obeys_selectors(admin: Api, namespace: str) -> None:
    labelled = config("two")
    labelled["metadata"]["labels"] = {"wanted": "yes"}
    await admin.create(CONFIG_MAPS, config("one"), namespace)
    await admin.create(CONFIG_MAPS, labelled, namespace)

    by_label = await admin.list(CONFIG_MAPS, namespace, label_selector="wanted=yes")
    by_name = await admin.list(CONFIG_MAPS, namespace, field_selector="metadata.name=one")

    assert [(item["kind"], item["metadata"]["name"]) for item in by_label.items] == [("ConfigMap", "two")]
    assert [item["metadata"]["name"] for item in by_name.items] == ["one"]


async def test_a_watch_tells_each_change_in_order_even_of_a_large_object(admin: Api, namespace: str) -> None:
    page = await admin.list(CONFIG_MAPS, namespace)
    await admin.create(CONFIG_MAPS, config("one", large="x" * 500_000), namespace)
    await admin.patch(CONFIG_MAPS, "one", {"data": {"b": "2"}}, namespace)
    await admin.delete(CONFIG_MAPS, "one", namespace)

    seen = []
    events = admin.watch(CONFIG_MAPS, page.resource_version, namespace, field_selector="metadata.name=one")
    async with asyncio.timeout(10), aclosing(events):
        async for kind, body in events:
            seen.append((kind, body["metadata"]["name"]))
            if kind is EventType.DELETED:
                break
    assert seen == [(EventType.ADDED, "one"), (EventType.MODIFIED, "one"), (EventType.DELETED, "one")]


async def test_waiting_sees_what_comes_later_and_tells_what_it_last_saw(admin: Api, namespace: str) -> None:
    waiting = asyncio.create_task(
        admin.wait_for(CONFIG_MAPS, "late", lambda body: body["data"].get("a") == "2", namespace)
    )
    await admin.create(CONFIG_MAPS, config("late", a="1"), namespace)
    await admin.patch(CONFIG_MAPS, "late", {"data": {"a": "2"}}, namespace)
    assert (await waiting)["data"] == {"a": "2"}

    with pytest.raises(TimeoutError, match=r"configmaps .*/late did not reach(.|\n)*\"a\": \"2\""):
        await admin.wait_for(CONFIG_MAPS, "late", lambda _: False, namespace, timeout=0.3)
    gone = asyncio.create_task(admin.wait_gone(CONFIG_MAPS, "late", namespace))
    await admin.delete(CONFIG_MAPS, "late", namespace)
    await gone


async def test_an_eviction_that_the_budget_forbids_is_refused(admin: Api, namespace: str) -> None:
    pod = {
        "metadata": {"name": "one", "labels": {"app": "one"}},
        "spec": {"containers": [{"name": "main", "image": "none"}], "nodeName": "nowhere"},
    }
    await admin.create(PODS, pod, namespace)
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await admin.patch(PODS, "one", ready, namespace, patch_type=PatchType.STRATEGIC, subresource="status")
    budget = {
        "metadata": {"name": "one"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "one"}}},
    }
    await admin.create(POD_DISRUPTION_BUDGETS, budget, namespace)
    await admin.wait_for(
        POD_DISRUPTION_BUDGETS, "one", lambda body: body["status"].get("observedGeneration") == 1, namespace
    )
    with pytest.raises(ApiError) as caught:
        await admin.evict("one", namespace)
    assert caught.value.status == 429

    await admin.delete(POD_DISRUPTION_BUDGETS, "one", namespace)
    await admin.evict("one", namespace, grace_seconds=0)
    await admin.wait_gone(PODS, "one", namespace)


async def test_a_manifest_with_a_new_kind_and_an_object_of_it_is_applied_in_one_go(
    admin: Api, namespace: str
) -> None:
    manifest = f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: things.{namespace}.example}}
spec:
  group: {namespace}.example
  scope: Namespaced
  names: {{kind: Thing, plural: things, singular: thing}}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
---
apiVersion: {namespace}.example/v1
kind: Thing
metadata: {{name: one}}
---
"""
    definition, _ = await admin.apply_manifest(manifest, namespace)
    things = Resource(f"{namespace}.example", "v1", "things")
    assert (await admin.get(things, "one", namespace))["kind"] == "Thing"
    crds = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
    await admin.delete(crds, definition["metadata"]["name"])


def test_a_path_needs_a_namespace_where_the_kind_has_them_and_none_elsewhere() -> None:
    assert PODS.path("a", "b", "status") == "/api/v1/namespaces/b/pods/a/status"
    assert PODS.path() == "/api/v1/pods"
    with pytest.raises(ValueError, match="none was given"):
        PODS.path("a")
    with pytest.raises(ValueError, match="has no namespaces"):
        Resource("", "v1", "nodes", namespaced=False).path("a", "b")


async def test_a_service_account_may_do_what_it_is_granted_and_no_more(
    admin: Api, namespace: str, tmp_path: Path
) -> None:
    await admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": "reader"}}, namespace)
    kubeconfig = await service_account_kubeconfig(admin, "reader", namespace, tmp_path / "kubeconfig")

    async with Api(Connection.from_kubeconfig(kubeconfig)) as reader:
        with pytest.raises(ApiError, match=f'User "system:serviceaccount:{namespace}:reader" cannot list'):
            await reader.list(PODS, namespace)
        await grant(admin, namespace, {"kind": "ServiceAccount", "name": "reader", "namespace": namespace})
        await allowed(reader, namespace)
        with pytest.raises(ApiError, match="403"):
            await reader.delete(PODS, "any", namespace)


async def test_a_user_by_certificate_has_the_rights_of_its_group(
    admin: Api, control_plane: ControlPlane, namespace: str
) -> None:
    connection = user(control_plane.admin, control_plane.authority, "someone", [f"{namespace}-readers"])
    async with Api(connection) as someone:
        with pytest.raises(ApiError, match='User "someone" cannot list'):
            await someone.list(PODS, namespace)
        subject = {"kind": "Group", "name": f"{namespace}-readers", "apiGroup": "rbac.authorization.k8s.io"}
        await grant(admin, namespace, subject)
        await allowed(someone, namespace)


def test_nobody_under_test_is_system_masters(control_plane: ControlPlane) -> None:
    with pytest.raises(IdentityError, match="passes by RBAC"):
        user(control_plane.admin, control_plane.authority, "someone", ["system:masters"])


async def test_a_service_account_that_is_not_there_is_named(
    admin: Api, namespace: str, tmp_path: Path
) -> None:
    with pytest.raises(IdentityError, match=f"no service account {namespace}/nobody"):
        await service_account_kubeconfig(admin, "nobody", namespace, tmp_path / "kubeconfig")


async def grant(admin: Api, namespace: str, subject: Object) -> None:
    binding = {
        "metadata": {"name": "view"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [subject],
    }
    await admin.create(ROLE_BINDINGS, binding, namespace)


async def allowed(api: Api, namespace: str) -> None:
    """The API server learns of a binding by its own watch, a moment after it is made."""
    async with asyncio.timeout(10):
        while True:
            try:
                await api.list(PODS, namespace)
            except ApiError as error:
                if error.status != 403:
                    raise
                await asyncio.sleep(0.02)
            else:
                return
