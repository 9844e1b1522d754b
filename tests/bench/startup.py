"""How long an operator takes to start in a cluster that is full of claims which concern nobody here."""

import asyncio
import time
from typing import Final

from bench.idle import megabytes
from bench.place import OURS, Place
from lab.namespaces import make_namespace
from lab.operator_process import OperatorProcess
from lab.resources import RESOURCE_CLAIMS

CROWD: Final = "bench-crowd"
_PARALLEL: Final = 24


async def crowd(place: Place, count: int) -> None:
    """Create so many claims in a namespace of their own."""
    await make_namespace(place.admin, CROWD)
    numbers = iter(range(count))

    async def create() -> None:
        for number in numbers:
            request = {"name": "device", "exactly": {"deviceClassName": "nobody.example.dev"}}
            claim = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": f"claim-{number}"},
                "spec": {"devices": {"requests": [request]}},
            }
            await place.admin.create(RESOURCE_CLAIMS, claim, CROWD)

    async with asyncio.TaskGroup() as group:
        for _ in range(_PARALLEL):
            group.create_task(create())


async def start_up(place: Place) -> tuple[float, float]:
    """Start another operator; return the seconds until it was ready, and its megabytes then."""
    arguments = (f"--namespaces={OURS}",)
    operator = await OperatorProcess.under(
        place.account, place.admin, place.folder, name="starting", arguments=arguments
    )
    begin = time.monotonic()
    async with operator:
        return time.monotonic() - begin, megabytes(operator.pid)
