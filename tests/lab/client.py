"""A small asynchronous client of the Kubernetes API: raw objects in, raw objects out.

Shared by the simulated nodes, the recorder and the tests. It knows paths, patch types and watches, and does
not know what the objects mean. A plain request is never retried: a test wants to see the refusal. `follow`
and the `wait_…` methods live through a broken connection, as the informer of a controller does.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import aiohttp
import yaml

from lab.kubeconfig import Connection
from lab.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource

Object = dict[str, Any]

FIELD_MANAGER: Final = "lab"
_PLAIN_TIMEOUT: Final = aiohttp.ClientTimeout(total=30)
# The server ends a watch after this many seconds; a silence much longer than that is a dead connection.
_WATCH_SECONDS: Final = 300
_WATCH_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_WATCH_SECONDS + 30)


class ApiError(Exception):
    """The API server's refusal: HTTP status, machine-readable reason, and its message for people."""

    def __init__(self, status: int, reason: str, message: str, *, body: Object | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.body = body or {}

    @property
    def is_not_found(self) -> bool:
        """The object (or the kind) does not exist."""
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        """A precondition (UID, resourceVersion) no longer holds. An existing name is `is_already_exists`."""
        return self.status == 409 and self.reason != "AlreadyExists"

    @property
    def is_already_exists(self) -> bool:
        """The name is taken."""
        return self.reason == "AlreadyExists"

    @property
    def is_expired(self) -> bool:
        """The resourceVersion is too old to watch from: list again."""
        return self.status == 410


class PatchType(StrEnum):
    """How the server reads a patch body."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class EventType(StrEnum):
    """What a watch says happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class WatchEvent(NamedTuple):
    """One event; unpacks as `type, object`."""

    type: EventType
    object: Object


class Page(NamedTuple):
    """A consistent list: its objects and the resourceVersion from which to watch on."""

    items: list[Object]
    resource_version: str


class Api:
    """A session with one API server under one identity. Use as `async with Api(connection) as api`."""

    def __init__(self, connection: Connection, *, field_manager: str = FIELD_MANAGER) -> None:
        self.connection = connection
        self.field_manager = field_manager
        self._session: aiohttp.ClientSession | None = None
        self._kinds: dict[str, dict[str, Resource]] = {}

    @classmethod
    def from_kubeconfig(
        cls, path: Path, *, context: str | None = None, field_manager: str = FIELD_MANAGER
    ) -> Self:
        """A client for a kubeconfig; `Connection.from_kubeconfig` tells where an unnamed context may lead."""
        return cls(Connection.from_kubeconfig(path, context=context), field_manager=field_manager)

    async def __aenter__(self) -> Self:
        headers = {"User-Agent": f"accelerator-rollout-{self.field_manager}", "Accept": "application/json"}
        if self.connection.token:
            headers["Authorization"] = f"Bearer {self.connection.token}"
        # Each watch keeps a connection for itself, so their number must not be limited here.
        connector = aiohttp.TCPConnector(ssl=self.connection.ssl_context(), limit=0)
        self._session = aiohttp.ClientSession(
            self.connection.server,
            connector=connector,
            headers=headers,
            timeout=_PLAIN_TIMEOUT,
            trust_env=False,
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
            await asyncio.sleep(0)  # aborted connections close their sockets in the next turn of the loop

    # Plain requests

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> Object:
        """Send one request and return the decoded answer. Raises ApiError unless the answer is a 2xx."""
        data = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": content_type}
        async with self._open.request(method, path, params=params, data=data, headers=headers) as response:
            payload = await response.read()
            if response.status >= 300:
                raise _api_error(response.status, payload)
            decoded: Object = json.loads(payload) if payload else {}
            return decoded

    async def text(self, path: str) -> str:
        """The answer of a path that serves plain text, such as /readyz or /metrics."""
        async with self._open.get(path, headers={"Accept": "*/*"}) as response:
            payload = await response.read()
            if response.status >= 300:
                raise _api_error(response.status, payload)
            return payload.decode()

    async def get(
        self, resource: Resource, name: str, namespace: str | None = None, *, subresource: str | None = None
    ) -> Object:
        """One object."""
        return await self.request("GET", resource.path(name, namespace, subresource))

    async def find(self, resource: Resource, name: str, namespace: str | None = None) -> Object | None:
        """One object, or None if there is none of that name."""
        try:
            return await self.get(resource, name, namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> Page:
        """All objects of a kind, in one namespace or everywhere; each carries its apiVersion and kind."""
        body = await self.request(
            "GET", resource.path(namespace=namespace), params=_selectors(label_selector, field_selector)
        )
        items = body.get("items") or []
        kind = str(body.get("kind", "")).removesuffix("List")
        for item in items:
            item.setdefault("apiVersion", body.get("apiVersion"))
            item.setdefault("kind", kind)
        return Page(items, body["metadata"]["resourceVersion"])

    async def create(
        self,
        resource: Resource,
        body: Object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """Create an object in the given namespace, else in its own; or post to a subresource of it."""
        namespace = _namespace(resource, body, namespace)
        name = body["metadata"]["name"] if subresource else None
        return await self.request(
            "POST",
            resource.path(name, namespace, subresource),
            params={"fieldManager": self.field_manager},
            body=body,
        )

    async def replace(
        self,
        resource: Resource,
        body: Object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """Replace an object; a resourceVersion in it is a precondition."""
        path = resource.path(body["metadata"]["name"], _namespace(resource, body, namespace), subresource)
        return await self.request("PUT", path, params={"fieldManager": self.field_manager}, body=body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Object | Sequence[Object],
        namespace: str | None = None,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str | None = None,
        field_manager: str | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Object:
        """Patch an object. A uid or resourceVersion in the body's metadata is a precondition."""
        return await self.request(
            "PATCH",
            resource.path(name, namespace, subresource),
            params={"fieldManager": field_manager or self.field_manager, **(params or {})},
            body=body,
            content_type=patch_type,
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        grace_seconds: int | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
    ) -> Object:
        """Delete an object; `uid` and `resource_version` are preconditions (409 if they do not hold)."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if given := {key: value for key, value in preconditions.items() if value is not None}:
            options["preconditions"] = given
        if propagation is not None:
            options["propagationPolicy"] = propagation
        return await self.request("DELETE", resource.path(name, namespace), body=options)

    async def delete_if_there(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        grace_seconds: int | None = None,
    ) -> None:
        """Delete an object that may be gone already."""
        try:
            await self.delete(resource, name, namespace, grace_seconds=grace_seconds)
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def evict(
        self, name: str, namespace: str, *, grace_seconds: int | None = None, uid: str | None = None
    ) -> Object:
        """Evict a pod; a PodDisruptionBudget that forbids it answers 429 (ApiError)."""
        options: Object = {}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        eviction: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        return await self.request(
            "POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body=eviction
        )

    # Watches

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        bookmarks: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """The events after `resource_version`, until the server ends the watch, after minutes.

        Raises ApiError (`is_expired` when the version is too old) and aiohttp's errors when the connection
        breaks. Close it with `aclosing` when you leave early.
        """
        params = _selectors(label_selector, field_selector) | {
            "watch": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        if bookmarks:
            params["allowWatchBookmarks"] = "true"
        path = resource.path(namespace=namespace)
        async with self._open.get(path, params=params, timeout=_WATCH_TIMEOUT) as response:
            if response.status >= 300:
                raise _api_error(response.status, await response.read())
            transport = response.connection and response.connection.transport
            try:
                rest = b""
                async for chunk in response.content.iter_any():
                    # Not readline(): a line is a whole object, which may be longer than its limit.
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in filter(None, lines):
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            raise _status_error(event["object"])
                        yield WatchEvent(EventType(event["type"]), event["object"])
            finally:
                if transport is not None and not response.content.is_eof():
                    # A mere close waits, unseen, for the server's farewell, which may outlast the event loop.
                    transport.abort()

    async def follow(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        listed: asyncio.Event | None = None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """List and watch for ever: through ended watches, expired versions and restarts of the server.

        What vanished or changed unseen comes as DELETED (with the last known state) or MODIFIED after a new
        list. Refusals other than "too old" and 5xx (a missing right, an unknown kind) are raised. `listed` is set
        once all that the first list had has come: no change after that is missed.
        """
        known: dict[str, Object] = {}
        version: str | None = None
        pause = 0.05
        while True:
            try:
                if version is None:
                    page = await self.list(
                        resource, namespace, label_selector=label_selector, field_selector=field_selector
                    )
                    now = {item["metadata"]["uid"]: item for item in page.items}
                    for uid in [uid for uid in known if uid not in now]:
                        yield WatchEvent(EventType.DELETED, known.pop(uid))
                    for uid, item in now.items():
                        before = known.get(uid)
                        known[uid] = item
                        if before is None:
                            yield WatchEvent(EventType.ADDED, item)
                        elif before["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                            yield WatchEvent(EventType.MODIFIED, item)
                    version = page.resource_version
                    if listed is not None:
                        listed.set()
                events = self.watch(
                    resource,
                    version,
                    namespace,
                    label_selector=label_selector,
                    field_selector=field_selector,
                    bookmarks=True,
                )
                async with aclosing(events):
                    async for event in events:
                        version = event.object["metadata"]["resourceVersion"]
                        pause = 0.05
                        if event.type is EventType.BOOKMARK:
                            continue
                        uid = event.object["metadata"]["uid"]
                        if event.type is EventType.DELETED:
                            known.pop(uid, None)
                        else:
                            known[uid] = event.object
                        yield event
            except ApiError as error:
                if not _is_passing(error):
                    raise
                if error.is_expired:
                    version = None
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)

    async def wait_for(
        self,
        resource: Resource,
        name: str,
        predicate: Callable[[Object], bool],
        namespace: str | None = None,
        *,
        timeout: float = 30.0,  # noqa: ASYNC109 - the message must tell the last state seen
    ) -> Object:
        """Await that the object exists and `predicate` holds for it; return it as it was then.

        Raises TimeoutError with the last state seen after `timeout` seconds.
        """
        found = await self._await_state(
            resource, name, lambda body: body is not None and predicate(body), namespace, timeout
        )
        assert found is not None
        return found

    async def wait_gone(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        timeout: float = 30.0,  # noqa: ASYNC109 - see wait_for
    ) -> None:
        """Await that no object bears the name, or, given a `uid`, that another one does."""

        def gone(body: Object | None) -> bool:
            return body is None or (uid is not None and body["metadata"]["uid"] != uid)

        await self._await_state(resource, name, gone, namespace, timeout)

    async def _await_state(
        self,
        resource: Resource,
        name: str,
        reached: Callable[[Object | None], bool],
        namespace: str | None,
        seconds: float,
    ) -> Object | None:
        last: Object | None = None
        trouble = ""
        selector = f"metadata.name={name}"
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        page = await self.list(resource, namespace, field_selector=selector)
                        last = page.items[0] if page.items else None
                        if reached(last):
                            return last
                        events = self.watch(
                            resource, page.resource_version, namespace, field_selector=selector
                        )
                        async with aclosing(events):
                            async for event in events:
                                last = None if event.type is EventType.DELETED else event.object
                                if reached(last):
                                    return last
                    except ApiError as error:
                        if not _is_passing(error):
                            raise
                        trouble = f" (the API server said {error})"
                    except (aiohttp.ClientError, TimeoutError) as error:
                        trouble = f" (the API server could not be reached: {error})"
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            where = f"{namespace}/{name}" if namespace else name
            state = json.dumps(last, indent=1) if last else "no such object"
            raise TimeoutError(
                f"{resource.plural} {where} did not reach the awaited state within {seconds:g} s{trouble}. "
                f"Last seen:\n{state}"
            ) from error

    # Manifests

    async def resource_of(self, body: Object) -> Resource:
        """The resource that serves this apiVersion and kind; the server is asked once a group version."""
        api_version, kind = body["apiVersion"], body["kind"]
        kinds = self._kinds.get(api_version, {})
        if kind not in kinds:
            group, _, version = str(api_version).rpartition("/")
            found = await self.request("GET", f"/apis/{api_version}" if group else f"/api/{version}")
            kinds = {
                item["kind"]: Resource(group, version, item["name"], namespaced=item["namespaced"])
                for item in found["resources"]
                if "/" not in item["name"]
            }
            self._kinds[api_version] = kinds
        if kind not in kinds:
            raise ApiError(404, "NotFound", f"the server serves no {kind} in {api_version}")
        return kinds[kind]

    async def apply(
        self,
        body: Object,
        namespace: str | None = None,
        *,
        field_manager: str | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Object:
        """Server-side apply of one object, by force; `namespace` is for objects that name none."""
        resource = await self.resource_of(body)
        where = (body["metadata"].get("namespace") or namespace or "default") if resource.namespaced else None
        return await self.patch(
            resource,
            body["metadata"]["name"],
            body,
            where,
            patch_type=PatchType.APPLY,
            field_manager=field_manager,
            params={"force": "true", **(params or {})},
        )

    async def apply_manifest(
        self,
        manifest: Path | str | Iterable[Object],
        namespace: str | None = None,
        *,
        field_manager: str | None = None,
    ) -> Sequence[Object]:
        """Apply all objects of a file, a YAML text or an iterable, in order; a new kind is awaited."""
        if isinstance(manifest, Path):
            manifest = await asyncio.to_thread(manifest.read_text)
        if isinstance(manifest, str):
            manifest = [body for body in yaml.safe_load_all(manifest) if body]
        applied = []
        for body in manifest:
            done = await self.apply(body, namespace, field_manager=field_manager)
            if body["kind"] == "CustomResourceDefinition":
                name = body["metadata"]["name"]
                await self.wait_for(
                    CUSTOM_RESOURCE_DEFINITIONS, name, lambda crd: has_condition(crd, "Established")
                )
                await self._until_served(body)
            applied.append(done)
        return applied

    async def _until_served(self, definition: Object) -> None:
        """Return once the API server shows and serves a new kind: it says "Established" a moment before."""
        spec = definition["spec"]
        async with asyncio.timeout(30):
            for version in (v["name"] for v in spec["versions"] if v["served"]):
                kind = {"apiVersion": f"{spec['group']}/{version}", "kind": spec["names"]["kind"]}
                while True:
                    try:
                        await self.list(await self.resource_of(kind))
                    except ApiError as error:
                        if error.status not in (404, 429):  # neither shown nor ready to be read yet
                            raise
                        await asyncio.sleep(0.05)
                    else:
                        break

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("this Api is not open: use it as `async with Api(connection) as api`")
        return self._session


def condition(body: Object | None, kind: str) -> Object | None:
    """The condition of that type in an object's status, or None."""
    for entry in ((body or {}).get("status") or {}).get("conditions") or []:
        if entry["type"] == kind:
            found: Object = entry
            return found
    return None


def has_condition(body: Object | None, kind: str, status: str = "True") -> bool:
    """Whether the object has that condition with that status."""
    found = condition(body, kind)
    return found is not None and found["status"] == status


def _is_passing(error: ApiError) -> bool:
    """Whether a list or watch may be refused now and succeed a moment later."""
    return error.is_expired or error.status == 429 or error.status >= 500


def _namespace(resource: Resource, body: Object, namespace: str | None) -> str | None:
    if not resource.namespaced:
        return None
    where = namespace or body["metadata"].get("namespace")
    if where is None:
        raise ValueError(
            f"{resource.plural} {body['metadata'].get('name')!r} lives in a namespace, and none was given"
        )
    return str(where)


def _selectors(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    given = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in given.items() if value is not None}


def _api_error(status: int, payload: bytes) -> ApiError:
    try:
        body = json.loads(payload)
    except ValueError:
        return ApiError(status, "Unknown", payload.decode(errors="replace").strip())
    if not isinstance(body, dict):
        return ApiError(status, "Unknown", str(body))
    return ApiError(
        int(body.get("code") or status), body.get("reason") or "Unknown", body.get("message") or "", body=body
    )


def _status_error(body: Object) -> ApiError:
    return ApiError(
        int(body.get("code") or 500), body.get("reason") or "Unknown", body.get("message") or "", body=body
    )
