"""What a claim has of one driver's devices, out of the ResourceClaim."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.ledger import Device, Holder


@dataclass(frozen=True, slots=True)
class Allocated:
    """One device of a claim: for which request, and for whom in the ledger."""

    request: str
    device: Device
    holder: Holder


def allocated(claim: Mapping[str, Any], driver: str) -> tuple[Allocated, ...] | None:
    """The driver's devices that the claim has; None while it has none of anybody's, as it is not allocated."""
    status = claim.get("status") or {}
    allocation = status.get("allocation")
    if allocation is None:
        return None
    metadata = claim["metadata"]
    # Entries of other groups are no pods: such a one may keep the claim allocated and use nothing.
    pods = [
        one
        for one in status.get("reservedFor") or ()
        if one.get("resource") == "pods" and not one.get("apiGroup")
    ]
    pod = pods[0] if pods else {"uid": "", "name": ""}
    return tuple(
        Allocated(
            request=result["request"].partition("/")[0],  # a subrequest is the claim's own matter
            device=Device(result["driver"], result["pool"], result["device"]),
            holder=Holder(
                claim_uid=metadata["uid"],
                claim_namespace=metadata["namespace"],
                claim_name=metadata["name"],
                pod_uid=pod["uid"],
                pod_name=pod["name"],
                admin=bool(result.get("adminAccess")),
                share=str(result.get("shareID") or ""),
            ),
        )
        for result in (allocation.get("devices") or {}).get("results") or ()
        if result["driver"] == driver
    )
