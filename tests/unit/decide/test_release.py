"""Are the devices of a departed pod free, and if not, which object is named."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from accelerator_rollout.api.models import Replacement, Stage
from accelerator_rollout.decide.actions import OpenGate
from accelerator_rollout.decide.reasons import NotFree
from accelerator_rollout.decide.release import Verdict, judge
from accelerator_rollout.decide.snapshot import CheckRun
from accelerator_rollout.records import (
    Access,
    Capacity,
    Counter,
    Device,
    DeviceUse,
    NodeTerm,
    PodClaim,
    PublishedDevice,
    Reservation,
    SelectorTerm,
    Taint,
    TaintRuleRecord,
)
from builders import (
    NEW,
    NOW,
    OUR_HOLD,
    World,
    at,
    claim_of,
    device,
    ended,
    gated_pod,
    of_type,
    pod,
    pool,
    running,
    template,
)

TAINT = Taint("vendor.example.com/broken", "", "NoSchedule")


def released_world() -> World:
    """`worker-1` has ended in order and its claim is free; `worker-1` again is gated."""
    world = running("StatefulSet")
    world.recorded("worker-1", 1)
    world.end("worker-1")
    return world


def verdict(world: World) -> Verdict:
    (stored,) = world.status.replacements
    return judge(stored, world.snapshot(), NOW)


def test_free_if_the_claim_is_unallocated_the_node_let_go_and_the_device_is_published() -> None:
    found = verdict(released_world())
    assert found.released
    assert not found.exposed


def shared_by_name(*reserved_for: str, named: bool = True, **claim: Any) -> World:
    """All pods use one named claim; `worker-1` has ended, and these have it reserved."""
    world = running("StatefulSet")
    users = (PodClaim("device", "shared", named=named),)
    for one in tuple(world.pods.values()):
        world.change(one.name, claims=users, node="node-1")
    gone = world.named("worker-1")
    world.recorded("worker-1", 1)
    reserved = tuple(Reservation("", "pods", name, f"p-{name}") for name in reserved_for)
    held = claim_of(gone, device(1), **({"owner_pod_uid": "", "reserved_for": reserved} | claim))
    world.claims = {"shared": held}
    world.pods[gone.uid] = ended(gone)
    return world


@pytest.mark.parametrize(
    ("reserved_for", "over", "reason"),
    [
        (("worker-0", "worker-2"), {}, None),
        (("worker-0", "worker-1"), {}, NotFree.CLAIM_ALLOCATED),
        ((), {}, NotFree.CLAIM_ALLOCATED),  # its controller is about to deallocate it
        (("worker-0",), {"named": False}, NotFree.CLAIM_ALLOCATED),
        (("worker-0",), {"owner_pod_uid": "p-worker-1"}, NotFree.CLAIM_ALLOCATED),
    ],
)
def test_a_claim_that_siblings_keep_by_name_is_free_once_it_is_not_reserved_for_the_departed(
    reserved_for: tuple[str, ...], over: dict[str, Any], reason: NotFree | None
) -> None:
    found = verdict(shared_by_name(*reserved_for, **over))
    assert (found.obstacle and found.obstacle.reason) == reason


def test_a_claim_that_siblings_keep_by_name_is_taken_over_whatever_became_of_its_device() -> None:
    world = shared_by_name("worker-0")
    world.slices = []
    assert verdict(world).released


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_refused_workload_of_a_named_claim_strands_no_pod(kind: str) -> None:
    world = running(kind, digest=NEW)
    shared = (PodClaim("device", "shared", named=True),)
    world.set_workload(template=template(claims=shared))
    for one in tuple(world.pods.values()):
        world.change(one.name, claims=shared, node="node-1")
    reserved = tuple(Reservation("", "pods", p.name, p.uid) for p in world.pods.values())
    held = claim_of(world.named("worker-1"), device(1), owner_pod_uid="", reserved_for=reserved)
    world.claims = {"shared": held}
    gone = world.leave("worker-1")
    heir = gated_pod("worker-1", kind=kind, claims=shared)
    world.pods[heir.uid] = heir
    world.store(world.plan())
    assert not of_type(world.actions(), OpenGate), "the old pod still uses it"
    world.pods[gone.uid] = ended(gone)
    kept = tuple(r for r in reserved if r.uid != gone.uid)
    world.claims = {"shared": replace(held, reserved_for=kept)}
    assert [a.pod_uid for a in world.actions() if isinstance(a, OpenGate)] == ["q-worker-1"]


def test_free_if_the_claim_is_gone() -> None:
    world = released_world()
    del world.claims["worker-1-device"]
    assert verdict(world).released


def test_free_if_a_later_claim_has_the_name_of_the_old_one() -> None:
    world = released_world()
    world.vanish("worker-1")
    world.put(pod("worker-1", uid="q-worker-1"), device(1))  # the successor's own claim, of another UID
    world.status = world.status.model_copy(
        update={"replacements": (_linked(world.status.replacements[0], "q-worker-1"),)}
    )
    assert verdict(world).released


def _linked(stored: Replacement, uid: str) -> Replacement:
    return stored.model_copy(update={"replacement_pod_uid": uid})


def _terminating(world: World) -> None:
    world.pods["p-worker-1"] = replace(pod("worker-1"), deletion=NOW)


def _allocated(world: World) -> None:
    world.claims["worker-1-device"] = claim_of(pod("worker-1"), device(1))


def _taken(world: World) -> None:
    stranger = claim_of(pod("stranger", uid="u"), device(1), owner_pod_uid="u")
    world.strangers.append(stranger)


def _unproven(world: World) -> None:
    world.change("worker-1", kubelet_terminal=False)


def _missing_pool(world: World) -> None:
    del world.slices[1]


def _incomplete(world: World) -> None:
    world.slices[1] = pool(1, slice_count=2)


def _newer_incomplete(world: World) -> None:
    world.slices.append(pool(1, name="newer", generation=2, slice_count=2))


def _disagreeing(world: World) -> None:
    world.slices[1] = pool(1, slice_count=2)
    world.slices.append(pool(1, name="second", slice_count=3, devices=()))


def _too_many(world: World) -> None:
    world.slices.append(pool(1, name="second", devices=()))


def _twice(world: World) -> None:
    world.slices[1] = pool(1, devices=(PublishedDevice("dev-1"), PublishedDevice("dev-1")))


def _moved_on(world: World) -> None:
    world.slices.append(pool(1, name="newer", generation=2, devices=(PublishedDevice("other"),)))


def _tainted(world: World) -> None:
    world.slices[1] = pool(1, devices=(PublishedDevice("dev-1", (TAINT,)),))


def _ruled(world: World) -> None:
    world.rules.append(TaintRuleRecord("rule", "r", "1", "", "node-1", "", TAINT))


def _unreadable(world: World) -> None:
    world.unreadable["ResourceClaim/worker-1-device"] = "null list"


def _settling(world: World) -> None:
    world.spec = {"release": {"settleSeconds": 5}}


def _twice_allocated(world: World) -> None:
    for name in ("stranger", "another"):
        world.strangers.append(claim_of(pod(name, uid=name), device(1), owner_pod_uid=name))


def _drawn_by_a_sibling(world: World) -> None:
    slot = Counter("card", "slots", Decimal(1))
    partitions = tuple(PublishedDevice(name, draws=(slot,)) for name in ("dev-1", "half"))
    world.slices[1] = pool(1, devices=partitions, counters=(slot,))
    half = Device(device(1).driver, device(1).pool, "half")
    world.strangers.append(claim_of(pod("stranger", uid="u"), half, owner_pod_uid="u"))


def _shared_and_full(world: World) -> None:
    memory = Capacity("memory", Decimal(80))
    world.slices[1] = pool(1, devices=(PublishedDevice("dev-1", capacity=(memory,), shared=True),))
    part = DeviceUse(device(1), share_id="s", consumed=(("memory", Decimal(60)),))
    world.strangers.append(claim_of(pod("stranger", uid="u"), owner_pod_uid="u", uses=(part,)))


def _stuck(world: World) -> None:
    world.pods["p-worker-1"] = replace(pod("worker-1"), deletion=at(-31), deletion_grace=30)


def _driver_down(world: World) -> None:
    _terminating(world)
    del world.slices[1]


def _for_long(world: World) -> None:
    (stored,) = world.status.replacements
    long = stored.model_copy(update={"stage": Stage.RELEASING, "stage_started_at": at(-121)})
    world.status = world.status.model_copy(update={"replacements": (long,)})


def _orphaned(world: World) -> None:
    _allocated(world)
    _for_long(world)


def _stalled(world: World) -> None:
    _for_long(world)
    world.claims["worker-1-device"] = claim_of(
        pod("worker-1"), device(1), reserved_for=(), finalizers=("example.com/theirs",)
    )


def _held(world: World) -> None:
    world.claims["worker-1-device"] = claim_of(pod("worker-1"), device(1), reserved_for=(OUR_HOLD,))


def _node_gone(world: World) -> None:
    world.slices[1] = pool(1, access=Access(node="node-9"))


def _unchecked(world: World) -> None:
    world.spec = {"release": {"checks": [{"name": "healthy", "cel": "device.attributes.healthy"}]}}


def _unfit(world: World) -> None:
    _unchecked(world)
    (stored,) = world.status.replacements
    world.checked[stored.id] = CheckRun(1, NOW, ("check healthy is not true",))


REFUSALS: list[tuple[Callable[[World], None], NotFree, str]] = [
    (_terminating, NotFree.POD_TERMINATING, "pod worker-1"),
    (_stuck, NotFree.TERMINATION_STUCK, "node-1"),
    (_driver_down, NotFree.DRIVER_UNAVAILABLE, "pool node-1"),
    (_orphaned, NotFree.ORPHANED_CLAIM, "reserved for pods worker-1"),
    (_stalled, NotFree.DEALLOCATION_STALLED, "example.com/theirs"),
    (_allocated, NotFree.CLAIM_ALLOCATED, "ResourceClaim worker-1-device"),
    (_taken, NotFree.DEVICE_TAKEN, "ResourceClaim stranger-device"),
    (_unproven, NotFree.RELEASE_UNPROVEN, "worker-1"),
    (_missing_pool, NotFree.POOL_MISSING, "pool node-1"),
    (_incomplete, NotFree.POOL_INCOMPLETE, "1 of 2"),
    (_newer_incomplete, NotFree.POOL_INCOMPLETE, "generation 2"),
    (_disagreeing, NotFree.POOL_CONTRADICTORY, "2 and 3"),
    (_too_many, NotFree.POOL_CONTRADICTORY, "more slices than 1"),
    (_twice, NotFree.POOL_CONTRADICTORY, "a device twice"),
    (_moved_on, NotFree.DEVICE_MISSING, "device dev-1"),
    (_tainted, NotFree.DEVICE_TAINTED, "vendor.example.com/broken"),
    (_ruled, NotFree.DEVICE_TAINTED, "vendor.example.com/broken"),
    (_unreadable, NotFree.STATE_UNKNOWN, "null list"),
    (
        _twice_allocated,
        NotFree.DOUBLE_ALLOCATION,
        "ResourceClaim another-device and ResourceClaim stranger-device",
    ),
    (_drawn_by_a_sibling, NotFree.PARTITION_HELD, "counter slots of set card"),
    (_shared_and_full, NotFree.CAPACITY_HELD, "capacity memory"),
    (_held, NotFree.HOLD_ENDING, "our hold"),
    (_node_gone, NotFree.DEVICE_UNREACHABLE, "device lpu.example.com/node-1/dev-1"),
    (_settling, NotFree.SETTLING, "settleSeconds (5 s)"),
    (_unchecked, NotFree.CHECKS_RUNNING, "spec.release.checks"),
    (_unfit, NotFree.CHECK_FAILED, "check healthy"),
]


@pytest.mark.parametrize(("change", "reason", "names"), REFUSALS)
def test_each_no_names_what_it_hangs_on(change: Callable[[World], None], reason: NotFree, names: str) -> None:
    world = released_world()
    change(world)
    obstacle = verdict(world).obstacle
    assert obstacle is not None
    assert obstacle.reason is reason
    assert names in obstacle.message


def test_every_cause_is_tried_here() -> None:
    assert {reason for _, reason, _ in REFUSALS} == set(NotFree)


def test_devices_that_went_with_their_node_keep_nobody_waiting() -> None:
    """Drained in order, and removed: an autoscaler's everyday work."""
    world = released_world()
    del world.nodes["node-1"]
    del world.slices[1]
    assert verdict(world).released
    _unproven(world)
    assert not verdict(world).released


def test_where_a_device_of_a_selector_can_be_reached_from_is_the_schedulers_business() -> None:
    world = released_world()
    world.slices[1] = pool(1, access=Access(terms=(NodeTerm((SelectorTerm("zone", "In", ("a",)),)),)))
    assert verdict(world).obstacle is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda w: w.slices.append(pool(1, name="old", generation=0)), id="an older generation"),
        pytest.param(
            lambda w: w.slices.append(pool(1, name="other", driver="gpu.example.com", slice_count=9)),
            id="another driver's pool of the same name",
        ),
        pytest.param(
            lambda w: w.rules.append(TaintRuleRecord("r", "r", "1", "gpu.example.com", "", "", TAINT)),
            id="a taint rule for another driver",
        ),
        pytest.param(
            lambda w: w.rules.append(
                TaintRuleRecord("r", "r", "1", "", "", "", replace(TAINT, effect="None"))
            ),
            id="a taint without effect",
        ),
    ],
)
def test_what_does_not_concern_the_device_keeps_it_free(change: Callable[[World], None]) -> None:
    world = released_world()
    change(world)
    assert verdict(world).released


def test_a_claim_of_another_namespace_is_not_named() -> None:
    world = released_world()
    world.strangers.append(claim_of(pod("secret", uid="u"), device(1), namespace="other", owner_pod_uid="u"))
    obstacle = verdict(world).obstacle
    assert obstacle is not None
    assert obstacle.reason is NotFree.DEVICE_TAKEN
    assert "another namespace" in obstacle.message
    assert "secret" not in obstacle.message


def test_administrative_access_takes_nothing_from_anybody() -> None:
    world = released_world()
    watching = claim_of(pod("monitor", uid="u"), uses=(DeviceUse(device(1), admin=True),), owner_pod_uid="u")
    world.strangers.append(watching)
    assert verdict(world).released


def test_a_device_that_a_sibling_took_is_no_strangers() -> None:
    """Two pods left; the one that opened first was given the other's device. Waiting for that one would be for ever."""
    world = released_world()
    world.put(pod("worker-2", uid="sibling"), device(1))
    assert verdict(world).released


def test_a_device_that_a_pod_of_another_managed_workload_took_is_no_strangers() -> None:
    """Two rollouts on one full pool: each pod got the device that the other waits for, and as many are free."""
    world = released_world()
    _taken(world)
    assert not verdict(world).released
    world.peers = frozenset({"u"})
    assert verdict(world).released


def test_a_device_looks_free_to_the_scheduler_before_it_is_proven_so() -> None:
    world = released_world()
    _unproven(world)
    assert verdict(world).exposed
    _allocated(world)
    assert verdict(world).exposed, "its claim is deallocated any moment, before we hear of it"


def test_a_device_does_not_look_free_while_its_pod_is_there() -> None:
    world = running("StatefulSet")
    world.recorded("worker-1", 1)
    world.leave("worker-1")
    assert not verdict(world).exposed


# Settling


def settling(*, since: datetime, seconds: int = 5, **over: Any) -> Verdict:
    world = released_world()
    world.spec = {"release": {"settleSeconds": seconds}}
    (stored,) = world.status.replacements
    known = stored.model_copy(update={"stage": Stage.SETTLING, "stage_started_at": since} | over)
    return judge(known, world.snapshot(), NOW)


def test_devices_are_left_alone_for_as_long_as_asked() -> None:
    first = settling(since=at(-60), stage=Stage.RELEASING)  # seen to be free just now
    assert first.obstacle is not None
    assert first.obstacle.due == at(5)
    assert settling(since=at(-4)).exposed, "nobody else of the workload may get them either"


def test_stored_times_are_cut_and_the_wait_must_not_end_early_for_it() -> None:
    assert not settling(since=at(-5)).released
    assert settling(since=at(-6)).released
    assert settling(since=at(-5.25)).released, "not stored yet, so not cut"


def test_what_was_released_does_not_settle_again() -> None:
    assert settling(since=at(-1), stage=Stage.GATED, released_at=at(-1)).released


def test_devices_that_are_not_allocatable_do_not_settle() -> None:
    world = released_world()
    _settling(world)
    _tainted(world)
    obstacle = verdict(world).obstacle
    assert obstacle is not None
    assert obstacle.reason is NotFree.DEVICE_TAINTED
