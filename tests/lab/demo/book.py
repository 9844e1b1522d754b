"""What stands at this moment: the newest state of every object, kept from the recorder, and a way to await a state."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from lab.client import EventType, Object, condition
from lab.demo.facts import ClaimFacts, PodFacts, State, claim_facts, pod_facts
from lab.recorder import Recorded, Recorder

Listener = Callable[[Recorded], None]
Key = tuple[str, str]  # namespace, name

_KINDS: Final = frozenset({"Pod", "ResourceClaim", "Deployment", "AcceleratorRollout"})


@dataclass(slots=True)
class _Seen:
    pod: PodFacts
    since: float  # monotonic, when it came into its state


class Book:
    """Follows a recorder; `run` is its task."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._pods: dict[str, _Seen] = {}
        self._claims: dict[Key, ClaimFacts] = {}
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._listeners: list[Listener] = []
        self._changed = asyncio.Event()

    def listen(self, listener: Listener) -> None:
        """Call this with each change, after the book has taken it."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Take every change that the recorder has and gets, until cancelled."""

        def take(one: Recorded) -> bool:
            self._take(one)
            return False  # go on for ever

        await self._recorder.until(take, math.inf)

    async def until(self, reached: Callable[[], bool], seconds: float, what: str) -> None:
        """Await a state of the book; raises TimeoutError that says what did not come, and how things stand."""
        deadline = time.monotonic() + seconds
        while not reached():
            self._changed.clear()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                raise TimeoutError(f"{what} did not come within {seconds:g} s. {self._situation()}") from None

    # What stands

    def pods(self, *namespaces: str) -> list[PodFacts]:
        """The pods of these namespaces that still exist, in the order in which they were first seen."""
        return [seen.pod for seen in self._pods.values() if seen.pod.namespace in namespaces]

    def since(self, pod: PodFacts) -> float:
        """For how many seconds the pod has been in its state."""
        return time.monotonic() - self._pods[pod.uid].since

    def devices(self, pod: PodFacts) -> tuple[str, ...]:
        """The devices that the pod's claims are allocated."""
        found = (self._claims.get((pod.namespace, name)) for name in pod.claims)
        return tuple(device for claim in found if claim is not None for device in claim.devices)

    def allocated(self, *namespaces: str) -> list[ClaimFacts]:
        """The claims of these namespaces that hold devices."""
        return [claim for claim in self._claims.values() if claim.namespace in namespaces and claim.devices]

    def serving(self, namespace: str, tag: str | None = None) -> int:
        """How many pods serve, with this image tag if one is given."""
        pods = self.pods(namespace)
        return sum(pod.state is State.SERVING and tag in {None, pod.tag} for pod in pods)

    def object(self, kind: str, namespace: str, name: str) -> Object | None:
        """The newest state of a Deployment or an AcceleratorRollout."""
        return self._objects.get((kind, namespace, name))

    def says(self, kind: str, namespace: str, name: str, about: str) -> Object:
        """One condition of such an object; empty if it has none of that type."""
        return condition(self.object(kind, namespace, name), about) or {}

    # Inside

    def _take(self, one: Recorded) -> None:
        if one.kind not in _KINDS:
            return
        match one.kind:
            case "Pod":
                self._take_pod(one)
            case "ResourceClaim" if one.type is EventType.DELETED:
                self._claims.pop((one.namespace, one.name), None)
            case "ResourceClaim":
                self._claims[one.namespace, one.name] = claim_facts(one.object)
            case _ if one.type is EventType.DELETED:
                self._objects.pop((one.kind, one.namespace, one.name), None)
            case _:
                self._objects[one.kind, one.namespace, one.name] = one.object
        for listener in self._listeners:
            listener(one)
        self._changed.set()

    def _take_pod(self, one: Recorded) -> None:
        if one.type is EventType.DELETED:
            self._pods.pop(one.uid, None)
            return
        pod = pod_facts(one.object)
        before = self._pods.get(one.uid)
        if before is None or before.pod.state is not pod.state:
            self._pods[one.uid] = _Seen(pod, one.monotonic)
        else:
            before.pod = pod

    def _situation(self) -> str:
        pods = _listed(f"{s.pod.namespace}/{s.pod.name} {s.pod.state}" for s in self._pods.values())
        says = _listed(
            f"{kind} {namespace}/{name} {one['type']}={one['status']} {one.get('reason', '')}: {one.get('message', '')}"
            for (kind, namespace, name), body in self._objects.items()
            for one in (body.get("status") or {}).get("conditions") or ()
        )
        return f"Pods:{pods}\nConditions:{says}"


def _listed(lines: Iterable[str]) -> str:
    return "".join(f"\n  {line}" for line in lines) or " none"
