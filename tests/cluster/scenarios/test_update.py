"""Given a workload on a fixed pool, when its template changes, then its pods are replaced one at a time."""

import pytest

from lab.client import EventType
from lab.operator_process import OperatorProcess
from lab.resources import DEPLOYMENTS
from lab.world import NEWER, MakeWorld, Shape, condition_of, gated

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])


async def test_a_new_image_replaces_every_pod_once(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(
        Shape(kind, replicas=4, faults={"teardown_seconds": 0.3, "unprepare_seconds": 0.3})
    )
    await world.settle_in()

    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)

    assert len(world.deletions()) == 4
    assert world.assert_gates_after_release() == 4
    world.assert_promises()
    if kind == "Deployment":
        spec = (await world.api.get(DEPLOYMENTS, "worker", world.namespace))["spec"]
        assert not spec.get("paused"), "at rest a Deployment is not paused"


@EACH
async def test_devices_asked_for_by_an_extended_resource_alone(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """KEP-5004: the scheduler makes the claim, and it stands in the pod's status only."""
    shape = Shape(kind, replicas=2, extended=True, hold="Auto", faults={"unprepare_seconds": 0.5})
    world = await make_world(shape, devices=(1, 1) if kind == "DaemonSet" else (2,))
    await world.settle_in()
    assert len(await world.claims()) == 2
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    assert len(world.deletions()) == 2
    world.assert_promises()


@EACH
async def test_a1_one_device_and_slow_unprepare(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Scaled down: unprepare takes 4 s where the report had 20 s."""
    world = await make_world(
        Shape(kind, replicas=1, faults={"unprepare_seconds": 4, "teardown_seconds": 0.2}), devices=(1,)
    )
    await world.settle_in()
    old = (await world.pods())[0]

    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)

    new = (await world.pods())[0]
    see = world.recorder
    old_uid, new_uid = old["metadata"]["uid"], new["metadata"]["uid"]
    deleted = see.first("deletion", kind="Pod", predicate=lambda p: p.uid == old_uid and p.deleting)
    ended = see.first(
        "the kubelet's word",
        kind="Pod",
        predicate=lambda p: p.uid == old_uid and p.status.get("phase") in ("Failed", "Succeeded"),
    )
    allocated = see.first(
        "allocation", kind="ResourceClaim", predicate=lambda c: bool(c.status.get("allocation"))
    )
    free = see.first(
        "claim free",
        kind="ResourceClaim",
        predicate=lambda c: (
            c.uid == allocated.uid
            and c.version > allocated.version
            and (c.type is EventType.DELETED or not c.status.get("allocation"))
        ),
    )
    opened = see.first(
        "gate removed", kind="Pod", predicate=lambda p: p.uid == new_uid and not gated(p.object)
    )
    ready = see.first(
        "Ready",
        kind="Pod",
        predicate=lambda p: (
            p.uid == new_uid
            and any(c["type"] == "Ready" and c["status"] == "True" for c in p.status.get("conditions") or [])
        ),
    )
    see.order(deleted, ended, free, opened, ready)
    world.assert_promises()


@EACH
async def test_the_replacement_stays_gated_while_the_old_pod_drains(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Scaled down: the drain takes 6 s of a grace of 12 s, for 60 s of 120 s."""
    world = await make_world(
        Shape(kind, replicas=2, grace=12, faults={"teardown_seconds": 6}), devices=(1, 1)
    )
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER, seconds=90)

    assert world.assert_gates_after_release() == 2
    for past in (await world.rollout())["status"]["history"][0]["replacements"]:
        draining = next(s["seconds"] for s in past["stages"] if s["stage"] == "Terminating")
        assert draining >= 5, past
    world.assert_promises()


@EACH
async def test_the_gate_may_come_from_the_policy(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=2, gate="label"))
    await world.settle_in()
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    assert world.assert_gates_after_release() == 2
    world.assert_promises()


@EACH
async def test_only_a_foreign_gate_is_left(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=1, foreign_gate="example.com/quota"))
    await world.make_workload()
    await world.make_rollout()

    pod = await world.recorder.until(
        lambda one: one.kind == "Pod" and not gated(one.object) and one.name.startswith("worker"),
        what="our gate to open",
    )
    gates = [g["name"] for g in pod.object["spec"]["schedulingGates"]]
    assert gates == ["example.com/quota"], "the foreign gate is nobody's business here"
    await world.until_reason("Progressing", "WaitingForAdmission")
    released = condition_of(await world.rollout(), "DevicesReleased")
    assert released is not None
    assert released["status"] == "True", "nobody's device is to blame"


@EACH
async def test_freed_devices_settle_before_the_gate_opens(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=2, faults={"teardown_seconds": 0.3}))
    await world.settle_in(spec={"release": {"settleSeconds": 3}})
    await world.set_image(NEWER)
    await world.until_reason("DevicesReleased", "DevicesSettling")
    await world.until_ready(image=NEWER)
    assert world.assert_gates_after_release() == 2
    for past in (await world.rollout())["status"]["history"][0]["replacements"]:
        settled = next(s["seconds"] for s in past["stages"] if s["stage"] == "Settling")
        assert 3 <= settled <= 6, past
    world.assert_promises()
