"""Reserved devices: whose, from when, until when, and never in the way of the successor itself."""

from dataclasses import replace
from typing import Any

import pytest

from accelerator_rollout.api.conditions import ConditionType, find_condition
from accelerator_rollout.decide.actions import EndReservation, OpenGate, RemoveFinalizer, ReserveDevice
from accelerator_rollout.decide.reasons import Reserving
from accelerator_rollout.decide.reservations import rule_name, taint_of
from accelerator_rollout.decide.snapshot import ReserveAbility
from accelerator_rollout.names import RESERVED_TAINT
from accelerator_rollout.records import DeviceRequest, PodClaim, TaintRuleRecord, Toleration
from builders import (
    DRIVER,
    NAME,
    NEW,
    World,
    at,
    device,
    gated_pod,
    of_type,
    replica_set,
    running,
    template,
)

OURS = Toleration(RESERVED_TAINT, "Equal", NAME, "NoSchedule")
EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
RESERVE = ReserveDevice(DRIVER, "node-2", "dev-2")
END = EndReservation("rule-2", "r-2")


def rule(number: int, **over: Any) -> TaintRuleRecord:
    facts: dict[str, Any] = {
        "name": f"rule-{number}",
        "uid": f"r-{number}",
        "resource_version": "1",
        "driver": DRIVER,
        "pool": f"node-{number}",
        "device": f"dev-{number}",
        "taint": taint_of(NAME),
        "reserved_by": f"arol-{NAME}",
    }
    return TaintRuleRecord(**(facts | over))


def reserving(kind: str, *tolerations: Toleration, **over: Any) -> World:
    """All pods healthy; their claims tolerate this."""
    world = running(kind, digest=NEW, **over)
    world.spec = {"release": {"reservation": "DeviceTaint"}}
    world.reserve = ReserveAbility.POSSIBLE
    asked = (DeviceRequest("device", tolerations),)
    world.claims = {n: replace(c, requests=asked) for n, c in world.claims.items()}
    return world


def left(kind: str, *tolerations: Toleration) -> World:
    """`worker-2` is terminating."""
    world = reserving(kind, *tolerations)
    world.recorded("worker-2", 2)
    world.leave("worker-2")
    return world


def succeeded(kind: str, *tolerations: Toleration) -> World:
    """`worker-2` has gone in order; its successor waits at the gate, and the device is reserved."""
    world = left(kind, OURS)
    world.end("worker-2")
    world.vanish("worker-2")
    world.put(gated_pod("worker-2", kind=kind))
    name = "q-worker-2-device"
    world.claims[name] = replace(world.claims[name], requests=(DeviceRequest("device", tolerations),))
    world.rules = [rule(2)]
    if kind == "Deployment":
        world.sets = [replica_set(NEW, 3, 2)]
    return world


@EACH
def test_a_device_is_reserved_when_its_pod_leaves_and_once(kind: str) -> None:
    world = left(kind, OURS)
    assert of_type(world.actions(), ReserveDevice) == (RESERVE,)
    world.rules = [rule(2)]
    assert of_type(world.actions(), ReserveDevice) == ()
    assert of_type(world.actions(), EndReservation) == ()


@EACH
def test_our_taint_keeps_no_successor_that_tolerates_it(kind: str) -> None:
    world = succeeded(kind, OURS)
    assert [type(a) for a in world.actions()] == [OpenGate]


@EACH
def test_before_the_successor_has_its_claim_our_own_taint_is_no_obstacle(kind: str) -> None:
    world = succeeded(kind, OURS)
    del world.claims["q-worker-2-device"]
    assert of_type(world.actions(), OpenGate)


@EACH
def test_a_successor_that_does_not_tolerate_it_ends_the_reservation_first(kind: str) -> None:
    world = succeeded(kind)
    assert world.actions() == (END,)
    world.rules = []
    assert of_type(world.actions(), OpenGate)


@EACH
def test_it_stays_until_the_successors_claim_is_allocated(kind: str) -> None:
    world = succeeded(kind, OURS)
    opened = world.plan()
    world.store(opened)
    world.change("worker-2", gates=())
    assert of_type(world.actions(), EndReservation) == ()
    made = world.named("worker-2")
    asked = world.claims["q-worker-2-device"].requests
    world.put(replace(made, node="node-2"), device(2))
    world.claims["q-worker-2-device"] = replace(world.claims["q-worker-2-device"], requests=asked)
    assert of_type(world.actions(), EndReservation) == (END,)


def test_nothing_is_reserved_for_a_pod_that_is_not_wanted_any_more() -> None:
    world = left("StatefulSet", OURS)
    world.set_workload(replicas=2)
    world.end("worker-2")
    world.vanish("worker-2")
    world.rules = [rule(2)]
    assert world.actions() == (END,)


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        ({}, Reserving.IN_FORCE),
        ({"reserve": ReserveAbility.NOT_PERMITTED}, Reserving.NOT_PERMITTED),
        ({"reserve": ReserveAbility.NOT_SUPPORTED}, Reserving.NOT_SUPPORTED),
    ],
)
def test_what_is_told(over: dict[str, Any], reason: Reserving) -> None:
    world = reserving("StatefulSet", OURS)
    for name, value in over.items():
        setattr(world, name, value)
    told = find_condition(world.plan().status.conditions, ConditionType.RESERVATION_IN_FORCE)
    assert told is not None
    assert (told.reason, told.status == "True") == (reason, reason is Reserving.IN_FORCE)
    world.spec = {}
    assert find_condition(world.plan().status.conditions, ConditionType.RESERVATION_IN_FORCE) is None


@pytest.mark.parametrize(
    "others", [(), (replace(OURS, value="other"),), (replace(OURS, effect="NoExecute"),)]
)
def test_a_template_that_does_not_tolerate_it_is_named(others: tuple[Toleration, ...]) -> None:
    claims = (PodClaim("device", None, named=False, template="lpu-devices"),)
    world = reserving("StatefulSet", *others, template=template(claims=claims))
    world.recorded("worker-2", 2)
    world.leave("worker-2")
    assert of_type(world.actions(), ReserveDevice) == ()
    told = find_condition(world.plan().status.conditions, ConditionType.RESERVATION_IN_FORCE)
    assert told is not None
    assert told.reason == Reserving.NOT_TOLERATED
    assert "ResourceClaimTemplate lpu-devices does not tolerate" in told.message


def test_a_wish_that_is_taken_back_ends_it() -> None:
    world = left("StatefulSet", OURS)
    world.spec, world.rules = {}, [rule(2)]
    assert of_type(world.actions(), EndReservation) == (END,)


def test_another_objects_rule_is_left_alone_and_keeps_the_device() -> None:
    world = succeeded("StatefulSet", OURS)
    other = rule(2, name="theirs", uid="r-theirs", reserved_by="arol-other", taint=taint_of("other"))
    world.rules.append(other)
    assert world.actions() == ()


def test_deleting_the_object_ends_it_before_the_finalizer_goes() -> None:
    world = reserving("StatefulSet", OURS)
    world.rules, world.deletion = [rule(2)], at(0)
    assert world.actions() == (END,)
    world.rules = []
    assert of_type(world.actions(), RemoveFinalizer)


def test_names_are_of_object_and_device_and_values_fit() -> None:
    assert rule_name("a", device(1)) == rule_name("a", device(1)) != rule_name("b", device(1))
    assert taint_of("short").value == "short"
    assert len(taint_of("x" * 200).value) <= 63
