"""The claims of the cluster as a kubelet needs them: what each has allocated, and for whom it is reserved."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab.ledger import Device

Key = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True)
class Allotted:
    """One device of an allocated claim."""

    device: Device
    admin: bool
    share: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim, as far as preparing it is concerned."""

    namespace: str
    name: str
    uid: str
    allotted: tuple[Allotted, ...] | None  # None while not allocated
    reserved_for: frozenset[str]  # UIDs of consumers

    def usable_by(self, pod_uid: str) -> bool:
        """Whether a kubelet may prepare it for the pod: allocated, and the pod stands in reservedFor."""
        return self.allotted is not None and pod_uid in self.reserved_for


def claim_of(body: Mapping[str, Any]) -> Claim:
    """Project a ResourceClaim (resource.k8s.io/v1)."""
    status = body.get("status") or {}
    allocation = status.get("allocation")
    allotted = None
    if allocation is not None:
        allotted = tuple(
            Allotted(
                device=Device(driver=result["driver"], pool=result["pool"], name=result["device"]),
                admin=bool(result.get("adminAccess")),
                share=str(result.get("shareID") or ""),
            )
            for result in (allocation.get("devices") or {}).get("results") or ()
        )
    metadata = body["metadata"]
    return Claim(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        allotted=allotted,
        reserved_for=frozenset(one["uid"] for one in status.get("reservedFor") or ()),
    )


def claim_names(pod: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The names of the claims that a pod needs; None while the claim of a template has not been generated."""
    status = pod.get("status") or {}
    generated = {
        one["name"]: one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or ()
    }
    names: list[str] = []
    for entry in pod["spec"].get("resourceClaims") or ():
        if named := entry.get("resourceClaimName"):
            names.append(named)
        elif entry["name"] not in generated:
            return None
        elif made := generated[entry["name"]]:  # an explicit null means that no claim is needed
            names.append(made)
    if extended := (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"):
        names.append(extended)
    return tuple(names)


class ClaimStore:
    """All claims, kept current by one watch; wakes those who wait for one."""

    def __init__(self) -> None:
        self._claims: dict[Key, Claim] = {}
        self._waiting: defaultdict[Key, set[asyncio.Event]] = defaultdict(set)

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._claims.values())

    def get(self, key: Key) -> Claim | None:
        """The claim as last seen, or None."""
        return self._claims.get(key)

    def put(self, body: Mapping[str, Any]) -> None:
        """A claim was seen."""
        claim = claim_of(body)
        key = (claim.namespace, claim.name)
        self._claims[key] = claim
        self._wake(key)

    def drop(self, body: Mapping[str, Any]) -> None:
        """A claim is gone."""
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        self._claims.pop(key, None)
        self._wake(key)

    def wake(self, key: Key, event: asyncio.Event) -> None:
        """Set `event` once, when the claim changes next."""
        self._waiting[key].add(event)

    def _wake(self, key: Key) -> None:
        for event in self._waiting.pop(key, ()):
            event.set()
