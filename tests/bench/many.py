"""Many rollouts at once: how long they take beside one alone, and their openings, on nodes of their own."""

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field

from bench.idle import megabytes
from bench.place import OURS, Place
from bench.rollouts import SHORT, latencies
from lab.client import EventType, Object
from lab.resources import ACCELERATOR_ROLLOUTS, PODS
from lab.world import NEWER, Shape, World, image_of, is_ready, pod_is_ready

REPLICAS = 2
SECONDS = 600.0  # in which they must be done


@dataclass(slots=True)
class Many:
    """Seconds from the change of the templates to the last pod ready; openings in seconds each."""

    alone: float = 0.0
    together: float = 0.0
    openings: list[float] = field(default_factory=list)
    megabytes: float = 0.0


async def many(place: Place, count: int) -> Many:
    """Roll out one workload, and then so many others at the same time."""
    driver = "many.example.dev"
    await place.devices(driver, nodes=count + 1)
    shape = Shape("Deployment", replicas=REPLICAS, grace=5, faults=SHORT)
    worlds = [place.world(OURS, f"many-{number}", driver, shape) for number in range(count + 1)]
    for world in worlds:
        await world.make_workload()
        await world.make_rollout()
    await _until_all_are_ready(place, len(worlds))
    found = Many()
    found.alone = await _rolled_out(place, worlds[:1])
    begin = time.monotonic()
    found.together = await _rolled_out(place, worlds[1:])
    await place.recorder.caught_up()
    for world in worlds[1:]:
        found.openings += latencies(world, begin)
    found.megabytes = megabytes(place.operator.pid)
    for world in worlds:
        await world.scale(0)
    return found


async def _rolled_out(place: Place, worlds: list[World]) -> float:
    names = {w.name for w in worlds}

    def done(pods: list[Object]) -> bool:
        new = [p for p in pods if p["metadata"]["labels"].get("app") in names and image_of(p) == NEWER]
        return sum(map(pod_is_ready, new)) == len(worlds) * REPLICAS

    begin = time.monotonic()
    await asyncio.gather(*(world.set_image(NEWER) for world in worlds))
    async with asyncio.timeout(SECONDS), aclosing(place.admin.follow(PODS, OURS)) as changes:
        pods: dict[str, Object] = {}
        async for change in changes:
            uid = change.object["metadata"]["uid"]
            pods[uid] = change.object
            if change.type is EventType.DELETED:
                del pods[uid]
            if done(list(pods.values())):
                return time.monotonic() - begin
    raise TimeoutError(f"{len(worlds)} rollouts were not done")


async def _until_all_are_ready(place: Place, count: int) -> None:
    async with asyncio.timeout(SECONDS), aclosing(place.admin.follow(ACCELERATOR_ROLLOUTS, OURS)) as changes:
        async for _ in changes:
            there = (await place.admin.list(ACCELERATOR_ROLLOUTS, OURS)).items
            if sum(is_ready(o) for o in there if o["metadata"]["name"].startswith("many-")) == count:
                return
