"""Given several workloads that fill one pool, when all of them change at once, then all are updated.

Whichever gate opens first may be given the device that another one waits for: as many are free, and nobody may wait for
"its own" for ever.
"""

import asyncio
from dataclasses import replace

from lab.operator_process import OperatorProcess
from lab.world import NEWER, MakeWorld, Shape

FAULTS = {"teardown_seconds": 0.4, "unprepare_seconds": 0.1}
WORKLOADS = 6


async def test_workloads_that_swap_devices_do_not_wait_for_each_other(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=2, faults=FAULTS), devices=(4, 4, 4))
    worlds = [replace(world, name=f"worker-{number}") for number in range(WORKLOADS)]
    for one in worlds:
        await one.make_workload()
        await one.make_rollout()
    await asyncio.gather(*(one.until_ready() for one in worlds))

    await asyncio.gather(*(one.set_image(NEWER) for one in worlds))
    await asyncio.gather(*(one.until_ready(image=NEWER) for one in worlds))

    for one in worlds:
        assert len(one.deletions()) == 2
        one.assert_promises()
