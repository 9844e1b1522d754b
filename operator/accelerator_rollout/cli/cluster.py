"""A cluster as the short-lived commands see it: raw JSON through pykube-ng, with kubectl's own credentials.

The credentials are resolved by kubernetes.config, which knows exec plugins and KUBECONFIG lists; pykube knows neither.
They are never renewed: a command is over before they expire.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pykube
import requests
from kubernetes import client, config

from accelerator_rollout.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    OperatorError,
    UnavailableError,
)
from accelerator_rollout.names import FIELD_MANAGER

Raw = Mapping[str, Any]

MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"

_CHUNK: Final = "500"
_SERVICE_ACCOUNT_TOKEN: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path

_ERRORS: Final = {401: ForbiddenError, 403: ForbiddenError, 404: GoneError, 409: ConflictError}


class Cluster:
    """Lists and patches. Raises OperatorError, whose message is a sentence for people."""

    def __init__(self, http: pykube.HTTPClient, title: str) -> None:
        self._http = http
        self.title = title

    @classmethod
    def connect(cls, kubeconfig: str | None, context: str | None) -> "Cluster":
        """Return the cluster of the context, of the current one, or of the pod that we run in."""
        found = client.Configuration()
        try:
            if not kubeconfig and not context and os.path.exists(_SERVICE_ACCOUNT_TOKEN):  # noqa: PTH110
                config.load_incluster_config(client_configuration=found)
                title = "the cluster of this pod"
            else:
                config.load_kube_config(
                    config_file=kubeconfig, context=context, client_configuration=found, persist_config=False
                )
                _, current = config.list_kube_config_contexts(config_file=kubeconfig)
                title = f"context {context or current['name']}"
        except (config.ConfigException, OSError) as error:
            raise OperatorError(
                f"no cluster to speak to ({error}): name a --kubeconfig or --context"
            ) from error
        return cls(pykube.HTTPClient(_pykube_config(found)), f"{title} ({found.host})")

    def each(self, path: str, **params: str) -> Iterator[Raw]:
        """Yield all objects under a path; none where the API server does not serve it."""
        query = {"limit": _CHUNK, **params}
        while True:
            try:
                page = self._call("GET", path, query)
            except GoneError:
                return
            yield from page.get("items") or ()
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query["continue"] = token

    def patch(self, path: str, body: Raw | Sequence[Raw], content: str = MERGE) -> Raw:
        """Patch one object."""
        return self._call("PATCH", path, {"fieldManager": FIELD_MANAGER}, body, content)

    def delete(self, path: str, options: Raw | Sequence[Raw]) -> Raw:
        """Delete one object."""
        return self._call("DELETE", path, {}, options, "application/json")

    def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: Raw | Sequence[Raw] | None = None,
        content: str = MERGE,
    ) -> Raw:
        try:
            answer = self._http.session.request(
                method,
                self._http.url + path,
                params=params,
                data=None if body is None else json.dumps(body),
                headers={"Content-Type": content, "Accept": "application/json"},
                timeout=30,
            )
        except (requests.RequestException, OSError) as error:
            raise UnavailableError(f"{self.title} does not answer: {error}") from error
        if answer.ok:
            found: Raw = answer.json()
            return found
        said = _said(answer)
        # A patch that carries the UID of another object would change this one's: that is no valid change.
        if answer.status_code == 422 and "metadata.uid" in said:
            raise ConflictError(f"{method} {path}: {said}")
        kind = _ERRORS.get(answer.status_code, UnavailableError)
        raise kind(f"{method} {path}: {said}")


def _said(answer: requests.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.text[:200]}"


def _pykube_config(found: client.Configuration) -> pykube.KubeConfig:
    cluster: dict[str, Any] = {"server": found.host.rstrip("/")}
    if not found.verify_ssl:
        cluster["insecure-skip-tls-verify"] = True
    elif found.ssl_ca_cert:
        cluster["certificate-authority"] = found.ssl_ca_cert
    if found.tls_server_name:
        cluster["tls-server-name"] = found.tls_server_name
    user: dict[str, Any] = {}
    token = found.get_api_key_with_prefix("authorization")
    if token:
        user["token"] = token.removeprefix("Bearer ")
    elif found.username:
        user |= {"username": found.username, "password": found.password}
    if found.cert_file:
        user |= {"client-certificate": found.cert_file, "client-key": found.key_file}
    return pykube.KubeConfig(
        {
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": user}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }
    )
