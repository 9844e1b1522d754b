"""What KUBERNETES.md says that a real kubelet does: a test for each fact, which fails when Kubernetes changes it.

No operator takes part. What it stands on is here: when a device is really let go, and who says so.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from accelerator_rollout.names import GROUP, GUARD_FINALIZER
from lab.client import Api, EventType, Object, PatchType
from lab.ledger import Deed
from lab.realnode.node import RealNode
from lab.realnode.scene import Scene, is_allocated, scene, seconds_between
from lab.realnode.workload import TAKEN
from lab.resources import PODS, RESOURCE_CLAIMS

# How much later than it ought to something may come on a busy machine, in seconds.
LATE = 15.0


@pytest.fixture
async def stage(admin: Api, node: RealNode, namespace: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """One device, and no operator."""
    async with scene(admin, node, namespace, tmp_path) as one:
        yield one


async def last_state(api: Api, pod: Object) -> Object:
    """Watch a pod until its object is gone, and return what it was then, with its managed fields."""
    metadata = pod["metadata"]
    events = api.watch(
        PODS,
        metadata["resourceVersion"],
        metadata["namespace"],
        field_selector=f"metadata.name={metadata['name']}",
    )
    async with asyncio.timeout(60), aclosing(events):
        async for event in events:
            if event.type is EventType.DELETED:
                return event.object
    raise AssertionError("the watch ended before the pod")


async def test_a_graceful_end_is_process_unprepare_terminal_phase_free_claim_in_this_order(
    stage: Scene, figures: list[str]
) -> None:
    """So a terminal phase that the kubelet wrote proves that the driver let go."""
    pod = await stage.ready_pod("old", letting_go=2)
    claim = await stage.claim_of("old")

    await stage.delete("old")
    await stage.gone(pod)

    told, ended, freed = stage.told_to_go(pod), stage.ended(pod), stage.freed(claim)
    (unprepared,) = stage.deeds(Deed.UNPREPARED, "old")
    assert seconds_between(told.wall, unprepared.wall) > 1.9, "the process had the device still"
    assert unprepared.wall < ended.wall
    stage.recorder.order(told, ended, freed)
    assert freed.type is EventType.MODIFIED, "the first sign of a free device is no deletion"
    figures.append(
        "A graceful end: told to go at 0, "
        f"unprepared {seconds_between(told.wall, unprepared.wall):.2f} s, "
        f"terminal phase {seconds_between(told.wall, ended.wall):.2f} s, "
        f"claim free {seconds_between(told.wall, freed.wall):.2f} s"
    )


async def test_the_reservation_and_the_allocation_go_in_one_write(stage: Scene) -> None:
    pod = await stage.ready_pod("old")
    claim = await stage.claim_of("old")

    await stage.delete("old")
    await stage.gone(pod)

    freed = stage.freed(claim)
    between = stage.recorder.events(
        kind="ResourceClaim",
        predicate=lambda one: (
            one.uid == claim["metadata"]["uid"]
            and is_allocated(one.object)
            and not one.status.get("reservedFor")
            and one.version > int(claim["metadata"]["resourceVersion"])
        ),
    )
    assert not between, stage.recorder.render(mark=between)
    assert not freed.status.get("reservedFor")


async def test_the_terminal_phase_is_written_by_the_field_manager_kubelet(stage: Scene, admin: Api) -> None:
    pod = await stage.ready_pod("old")
    watching = asyncio.create_task(last_state(admin, pod))

    await stage.delete("old")
    last = await watching

    assert last["status"]["phase"] in {"Succeeded", "Failed"}
    owners = [
        (one["manager"], one.get("subresource"))
        for one in last["metadata"]["managedFields"]
        if "f:phase" in one["fieldsV1"].get("f:status", {})
    ]
    assert owners == [("kubelet", "status")]
    assert all("terminated" in one["state"] for one in last["status"]["containerStatuses"])


async def test_while_unprepare_fails_the_pod_stays_and_so_does_its_claim_and_the_kubelet_tries_again(
    stage: Scene, figures: list[str]
) -> None:
    pod = await stage.ready_pod("old")
    claim = await stage.claim_of("old")
    stage.driver.order(fail_unprepares=3)

    await stage.delete("old")
    await stage.gone(pod)

    (unprepared,) = stage.deeds(Deed.UNPREPARED, "old")
    tries = failures(stage.driver.log)
    assert len(tries) == 3
    assert unprepared.wall < stage.ended(pod).wall
    stage.recorder.order(stage.ended(pod), stage.freed(claim))
    pauses = [seconds_between(*pair) for pair in zip(tries, [*tries[1:], unprepared.wall], strict=True)]
    figures.append(f"Unprepare that fails: tried again after {', '.join(f'{one:.1f} s' for one in pauses)}")
    # At once, as the containers' end is news of its own, then by the pod worker's back-off of 10 seconds, and half as much
    # again at random.
    assert all(pause < 15 + LATE for pause in pauses)
    assert pauses[-1] > 9.9


async def test_without_its_driver_a_pod_does_not_end_and_keeps_its_device(stage: Scene, admin: Api) -> None:
    pod = await stage.ready_pod("old")
    claim = await stage.claim_of("old")
    stage.driver.order(registered=False)
    await stage.driver.wait_until(
        lambda: not stage.driver.places.registration(stage.driver.driver).exists(),
        "leave the registry",
        seconds=10,
    )

    await stage.delete("old")
    await asyncio.sleep(8)  # that nothing comes gives no sign

    now = await admin.get(PODS, "old", stage.namespace)
    assert now["status"]["phase"] == "Running"
    assert now["metadata"]["deletionTimestamp"]
    assert is_allocated(await admin.get(RESOURCE_CLAIMS, claim["metadata"]["name"], stage.namespace))

    stage.driver.order()
    await stage.gone(pod)
    (unprepared,) = stage.deeds(Deed.UNPREPARED, "old")
    assert unprepared.wall < stage.ended(pod).wall


async def test_a_forced_deletion_gives_the_device_away_while_the_process_has_it(
    stage: Scene, figures: list[str]
) -> None:
    """The danger itself: the next process finds its device taken."""
    # Its hook has a second, and the process two more: enough for the next one to start.
    old = await stage.ready_pod("old", grace=30, pre_stop=20, letting_go=20)
    claim = await stage.claim_of("old")
    await stage.pod("new")

    await stage.delete("old", grace_seconds=0)

    prepared = await stage.deed(Deed.PREPARED, "new")
    unprepared = await stage.deed(Deed.UNPREPARED, "old")
    await stage.recorder.until(
        lambda one: one.kind == "Pod" and one.name == "new" and TAKEN in exit_codes(one.object),
        what="a second process that fails on its device",
        timeout=60,
    )
    assert prepared.wall < unprepared.wall
    (overlap,) = stage.driver.ledger().violations()
    assert overlap.seconds is not None
    told = stage.told_to_go(old)
    assert seconds_between(told.wall, stage.freed(claim).wall) < LATE
    assert not stage.recorder.events(
        kind="Pod", name="old", predicate=lambda one: one.status.get("phase") in {"Succeeded", "Failed"}
    ), "there is no terminal phase, and so no proof"
    figures.append(
        f"A forced deletion: the new claim was prepared {seconds_between(told.wall, prepared.wall):.2f} s after it, "
        f"{overlap.seconds:.2f} s before the old one was unprepared"
    )


async def test_a_forced_deletion_leaves_the_process_two_seconds_whatever_its_spec_says(
    stage: Scene, figures: list[str]
) -> None:
    """The API server first writes a grace period of 0 into the object, and a kubelet gives no less than two seconds."""
    old = await stage.ready_pod("old", grace=30, stubborn=True)

    await stage.delete("old", grace_seconds=0)

    unprepared = await stage.deed(Deed.UNPREPARED, "old")
    told = stage.told_to_go(old)
    assert told.type is EventType.MODIFIED
    assert told.object["metadata"]["deletionGracePeriodSeconds"] == 0
    lasted = seconds_between(told.wall, unprepared.wall)
    figures.append(
        f"A forced deletion of a process that ignores SIGTERM, grace 30 s: unprepared {lasted:.2f} s later"
    )
    assert 1.9 < lasted < 2 + LATE


async def test_a_hold_keeps_the_device_through_a_forced_deletion_until_it_is_taken_away(
    stage: Scene, admin: Api, figures: list[str]
) -> None:
    old = await stage.ready_pod("old", grace=20, letting_go=2)
    claim = await stage.claim_of("old")
    name = claim["metadata"]["name"]
    hold = {"apiGroup": GROUP, "resource": "acceleratorrollouts", "name": "llm", "uid": "of-our-object"}
    held = [{"op": "add", "path": "/status/reservedFor/-", "value": hold}]
    await patch_status(admin, stage.namespace, name, held)
    await stage.pod("new")

    await stage.delete("old", grace_seconds=0)
    unprepared = await stage.deed(Deed.UNPREPARED, "old")
    await asyncio.sleep(3)  # that nothing comes gives no sign

    assert not stage.deeds(Deed.PREPARED, "new")
    assert not (await admin.get(PODS, "new", stage.namespace))["spec"].get("nodeName")
    now = await admin.get(RESOURCE_CLAIMS, name, stage.namespace)
    assert now["status"]["reservedFor"] == [hold], (
        "the claim controller takes the pod's entry away, and no other"
    )
    assert is_allocated(now)

    let_go = datetime.now(UTC)
    taken = [{"op": "remove", "path": "/status/reservedFor"}, {"op": "remove", "path": "/status/allocation"}]
    await patch_status(admin, stage.namespace, name, taken)
    prepared = await stage.deed(Deed.PREPARED, "new")
    await stage.recorder.caught_up()
    stage.driver.ledger().assert_clean()
    told = stage.told_to_go(old).wall
    figures.append(
        f"A forced deletion under a hold: unprepared {seconds_between(told, unprepared.wall):.2f} s, "
        f"hold gone {seconds_between(told, let_go):.2f} s, "
        f"new claim prepared {seconds_between(told, prepared.wall):.2f} s; no overlap"
    )


async def test_a_finalizer_makes_a_forced_deletion_an_orderly_one(
    stage: Scene, admin: Api, figures: list[str]
) -> None:
    old = await stage.ready_pod("old", grace=20, letting_go=2, finalizers=(GUARD_FINALIZER,))
    claim = await stage.claim_of("old")
    await stage.pod("new")

    await stage.delete("old", grace_seconds=0)
    await stage.deed(Deed.PREPARED, "new")
    await stage.recorder.caught_up()

    told, ended = stage.told_to_go(old), stage.ended(old)
    (unprepared,) = stage.deeds(Deed.UNPREPARED, "old")
    assert unprepared.wall < ended.wall
    stage.recorder.order(told, ended, stage.freed(claim))
    stage.driver.ledger().assert_clean()
    still = await admin.get(PODS, "old", stage.namespace)
    assert still["metadata"]["finalizers"] == [GUARD_FINALIZER]
    figures.append(
        "A forced deletion under a finalizer: "
        f"unprepared {seconds_between(told.wall, unprepared.wall):.2f} s, "
        f"terminal phase {seconds_between(told.wall, ended.wall):.2f} s; no overlap"
    )


async def test_a_pod_that_completes_frees_its_claim_after_unprepare_and_stays(
    stage: Scene, admin: Api
) -> None:
    old = await stage.pod("old", command=("sleep", "3"))
    await stage.deed(Deed.PREPARED, "old")
    claim = await stage.claim_of("old")
    await stage.recorder.until(
        lambda one: (
            one.uid == claim["metadata"]["uid"]
            and one.version > int(claim["metadata"]["resourceVersion"])
            and not is_allocated(one.object)
        ),
        what="the deallocation",
        timeout=60,
    )
    await stage.recorder.caught_up()

    (unprepared,) = stage.deeds(Deed.UNPREPARED, "old")
    assert unprepared.wall < stage.ended(old).wall
    stage.recorder.order(stage.ended(old), stage.freed(claim))
    still = await admin.get(PODS, "old", stage.namespace)
    assert (still["status"]["phase"], "deletionTimestamp" in still["metadata"]) == ("Succeeded", False)


async def test_the_kubelet_takes_the_slices_of_a_driver_away_half_a_minute_after_it_went(
    stage: Scene, figures: list[str]
) -> None:
    await stage.recorder.until(lambda one: is_slice_of(stage, one.object), what="the driver's slices")
    stage.driver.kill()
    begin = asyncio.get_running_loop().time()

    await stage.recorder.until(
        lambda one: is_slice_of(stage, one.object) and one.type is EventType.DELETED,
        what="the end of the driver's slices",
        timeout=60,
    )

    lasted = asyncio.get_running_loop().time() - begin
    figures.append(f"A driver that dies: its slices are gone {lasted:.1f} s later")
    assert 25 < lasted < 30 + LATE


def is_slice_of(stage: Scene, body: Object) -> bool:
    return bool(body["spec"].get("driver") == stage.driver.driver)


async def patch_status(admin: Api, namespace: str, claim: str, patch: list[Object]) -> None:
    await admin.patch(
        RESOURCE_CLAIMS, claim, patch, namespace, patch_type=PatchType.JSON, subresource="status"
    )


def exit_codes(pod: Object) -> list[int]:
    """Of the containers that have ended."""
    listed = (pod.get("status") or {}).get("containerStatuses") or ()
    return [one["state"]["terminated"]["exitCode"] for one in listed if "terminated" in one["state"]]


def failures(log: Path) -> list[datetime]:
    """When the driver failed to unprepare, as it was told."""
    found = re.findall(r"^(\S+ \S+) unprepare .*fails, as told$", log.read_text(), re.MULTILINE)
    return [datetime.strptime(one, "%Y-%m-%d %H:%M:%S,%f").astimezone() for one in found]
