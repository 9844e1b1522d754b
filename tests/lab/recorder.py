"""Writes down every change that the API server shows, so that tests can assert what came before what.

Order is that of resourceVersions, which one etcd hands out for all kinds alike; the times are only for people, since
watches of different kinds arrive independently and the API's own timestamps have a resolution of one second.
"""

import asyncio
import copy
import itertools
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self, TextIO

import aiohttp

from lab import statuses
from lab.client import Api, ApiError, EventType
from lab.resources import (
    ACCELERATOR_ROLLOUTS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STATEFUL_SETS,
    Resource,
)

Json = dict[str, Any]
Predicate = Callable[["Recorded"], bool]

DEFAULT_RESOURCES: Final[tuple[Resource, ...]] = (
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    DAEMON_SETS,
    ACCELERATOR_ROLLOUTS,
    EVENTS,
)
_KINDS: Final[Mapping[str, str]] = {
    "pods": "Pod",
    "resourceclaims": "ResourceClaim",
    "resourceslices": "ResourceSlice",
    "deployments": "Deployment",
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
    "daemonsets": "DaemonSet",
    "acceleratorrollouts": "AcceleratorRollout",
    "events": "Event",
}
_ABSENT_KIND_RETRY: Final = 0.5  # seconds until we look again whether a CRD is there
_FIRST_PAUSE: Final = 0.05  # seconds; doubles while nothing is heard
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_log = logging.getLogger(__name__)


class Source(StrEnum):
    """How a change became known."""

    WATCH = "watch"
    LIST = "list"  # the state at the start, or what a relist found changed or gone: changes in between were missed


@dataclass(frozen=True, slots=True)
class Recorded:
    """One observed change of one object."""

    sequence: int  # order of arrival
    type: EventType
    source: Source
    kind: str
    namespace: str
    name: str
    uid: str
    version: int  # resourceVersion of the change; of the list, for a deletion that only a relist showed
    monotonic: float
    wall: datetime
    object: Json  # trimmed: no managedFields, no last-applied copy

    @property
    def status(self) -> Json:
        """The object's status, empty if it has none."""
        return dict(self.object.get("status") or {})

    @property
    def deleting(self) -> bool:
        """Whether the object carries a deletionTimestamp."""
        return self.object["metadata"].get("deletionTimestamp") is not None

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"rv {self.version:<8} {self.wall:%H:%M:%S.%f} {self.type:<8} {self.kind} {where} {summary(self)}".rstrip()

    def as_json(self) -> str:
        """One line of the recording."""
        return json.dumps(
            {
                "sequence": self.sequence,
                "type": self.type,
                "source": self.source,
                "kind": self.kind,
                "namespace": self.namespace,
                "name": self.name,
                "uid": self.uid,
                "version": self.version,
                "monotonic": self.monotonic,
                "wall": self.wall.isoformat(),
                "object": self.object,
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Read back what `as_json` wrote."""
        fields = json.loads(line)
        fields["type"] = EventType(fields["type"])
        fields["source"] = Source(fields["source"])
        fields["wall"] = datetime.fromisoformat(fields["wall"])
        return cls(**fields)


class Timeline:
    """What was observed, and questions about it. `Recorder` fills one; `load` reads one from a file."""

    def __init__(self, recorded: Iterable[Recorded] = ()) -> None:
        self._recorded: list[Recorded] = list(recorded)

    @classmethod
    def load(cls, path: Path) -> "Timeline":
        """The recording of another process; a last line cut short is left out."""
        text = path.read_text(encoding="utf-8")
        return Timeline(Recorded.from_json(line) for line in text.split("\n")[: text.count("\n")] if line)

    def events(
        self,
        *,
        kind: str | None = None,
        name: str | None = None,
        namespace: str | None = None,
        type: EventType | None = None,  # noqa: A002 - the API's own word
        predicate: Predicate | None = None,
    ) -> list[Recorded]:
        """All changes that match, in the order of their resourceVersions."""
        found = [
            one
            for one in self._recorded
            if (kind is None or one.kind == kind)
            and (name is None or one.name == name)
            and (namespace is None or one.namespace == namespace)
            and (type is None or one.type is type)
            and (predicate is None or predicate(one))
        ]
        return sorted(found, key=_position)

    def first(
        self,
        what: str = "",
        *,
        kind: str | None = None,
        name: str | None = None,
        namespace: str | None = None,
        type: EventType | None = None,  # noqa: A002
        predicate: Predicate | None = None,
    ) -> Recorded:
        """The earliest change that matches; raises AssertionError with the timeline if there is none.

        `what` names it in that message.
        """
        found = self.events(kind=kind, name=name, namespace=namespace, type=type, predicate=predicate)
        if not found:
            sought = (
                what or " ".join(str(one) for one in (type, kind, namespace, name) if one) or "such change"
            )
            raise AssertionError(f"never observed: {sought}\n{self.render(kind=kind, namespace=namespace)}")
        return found[0]

    def order(self, *steps: Recorded) -> None:
        """Assert that the steps happened in this order; the failure prints what lies around them.

        Two steps may share one change, where one write did both.
        """
        for earlier, later in itertools.pairwise(steps):
            if _position(earlier) > _position(later):
                raise AssertionError(
                    f"wrong order: expected\n  {earlier}\nbefore\n  {later}\nbut it came after.\n"
                    + self.render(
                        mark=steps, since=min(steps, key=_position), until=max(steps, key=_position)
                    )
                )

    def statuses(
        self, name: str, *, kind: str = "AcceleratorRollout", namespace: str | None = None
    ) -> list[Json]:
        """Every status of the object that was ever seen, in order, without repetitions of the same."""
        seen: list[Json] = []
        for one in self.events(kind=kind, name=name, namespace=namespace):
            if one.type is not EventType.DELETED and (not seen or seen[-1] != one.status):
                seen.append(one.status)
        return seen

    def render(
        self,
        *,
        kind: str | None = None,
        namespace: str | None = None,
        mark: Iterable[Recorded] = (),
        since: Recorded | None = None,
        until: Recorded | None = None,
        limit: int = 120,
    ) -> str:
        """The timeline for people, one change a line; `mark`ed changes carry an arrow."""
        marked = {one.sequence for one in mark}
        shown = [
            one
            for one in self.events(kind=kind, namespace=namespace)
            if (since is None or _position(one) >= _position(since))
            and (until is None or _position(one) <= _position(until))
        ]
        left_out = len(shown) - limit
        lines = [f"  … {left_out} earlier changes"] if left_out > 0 else []
        lines += [f"{'→' if one.sequence in marked else ' '} {one}" for one in shown[-limit:]]
        return "timeline:\n" + ("\n".join(lines) if lines else "  (nothing observed)")

    def __len__(self) -> int:
        return len(self._recorded)


class Recorder(Timeline):
    """Watches and records; use as `async with Recorder(api, path) as recorder`."""

    def __init__(
        self,
        api: Api,
        path: Path | None = None,
        *,
        namespace: str | None = None,
        resources: tuple[Resource, ...] = DEFAULT_RESOURCES,
    ) -> None:
        """With a namespace, namespaced kinds are recorded only there. With a path, JSON lines are written as they come."""
        super().__init__()
        self._api = api
        self._path = path
        self._namespace = namespace
        self._resources = resources
        self._file: TextIO | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()
        self._known: dict[str, dict[str, Recorded]] = {resource.plural: {} for resource in resources}
        self._listed: dict[str, asyncio.Event] = {resource.plural: asyncio.Event() for resource in resources}
        self._error: BaseException | None = None
        told = statuses.folder()
        self._corpus = statuses.Corpus(told) if told else None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin; returns once every kind that the server has was listed, so that nothing after this is missed."""
        if self._path is not None:
            await asyncio.to_thread(self._path.parent.mkdir, parents=True, exist_ok=True)
            self._file = self._path.open("w", encoding="utf-8", buffering=1)
        for resource in self._resources:
            task = asyncio.create_task(self._record(resource), name=f"record {resource.plural}")
            task.add_done_callback(self._ended)
            self._tasks.append(task)
        async with asyncio.timeout(30):
            await asyncio.gather(*(event.wait() for event in self._listed.values()))
        self._raise_error()

    async def close(self) -> None:
        """Stop; what was recorded stays."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._corpus is not None:
            self._corpus.close()

    async def until(
        self,
        predicate: Predicate,
        timeout: float = 30.0,  # noqa: ASYNC109 - the message must show the timeline
        *,
        what: str = "the awaited change",
        after: Recorded | None = None,
    ) -> Recorded:
        """The first change, already recorded or yet to come, for which `predicate` holds.

        With `after`, only changes later than that one count. Raises TimeoutError with the timeline.
        """
        looked_at = 0
        try:
            async with asyncio.timeout(timeout), self._changed:
                while True:
                    for one in self._recorded[looked_at:]:
                        if (after is None or _position(one) > _position(after)) and predicate(one):
                            return one
                    looked_at = len(self._recorded)
                    self._raise_error()
                    await self._changed.wait()
        except TimeoutError as error:
            raise TimeoutError(f"{what} did not come within {timeout:g} s\n{self.render()}") from error

    async def caught_up(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109 - as `until`
        """Return once everything that the API server shows now is recorded, so that `first` and `order` may be asked.

        Watches lag behind each other: a pod that a test sees gone may not be recorded as gone yet.
        """
        for resource in self._resources:
            try:
                page = await self._api.list(resource, self._namespace if resource.namespaced else None)
            except ApiError as error:
                if error.is_not_found:
                    continue  # this kind is not served
                raise
            now = {item["metadata"]["uid"]: int(item["metadata"]["resourceVersion"]) for item in page.items}
            try:
                async with asyncio.timeout(timeout), self._changed:
                    while not self._reflects(resource, now, int(page.resource_version)):
                        self._raise_error()
                        await self._changed.wait()
            except TimeoutError as error:
                raise TimeoutError(
                    f"the recording of {resource.plural} is more than {timeout:g} s behind the API server"
                ) from error

    # Inside

    def _reflects(self, resource: Resource, now: Mapping[str, int], listed_at: int) -> bool:
        """Whether what we know of a kind is at least as new as this list of it."""
        known = self._known[resource.plural]
        gone = {one.uid for one in self._recorded if one.type is EventType.DELETED}
        return all(
            known[uid].version >= version if uid in known else uid in gone for uid, version in now.items()
        ) and all(uid in now or one.version > listed_at for uid, one in known.items())

    async def _record(self, resource: Resource) -> None:
        namespace = self._namespace if resource.namespaced else None
        version: str | None = None  # to watch on from; None: list first
        pause = _FIRST_PAUSE
        while True:
            try:
                if version is None:
                    page = await self._api.list(resource, namespace)
                    version = page.resource_version
                    await self._take_list(resource, page.items, int(version))
                    self._listed[resource.plural].set()
                events = self._api.watch(resource, version, namespace, bookmarks=True)
                async with aclosing(events):
                    async for event in events:
                        version = str(event.object["metadata"]["resourceVersion"])
                        pause = _FIRST_PAUSE
                        if event.type is not EventType.BOOKMARK:
                            await self._note(resource, event.type, Source.WATCH, event.object, int(version))
            except ApiError as error:
                if error.is_expired:
                    version = None  # what we missed meanwhile can only be found by listing
                elif error.is_not_found:
                    # The kind is not served (yet): a CRD that is installed later is recorded from then on.
                    await self._take_list(resource, [], int(version or 0))
                    self._listed[resource.plural].set()
                    version = None
                    pause = _ABSENT_KIND_RETRY
                elif error.status < 500 and error.status != 429:
                    raise
            except (aiohttp.ClientError, TimeoutError) as error:
                _log.info("watching %s: %r, trying again", resource.plural, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)

    async def _take_list(self, resource: Resource, items: list[Json], version: int) -> None:
        """Record what differs from what was known: everything the first time, what was missed after a gap."""
        known = self._known[resource.plural]
        present = {item["metadata"]["uid"] for item in items}
        for uid in [uid for uid in known if uid not in present]:
            gone = known[uid]
            await self._note(
                resource, EventType.DELETED, Source.LIST, gone.object, max(version, gone.version)
            )
        for item in items:
            before = known.get(item["metadata"]["uid"])
            seen = int(item["metadata"]["resourceVersion"])
            if before is None:
                await self._note(resource, EventType.ADDED, Source.LIST, item, seen)
            elif before.version != seen:
                await self._note(resource, EventType.MODIFIED, Source.LIST, item, seen)

    async def _note(
        self, resource: Resource, kind: EventType, source: Source, body: Json, version: int
    ) -> None:
        metadata = body["metadata"]
        one = Recorded(
            sequence=len(self._recorded),
            type=kind,
            source=source,
            kind=_KINDS.get(resource.plural) or body.get("kind") or resource.plural,
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            uid=metadata["uid"],
            version=version,
            monotonic=time.monotonic(),
            wall=datetime.now(UTC),
            object=trimmed(body),
        )
        known = self._known[resource.plural]
        if kind is EventType.DELETED:
            known.pop(one.uid, None)
        else:
            known[one.uid] = one
        if self._corpus is not None and resource is ACCELERATOR_ROLLOUTS and kind is not EventType.DELETED:
            self._corpus.note(body)
        if self._file is not None:
            self._file.write(one.as_json() + "\n")
        async with self._changed:
            self._recorded.append(one)
            self._changed.notify_all()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = error
            for event in self._listed.values():
                event.set()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise RuntimeError(f"the recorder stopped: {self._error}") from self._error


def trimmed(body: Mapping[str, Any]) -> Json:
    """A copy without what only bloats a recording."""
    copied = copy.copy(dict(body))
    metadata = dict(copied["metadata"])
    metadata.pop("managedFields", None)
    if _LAST_APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {
            key: value for key, value in metadata["annotations"].items() if key != _LAST_APPLIED
        }
    copied["metadata"] = metadata
    return copied


def summary(one: Recorded) -> str:
    """A few words about the object's state, for timelines."""
    body, status = one.object, one.status
    match one.kind:
        case "Pod":
            gates = [gate["name"] for gate in body["spec"].get("schedulingGates") or ()]
            ready = any(
                c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ()
            )
            words = [
                str(status.get("phase", "")),
                "ready" if ready else "",
                "deleting" if one.deleting else "",
                f"on {body['spec']['nodeName']}" if body["spec"].get("nodeName") else "",
                f"gated by {', '.join(gates)}" if gates else "",
            ]
        case "ResourceClaim":
            results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
            devices = ", ".join(f"{result['pool']}/{result['device']}" for result in results)
            words = [
                f"allocated {devices}" if status.get("allocation") else "not allocated",
                f"reserved for {', '.join(who['name'] for who in status.get('reservedFor') or ())}"
                if status.get("reservedFor")
                else "",
                "deleting" if one.deleting else "",
            ]
        case "ResourceSlice":
            pool = body["spec"]["pool"]
            words = [f"generation {pool['generation']}, {len(body['spec'].get('devices') or ())} devices"]
        case "Event":
            words = [str(body.get("reason", "")), str(body.get("message") or body.get("note") or "")[:120]]
        case "AcceleratorRollout":
            words = [
                f"{condition['type']}={condition['status']}({condition.get('reason', '')})"
                for condition in status.get("conditions") or ()
            ]
        case _:
            words = [
                f"{field}={status[field]}"
                for field in ("replicas", "updatedReplicas", "readyReplicas")
                if field in status
            ]
    return " ".join(word for word in words if word)


def _position(one: Recorded) -> tuple[int, int]:
    return one.version, one.sequence
