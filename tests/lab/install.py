"""Installs what a user installs (deploy/kustomize/base), less the operator's own Deployment.

The operator then runs as a process beside the tests, under exactly the rights and admission policies that it has in a
cluster. No image is needed for that.
"""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from accelerator_rollout import names
from lab.client import Api, ApiError, Object, PatchType
from lab.kubeconfig import Connection
from lab.resources import (
    ACCELERATOR_ROLLOUTS,
    DEPLOYMENTS,
    DEVICE_TAINT_RULES,
    PODS,
    RESOURCE_CLAIMS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
)
from lab.toolchain import find_kubectl

BASE: Final = Path(__file__).parents[2] / "deploy" / "kustomize" / "base"
HOLD: Final = BASE.parent / "overlays" / "hold"
RESERVATION: Final = BASE.parent / "overlays" / "reservation"
UNDO: Final = BASE.parent / "overlays" / "undo"

_TOKEN_SECONDS: Final = 12 * 60 * 60
_PROBE: Final = "admission-probe"
_HOLDS: Final = "operator-holds-claims"
_RESERVES: Final = "operator-reserves-devices"
_RESTORES: Final = "operator-restores-templates"
_EFFECTIVE_SECONDS: Final = 30.0
_POLL_SECONDS: Final = (
    0.1  # the API server looks for new policies about once a second, and tells nobody when it did
)
_DRY_RUN: Final = {"dryRun": "All"}


@dataclass(frozen=True, slots=True)
class Account:
    """The ServiceAccount that the operator runs as."""

    namespace: str
    name: str

    @property
    def username(self) -> str:
        """The name by which the API server knows it."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    async def connection(self, admin: Api) -> Connection:
        """Return a connection as this account, with a token that is good for half a day."""
        path = f"{SERVICE_ACCOUNTS.path(self.name, self.namespace)}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_SECONDS},
        }
        token = (await admin.request("POST", path, body=request))["status"]["token"]
        return replace(admin.connection, certificate=None, key=None, token=token)


def manifests(folder: Path = BASE) -> list[Object]:
    """Return the objects that kustomize makes of the folder."""
    command = [str(find_kubectl()), "kustomize", str(folder)]
    built = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [body for body in yaml.safe_load_all(built) if body]


def account_of(objects: Sequence[Object]) -> Account:
    """Return the account that the operator's Deployment among the objects names."""
    deployment = next(body for body in objects if body["kind"] == "Deployment")
    return Account(
        deployment["metadata"]["namespace"], deployment["spec"]["template"]["spec"]["serviceAccountName"]
    )


async def install(admin: Api, *folders: Path) -> Account:
    """Install all of the folders (by default of the base) but the operator's Deployment.

    Returns when the kind is served and every policy takes effect. Raises TimeoutError naming the policies that did not take effect.
    """
    made = [body for folder in folders or (BASE,) for body in await asyncio.to_thread(manifests, folder)]
    objects = list({(body["kind"], body["metadata"]["name"]): body for body in made}.values())
    account = account_of(objects)
    await admin.apply_manifest([body for body in objects if body["kind"] != "Deployment"])
    async with Api(await account.connection(admin)) as operator, _targets(admin, account.namespace):
        optional = {name for name in (_HOLDS, _RESERVES, _RESTORES) if _has(objects, name)}
        await _await_policies(admin, operator, account.namespace, optional)
    return account


def _has(objects: Sequence[Object], policy: str) -> bool:
    return any(body["metadata"]["name"] == f"{policy}.{names.GROUP}" for body in objects)


@asynccontextmanager
async def _targets(admin: Api, namespace: str) -> AsyncIterator[None]:
    """Provide objects to aim probes at: a pod that its gate holds, a Deployment without pods, a rollout of nothing."""
    try:
        await admin.apply(_pod(namespace))
        await admin.apply(_deployment(namespace))
        await admin.apply(_stateful_set(namespace))
        await admin.apply(_rollout(namespace))
        await admin.apply(_claim(namespace))
        result = {"request": "device", "driver": "probe.example.dev", "pool": "probe", "device": "probe"}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [_reservation("one")]}
        await admin.patch(RESOURCE_CLAIMS, _PROBE, {"status": status}, namespace, subresource="status")
        yield
    finally:
        for resource in (ACCELERATOR_ROLLOUTS, DEPLOYMENTS, STATEFUL_SETS, PODS, RESOURCE_CLAIMS):
            await admin.delete_if_there(resource, _PROBE, namespace)


async def _await_policies(admin: Api, operator: Api, namespace: str, optional: Collection[str]) -> None:
    """Await that each policy does its work. All probes are dry runs, but for one that must fail in any case."""
    probes: dict[str, Callable[[], Awaitable[bool]]] = {
        "gate": lambda: _gates(admin, namespace),
        "park": lambda: _parks(admin, namespace),
        # The one that is no dry run: the name is taken, so no pod comes of it even where no policy objects.
        "operator-creates-pods": lambda: _refused(
            operator.create(PODS, _pod(namespace)), "operator-creates-pods"
        ),
        "operator-evicts-pods": lambda: _refused(
            operator.request(
                "POST",
                PODS.path(_PROBE, namespace, "eviction"),
                params=_DRY_RUN,
                body={
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": _PROBE, "namespace": namespace},
                },
            ),
            "operator-evicts-pods",
        ),
        "operator-patches-pods": lambda: _refused(
            operator.patch(
                PODS, _PROBE, {"metadata": {"labels": {"probe": "x"}}}, namespace, params=_DRY_RUN
            ),
            "operator-patches-pods",
        ),
        "operator-patches-deployments": lambda: _refused(
            operator.patch(DEPLOYMENTS, _PROBE, {"spec": {"replicas": 1}}, namespace, params=_DRY_RUN),
            "operator-patches-deployments",
        ),
        "operator-patches-rollouts": lambda: _refused(
            operator.patch(
                ACCELERATOR_ROLLOUTS,
                _PROBE,
                {"metadata": {"labels": {"probe": "x"}}},
                namespace,
                params=_DRY_RUN,
            ),
            "operator-patches-rollouts",
        ),
    }
    if _HOLDS in optional:
        probes[_HOLDS] = lambda: _refused(_takes_a_claim(operator, namespace), _HOLDS)
    if _RESERVES in optional:
        probes[_RESERVES] = lambda: _refused(_evicts_by_taint(operator), _RESERVES)
    if _RESTORES in optional:
        probes[_RESTORES] = lambda: _refused(
            operator.patch(STATEFUL_SETS, _PROBE, {"spec": {"replicas": 1}}, namespace, params=_DRY_RUN),
            _RESTORES,
        )
    deadline = time.monotonic() + _EFFECTIVE_SECONDS
    while True:
        for policy in [policy for policy, probe in probes.items() if await probe()]:
            del probes[policy]
        if not probes:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"after {_EFFECTIVE_SECONDS:g} s these admission policies still have no effect: "
                f"{', '.join(probes)} (each .{names.GROUP}); see their status and the API server's log"
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _gates(admin: Api, namespace: str) -> bool:
    pod = _pod(namespace)
    pod["metadata"] = {
        "generateName": f"{_PROBE}-",
        "namespace": namespace,
        "labels": {names.GATE_LABEL: names.GATE_LABEL_VALUE},
    }
    del pod["spec"]["schedulingGates"]
    born = await admin.request("POST", PODS.path(namespace=namespace), params=_DRY_RUN, body=pod)
    return {"name": names.GATE} in born["spec"].get("schedulingGates", [])


async def _parks(admin: Api, namespace: str) -> bool:
    change = {"spec": {"template": {"metadata": {"annotations": {"probe": "x"}}}}}
    changed = await admin.patch(
        DEPLOYMENTS, _PROBE, change, namespace, patch_type=PatchType.MERGE, params=_DRY_RUN
    )
    return bool(changed["spec"].get("paused"))


async def _refused(attempt: Awaitable[object], policy: str) -> bool:
    """Whether this policy, and not another rule, refuses the attempt."""
    try:
        await attempt
    except ApiError as error:
        if error.status == 403 and f"{policy}.{names.GROUP}" in error.message:
            return True
        if error.is_already_exists:
            return False
        raise
    return False


async def _takes_a_claim(operator: Api, namespace: str) -> Object:
    """Reserve a claim for one more pod, which is not the operator's to do."""
    body = {"status": {"reservedFor": [_reservation("one"), _reservation("two")]}}
    return await operator.patch(
        RESOURCE_CLAIMS, _PROBE, body, namespace, subresource="status", params=_DRY_RUN
    )


async def _evicts_by_taint(operator: Api) -> Object:
    """Taint a device so that its pod has to go, which is not the operator's to do."""
    body = {
        "metadata": {"name": _PROBE},
        "spec": {
            "deviceSelector": {"driver": "probe.example.dev", "pool": "probe", "device": "probe"},
            "taint": {"key": names.RESERVED_TAINT, "value": "probe", "effect": "NoExecute"},
        },
    }
    return await operator.request("POST", DEVICE_TAINT_RULES.path(), params=_DRY_RUN, body=body)


def _reservation(name: str) -> Object:
    # Not of a pod: their controller would end the reservation of one that does not exist.
    return {"apiGroup": "example.com", "resource": "things", "name": name, "uid": f"of-{name}"}


def _claim(namespace: str) -> Object:
    request = {"name": "device", "exactly": {"deviceClassName": _PROBE}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": _PROBE, "namespace": namespace},
        "spec": {"devices": {"requests": [request]}},
    }


def _pod(namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _PROBE, "namespace": namespace},
        "spec": _pod_spec() | {"schedulingGates": [{"name": f"{names.GROUP}/probe"}]},
    }


def _deployment(namespace: str) -> Object:
    labels = {"app": _PROBE}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": _PROBE,
            "namespace": namespace,
            "labels": {names.MANAGED_LABEL: names.MANAGED_LABEL_VALUE},
        },
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec()},
        },
    }


def _stateful_set(namespace: str) -> Object:
    body = _deployment(namespace)
    del body["metadata"]["labels"]
    return body | {"kind": "StatefulSet", "spec": body["spec"] | {"serviceName": _PROBE}}


def _rollout(namespace: str) -> Object:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": _PROBE, "namespace": namespace},
        "spec": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": _PROBE}},
    }


def _pod_spec() -> dict[str, Any]:
    """A spec that the system namespace's pod security admits; nothing ever runs of it."""
    return {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "none",
                "image": "none",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    }
