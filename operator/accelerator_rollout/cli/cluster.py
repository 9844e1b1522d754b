"""A cluster as the short-lived commands see it: raw JSON through pykube-ng, with kubectl's own credentials.

The credentials are resolved by kubernetes.config, which knows exec plugins and KUBECONFIG lists; pykube knows neither.
They are never renewed: a command is over before they expire.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pykube
import requests
import yaml
from kubernetes import client, config

from accelerator_rollout.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    OperatorError,
    UnavailableError,
)
from accelerator_rollout.names import FIELD_MANAGER

Raw = Mapping[str, Any]

MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"

_CHUNK: Final = "500"
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT: Final = 30  # seconds, of one request
_WATCH_SECONDS: Final = 240  # after which the API server ends a watch, and another begins
_DAMAGED: Final = (
    config.ConfigException,
    OSError,
    yaml.YAMLError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
)

_ERRORS: Final = {
    401: ForbiddenError,
    403: ForbiddenError,
    404: GoneError,
    409: ConflictError,
    422: InvalidError,
}


class Cluster:
    """Lists and patches. Raises OperatorError, whose message is a sentence for people."""

    def __init__(self, http: pykube.HTTPClient, title: str, namespace: str = "default") -> None:
        """`title` is what to call it in messages; `namespace` is the one to look into where none is named."""
        self._http = http
        self.title = title
        self.namespace = namespace

    @classmethod
    def connect(cls, kubeconfig: str | None, context: str | None) -> "Cluster":
        """Return the cluster of the context, of the current one, or of the pod that we run in."""
        found = client.Configuration()
        kubeconfig = kubeconfig or os.environ.get("KUBECONFIG") or None
        try:
            if not kubeconfig and not context and (_SERVICE_ACCOUNT / "token").exists():
                config.load_incluster_config(client_configuration=found)
                title = "the cluster of this pod"
                namespace = (_SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
            else:
                config.load_kube_config(
                    config_file=kubeconfig, context=context, client_configuration=found, persist_config=False
                )
                contexts, current = config.list_kube_config_contexts(config_file=kubeconfig)
                chosen = next((c for c in contexts if c["name"] == context), current)
                title = f"context {chosen['name']}"
                namespace = (chosen.get("context") or {}).get("namespace") or "default"
            http = pykube.HTTPClient(_pykube_config(found), timeout=_TIMEOUT)
        except _DAMAGED as error:
            raise OperatorError(
                f"no cluster to speak to ({_first_line(error)}): name a --kubeconfig or --context"
            ) from error
        return cls(http, f"{title} ({found.host})", namespace)

    def again(self) -> "Cluster":
        """Return the same cluster with a session of its own, for another thread."""
        return Cluster(pykube.HTTPClient(self._http.config, timeout=_TIMEOUT), self.title, self.namespace)

    def get(self, path: str, **params: str) -> Raw:
        """Return what a path answers."""
        return self._call("GET", path, params)

    def create(self, path: str, body: Raw) -> Raw:
        """Create one object, or ask a review."""
        return self._call("POST", path, {"fieldManager": FIELD_MANAGER}, body, "application/json")

    def watch(self, path: str, **params: str) -> Iterator[Raw]:
        """Yield the events under a path until the API server ends the watch."""
        query = {"watch": "true", "timeoutSeconds": str(_WATCH_SECONDS), **params}
        try:
            with self._http.session.get(
                self._http.url + path, params=query, stream=True, timeout=_WATCH_SECONDS + _TIMEOUT
            ) as answer:
                if not answer.ok:
                    raise _ERRORS.get(answer.status_code, UnavailableError)(f"watch {path}: {_said(answer)}")
                for line in answer.iter_lines(chunk_size=65536):  # the API server sends each event as a chunk
                    if line:
                        yield json.loads(line)
        except (requests.RequestException, OSError, ValueError) as error:
            raise UnavailableError(f"{self.title} does not answer: {_why(error)}") from error

    def each(self, path: str, **params: str) -> Iterator[Raw]:
        """Yield all objects under a path; none where the API server does not serve it."""
        try:
            yield from self.every(path, **params)
        except GoneError:
            return

    def every(self, path: str, **params: str) -> Iterator[Raw]:
        """Yield all objects under a path. Raises GoneError where the API server does not serve it."""
        for page in self.pages(path, **params):
            yield from page.get("items") or ()

    def pages(self, path: str, **params: str) -> Iterator[Raw]:
        """Yield the parts of a list. Raises GoneError where the API server does not serve it."""
        query = {"limit": _CHUNK, **params}
        while True:
            page = self._call("GET", path, query)
            yield page
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
                # Discovery refuses a request without a body that names the type of a patch.
                headers={"Accept": "application/json"} | ({} if body is None else {"Content-Type": content}),
                timeout=_TIMEOUT,
            )
        except (requests.RequestException, OSError) as error:
            raise UnavailableError(f"{self.title} does not answer: {_why(error)}") from error
        if answer.ok:
            try:
                found: Raw = answer.json()
            except ValueError as error:
                raise UnavailableError(f"{self.title} does not speak JSON: is it an API server?") from error
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


def _why(error: Exception) -> str:
    """Return the cause of a failed request without the layers that it came through."""
    text = str(error)
    for sign, cause in (
        ("Connection refused", "connection refused"),
        ("Name or service not known", "its name is not known"),
        ("Temporary failure in name resolution", "its name is not known"),
        ("timed out", "no answer in time"),
        ("CERTIFICATE_VERIFY_FAILED", "its certificate is not of the authority that the kubeconfig names"),
        ("No route to host", "no route to it"),
    ):
        if sign in text:
            return cause
    return _first_line(error)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]


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
