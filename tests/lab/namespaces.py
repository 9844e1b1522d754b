"""A namespace for one test: usable when it is made, and gone with all that was in it when it is removed."""

import asyncio
import contextlib

from accelerator_rollout.names import GROUP
from lab.client import Api, ApiError
from lab.resources import (
    ACCELERATOR_ROLLOUTS,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIMS,
    SERVICE_ACCOUNTS,
    Resource,
)


async def make_namespace(api: Api, name: str) -> None:
    """Create the namespace and await that pods can be created in it."""
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    # Pods are refused until a controller has made the service account that they run under by default.
    await api.wait_for(SERVICE_ACCOUNTS, "default", lambda _: True, name)


async def remove_namespace(api: Api, name: str, *, seconds: float = 30.0) -> None:
    """Delete the namespace; return when no pod is left in it, also when no node or operator lives to let one go.

    The namespace itself follows some seconds later: its controller waits five before it looks.
    Raises TimeoutError with the pods that are left after `seconds`.
    """
    await api.delete_if_there(NAMESPACES, name)
    left: list[str] = []
    try:
        async with asyncio.timeout(seconds):
            while True:
                # Our own object too: nobody may be there any more to act on its finalizer.
                for resource in (ACCELERATOR_ROLLOUTS, PODS):
                    await _let_go(api, resource, name)
                await _end_holds(api, name)
                left = [pod["metadata"]["name"] for pod in (await api.list(PODS, name)).items]
                if not left:
                    return
                for pod in left:
                    await api.delete_if_there(PODS, pod, name, grace_seconds=0)
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise TimeoutError(
            f"pods of namespace {name} withstand deletion for {seconds:g} s: {left}"
        ) from error


async def _end_holds(api: Api, namespace: str) -> None:
    """Free claims that nobody but an AcceleratorRollout has: no operator may be left to do it."""
    for claim in (await api.list(RESOURCE_CLAIMS, namespace)).items:
        reserved = (claim.get("status") or {}).get("reservedFor") or []
        if reserved and all(entry.get("apiGroup") == GROUP for entry in reserved):
            body = {"status": {"reservedFor": None, "allocation": None}}
            with contextlib.suppress(ApiError):  # it went, or its operator was quicker
                await api.patch(
                    RESOURCE_CLAIMS, claim["metadata"]["name"], body, namespace, subresource="status"
                )


async def _let_go(api: Api, resource: Resource, namespace: str) -> None:
    try:
        found = (await api.list(resource, namespace)).items
    except ApiError as error:
        if not error.is_not_found:
            raise
        return  # this kind is not installed
    for body in found:
        if body["metadata"].get("finalizers"):
            try:
                patch = {"metadata": {"finalizers": None}}
                await api.patch(resource, body["metadata"]["name"], patch, namespace)
            except ApiError as error:
                if not error.is_not_found:
                    raise
