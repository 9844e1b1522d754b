"""The Lease for which operators compete."""

from typing import Final

from lab.client import Api
from lab.resources import Resource

LEASES: Final = Resource("coordination.k8s.io", "v1", "leases")
NAME: Final = "accelerator-rollout"


async def free_lease(admin: Api, namespace: str) -> None:
    """Leave the Lease as one that was given back: whoever finds none waits, since somebody may have deleted it."""
    await admin.delete_if_there(LEASES, NAME, namespace)
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
    }
    await admin.create(LEASES, body, namespace)
