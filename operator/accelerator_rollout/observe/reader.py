"""Reads raw JSON from the API server: discovery, lists in chunks, single objects. No models, so nothing is refused."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from accelerator_rollout.observe.errors import (
    NoClusterError,
    NotAllowedError,
    NotFoundError,
    NotServedError,
    ReadError,
)
from accelerator_rollout.observe.kinds import SOURCES, Kind, Served
from accelerator_rollout.observe.login import LoadConfiguration, open_session

_TIMEOUT: Final = aiohttp.ClientTimeout(total=30, sock_connect=5, sock_read=10)
_CHUNK: Final = 500
_METADATA_CHUNK: Final = 1000  # about a megabyte, and 10 ms to parse
_JSON: Final = "application/json"
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list. All parts of one list show the same moment, `resource_version`."""

    items: list[Mapping[str, Any]]
    resource_version: int


class Reader:
    """A session for reads, renewed when its credentials are refused."""

    def __init__(self, load: LoadConfiguration, *, trace: aiohttp.TraceConfig | None = None) -> None:
        self._load, self._trace = load, trace
        self._session: aiohttp.ClientSession | None = None
        self._host = ""

    async def close(self) -> None:
        """End the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = _JSON) -> Any:
        """Return the parsed body of GET `path`.

        Raises NotFoundError, NotAllowedError, ReadError for any other refusal, NoClusterError if nobody answers.
        """
        status, body = await self._get(path, params, accept)
        if status == 401:  # the token was rotated, or the plugin's has expired: ask for another, once
            await self.close()
            status, body = await self._get(path, params, accept)
        if status == 200:
            return json.loads(body)
        said = _message(body)
        if status == 404:
            raise NotFoundError(f"GET {path}: not found: {said}")
        if status in (401, 403):
            raise NotAllowedError(f"the API server refuses GET {path}: {said}")
        raise ReadError(f"GET {path} failed with {status}: {said}")

    async def _get(self, path: str, params: Mapping[str, str] | None, accept: str) -> tuple[int, bytes]:
        try:
            if self._session is None:
                found = await self._load()
                self._host = str(found.host).rstrip("/")
                self._session = await open_session(found, trace=self._trace)
            async with self._session.get(
                self._host + path, params=params, headers={"Accept": accept}, timeout=_TIMEOUT
            ) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoClusterError(
                f"the API server at {self._host} does not answer ({type(error).__name__}: {error})"
            ) from error

    async def pages(self, served: Served, *, metadata_only: bool = False) -> AsyncIterator[Page]:
        """Yield all objects of a kind, some hundred at a time."""
        params = {"limit": str(_METADATA_CHUNK if metadata_only else _CHUNK)}
        accept = _METADATA if metadata_only else _JSON
        while True:
            found = await self.get(served.path(), params, accept=accept)
            meta = found.get("metadata") or {}
            yield Page(found.get("items") or [], int(meta.get("resourceVersion") or 0))
            token = meta.get("continue")
            if not token:
                return
            params["continue"] = token

    async def discover(self) -> tuple[Served, ...]:
        """Return the kinds to watch, each in the best version that is served.

        Raises NotServedError for a kind that we cannot do without.
        """
        groups: dict[str, set[str]] = {"": {"v1"}}
        for group in (await self.get("/apis")).get("groups") or []:
            groups[group["name"]] = {version["version"] for version in group.get("versions") or []}
        resources: dict[tuple[str, str], set[str]] = {}
        found: list[Served] = []
        for source in SOURCES.values():
            for version in source.versions:
                where = (source.group, version)
                if version in groups.get(source.group, ()) and where not in resources:
                    resources[where] = await self._resources(*where)
                if source.kind in resources.get(where, ()):
                    found.append(Served(source, version))
                    break
            else:
                if not source.optional:
                    raise NotServedError(_absence(source.kind))
        return tuple(found)

    async def _resources(self, group: str, version: str) -> set[str]:
        listed = await self.get(f"/apis/{group}/{version}" if group else f"/api/{version}")
        return {resource["name"] for resource in _maps(listed.get("resources"))}


def _absence(kind: Kind) -> str:
    source = SOURCES[kind]
    api = f"{source.group}/{' or '.join(source.versions)}"
    if kind is Kind.ROLLOUTS:
        return f"the cluster does not know {source.title} ({api}): install the CustomResourceDefinition first"
    return f"the cluster does not serve {kind} in {api}, which this version needs"


def _maps(found: object) -> Iterable[Mapping[str, Any]]:
    return (item for item in found if isinstance(item, Mapping)) if isinstance(found, list) else ()


def _message(body: bytes) -> str:
    try:
        said = json.loads(body).get("message")
    except (ValueError, AttributeError):
        said = None
    return str(said or body[:200].decode("utf-8", "replace"))
