"""Turns changes into sentences: what happens to a pod, a device or a status, said once and in plain words."""

from collections.abc import Iterable
from typing import Final

from lab.client import EventType
from lab.demo.book import Book
from lab.demo.facts import PodFacts, State, claim_facts, pod_facts
from lab.demo.manifests import STRANGER
from lab.recorder import Recorded

_ORDINARY: Final = frozenset({"AllReleased", "PodTerminating", "ClaimAllocated"})  # part of every replacement
_TOLD: Final = frozenset({"Ready", "Stalled", "DevicesReleased"})


class Narrator:
    """Tells what happens in the namespaces that it is asked to tell of; call `tell` with each change, in order."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._namespaces: frozenset[str] = frozenset()
        self._pods: dict[str, PodFacts] = {}
        self._held: dict[str, tuple[str, ...]] = {}  # claim UID → devices
        self._said: dict[tuple[str, str, str], str] = {}  # kind, namespace, condition → what it said

    def tell_of(self, *namespaces: str) -> None:
        """From now on, tell of these alone."""
        self._namespaces = frozenset(namespaces)

    def tell(self, one: Recorded) -> list[str]:
        """The sentences that this change is worth; most are worth none."""
        match one.kind:
            case "Pod":
                told = list(self._pod(one))
            case "ResourceClaim":
                told = list(self._claim(one))
            case "Deployment":
                told = list(self._deployment(one))
            case "AcceleratorRollout":
                told = list(self._rollout(one))
            case _:
                told = []
        return told if one.namespace in self._namespaces else []

    # Inside: each keeps what it has seen also while nobody listens

    def _pod(self, one: Recorded) -> Iterable[str]:
        before = self._pods.pop(one.uid, None)
        if one.type is EventType.DELETED:
            return
        pod = pod_facts(one.object)
        self._pods[one.uid] = pod
        who = _name(pod)
        where = ", ".join(self._book.devices(pod)) or pod.node
        if before is None:
            waits = "waits at the gate" if pod.state is State.GATED else "is open to the scheduler"
            yield f"{who} is created and {waits}"
        elif before.state is State.GATED and pod.state is not State.GATED and not pod.leaving:
            yield f"the gate of {who} opens"
        if pod.blocked and not (before and before.blocked):
            yield f"{who} finds no device"
        if before is None or before.state is pod.state:
            return
        match pod.state:
            case State.LEAVING:
                yield f"{who} is told to leave; it drains and still holds {where}"
            case State.ENDED:
                yield f"{who} has ended: its driver let go of {where}"
            case State.SERVING:
                yield f"{who} serves {pod.tag} on {where}"
            case _:
                pass

    def _claim(self, one: Recorded) -> Iterable[str]:
        held = self._held.pop(one.uid, ())
        now = () if one.type is EventType.DELETED else claim_facts(one.object).devices
        if now:
            self._held[one.uid] = now
            if not held and one.name.startswith(STRANGER):
                yield f"{_STRANGER} takes {', '.join(now)}"
        elif held:
            yield f"{', '.join(held)} is free: its claim is no longer allocated"

    def _deployment(self, one: Recorded) -> Iterable[str]:
        for condition in one.status.get("conditions") or ():
            reason = condition.get("reason", "")
            if condition["type"] != "Progressing" or not self._news(one, "Progressing", reason):
                continue
            if reason == "ProgressDeadlineExceeded":
                yield f"status Progressing=False, {reason}: {condition.get('message', '')}"

    def _rollout(self, one: Recorded) -> Iterable[str]:
        for condition in one.status.get("conditions") or ():
            kind, status, reason = condition["type"], condition["status"], condition["reason"]
            if kind not in _TOLD or not self._news(one, kind, f"{status} {reason}"):
                continue
            worth = {
                "Ready": status == "True",
                "Stalled": status == "True",
                "DevicesReleased": reason not in _ORDINARY,
            }
            if worth[kind]:
                yield f"status {kind}={status}, {reason}: {condition['message']}"

    def _news(self, one: Recorded, kind: str, said: str) -> bool:
        key = (one.kind, one.namespace, kind)
        before, self._said[key] = self._said.get(key), said
        return before != said


_STRANGER: Final = "the stranger"


def _name(pod: PodFacts) -> str:
    return _STRANGER if pod.name == STRANGER else f"pod {pod.short}"
