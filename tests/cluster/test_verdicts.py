"""Our verdict on a device against what the real scheduler does with a pod that asks for it: they must agree.

All states are made at once, each under a driver of its own; probes wait at a gate until the scheduler has seen the last
object of each kind (a fence), so that its first answer is its answer to the whole state.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from accelerator_rollout.decide.allocatable import Obstacle
from accelerator_rollout.decide.reasons import NotFree
from lab.client import Api, Object, PatchType
from lab.resources import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from verdicts import states as generated
from verdicts.states import CLASS, Made, State, states

COUNT: Final = 360
EACH: Final = 30  # at most so many of each obstacle, the rest is free
_CANDIDATES: Final = 3000
_AT_ONCE: Final = 16
_GATE: Final = "verdicts.example.dev/not-yet"
_FREE: Final = "free"
KINDS: Final = {
    _FREE,
    NotFree.POOL_INCOMPLETE,
    NotFree.POOL_CONTRADICTORY,
    NotFree.DEVICE_MISSING,
    NotFree.DEVICE_TAINTED,
    NotFree.DEVICE_UNREACHABLE,
    NotFree.DEVICE_TAKEN,
    NotFree.DOUBLE_ALLOCATION,
    NotFree.PARTITION_HELD,
    NotFree.CAPACITY_HELD,
}


def kind_of(verdict: Obstacle | None) -> str:
    return str(verdict.reason) if verdict is not None else _FREE


def some_states() -> list[State]:
    """The same states in every run, chosen so that each answer of ours is there often."""
    found: list[State] = []
    counts: Counter[str] = Counter()

    @settings(
        max_examples=_CANDIDATES,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(states())
    def note(state: State) -> None:
        kind = kind_of(state.made(0, "n").verdict())
        most = COUNT - EACH * (len(KINDS) - 1) if kind == _FREE else EACH
        if counts[kind] < most and state not in found:
            counts[kind] += 1
            found.append(state)

    note()
    return found


async def all_of(work: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Do it, some at once."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(job: Coroutine[Any, Any, object]) -> None:
        async with limit:
            await job

    async with asyncio.TaskGroup() as group:
        for job in work:
            group.create_task(one(job))


@asynccontextmanager
async def surroundings(admin: Api, namespace: str) -> AsyncIterator[None]:
    """Two nodes that nobody runs, the class, and the right to administrative access in the namespace."""
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await admin.patch(NAMESPACES, namespace, label)
    await admin.apply(
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": {}}
    )
    try:
        for name, labels in generated.NODES.items():
            await admin.apply(_node(name, labels))
            room = {"capacity": _ROOM, "allocatable": _ROOM}
            await admin.patch(NODES, name, {"status": room}, subresource="status")
        yield
    finally:
        for name in generated.NODES:
            await admin.delete_if_there(NODES, name)
        await admin.delete_if_there(DEVICE_CLASSES, CLASS)


_ROOM: Final = {"pods": "10000", "cpu": "10000", "memory": "10000Gi"}


def _node(name: str, labels: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def pod(name: str, namespace: str, claim: str) -> Object:
    """A pod with one claim, which waits at a gate and does not mind what its node is like."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"verdicts": "probe"}},
        "spec": {
            "schedulingGates": [{"name": _GATE}],
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {"name": "c", "image": "example.com/probe", "resources": {"claims": [{"name": "device"}]}}
            ],
            "resourceClaims": [{"name": "device", "resourceClaimName": claim}],
        },
    }


async def make(admin: Api, made: Made) -> None:
    for body in made.slices():
        await admin.create(RESOURCE_SLICES, body)
    for body in made.rules():
        await admin.create(DEVICE_TAINT_RULES, body)
    for body, status in zip(made.claims(), made.statuses(), strict=True):
        await admin.create(RESOURCE_CLAIMS, body)
        await admin.patch(
            RESOURCE_CLAIMS,
            body["metadata"]["name"],
            {"status": status},
            made.namespace,
            subresource="status",
        )
    await admin.create(RESOURCE_CLAIMS, made.probe_claim())
    await admin.create(PODS, pod(made.name, made.namespace, f"{made.name}-probe"))


async def unmake(admin: Api, made: Made) -> None:
    for resource, bodies in ((RESOURCE_SLICES, made.slices()), (DEVICE_TAINT_RULES, made.rules())):
        for body in bodies:
            await admin.delete_if_there(resource, body["metadata"]["name"])


async def fence(admin: Api, namespace: str) -> None:
    """Return once the scheduler has seen all that was written before.

    A pod wants a device whose slice comes now, which is tainted until a rule goes, and taken until a claim is
    deallocated: only a scheduler whose slices, rules and claims are as new as this gives it a node.
    """
    free: Object = {"nodeName": "verdict-node-0"}
    whole = State(
        slices=(
            {
                "devices": [{"name": "dev-0", "attributes": {"id": {"string": "dev-0"}}}],
                "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
                **free,
            },
        ),
        rules=({"deviceSelector": {}, "taint": {"key": "example.com/fence", "effect": "NoSchedule"}},),
        claims=(
            {
                "requests": [{"name": "r0", "exactly": {"deviceClassName": CLASS}}],
                "results": [{"request": "r0", "pool": "pool", "device": "dev-0"}],
            },
        ),
        request={},
    ).made(COUNT + 1, namespace)
    await make(admin, whole)
    (held,) = whole.claims()
    try:
        await open_gate(admin, whole.name, namespace)
        await admin.delete_if_there(DEVICE_TAINT_RULES, f"{whole.name}-0")
        free_again = {"status": {"reservedFor": None, "allocation": None}}
        name = held["metadata"]["name"]
        await admin.patch(RESOURCE_CLAIMS, name, free_again, namespace, subresource="status")
        await admin.wait_for(
            PODS, whole.name, lambda p: bool(p["spec"].get("nodeName")), namespace, timeout=60
        )
    finally:
        await unmake(admin, whole)


async def open_gate(admin: Api, name: str, namespace: str) -> None:
    body = {"spec": {"schedulingGates": [{"name": _GATE, "$patch": "delete"}]}}
    await admin.patch(PODS, name, body, namespace, patch_type=PatchType.STRATEGIC)


async def answers(admin: Api, namespace: str, names: set[str]) -> dict[str, tuple[bool, str]]:
    """Await the scheduler's answer to each pod: whether it was scheduled, and its own words if not."""
    found: dict[str, tuple[bool, str]] = {}
    async with asyncio.timeout(180):
        page = await admin.list(PODS, namespace)
        for one in page.items:
            _note(found, one)
        async for event in admin.watch(PODS, page.resource_version, namespace):
            if names <= found.keys():
                break
            _note(found, event.object)
            if names <= found.keys():
                break
    return found


def _note(found: dict[str, tuple[bool, str]], one: Object) -> None:
    said = [c for c in one.get("status", {}).get("conditions") or [] if c["type"] == "PodScheduled"]
    name = one["metadata"]["name"]
    if one["spec"].get("nodeName"):
        found[name] = (True, "")
    elif said and said[0].get("reason") in ("Unschedulable", "SchedulerError"):
        found[name] = (False, str(said[0].get("message")))


async def verdicts_in(admin: Api, version: str, made: list[Made]) -> dict[str, Obstacle | None]:
    """Our verdicts on the objects as the cluster shows them in this version of the device API."""
    root, space = f"/apis/resource.k8s.io/{version}", made[0].namespace
    by_name = {
        item["metadata"]["name"]: item
        for path in (f"{root}/resourceslices", f"{root}/namespaces/{space}/resourceclaims")
        for item in (await admin.request("GET", path))["items"]
    }
    rules = {item["metadata"]["name"]: item for item in (await admin.list(DEVICE_TAINT_RULES)).items}
    return {
        one.name: one.verdict_on(
            [by_name[body["metadata"]["name"]] for body in one.slices()],
            [rules[body["metadata"]["name"]] for body in one.rules()],
            [by_name[body["metadata"]["name"]] for body in one.claims()],
            by_name[one.probe_claim()["metadata"]["name"]],
        )
        for one in made
    }


@pytest.fixture
async def place(admin: Api, namespace: str) -> AsyncIterator[str]:
    async with surroundings(admin, namespace):
        yield namespace


async def test_our_verdict_is_the_schedulers_in_every_version(admin: Api, place: str) -> None:
    made = [state.made(number, place) for number, state in enumerate(some_states())]
    assert len(made) >= 300
    ours: dict[str, Obstacle | None] = {one.name: one.verdict() for one in made}
    kinds = Counter(map(kind_of, ours.values()))
    assert min(kinds[kind] for kind in KINDS) >= 10, kinds
    try:
        await all_of(make(admin, one) for one in made)
        await fence(admin, place)
        await all_of(open_gate(admin, one.name, place) for one in made)
        theirs = await answers(admin, place, {one.name for one in made})
        for version in ("v1", "v1beta2", "v1beta1"):
            assert await verdicts_in(admin, version, made) == ours, f"in {version} our verdicts are others"
    finally:
        await all_of(unmake(admin, one) for one in made)
    wrong = [
        f"{one.name}: we say {ours[one.name]}, the scheduler {theirs[one.name]}: {one.state}"
        for one in made
        if (ours[one.name] is None) is not theirs[one.name][0]
    ]
    assert not wrong, f"{len(wrong)} of {len(made)} differ ({dict(kinds)})\n" + "\n".join(wrong[:10])
