"""Rollouts in turn on the same nodes: ours, by Kubernetes alone, and by bare loops; how long they and their openings take."""

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Final

from bench.place import OURS, THEIRS, Place, until_pods
from lab.client import EventType
from lab.recorder import Recorded
from lab.world import GOOD, NEWER, Shape, World, gated, image_of, pod_is_ready

Say = Callable[[str], None]

# The ground truth's own measure: four pods whose teardown takes 2 s.
LONG: Final = {"teardown_seconds": 2.0, "unprepare_seconds": 0.2}
WRITES: Final = ("patch", "put", "post", "delete")
SHORT: Final = {"teardown_seconds": 0.5, "unprepare_seconds": 0.05}


@dataclass(slots=True)
class Totals:
    """Seconds from the change of the template to the last pod ready, per rollout."""

    ours: list[float] = field(default_factory=list)
    native: list[float] = field(default_factory=list)
    writes: float = 0.0  # of the operator, per replacement
    status_writes: float = 0.0


async def totals(place: Place, rounds: int, say: Say, *, replicas: int = 4) -> Totals:
    """Roll out by turns with and without the operator."""
    driver = "long.example.dev"
    await place.devices(driver, nodes=replicas // 2)
    shape = Shape("Deployment", replicas=0, grace=10, faults=LONG)
    ours = place.world(OURS, "long", driver, shape)
    native = place.world(THEIRS, "long", driver, replace(shape, gate="none"))
    await ours.make_workload()
    await ours.make_rollout()
    await native.make_workload()
    found = Totals()
    image = GOOD
    for number in range(rounds):
        image = NEWER if image == GOOD else GOOD
        for world, into in ((ours, found.ours), (native, found.native)):
            await until_pods(native if world is ours else ours, 0)
            await world.scale(replicas)
            await until_pods(world, replicas)
            before = await written(place)
            into.append(await rollout(world, image, replicas))
            after = await written(place)
            if world is ours:
                found.writes += (after.total - before.total) / replicas / rounds
                found.status_writes += (after.status - before.status) / replicas / rounds
            await world.scale(0)
        say(f"round {number + 1}: ours {found.ours[-1]:.2f} s, native {found.native[-1]:.2f} s")
    await until_pods(native, 0)
    return found


async def rollout(world: World, image: str, replicas: int) -> float:
    """Change the image; return the seconds until the last pod was seen ready."""
    if world.namespace == OURS:
        await world.until_ready()
    begin = time.monotonic()
    await world.set_image(image)
    await until_pods(world, replicas, image)
    await world.recorder.caught_up()
    first_ready: dict[str, float] = {}
    for one in world.recorder.events(kind="Pod", predicate=_of(world)):
        if one.monotonic > begin and image_of(one.object) == image and pod_is_ready(one.object):
            first_ready.setdefault(one.uid, one.monotonic)
    return max(first_ready.values()) - begin


@dataclass(slots=True)
class Openings:
    """Seconds from the event that freed a device to the event that opened a gate, per opening."""

    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    confirming: list[float] = field(default_factory=list)


async def openings(place: Place, rounds: int, say: Say, *, replicas: int = 8) -> Openings:
    """Roll out by turns with the operator, with a bare loop, and with one that makes the same reads."""
    driver = "short.example.dev"
    await place.devices(driver, nodes=replicas // 2)
    shape = Shape("Deployment", replicas=0, grace=5, faults=SHORT)
    ours = place.world(OURS, "short", driver, shape)
    bare = place.world(THEIRS, "short", driver, shape)
    await ours.make_workload()
    await ours.make_rollout()
    await bare.make_workload()
    found = Openings()
    for number in range(rounds):
        for way, world, into in (
            ("ours", ours, found.ours),
            ("bare", bare, found.bare),
            ("confirming", bare, found.confirming),
        ):
            async with AsyncExitStack() as stack:
                if way != "ours":
                    await stack.enter_async_context(place.bare_loop(replicas, confirm=way == "confirming"))
                await world.scale(replicas)
                await until_pods(world, replicas)
                for image in (NEWER, GOOD):
                    begin = time.monotonic()
                    await rollout(world, image, replicas)
                    into.extend(latencies(world, begin))
                await world.scale(0)
                await until_pods(world, 0)
        say(f"round {number + 1}: {len(found.ours)}, {len(found.bare)}, {len(found.confirming)} openings")
    return found


def latencies(world: World, begin: float) -> list[float]:
    """Return the seconds from each release to the opening that it allowed, in the order of the API server's versions."""
    pods = [p for p in world.recorder.events(kind="Pod", predicate=_of(world)) if p.monotonic > begin]
    claims = [
        c
        for c in world.recorder.events(kind="ResourceClaim")
        if c.namespace == world.namespace and c.name.startswith(f"{world.name}-")
    ]
    released = sorted(_releases(claims, begin), key=lambda c: c.version)
    was_gated = {p.uid for p in pods if gated(p.object)}
    opened: dict[str, Recorded] = {}
    for pod in pods:
        if pod.uid in was_gated and not gated(pod.object) and pod.type is not EventType.DELETED:
            opened.setdefault(pod.uid, pod)
    pairs = zip(released, sorted(opened.values(), key=lambda p: p.version), strict=False)
    return [opening.monotonic - release.monotonic for release, opening in pairs]


def _releases(claims: list[Recorded], begin: float) -> list[Recorded]:
    held: set[str] = set()
    found: list[Recorded] = []
    for one in claims:
        allocated = one.type is not EventType.DELETED and bool(one.status.get("allocation"))
        if allocated:
            held.add(one.uid)
        elif one.uid in held:
            held.discard(one.uid)
            if one.monotonic > begin:
                found.append(one)
    return found


def _of(world: World) -> Callable[[Recorded], bool]:
    def mine(one: Recorded) -> bool:
        labels = one.object["metadata"].get("labels") or {}
        return one.namespace == world.namespace and labels.get("app") == world.name

    return mine


@dataclass(frozen=True, slots=True)
class Written:
    """How many writes the operator has sent so far."""

    total: float = 0.0  # but for Events and the Lease
    status: float = 0.0  # of these, of its own status
    renewals: float = 0.0  # of the Lease


async def written(place: Place) -> Written:
    """Return how many writes the operator has sent so far. The Lease is its own, and is written by the clock."""
    total = status = renewals = 0.0
    for verb, resource, count in await calls(place):
        if verb not in WRITES or resource == "events":
            continue
        if resource == "leases":
            renewals += count
            continue
        total += count
        status += count if resource.startswith("acceleratorrollouts") else 0
    return Written(total, status, renewals)


async def calls(place: Place) -> list[tuple[str, str, float]]:
    """Return the operator's requests so far: verb, resource, count."""
    found = []
    for line in (await place.operator.metrics()).splitlines():
        if line.startswith("accelerator_rollout_api_requests_total{"):
            labels, _, count = line.partition("{")[2].rpartition("} ")
            named = dict(part.split("=", 1) for part in labels.split(","))
            found.append((named["verb"].strip('"'), named["resource"].strip('"'), float(count)))
    return found
