"""Credentials: HTTP sessions to the API server, for the watches and for the lists.

kubernetes.config finds the cluster (kubeconfig, exec plugins, in-cluster ServiceAccount); the session asks it for the
token at every request, since a projected ServiceAccount token is rotated while we run.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.configuration import Configuration

from accelerator_rollout.observe.errors import NoClusterError

LoadConfiguration = Callable[[], Awaitable[Configuration]]

_log = logging.getLogger(__name__)

_SERVICE_ACCOUNT_TOKEN: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path


def configuration_from(kubeconfig: str | None = None, context: str | None = None) -> LoadConfiguration:
    """Return how to find the cluster: the kubeconfig named, else the pod's ServiceAccount, else the user's kubeconfig.

    What is returned reads everything anew at each call. It raises NoClusterError if nothing usable is found.
    """

    async def load() -> Configuration:
        found = Configuration()
        try:
            named = kubeconfig or os.environ.get("KUBECONFIG")
            if named is None and context is None and os.path.exists(_SERVICE_ACCOUNT_TOKEN):  # noqa: PTH110, ASYNC240
                kube_config.load_incluster_config(client_configuration=found)
            else:
                await kube_config.load_kube_config(
                    config_file=kubeconfig, context=context, client_configuration=found, persist_config=False
                )
        except (kube_config.ConfigException, OSError) as error:
            raise NoClusterError(
                f"no cluster is configured ({error}): pass a kubeconfig, or run in a pod with a ServiceAccount"
            ) from error
        return found

    return load


async def open_session(
    found: Configuration, *, trace: aiohttp.TraceConfig | None = None, user_agent: str = "accelerator-rollout"
) -> aiohttp.ClientSession:
    """Return a session with the TLS settings and credentials of `found`; whoever opens it closes it."""

    async def authorize(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        header = await found.get_api_key_with_prefix("BearerToken", "authorization")
        if header:
            request.headers["Authorization"] = header
        elif found.username:
            request.headers["Authorization"] = found.get_basic_auth_token()
        return await handler(request)

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=_tls(found)),
        headers={"User-Agent": user_agent},
        middlewares=(authorize,),
        trace_configs=[trace] if trace else [],
        proxy=found.proxy or None,
    )


def _tls(found: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=found.ssl_ca_cert, cadata=_given(found, "ca_cert_data"))
    if found.cert_file:
        context.load_cert_chain(found.cert_file, keyfile=found.key_file)
    if not found.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if _given(found, "disable_strict_ssl_verification"):
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _given(found: Configuration, name: str) -> Any:
    return getattr(found, name, None)


class Patience:
    """Waits longer and longer while something has to be repeated in short succession. Seconds."""

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self._delay = 0.0
        self._last = float("-inf")

    async def wait(self) -> None:
        """Return at once for the first time in a while, later and later after that."""
        now = asyncio.get_running_loop().time()
        calm = now - self._last > 2 * self._longest
        self._delay = 0.0 if calm else min(self._longest, max(self._first, 2 * self._delay))
        if self._delay:
            await asyncio.sleep(self._delay)
        self._last = asyncio.get_running_loop().time()
