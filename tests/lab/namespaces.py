"""A namespace for one test: usable when it is made, and gone with all that was in it when it is removed."""

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


async def remove_namespace(api: Api, name: str, *, seconds: float = 60.0) -> None:
    """Remove the namespace at once, also when nodes or an operator that would let its objects go are no more.

    Raises TimeoutError with what is left after `seconds`.
    """
    await api.delete(NAMESPACES, name)
    # Our own object first: while it has its finalizer an operator that still runs may act for it.
    for resource in (ACCELERATOR_ROLLOUTS, PODS):
        await _let_go(api, resource, name)
    for pod in (await api.list(PODS, name)).items:
        await api.delete_if_there(PODS, pod["metadata"]["name"], name, grace_seconds=0)
    try:
        await api.wait_gone(NAMESPACES, name, timeout=seconds)
    except TimeoutError as error:
        pods = [pod["metadata"]["name"] for pod in (await api.list(PODS, name)).items]
        claims = [claim["metadata"]["name"] for claim in (await api.list(RESOURCE_CLAIMS, name)).items]
        raise TimeoutError(
            f"namespace {name} is still there {seconds:g} s after its deletion; left in it: pods {pods}, claims {claims}"
        ) from error


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
