"""Identities for what is tested: a service account's token, or a user's certificate; never an administrator's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.certs import Authority
from lab.client import Api, ApiError
from lab.kubeconfig import Connection
from lab.resources import SERVICE_ACCOUNTS

_UNBOUND_GROUP: Final = "system:masters"
_TOKEN_SECONDS: Final = 8 * 3600


class IdentityError(Exception):
    """The identity cannot be had, or would prove nothing."""


async def service_account(
    api: Api, name: str, namespace: str, *, lifetime_seconds: int = _TOKEN_SECONDS
) -> Connection:
    """The connection of a service account that exists, by a token that the API server issues for it."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"expirationSeconds": lifetime_seconds},
    }
    try:
        answer = await api.create(SERVICE_ACCOUNTS, request, namespace, subresource="token")
    except ApiError as error:
        if not error.is_not_found:
            raise
        raise IdentityError(
            f"there is no service account {namespace}/{name}: apply the manifests that bring it and its roles first"
        ) from error
    return Connection(api.connection.server, ca=api.connection.ca, token=answer["status"]["token"])


async def service_account_kubeconfig(
    api: Api, name: str, namespace: str, path: Path, *, lifetime_seconds: int = _TOKEN_SECONDS
) -> Path:
    """Write a kubeconfig of a service account that exists, and return its path."""
    connection = await service_account(api, name, namespace, lifetime_seconds=lifetime_seconds)
    connection.write_kubeconfig(path, context=f"{namespace}-{name}", user=name, namespace=namespace)
    return path


def user(admin: Connection, authority: Authority, name: str, groups: Sequence[str] = ()) -> Connection:
    """The connection of a user in groups, by a certificate of the control plane's own authority.

    It may do what RBAC grants to that name or those groups, and nothing else.
    """
    if _UNBOUND_GROUP in groups:
        raise IdentityError(f"{_UNBOUND_GROUP} passes by RBAC: a test under it cannot find a missing right")
    pair = authority.client(name, groups)
    return Connection(admin.server, ca=admin.ca, certificate=pair.certificate, key=pair.key)
