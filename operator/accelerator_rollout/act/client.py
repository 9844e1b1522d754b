"""Every read before an act, and every write: thin calls on raw JSON, with one policy for what the server answers.

Nothing is decided here. Each write carries the UID of the object that was decided on, and its resourceVersion where the
decision hangs on more than the UID; the server compares. Leadership is asked right before each write is sent.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, Protocol

import aiohttp

from accelerator_rollout.act.rights import Right
from accelerator_rollout.control.leadership import Leadership
from accelerator_rollout.errors import (
    ActError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotLeadingError,
    RefusedError,
    UnavailableError,
)
from accelerator_rollout.names import (
    DELETION_COST_ANNOTATION,
    FIELD_MANAGER,
    GATE,
    GROUP,
    GUARD_FINALIZER,
    HOSTNAME_LABEL,
    MANAGED_LABEL,
    MANAGED_LABEL_VALUE,
    PARKED_ANNOTATION,
    PARKING_POLICY,
    PLURAL,
)
from accelerator_rollout.observe.errors import ObserveError
from accelerator_rollout.observe.kinds import SOURCES, Kind, Served
from accelerator_rollout.observe.login import LoadConfiguration, open_session
from accelerator_rollout.records import ClaimRecord, Device, Taint

Raw = Mapping[str, Any]

_JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_RESERVED: Final = "/status/reservedFor"
_EVENTS: Final = "/apis/events.k8s.io/v1"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_READS: Final = {"get": "GET", "list": "GET", "review": "POST"}  # by what they do, whatever HTTP calls it


class Client(Protocol):
    """What the executor needs of a cluster. Every method raises ActError; reads return None for what does not exist."""

    async def read(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        """GET one object."""
        ...

    async def read_all(self, kind: Kind, namespace: str = "", fields: str = "") -> list[Raw]:
        """LIST a kind, by field selector; empty where the cluster does not serve it."""
        ...

    async def write_status(self, namespace: str, name: str, uid: str, version: str, status: Raw) -> Raw:
        """Replace the status of an AcceleratorRollout."""
        ...

    async def write_conditions(
        self, namespace: str, name: str, uid: str, version: str, generation: int, conditions: Sequence[Raw]
    ) -> Raw:
        """Set the conditions of an AcceleratorRollout, told at a generation; the rest of its status stays as it is."""
        ...

    async def write_finalizers(
        self, namespace: str, name: str, uid: str, version: str, finalizers: list[str]
    ) -> Raw:
        """Set the finalizers of an AcceleratorRollout."""
        ...

    async def label_managed(self, namespace: str, name: str, uid: str) -> Raw:
        """Put our label on a Deployment."""
        ...

    async def unmanage(self, namespace: str, name: str, uid: str, version: str, *, unpause: bool) -> Raw:
        """Take our label and annotation off a Deployment, and our pause with them."""
        ...

    async def pause(self, namespace: str, name: str, uid: str, version: str, reason: str) -> Raw:
        """Pause a Deployment, with our annotation."""
        ...

    async def unpause(self, namespace: str, name: str, uid: str, version: str) -> Raw:
        """Take our pause off a Deployment."""
        ...

    async def write_template(
        self, kind: Kind, namespace: str, name: str, uid: str, version: str, template: Raw, *, parked: str
    ) -> Raw:
        """Replace a workload's pod template; with a reason `parked`, pause a Deployment with our annotation, too."""
        ...

    async def set_cost(self, namespace: str, name: str, uid: str, cost: int) -> Raw:
        """Set a pod's deletion cost."""
        ...

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Evict a pod. Raises RefusedError if a PodDisruptionBudget forbids it."""
        ...

    async def open_gate(
        self, namespace: str, name: str, uid: str, hostname: str = "", *, guard: bool = False
    ) -> Raw:
        """Remove our gate from a pod; with it pin it to the node of this hostname, and put our guard on."""
        ...

    async def guard(self, namespace: str, name: str, uid: str, *, on: bool) -> Raw:
        """Put our guard on a pod, or take it off."""
        ...

    async def hold_claim(self, claim: ClaimRecord, name: str, uid: str) -> Raw:
        """Add the AcceleratorRollout of this name and UID to `reservedFor` of a claim as it was decided on."""
        ...

    async def end_hold(self, claim: ClaimRecord, uid: str, *, deallocate: bool) -> Raw:
        """Take the AcceleratorRollout of this UID out of `reservedFor`, or everybody, with the allocation."""
        ...

    async def reserve_device(self, device: Device, name: str, taint: Taint, labels: Mapping[str, str]) -> Raw:
        """Create a DeviceTaintRule on one device."""
        ...

    async def end_reservation(self, name: str, uid: str) -> None:
        """Delete a DeviceTaintRule."""
        ...

    async def try_pod(self, namespace: str, template: Raw) -> Raw:
        """Create a pod of the template by dry run, and return what would have been stored."""
        ...

    async def record_event(self, namespace: str, event: Raw) -> None:
        """Create an Event."""
        ...

    async def count_event(self, namespace: str, name: str, count: int, last: str) -> None:
        """Say how often what an Event tells was seen, and when last. Raises GoneError if there is none."""
        ...


class ApiClient:
    """The Client of a real API server. `counted` is told verb, resource and code of every request."""

    def __init__(
        self,
        load: LoadConfiguration,
        served: Callable[[], tuple[Served, ...]],
        leadership: Leadership,
        counted: Callable[[str, str, str], None] = lambda _verb, _resource, _code: None,
        timeout_seconds: float = 15.0,
    ) -> None:
        self._load, self._served, self._leadership, self._counted = load, served, leadership, counted
        self._timeout_seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None
        self._host = ""
        self._opening = asyncio.Lock()
        self._writing = 0  # requests that write and have no answer yet
        self._written = asyncio.Event()

    async def written(self, within: float) -> bool:
        """Wait for the answers to all writes that are under way; return whether they came within so many seconds."""
        try:
            async with asyncio.timeout(within):
                while self._writing:
                    self._written.clear()
                    await self._written.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # Reads

    async def read(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        """GET one object."""
        try:
            return await self.call("get", kind, self._path(kind, namespace, name))
        except GoneError:
            return None

    async def read_all(self, kind: Kind, namespace: str = "", fields: str = "") -> list[Raw]:
        """LIST a kind, by field selector; empty where the cluster does not serve it."""
        if not self.serves(kind):
            return []
        params = {"fieldSelector": fields} if fields else {}
        found = await self.call("list", kind, self._path(kind, namespace), params=params)
        title = SOURCES[kind].title
        return [{"kind": title, **item} for item in found.get("items") or []]

    # Our own object

    async def write_status(self, namespace: str, name: str, uid: str, version: str, status: Raw) -> Raw:
        """Replace the status of an AcceleratorRollout."""
        # A merge patch would keep what the new status leaves out.
        patch = [*_unchanged(uid, version), {"op": "add", "path": "/status", "value": status}]
        return await self._write(
            "patch", Kind.ROLLOUTS, namespace, name, "status", patch, content=_JSON_PATCH
        )

    async def write_conditions(
        self, namespace: str, name: str, uid: str, version: str, generation: int, conditions: Sequence[Raw]
    ) -> Raw:
        """Set the conditions of an AcceleratorRollout, told at a generation; the rest of its status stays as it is."""
        status = {"observedGeneration": generation, "conditions": conditions}
        body = {"metadata": {"uid": uid, "resourceVersion": version}, "status": status}
        return await self._write("patch", Kind.ROLLOUTS, namespace, name, "status", body)

    async def write_finalizers(
        self, namespace: str, name: str, uid: str, version: str, finalizers: list[str]
    ) -> Raw:
        """Set the finalizers of an AcceleratorRollout."""
        body = {"metadata": {"uid": uid, "resourceVersion": version, "finalizers": finalizers}}
        return await self._write("patch", Kind.ROLLOUTS, namespace, name, "", body)

    # The workload

    async def label_managed(self, namespace: str, name: str, uid: str) -> Raw:
        """Put our label on a Deployment."""
        body = {"metadata": {"uid": uid, "labels": {MANAGED_LABEL: MANAGED_LABEL_VALUE}}}
        return await self._write("patch", Kind.DEPLOYMENTS, namespace, name, "", body)

    async def unmanage(self, namespace: str, name: str, uid: str, version: str, *, unpause: bool) -> Raw:
        """Take our label and annotation off a Deployment, and our pause with them."""
        meta = _deployment(uid, version, parked=None)
        meta["labels"] = {MANAGED_LABEL: None}
        body: dict[str, Any] = {"metadata": meta}
        if unpause:
            body["spec"] = {"paused": False}
        return await self._write("patch", Kind.DEPLOYMENTS, namespace, name, "", body)

    async def pause(self, namespace: str, name: str, uid: str, version: str, reason: str) -> Raw:
        """Pause a Deployment, with our annotation."""
        body = {"metadata": _deployment(uid, version, parked=reason), "spec": {"paused": True}}
        return await self._write("patch", Kind.DEPLOYMENTS, namespace, name, "", body)

    async def unpause(self, namespace: str, name: str, uid: str, version: str) -> Raw:
        """Take our pause off a Deployment."""
        body = {"metadata": _deployment(uid, version, parked=None), "spec": {"paused": False}}
        return await self._write("patch", Kind.DEPLOYMENTS, namespace, name, "", body)

    async def write_template(
        self, kind: Kind, namespace: str, name: str, uid: str, version: str, template: Raw, *, parked: str
    ) -> Raw:
        """Replace a workload's pod template; with a reason `parked`, pause a Deployment with our annotation, too."""
        meta: dict[str, Any] = {"uid": uid, "resourceVersion": version}
        # The directive takes the whole map as it is: what the present template has and this one lacks goes.
        spec: dict[str, Any] = {"template": {**template, "$patch": "replace"}}
        if parked:
            meta = _deployment(uid, version, parked=parked)
            spec["paused"] = True
        body = {"metadata": meta, "spec": spec}
        return await self._write("patch", kind, namespace, name, "", body, content=_STRATEGIC)

    # Its pods

    async def set_cost(self, namespace: str, name: str, uid: str, cost: int) -> Raw:
        """Set a pod's deletion cost."""
        body = {"metadata": {"uid": uid, "annotations": {DELETION_COST_ANNOTATION: str(cost)}}}
        return await self._write("patch", Kind.PODS, namespace, name, "", body)

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Evict a pod. Raises RefusedError if a PodDisruptionBudget forbids it."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._write("post", Kind.PODS, namespace, name, "eviction", body, content=_JSON)

    async def open_gate(
        self, namespace: str, name: str, uid: str, hostname: str = "", *, guard: bool = False
    ) -> Raw:
        """Remove our gate from a pod; gates of others stay. With it pin it to a node, and put our guard on."""
        spec: dict[str, Any] = {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}
        if hostname:
            spec["nodeSelector"] = {HOSTNAME_LABEL: hostname}
        meta: dict[str, Any] = {"uid": uid}
        if guard:
            meta["finalizers"] = [GUARD_FINALIZER]  # merged: others' stay
        body = {"metadata": meta, "spec": spec}
        return await self._write("patch", Kind.PODS, namespace, name, "", body, content=_STRATEGIC)

    async def guard(self, namespace: str, name: str, uid: str, *, on: bool) -> Raw:
        """Put our guard on a pod, or take it off; finalizers of others stay."""
        # A strategic merge: the list's own directive takes one away without naming the others.
        change = (
            {"finalizers": [GUARD_FINALIZER]}
            if on
            else {"$deleteFromPrimitiveList/finalizers": [GUARD_FINALIZER]}
        )
        body = {"metadata": {"uid": uid, **change}}
        return await self._write("patch", Kind.PODS, namespace, name, "", body, content=_STRATEGIC)

    # Their claims

    async def hold_claim(self, claim: ClaimRecord, name: str, uid: str) -> Raw:
        """Add the AcceleratorRollout of this name and UID to `reservedFor` of a claim as it was decided on."""
        entry = {"apiGroup": GROUP, "resource": PLURAL, "name": name, "uid": uid}
        add = (
            {"op": "add", "path": f"{_RESERVED}/-", "value": entry}
            if claim.reserved_for
            else {"op": "add", "path": _RESERVED, "value": [entry]}
        )
        return await self._patch_claim(claim, [add])

    async def end_hold(self, claim: ClaimRecord, uid: str, *, deallocate: bool) -> Raw:
        """Take the AcceleratorRollout of this UID out of `reservedFor`, or everybody, with the allocation."""
        whose = [entry.uid for entry in claim.reserved_for]
        if uid not in whose:
            raise ConflictError(f"ResourceClaim {claim.namespace}/{claim.name} carries no such hold")
        if deallocate:
            away = [{"op": "remove", "path": _RESERVED}, {"op": "remove", "path": "/status/allocation"}]
        else:
            away = [{"op": "remove", "path": f"{_RESERVED}/{whose.index(uid)}"}]
        return await self._patch_claim(claim, away)

    async def _patch_claim(self, claim: ClaimRecord, changes: Sequence[Raw]) -> Raw:
        # The version stands for the whole list: whatever came in between makes the test fail.
        patch = [*_unchanged(claim.uid, claim.resource_version), *changes]
        return await self._write(
            "patch", Kind.CLAIMS, claim.namespace, claim.name, "status", patch, content=_JSON_PATCH
        )

    async def reserve_device(self, device: Device, name: str, taint: Taint, labels: Mapping[str, str]) -> Raw:
        """Create a DeviceTaintRule on one device."""
        body = {
            "metadata": {"name": name, "labels": dict(labels)},
            "spec": {
                "deviceSelector": {"driver": device.driver, "pool": device.pool, "device": device.name},
                "taint": {"key": taint.key, "value": taint.value, "effect": taint.effect},
            },
        }
        return await self._write("post", Kind.TAINT_RULES, "", "", "", body, content=_JSON)

    async def end_reservation(self, name: str, uid: str) -> None:
        """Delete a DeviceTaintRule."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        path = self._path(Kind.TAINT_RULES, "", name)
        await self.call("delete", Kind.TAINT_RULES, path, body=body)

    async def try_pod(self, namespace: str, template: Raw) -> Raw:
        """Create a pod of the template by dry run, and return what would have been stored."""
        meta = template.get("metadata") or {}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": "accelerator-rollout-probe-",
                "namespace": namespace,
                "labels": meta.get("labels") or {},
                "annotations": meta.get("annotations") or {},
            },
            "spec": template.get("spec") or {},
        }
        return await self._write(
            "post", Kind.PODS, namespace, "", "", body, content=_JSON, params={"dryRun": "All"}
        )

    async def record_event(self, namespace: str, event: Raw) -> None:
        """Create an Event."""
        await self.call(
            "post", "events", f"{_EVENTS}/namespaces/{namespace}/events", body=event, content=_JSON
        )

    async def count_event(self, namespace: str, name: str, count: int, last: str) -> None:
        """Write the series of an Event."""
        body = {"series": {"count": count, "lastObservedTime": last}}
        path = f"{_EVENTS}/namespaces/{namespace}/events/{name}"
        await self.call("patch", "events", path, body=body, content=MERGE_PATCH)

    # Ourselves and our surroundings

    async def may(self, right: Right, namespace: str) -> bool:
        """Whether we have a right in a namespace ("" for all)."""
        asked = {
            "verb": right.verb,
            "group": right.group,
            "resource": right.resource,
            "subresource": right.subresource,
            "name": right.name,
            "namespace": namespace,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        # A review is created and never stored: it is a question, so it needs no leadership.
        found = await self.call("review", "selfsubjectaccessreviews", _REVIEWS, body=body)
        return bool((found.get("status") or {}).get("allowed"))

    def serves(self, kind: Kind) -> bool:
        """Whether the cluster serves the kind, as far as we know."""
        return any(served.kind is kind for served in self._served())

    async def parks(self) -> bool | None:
        """Whether the policy that parks Deployments is there and bound; None if that cannot be told."""
        try:
            for resource in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"):
                await self.call("get", resource, f"{_ADMISSION}/{resource}/{PARKING_POLICY}")
        except GoneError:
            return False
        except ActError:
            return None
        return True

    async def version(self) -> tuple[int, int]:
        """Return major and minor of the cluster's version; (0, 0) if it cannot be told from the answer."""
        found = await self.call("get", "version", "/version")
        numbers = [re.match(r"\d+", str(found.get(part) or "")) for part in ("major", "minor")]
        major, minor = (int(number.group()) if number else 0 for number in numbers)
        return major, minor

    # The wire

    def _path(self, kind: Kind, namespace: str, name: str = "") -> str:
        for served in self._served():
            if served.kind is kind:
                return served.path(namespace or None, name or None)
        raise UnavailableError(f"the cluster does not serve {kind}, or was not asked yet")

    async def _write(
        self,
        method: str,
        kind: Kind,
        namespace: str,
        name: str,
        subresource: str,
        body: object,
        *,
        content: str = MERGE_PATCH,
        params: Mapping[str, str] | None = None,
    ) -> Raw:
        path = self._path(kind, namespace, name) + (f"/{subresource}" if subresource else "")
        query = {"fieldManager": FIELD_MANAGER, **(params or {})}
        resource = f"{kind}/{subresource}" if subresource else kind
        return await self.call(method, resource, path, params=query, body=body, content=content)

    async def call(
        self,
        verb: str,
        resource: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content: str = _JSON,
    ) -> Raw:
        """Send one request and return what is answered. Raises ActError."""
        status, said, retry_after = await self._send(verb, resource, path, params, body, content)
        if status == 401:  # the token was rotated, or the plugin's has expired: ask for another, once
            await self.close()
            status, said, retry_after = await self._send(verb, resource, path, params, body, content)
        if 200 <= status < 300:
            found: Raw = json.loads(said) if said else {}
            return found
        raise _error(verb, resource, path, status, said, retry_after)

    async def _send(
        self,
        verb: str,
        resource: str,
        path: str,
        params: Mapping[str, str] | None,
        body: object,
        content: str,
    ) -> tuple[int, bytes, float | None]:
        method = _READS.get(verb, verb.upper())
        writes = verb not in _READS
        seconds = self._timeout_seconds
        if writes:
            self._require_leadership()
            seconds = min(seconds, self._leadership.seconds_left())
        self._writing += writes
        try:
            session = await self._open()
            async with session.request(
                method,
                self._host + path,
                params=params,
                data=None if body is None else json.dumps(body).encode(),
                headers={"Accept": _JSON, "Content-Type": content},
                timeout=aiohttp.ClientTimeout(total=seconds),
                trace_request_ctx=writes,
            ) as response:
                self._counted(verb, resource, str(response.status))
                return response.status, await response.read(), _seconds(response.headers.get("Retry-After"))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._counted(verb, resource, "error")
            raise UnavailableError(
                f"{method} {path}: the API server does not answer ({type(error).__name__}: {error})"
            ) from error
        except ObserveError as error:
            raise UnavailableError(str(error)) from error
        finally:
            self._writing -= writes
            self._written.set()

    def _require_leadership(self) -> None:
        if not self._leadership.allows():
            raise NotLeadingError("this process may not act now, since another one may: nothing was sent")

    def _trace(self) -> aiohttp.TraceConfig:
        """Return what makes a session ask for leadership once it has a connection: getting one may take seconds."""
        config = aiohttp.TraceConfig()

        async def on_connected(_: object, context: SimpleNamespace, __: object) -> None:
            if context.trace_request_ctx:
                self._require_leadership()

        config.on_connection_create_end.append(on_connected)
        config.on_connection_reuseconn.append(on_connected)
        return config

    async def _open(self) -> aiohttp.ClientSession:
        async with self._opening:
            if self._session is None:
                found = await self._load()
                self._host = str(found.host).rstrip("/")
                self._session = await open_session(found, trace=self._trace())
            return self._session


def _unchanged(uid: str, version: str) -> list[Raw]:
    """Return the tests that make a JSON patch fail on another object, or on another state of it."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
    ]


def _deployment(uid: str, version: str, *, parked: str | None) -> dict[str, Any]:
    return {"uid": uid, "resourceVersion": version, "annotations": {PARKED_ANNOTATION: parked}}


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isdigit() else None


def _moved(body: bytes) -> bool:
    """Whether a 422 tells of another object or another state, and not of a field that is wrong.

    A JSON patch whose test fails names no field; a merge patch whose UID is not the object's tries to change that UID.
    """
    try:
        causes = (json.loads(body).get("details") or {}).get("causes") or ()
        return all(cause.get("field") == "metadata.uid" for cause in causes)
    except (ValueError, AttributeError):
        return False


def _causes(body: bytes) -> tuple[str, ...]:
    """Return what details an answer gives: of a refused eviction, only they name the PodDisruptionBudget."""
    try:
        causes = (json.loads(body).get("details") or {}).get("causes") or ()
        return tuple(str(cause["message"]) for cause in causes if cause.get("message"))
    except (ValueError, AttributeError):
        return ()


def _error(
    verb: str, resource: str, path: str, status: int, body: bytes, retry_after: float | None
) -> ActError:
    """Return what an answer of the server means to us."""
    told = True
    try:
        parsed = json.loads(body)
        said = str(parsed.get("message") or parsed)
    except (ValueError, AttributeError):
        said, told = body[:200].decode("utf-8", "replace"), False
    what = f"{verb} {path}: {said}"
    # More than one PodDisruptionBudget on a pod is answered with 500; that is a refusal, not a fault of the server.
    if resource.endswith("/eviction") and (
        status == 429 or (status == 500 and "PodDisruptionBudget" in said)
    ):
        return RefusedError(" ".join((said, *_causes(body))))
    match status:
        case 404 if not told:
            # Nothing is known there, a version that is not served (any more), say: no word of the object itself.
            return UnavailableError(what, retry_after)
        case 404 | 410:
            return GoneError(what)
        case 409:
            return ConflictError(what)
        case 401 | 403:
            return ForbiddenError(what)
        case 422 if _moved(body):
            return ConflictError(what)
        case 400 | 405 | 415 | 422:
            return InvalidError(what)
    return UnavailableError(what, retry_after)
