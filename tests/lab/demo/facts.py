"""What the demo reads off pods and claims: small facts from raw objects, nothing else of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from accelerator_rollout.names import GATE
from lab.client import condition, has_condition

Raw = Mapping[str, Any]

_SHORT: Final = 5  # characters of a pod's name that a ReplicaSet makes up


class State(StrEnum):
    """Where a pod stands, in one word."""

    GATED = "gated"
    PENDING = "pending"  # open to the scheduler, not bound
    STARTING = "starting"
    WARMING = "warming up"
    SERVING = "serving"
    LEAVING = "leaving"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod at one moment."""

    uid: str
    namespace: str
    name: str
    image: str
    node: str
    state: State
    claims: tuple[str, ...]
    blocked: str  # why the scheduler finds no place, if it said so

    @property
    def short(self) -> str:
        """The end of its name, which tells it from its siblings; the whole name if nobody made it up."""
        stem, dash, end = self.name.rpartition("-")
        return end if dash and stem and len(end) == _SHORT else self.name

    @property
    def tag(self) -> str:
        """The tag of its image."""
        return self.image.rpartition(":")[2]

    @property
    def leaving(self) -> bool:
        """Whether it is on its way out, or has ended."""
        return self.state in {State.LEAVING, State.ENDED}

    @property
    def open(self) -> bool:
        """Whether it holds devices or may be given some: neither gated nor ended."""
        return self.state not in {State.GATED, State.ENDED}


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """One claim at one moment."""

    namespace: str
    name: str
    pod_uid: str  # of the pod that it was made for
    devices: tuple[str, ...]  # "node/device"; empty while it is not allocated


def pod_facts(body: Raw) -> PodFacts:
    """Project a pod."""
    metadata, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    scheduled = condition(dict(body), "PodScheduled") or {}
    return PodFacts(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        image=spec["containers"][0]["image"],
        node=spec.get("nodeName") or "",
        state=_state(body),
        claims=tuple(
            one["resourceClaimName"]
            for one in status.get("resourceClaimStatuses") or ()
            if one.get("resourceClaimName")
        ),
        blocked=scheduled.get("message", "") if scheduled.get("reason") == "Unschedulable" else "",
    )


def claim_facts(body: Raw) -> ClaimFacts:
    """Project a claim that was made for a pod."""
    metadata = body["metadata"]
    allocation = (body.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    owners = [one["uid"] for one in metadata.get("ownerReferences") or () if one["kind"] == "Pod"]
    return ClaimFacts(
        namespace=metadata["namespace"],
        name=metadata["name"],
        pod_uid=owners[0] if owners else "",
        devices=tuple(f"{one['pool']}/{one['device']}" for one in results),
    )


def _state(body: Raw) -> State:
    phase = (body.get("status") or {}).get("phase")
    gates = {gate["name"] for gate in body["spec"].get("schedulingGates") or ()}
    if phase in {"Succeeded", "Failed"}:
        return State.ENDED
    if body["metadata"].get("deletionTimestamp"):
        return State.LEAVING
    if GATE in gates:
        return State.GATED
    if not body["spec"].get("nodeName"):
        return State.PENDING
    if phase != "Running":
        return State.STARTING
    return State.SERVING if has_condition(dict(body), "Ready") else State.WARMING
