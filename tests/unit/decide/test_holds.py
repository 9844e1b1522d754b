"""Held claims: who is held, when a hold ends and what goes with it, and what it spares everybody else."""

from dataclasses import replace
from typing import Any

import pytest

from accelerator_rollout.api.conditions import ConditionType, find_condition
from accelerator_rollout.api.models import Proof, Stage
from accelerator_rollout.decide.actions import EndHold, EvictPod, HoldClaim, OpenGate, RemoveFinalizer
from accelerator_rollout.decide.reasons import Holding, NotFree
from accelerator_rollout.decide.snapshot import Freshness, HoldAbility
from accelerator_rollout.names import GROUP, PLURAL
from accelerator_rollout.records import Reservation
from builders import (
    EXTRA,
    GRACE,
    NEW,
    NOW,
    OUR_HOLD,
    SPACE,
    World,
    at,
    claim_of,
    device,
    ended,
    gated_pod,
    node,
    of_type,
    pod,
    running,
)

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
THEIRS = Reservation(GROUP, PLURAL, "other", "arol-other")
SECOND = "worker-2-device"


def held_world(kind: str = "StatefulSet", *, digest: str = NEW, **spec: Any) -> World:
    """All pods healthy, and each claim held."""
    world = running(kind, digest=digest)
    world.ability = HoldAbility.POSSIBLE
    world.spec = {"release": spec} if spec else {}
    for name in tuple(world.claims):
        hold(world, name)
    return world


def hold(world: World, name: str, entry: Reservation = OUR_HOLD) -> None:
    claim = world.claims[name]
    world.claims[name] = replace(claim, reserved_for=(*claim.reserved_for, entry))


def only_ours(world: World, name: str) -> None:
    """The controller took the pod's entry away."""
    world.claims[name] = replace(world.claims[name], reserved_for=(OUR_HOLD,))


def forced(kind: str = "StatefulSet", **spec: Any) -> World:
    """`worker-2` was deleted by force a moment ago; its claim is held, and its successor waits at the gate."""
    world = held_world(kind, **spec)
    claim = world.claims[SECOND]
    world.recorded("worker-2", 2, vanished_at=NOW)
    world.vanish("worker-2")
    world.claims[SECOND] = replace(claim, reserved_for=(OUR_HOLD,), deletion=NOW)
    world.put(gated_pod("worker-2", kind=kind))
    return world


def obstacle(world: World, now: object = NOW) -> tuple[str, str]:
    (entry,) = world.plan(now).status.replacements  # type: ignore[arg-type]
    return str(entry.stage), entry.reason


# Who is held


@EACH
def test_each_pod_that_holds_devices_is_held_once(kind: str) -> None:
    world = running(kind, digest=NEW)
    world.ability = HoldAbility.POSSIBLE
    wanted = tuple(HoldClaim(f"worker-{n}-device", f"c-p-worker-{n}") for n in range(3))
    assert of_type(world.actions(), HoldClaim) == wanted
    assert not of_type(held_world(kind).actions(), HoldClaim)


def test_whoever_is_about_to_be_replaced_is_held_before() -> None:
    world = running("StatefulSet")
    world.ability = HoldAbility.POSSIBLE
    kinds = [type(a) for a in world.actions()]
    assert kinds.index(HoldClaim) < kinds.index(EvictPod)


@pytest.mark.parametrize(
    "change",
    [
        lambda w: setattr(w, "ability", HoldAbility.NOT_PERMITTED),
        lambda w: setattr(w, "ability", HoldAbility.NOT_SUPPORTED),
        lambda w: setattr(w, "spec", {"release": {"hold": "Never"}}),
        lambda w: setattr(w, "disputed", frozenset({"c-p-worker-2"})),
        lambda w: w.claims.update({SECOND: replace(w.claims[SECOND], deletion=NOW)}),
        lambda w: w.claims.update({SECOND: replace(w.claims[SECOND], uses=None, reserved_for=())}),
        lambda w: w.pods.update({"p-worker-2": ended(w.named("worker-2"))}),
        lambda w: w.claims.update({SECOND: replace(w.claims[SECOND], owner_pod_uid="somebody")}),
        lambda w: w.claims.update({SECOND: replace(w.claims[SECOND], reserved_for=(THEIRS,) * 256)}),
        lambda w: setattr(w, "workload", None),
        lambda w: setattr(w, "freshness", Freshness.STALE),
    ],
)
def test_who_is_not_held(change: object) -> None:
    world = running("StatefulSet", digest=NEW)
    world.ability = HoldAbility.POSSIBLE
    change(world)  # type: ignore[operator]
    assert "c-p-worker-2" not in {a.claim_uid for a in world.actions() if isinstance(a, HoldClaim)}


def test_a_hold_of_another_object_is_none_of_ours() -> None:
    world = running("StatefulSet", digest=NEW)
    world.ability = HoldAbility.POSSIBLE
    hold(world, SECOND, THEIRS)
    assert HoldClaim(SECOND, "c-p-worker-2") in world.actions()
    assert not of_type(world.actions(), EndHold)


# When it ends


@EACH
def test_with_the_kubelets_word_the_hold_ends_and_the_devices_with_it(kind: str) -> None:
    world = held_world(kind)
    world.recorded("worker-2", 2)
    world.pods["p-worker-2"] = ended(world.named("worker-2"))
    for alone in (False, True):  # whether its controller was quicker
        if alone:
            only_ours(world, SECOND)
        assert EndHold(SECOND, "c-p-worker-2", deallocate=True) in world.actions()
        assert obstacle(world) == (Stage.SETTLING, NotFree.HOLD_ENDING)


@EACH
def test_the_gate_opens_once_the_hold_has_ended(kind: str) -> None:
    world = forced(kind)
    assert not of_type(world.actions(at(GRACE + EXTRA)), OpenGate)
    world.store(world.plan(at(GRACE + EXTRA)))
    del world.claims[SECOND]
    assert of_type(world.actions(at(GRACE + EXTRA)), OpenGate)


@EACH
def test_without_the_kubelets_word_the_hold_stays_for_the_wait(kind: str) -> None:
    world = forced(kind)
    assert obstacle(world) == (Stage.RELEASING, NotFree.RELEASE_UNPROVEN)
    assert not of_type(world.actions(at(GRACE + EXTRA - 1)), EndHold)
    decided = world.plan(at(GRACE + EXTRA))
    assert decided.actions == (EndHold(SECOND, "c-p-worker-2", deallocate=True),)
    assert decided.status.replacements[0].proof is Proof.WAIT_ELAPSED


def test_a_node_that_is_gone_keeps_the_hold() -> None:
    world = forced()
    del world.nodes["node-2"]
    assert not of_type(world.actions(at(100_000)), EndHold)
    world.nodes["node-2"] = node("node-2", boot_id="another")
    assert of_type(world.actions(at(100_001)), EndHold)


def test_whoever_else_has_the_claim_keeps_the_devices() -> None:
    world = held_world()
    world.recorded("worker-2", 2)
    world.pods["p-worker-2"] = ended(world.named("worker-2"))
    hold(world, SECOND, Reservation("", "pods", "somebody", "u"))
    assert EndHold(SECOND, "c-p-worker-2", deallocate=False) in world.actions()


def test_devices_settle_under_the_hold() -> None:
    world = forced(settleSeconds=5)
    world.store(world.plan(at(GRACE + EXTRA)))
    assert world.status.replacements[0].reason == NotFree.SETTLING
    assert not of_type(world.actions(at(GRACE + EXTRA + 4)), EndHold)
    decided = world.plan(at(GRACE + EXTRA + 6))
    assert of_type(decided.actions, EndHold)
    world.store(decided)
    del world.claims[SECOND]
    assert of_type(world.actions(at(GRACE + EXTRA + 6)), OpenGate)  # they do not settle twice


def test_never_ends_what_lives_at_once_and_what_departed_with_the_proof() -> None:
    world = forced(hold="Never")
    alone = {a.claim_name for a in world.actions() if isinstance(a, EndHold) and not a.deallocate}
    assert alone == {"worker-0-device", "worker-1-device"}
    assert EndHold(SECOND, "c-p-worker-2", deallocate=True) in world.actions(at(GRACE + EXTRA))


def test_a_live_pod_that_is_not_the_workloads_any_more_is_let_go() -> None:
    world = held_world()
    taken = world.named("worker-2")
    del world.pods[taken.uid]
    world.former.append(replace(taken, owner=None))
    assert EndHold(SECOND, "c-p-worker-2", deallocate=False) in world.actions()


def test_a_pod_whose_workload_is_gone_is_still_owed_its_proof() -> None:
    world = held_world()
    world.workload = None
    world.former = list(world.pods.values())
    world.pods.clear()
    world.former[2] = ended(world.former[2])
    assert EndHold(SECOND, "c-p-worker-2", deallocate=True) in world.actions()


# What it spares others, and what it remembers


def test_what_is_held_keeps_nobody_elses_gate_closed() -> None:
    """Without a hold another pod could be given the device that looks free."""
    world = forced()
    world.set_workload(replicas=5)
    world.put(gated_pod("worker-3"))
    opened = {a.pod_name for a in world.actions() if isinstance(a, OpenGate)}
    assert opened == {"worker-3"}
    del world.claims[SECOND]
    assert not of_type(world.actions(), OpenGate)


@EACH
def test_a_claim_whose_pod_went_unseen_tells_of_the_departure(kind: str) -> None:
    world = forced(kind)
    world.vanished.clear()
    world.status = world.status.model_copy(update={"replacements": ()})
    world.watched_since = NOW
    world.claims[SECOND] = replace(world.claims[SECOND], owner_pod_name="worker-2")
    decided = world.plan(at(1))
    (entry,) = decided.status.replacements
    assert (entry.pod_uid, entry.pod_name, entry.node_name) == ("p-worker-2", "worker-2", "node-2")
    assert entry.replacement_pod_uid == "q-worker-2"
    assert [d.device for c in entry.claims for d in c.devices] == ["dev-2"]
    world.store(decided)
    # The grace period is the template's: nobody knows the pod's own any more.
    assert not of_type(world.actions(at(GRACE + EXTRA)), EndHold)
    assert of_type(world.actions(at(GRACE + EXTRA + 3)), EndHold)


# Going away


@EACH
def test_the_object_stays_until_its_holds_are_gone(kind: str) -> None:
    world = forced(kind)
    world.deletion = NOW
    first = world.actions()
    assert {a.claim_name for a in of_type(first, EndHold)} == {"worker-0-device", "worker-1-device"}  # type: ignore[union-attr]
    assert not of_type(first, RemoveFinalizer)
    late = world.plan(at(GRACE + EXTRA))
    assert EndHold(SECOND, "c-p-worker-2", deallocate=True) in late.actions
    assert not of_type(late.actions, RemoveFinalizer)
    for name, claim in world.claims.items():
        world.claims[name] = replace(
            claim, reserved_for=tuple(r for r in claim.reserved_for if r != OUR_HOLD)
        )
    del world.claims[SECOND]
    world.pods.pop("q-worker-2")
    world.set_workload(replicas=2)
    assert of_type(world.actions(at(GRACE + EXTRA)), RemoveFinalizer)


def test_a_hold_keeps_an_object_whose_workload_is_gone() -> None:
    world = forced()
    world.workload = None
    world.deletion = NOW
    world.former = [p for p in world.pods.values() if p.bound]
    world.pods.clear()
    assert not of_type(world.actions(), RemoveFinalizer)
    world.claims.clear()
    assert of_type(world.actions(), RemoveFinalizer)


# What is told


@pytest.mark.parametrize(
    ("ability", "disputed", "reason"),
    [
        (HoldAbility.POSSIBLE, False, Holding.IN_FORCE),
        (HoldAbility.NOT_PERMITTED, False, Holding.NOT_PERMITTED),
        (HoldAbility.NOT_SUPPORTED, False, Holding.NOT_SUPPORTED),
        (HoldAbility.POSSIBLE, True, Holding.DISPUTED),
    ],
)
def test_the_condition_says_whether_devices_are_held(
    ability: HoldAbility, disputed: bool, reason: Holding
) -> None:
    world = running("StatefulSet", digest=NEW)
    world.ability = ability
    world.disputed = frozenset({"c-p-worker-2"}) if disputed else frozenset()
    told = find_condition(world.plan().status.conditions, ConditionType.HOLD_IN_FORCE)
    assert told is not None
    assert (told.reason, told.status == "True") == (reason, reason is Holding.IN_FORCE)
    world.spec = {"release": {"hold": "Never"}}
    assert find_condition(world.plan().status.conditions, ConditionType.HOLD_IN_FORCE) is None


def test_a_claim_of_the_same_name_and_another_uid_is_not_what_was_held() -> None:
    world = forced()
    reborn = claim_of(pod("worker-2", uid="other"), device(2), name=SECOND, namespace=SPACE)
    world.claims[SECOND] = replace(reborn, reserved_for=(OUR_HOLD,))
    assert EndHold(SECOND, "c-p-worker-2", deallocate=True) not in world.actions(at(GRACE + EXTRA))
