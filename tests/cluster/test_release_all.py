"""`release-all` takes everything of ours off, nothing of others, and says what it cannot do."""

import argparse
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from accelerator_rollout.cli import release_all
from accelerator_rollout.names import (
    FINALIZER,
    GATE,
    GROUP,
    MANAGED_LABEL,
    PARKED_ANNOTATION,
    PLURAL,
    RESERVED_BY_LABEL,
    RESERVED_IN_LABEL,
    RESERVED_TAINT,
)
from lab.client import Api, PatchType
from lab.install import install
from lab.kubeconfig import Connection
from lab.resources import (
    ACCELERATOR_ROLLOUTS,
    DEPLOYMENTS,
    DEVICE_TAINT_RULES,
    PODS,
    RESOURCE_CLAIMS,
    STATEFUL_SETS,
)

FOREIGN_GATE = "other.example.com/wait"
FOREIGN_FINALIZER = "other.example.com/wait"
CONTAINERS = [{"name": "main", "image": "pause"}]

Run = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
async def release(admin: Api, cluster: Connection, namespace: str, tmp_path: Path) -> Run:
    """Runs the command over the test's namespace; returns its exit code and what it said."""
    await install(admin)
    kubeconfig = tmp_path / "kubeconfig"
    cluster.write_kubeconfig(kubeconfig, context="lab", user="admin")

    async def run(*, dry_run: bool = False, yes: bool = True) -> tuple[int, str]:
        said: list[str] = []
        arguments = argparse.Namespace(
            kubeconfig=str(kubeconfig), context="lab", namespace=namespace, dry_run=dry_run, yes=yes
        )
        code = release_all.main(arguments, said.append)
        return code, "\n".join(said)

    return run


def workload(kind: str, *, gated: bool, **meta: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": CONTAINERS}
    if gated:
        spec["schedulingGates"] = [{"name": FOREIGN_GATE}, {"name": GATE}]
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", **meta},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
        },
    }


async def given_everything_of_ours(admin: Api, namespace: str) -> None:
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    rollout = {
        "apiVersion": "accelerator-rollout.dev/v1alpha1",
        "kind": "AcceleratorRollout",
        "metadata": {"name": "web", "finalizers": [FOREIGN_FINALIZER, FINALIZER]},
        "spec": {"workloadRef": ref},
    }
    await admin.create(ACCELERATOR_ROLLOUTS, rollout, namespace)
    ours = {
        "labels": {MANAGED_LABEL: "true", "theirs": "stays"},
        "annotations": {PARKED_ANNOTATION: "step-taken", "theirs": "stays"},
    }
    parked = workload("Deployment", gated=False, **ours)
    parked["spec"]["paused"] = True
    await admin.create(DEPLOYMENTS, parked, namespace)
    gates = [{"name": FOREIGN_GATE}, {"name": GATE}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}}
    await admin.create(PODS, pod | {"spec": {"containers": CONTAINERS, "schedulingGates": gates}}, namespace)


async def test_everything_of_ours_goes_and_nothing_of_others(
    release: Run, admin: Api, namespace: str
) -> None:
    await given_everything_of_ours(admin, namespace)
    code, said = await release()
    assert code == 0, said
    pod = await admin.get(PODS, "one", namespace)
    assert pod["spec"]["schedulingGates"] == [{"name": FOREIGN_GATE}]
    deployment = await admin.get(DEPLOYMENTS, "web", namespace)
    assert not deployment["spec"].get("paused")
    assert deployment["metadata"]["labels"] == {"theirs": "stays"}
    assert PARKED_ANNOTATION not in deployment["metadata"]["annotations"]
    assert deployment["metadata"]["annotations"]["theirs"] == "stays"
    rollout = await admin.get(ACCELERATOR_ROLLOUTS, "web", namespace)
    assert rollout["metadata"]["finalizers"] == [FOREIGN_FINALIZER]
    code, said = await release()
    assert code == 0
    assert "nothing of ours is there" in said


async def test_a_dry_run_tells_and_does_nothing(release: Run, admin: Api, namespace: str) -> None:
    await given_everything_of_ours(admin, namespace)
    code, said = await release(dry_run=True)
    assert code == 0
    assert f"pods {namespace}/one: open our gate" in said
    assert f"deployments {namespace}/web: resume" in said
    assert f"acceleratorrollouts {namespace}/web: take our finalizer off" in said
    pod = await admin.get(PODS, "one", namespace)
    assert {"name": GATE} in pod["spec"]["schedulingGates"]
    assert (await admin.get(DEPLOYMENTS, "web", namespace))["spec"]["paused"]


async def test_nothing_is_done_unasked(
    release: Run, admin: Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await given_everything_of_ours(admin, namespace)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    code, said = await release(yes=False)
    assert code == 1
    assert "--yes" in said
    assert (await admin.get(DEPLOYMENTS, "web", namespace))["spec"]["paused"]


async def test_a_persons_pause_stays(release: Run, admin: Api, namespace: str) -> None:
    theirs = workload("Deployment", gated=False, labels={MANAGED_LABEL: "true"})
    theirs["spec"]["paused"] = True
    await admin.create(DEPLOYMENTS, theirs, namespace)
    code, _ = await release()
    assert code == 0
    deployment = await admin.get(DEPLOYMENTS, "web", namespace)
    assert deployment["spec"]["paused"]
    assert MANAGED_LABEL not in deployment["metadata"].get("labels", {})


@pytest.mark.parametrize(("kind", "resource"), [("Deployment", DEPLOYMENTS), ("StatefulSet", STATEFUL_SETS)])
async def test_a_template_that_would_strand_pods_is_named_with_a_command_that_helps(
    release: Run, admin: Api, namespace: str, kind: str, resource: Any
) -> None:
    await admin.create(resource, workload(kind, gated=True), namespace)
    code, said = await release()
    assert code == 0
    assert f"{kind.lower()}s {namespace}/web carries our gate" in said
    (command,) = [line for line in said.splitlines() if line.startswith("  kubectl patch")]
    patch = command.split("--patch ")[1].strip("'")
    await admin.request(
        "PATCH",
        resource.path("web", namespace),
        body=json.loads(patch),
        content_type=PatchType.STRATEGIC,
    )
    changed = await admin.get(resource, "web", namespace)
    assert changed["spec"]["template"]["spec"]["schedulingGates"] == [{"name": FOREIGN_GATE}]


async def test_a_running_operator_is_to_be_stopped_first(release: Run, admin: Api, namespace: str) -> None:
    await given_everything_of_ours(admin, namespace)
    labels = {"app.kubernetes.io/name": "accelerator-rollout", "app.kubernetes.io/component": "operator"}
    operator = workload("Deployment", gated=False, labels=labels)
    operator["metadata"]["name"] = "operator"
    operator["spec"] |= {"replicas": 1}
    await admin.create(DEPLOYMENTS, operator, namespace)
    try:
        code, said = await release()
    finally:
        # A namespace lasts some seconds longer than its test, and the command looks everywhere.
        await admin.delete(DEPLOYMENTS, "operator", namespace)
    assert code == 1
    assert f"kubectl scale deployment operator --namespace {namespace} --replicas 0" in said
    assert (await admin.get(DEPLOYMENTS, "web", namespace))["spec"]["paused"]


async def test_without_a_cluster_it_says_so_in_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = argparse.Namespace(
        kubeconfig=str(tmp_path / "none"), context=None, namespace=None, dry_run=False, yes=True
    )
    assert release_all.main(arguments) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("alone", [False, True], ids=["beside others", "alone"])
async def test_a_hold_ends_and_the_devices_with_the_last_one(
    alone: bool, admin: Api, release: Run, namespace: str
) -> None:
    request = {"name": "device", "exactly": {"deviceClassName": "any"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "web"},
        "spec": {"devices": {"requests": [request]}},
    }
    result = {"request": "device", "driver": "x.example.dev", "pool": "p", "device": "d"}
    theirs = {"apiGroup": "example.com", "resource": "things", "name": "web", "uid": "of-theirs"}
    ours = {"apiGroup": GROUP, "resource": PLURAL, "name": "web", "uid": "of-ours"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [ours] if alone else [theirs, ours],
    }
    await admin.create(RESOURCE_CLAIMS, claim, namespace)
    await admin.patch(RESOURCE_CLAIMS, "web", {"status": status}, namespace, subresource="status")

    code, said = await release(dry_run=True)
    assert code == 0
    assert ("without proof" in said) is alone
    code, said = await release()
    assert code == 0, said
    found = (await admin.get(RESOURCE_CLAIMS, "web", namespace)).get("status") or {}
    assert found.get("reservedFor") == (None if alone else [theirs])
    assert ("allocation" in found) is not alone


async def test_rules_that_reserve_devices_are_deleted_and_others_are_not(
    release: Run, admin: Api, namespace: str
) -> None:
    def rule(name: str, labels: dict[str, str]) -> dict[str, Any]:
        return {
            "metadata": {"name": f"{namespace}-{name}", "labels": labels},
            "spec": {
                "deviceSelector": {"driver": namespace, "pool": "p", "device": "d"},
                "taint": {"key": RESERVED_TAINT, "value": "x", "effect": "NoSchedule"},
            },
        }

    mine = {RESERVED_BY_LABEL: "gone", RESERVED_IN_LABEL: namespace}
    try:
        for name, labels in (("ours", mine), ("elsewhere", mine | {RESERVED_IN_LABEL: "x"}), ("theirs", {})):
            await admin.request("POST", DEVICE_TAINT_RULES.path(), body=rule(name, labels))
        code, said = await release()
        assert code == 0, said
        left = {r["metadata"]["name"] for r in (await admin.list(DEVICE_TAINT_RULES)).items}
        assert {f"{namespace}-{n}" for n in ("elsewhere", "theirs")} <= left
        assert f"{namespace}-ours" not in left
    finally:
        for name in ("ours", "elsewhere", "theirs"):
            await admin.delete_if_there(DEVICE_TAINT_RULES, f"{namespace}-{name}")
