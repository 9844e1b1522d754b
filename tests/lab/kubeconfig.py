"""Kubeconfig files: reading who and where a client is, and writing those of the test bed."""

import base64
import binascii
import ipaddress
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml


class KubeconfigError(Exception):
    """A kubeconfig does not say what we need, or says something that we do not do."""


class ForeignClusterError(KubeconfigError):
    """A cluster that is not on this machine, and whose context nobody named."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Where an API server is and as whom to speak to it: PEM texts of a certificate and key, or a token."""

    server: str
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    token: str | None = None
    tls_server_name: str | None = None

    @classmethod
    def from_kubeconfig(cls, path: Path, *, context: str | None = None) -> Self:
        """Read `path`. A `context` that the caller names may lead anywhere, the current one only here.

        Raises:
            ForeignClusterError: no context was named and the current one leads to another machine.
            KubeconfigError: the file is unreadable, incomplete, or wants a plugin to log in.
        """
        try:
            config = yaml.safe_load(path.read_text())
        except (OSError, yaml.YAMLError) as error:
            raise KubeconfigError(f"cannot read the kubeconfig {path}: {error}") from error
        if not isinstance(config, dict):
            raise KubeconfigError(f"the kubeconfig {path} is empty or not a mapping")
        chosen = context or config.get("current-context")
        if not chosen:
            raise KubeconfigError(f"the kubeconfig {path} has no current context: name one")
        link = _entry(config, "contexts", "context", chosen, path)
        cluster = _entry(config, "clusters", "cluster", link.get("cluster", ""), path)
        user = _entry(config, "users", "user", link.get("user", ""), path)
        server = cluster.get("server", "")
        if context is None and not is_loopback(server):
            raise ForeignClusterError(
                f"context {chosen!r} of {path} leads to {server}, which is not this machine. "
                f"The test bed creates and deletes freely: if you mean that cluster, name the context."
            )
        if "exec" in user or "auth-provider" in user:
            raise KubeconfigError(
                f"user {link['user']!r} of {path} logs in by a plugin, which the test bed does not run: "
                f"use a kubeconfig with a client certificate or a token"
            )
        if cluster.get("insecure-skip-tls-verify"):
            raise KubeconfigError(
                f"cluster {link['cluster']!r} of {path} skips TLS verification: give its CA instead"
            )
        return cls(
            server=server.rstrip("/"),
            ca=_pem(cluster, "certificate-authority", path),
            certificate=_pem(user, "client-certificate", path),
            key=_pem(user, "client-key", path),
            token=_token(user, path),
            tls_server_name=cluster.get("tls-server-name"),
        )

    def ssl_context(self) -> ssl.SSLContext | bool:
        """What aiohttp takes as `ssl`: the CA to trust and the certificate to show."""
        if not self.server.startswith("https:"):
            return True
        context = ssl.create_default_context(cadata=self.ca)
        if self.certificate and self.key:
            # The standard library reads certificates from files only; nobody else may read this one.
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as both:
                both.write(f"{self.certificate}\n{self.key}\n")
                both.flush()
                context.load_cert_chain(both.name)
        return context

    def write_kubeconfig(self, path: Path, *, context: str, user: str, namespace: str = "default") -> None:
        """Write a self-contained kubeconfig of this one cluster and user, readable by its owner alone."""
        cluster: dict[str, str] = {"server": self.server}
        if self.ca:
            cluster["certificate-authority-data"] = _b64(self.ca)
        if self.tls_server_name:
            cluster["tls-server-name"] = self.tls_server_name
        login: dict[str, str] = {}
        if self.certificate and self.key:
            login = {"client-certificate-data": _b64(self.certificate), "client-key-data": _b64(self.key)}
        if self.token:
            login["token"] = self.token
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": context,
            "clusters": [{"name": context, "cluster": cluster}],
            "users": [{"name": user, "user": login}],
            "contexts": [
                {"name": context, "context": {"cluster": context, "user": user, "namespace": namespace}}
            ],
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config, sort_keys=False))


def is_loopback(server: str) -> bool:
    """Whether the URL leads to this machine."""
    host = urlsplit(server).hostname
    if host is None:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _entry(config: Mapping[str, Any], section: str, inner: str, name: str, path: Path) -> dict[str, Any]:
    for item in config.get(section) or []:
        if item.get("name") == name:
            return dict(item.get(inner) or {})
    raise KubeconfigError(f"the kubeconfig {path} has no {inner} {name!r}")


def _pem(entry: Mapping[str, str], field: str, path: Path) -> str | None:
    data = entry.get(f"{field}-data")
    if data:
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise KubeconfigError(f"{field}-data in {path} is not base64 of a PEM text") from error
    if file := entry.get(field):
        # As kubectl does: relative to the kubeconfig, not to where we run.
        return _read(path.parent / file, path)
    return None


def _token(user: Mapping[str, str], path: Path) -> str | None:
    if token := user.get("token"):
        return token
    if file := user.get("tokenFile"):
        return _read(path.parent / file, path).strip()
    return None


def _read(file: Path, kubeconfig: Path) -> str:
    try:
        return file.read_text()
    except OSError as error:
        raise KubeconfigError(f"{kubeconfig} points to {file}, which cannot be read: {error}") from error


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
