"""Who left, what they held, and who succeeds whom: every departure counts, whatever caused it."""

from dataclasses import replace
from typing import Any

import pytest

from accelerator_rollout.api.models import Cause, Replacement, Stage
from accelerator_rollout.decide.actions import OpenGate
from accelerator_rollout.decide.departures import match, track
from accelerator_rollout.records import Phase
from builders import (
    EXTRA,
    GRACE,
    NEW,
    NOW,
    OLD,
    World,
    at,
    claim_of,
    device,
    entry,
    gated_pod,
    node,
    of_type,
    pod,
    replica_set,
    running,
)

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])


def tracked(world: World) -> dict[str, Replacement]:
    return {e.pod_name: e for e in track(world.snapshot(), NOW)}


def matched(world: World) -> dict[str, Replacement]:
    snapshot = world.snapshot()
    return {e.pod_name: e for e in match(track(snapshot, NOW), snapshot, NOW)}


# Every departure counts


@EACH
def test_a_pod_that_is_deleted_by_anybody_is_recorded_with_what_it_held(kind: str) -> None:
    world = running(kind, digest=NEW)
    world.leave("worker-1")
    noted = tracked(world)["worker-1"]
    assert noted.cause is Cause.DEPARTURE
    assert [(d.pool, d.device) for c in noted.claims for d in c.devices] == [("node-1", "dev-1")]
    assert (noted.node_name, noted.boot_id, noted.grace_seconds) == ("node-1", "boot-node-1", GRACE)


@EACH
def test_a_pod_that_vanished_while_it_ran_is_recorded(kind: str) -> None:
    world = running(kind, digest=NEW)
    world.vanish("worker-1", at(-3))
    assert tracked(world)["worker-1"].vanished_at == at(-3)


def test_a_pod_that_crashed_and_still_has_its_devices_is_recorded() -> None:
    world = running("Deployment", digest=NEW)
    world.change("worker-1", phase=Phase.FAILED, ready=False)
    assert "worker-1" in tracked(world)


def test_a_pod_never_bound_with_an_allocated_claim_is_recorded() -> None:
    world = running("Deployment", digest=NEW)
    world.change("worker-1", node="", deletion=at(GRACE))
    assert "worker-1" in tracked(world)


def test_a_pod_that_went_between_its_allocation_and_its_node_is_remembered_until_its_claim_is_free() -> None:
    """Found by a random walk: it was chosen before it had devices, and nobody saw it with them."""
    world = running("StatefulSet")
    chosen = world.change("worker-2", node="", phase=Phase.PENDING, ready=False, ready_since=None)
    world.remember(entry(chosen, stage=Stage.SELECTED))
    claim = world.claims["worker-2-device"]
    world.vanish("worker-2")
    world.claims[claim.name] = claim
    assert [e.pod_name for e in world.plan().status.replacements] == ["worker-2"]
    world.claims[claim.name] = replace(claim, uses=None, reserved_for=())
    assert [e.pod_name for e in world.plan().status.replacements] == []


def test_a_gated_pod_that_is_deleted_held_nothing() -> None:
    world = running("Deployment", digest=NEW)
    world.put(replace(gated_pod("worker-9", kind="Deployment"), deletion=NOW))
    assert "worker-9" not in tracked(world)


@EACH
def test_a_pod_that_ended_in_order_long_ago_is_no_departure_of_today(kind: str) -> None:
    """A pod that its kubelet evicted stays as an object for weeks: its devices are free and its successor runs."""
    world = running(kind, digest=NEW)
    evicted = pod("worker-8", NEW, kind=kind, uid="evicted", phase=Phase.FAILED, ready=False)
    world.put(replace(evicted, kubelet_terminal=True, containers_terminated=True))
    assert tracked(world) == {}
    world.set_workload(generation=3, observed_generation=3)
    assert world.plan().status.replacements == ()


def test_an_evicted_pod_that_lingers_does_not_stop_the_next_rollout() -> None:
    world = running("Deployment")
    evicted = pod("worker-8", OLD, kind="Deployment", uid="evicted", phase=Phase.FAILED, ready=False)
    world.put(replace(evicted, kubelet_terminal=True, containers_terminated=True))
    assert [type(a).__name__ for a in world.actions()] == ["PreferVictim", "UnpauseDeployment"]


def test_an_evicted_pod_that_lingers_is_not_the_predecessor_of_a_pod_of_today() -> None:
    """Whose predecessor left while nobody watched: taking the old one for it would open without proof."""
    world = running("Deployment", digest=NEW)
    evicted = pod("worker-8", NEW, kind="Deployment", uid="evicted", phase=Phase.FAILED, ready=False)
    world.put(replace(evicted, kubelet_terminal=True, containers_terminated=True))
    world.vanish("worker-1", seen=False)
    world.put(gated_pod("worker-9", kind="Deployment"))
    world.watched_since = NOW
    assert of_type(world.actions(), OpenGate) == ()


# What a stored entry learns, and never forgets


def test_an_entry_whose_pod_vanished_notes_when() -> None:
    world = running("StatefulSet")
    world.recorded("worker-1", 1)
    world.vanish("worker-1", at(-7))
    assert tracked(world)["worker-1"].vanished_at == at(-7)


def test_a_pod_that_vanished_unseen_counts_from_first_sight() -> None:
    world = running("StatefulSet")
    world.recorded("worker-1", 1)
    world.vanish("worker-1", seen=False)
    assert tracked(world)["worker-1"].vanished_at == NOW


def test_devices_once_noted_stay_noted_when_the_claim_is_freed() -> None:
    world = running("StatefulSet")
    world.recorded("worker-1", 1)
    world.end("worker-1")
    assert [d.device for c in tracked(world)["worker-1"].claims for d in c.devices] == ["dev-1"]


def test_devices_that_came_after_the_choice_are_noted() -> None:
    world = running("StatefulSet")
    world.remember(entry(pod("worker-1"), stage=Stage.SELECTED))
    assert [d.device for c in tracked(world)["worker-1"].claims for d in c.devices] == ["dev-1"]


def test_administrative_access_is_not_noted_as_held() -> None:
    world = running("StatefulSet", digest=NEW)
    held = world.claims["worker-1-device"]
    assert held.uses is not None
    world.claims["worker-1-device"] = replace(held, uses=(replace(held.uses[0], admin=True),))
    world.leave("worker-1")
    assert [c.devices for c in tracked(world)["worker-1"].claims] == [()]


def test_a_reboot_under_a_pod_that_lives_on_is_no_proof_of_its_later_end() -> None:
    """The kubelet starts the pod again after a reboot, with the same claim."""
    world = running("StatefulSet")
    world.recorded("worker-1", 1, stage=Stage.SELECTED)
    world.nodes["node-1"] = node("node-1", boot_id="second")
    assert tracked(world)["worker-1"].boot_id == "second"
    world.leave("worker-1")
    world.nodes["node-1"] = node("node-1", boot_id="third")
    assert tracked(world)["worker-1"].boot_id == "boot-node-1"


# Whose departure it was


def test_a_deployment_that_takes_another_pod_than_expected_has_taken_our_step() -> None:
    world = running("Deployment", paused=False, parked=None)
    world.recorded("worker-2", 2, stage=Stage.SELECTED)
    world.leave("worker-0")
    noted = tracked(world)
    assert set(noted) == {"worker-0"}
    assert (noted["worker-0"].cause, noted["worker-0"].started_at) == (Cause.ROLLOUT, at(-5))


def test_a_stateful_set_never_takes_another_pod_than_we_evict() -> None:
    world = running("StatefulSet")
    world.recorded("worker-2", 2, stage=Stage.SELECTED)
    world.leave("worker-0")
    noted = tracked(world)
    assert (noted["worker-0"].cause, noted["worker-2"].stage) == (Cause.DEPARTURE, Stage.SELECTED)


# Who succeeds whom


def test_a_stateful_sets_pod_succeeds_its_namesake() -> None:
    world = running("StatefulSet", digest=NEW)
    for name in ("worker-0", "worker-1"):
        world.recorded(name, name[-1])
        world.vanish(name, seen=False)
        world.put(gated_pod(name))
    assert {n: e.replacement_pod_uid for n, e in matched(world).items()} == {
        "worker-0": "q-worker-0",
        "worker-1": "q-worker-1",
    }


def test_a_deployments_oldest_gated_pod_succeeds_the_oldest_departure() -> None:
    world = running("Deployment", digest=NEW)
    for name, ago in (("worker-0", -10), ("worker-1", -20)):
        world.recorded(name, name[-1], started_at=at(ago))
        world.vanish(name)
    world.put(gated_pod("worker-a", kind="Deployment", created=at(-3)))
    world.put(gated_pod("worker-b", kind="Deployment", created=at(-4)))
    assert {n: e.replacement_pod_name for n, e in matched(world).items()} == {
        "worker-1": "worker-b",
        "worker-0": "worker-a",
    }


@EACH
def test_a_link_stays_as_long_as_the_successor_lives(kind: str) -> None:
    world = running(kind, digest=NEW)
    world.recorded("worker-1", 1, replacement_pod_uid="q-worker-1", replacement_pod_name="worker-1")
    world.vanish("worker-1")
    world.put(gated_pod("worker-0", kind=kind, uid="older", created=at(-9)))
    world.put(gated_pod("worker-1", kind=kind))
    assert matched(world)["worker-1"].replacement_pod_uid == "q-worker-1"


@EACH
def test_when_a_gated_successor_is_deleted_the_next_one_takes_its_place(kind: str) -> None:
    world = running(kind, digest=NEW)
    world.recorded("worker-1", 1, replacement_pod_uid="q-worker-1", stage=Stage.GATED, released_at=NOW)
    world.vanish("worker-1")
    first = world.put(gated_pod("worker-1", kind=kind))
    world.vanish("worker-1")
    assert first.uid == "q-worker-1"
    world.put(gated_pod("worker-1", kind=kind, uid="second"))
    assert matched(world)["worker-1"].replacement_pod_uid == "second"


@EACH
def test_when_an_open_successor_leaves_its_own_entry_goes_on(kind: str) -> None:
    world = running(kind, digest=NEW)
    world.remember(
        entry(
            pod("worker-1", uid="first"),
            device(1),
            replacement_pod_uid="p-worker-1",
            stage=Stage.WARMING_UP,
            released_at=at(-2),
        )
    )
    world.leave("worker-1")
    assert [e.pod_uid for e in matched(world).values()] == ["p-worker-1"]


@EACH
def test_a_gated_pod_made_while_we_watched_succeeds_nobody_we_missed(kind: str) -> None:
    world = running(kind, digest=NEW)
    world.put(gated_pod("worker-3", kind=kind))
    assert matched(world) == {}


@EACH
def test_a_gated_pod_older_than_our_object_succeeds_nobody_we_missed(kind: str) -> None:
    world = running(kind, digest=NEW)
    world.watched_since = NOW
    world.status = world.status.model_copy(update={"adopted_at": at(5)})
    world.put(gated_pod("worker-3", kind=kind))
    assert matched(world) == {}


@EACH
@pytest.mark.parametrize("watched", [None, NOW], ids=["never", "since the same second"])
def test_any_other_gated_pod_has_a_predecessor_that_may_still_run(kind: str, watched: object) -> None:
    world = running(kind, digest=NEW)
    world.vanish("worker-2", seen=False)
    world.watched_since = NOW if watched else None
    world.put(gated_pod("worker-2", kind=kind))
    assert of_type(world.actions(), OpenGate) == ()
    world.store(world.plan())
    (noted,) = world.status.replacements
    assert (noted.pod_uid, noted.replacement_pod_uid, noted.vanished_at) == ("", "q-worker-2", NOW)
    assert of_type(world.actions(at(EXTRA + GRACE)), OpenGate) == ()  # the template's grace is longer
    assert of_type(world.actions(at(EXTRA + GRACE + 1)), OpenGate) == (
        OpenGate("worker-2", "q-worker-2", ""),
    )


@EACH
def test_an_unknown_predecessor_outlives_the_gated_pod_by_which_it_was_found(kind: str) -> None:
    """The gated pod is deleted and made again, now while we watch: its predecessor's predecessor may still run."""
    world = running(kind, digest=NEW)
    world.vanish("worker-2", seen=False)
    world.watched_since = NOW
    world.put(gated_pod("worker-2", kind=kind))
    world.store(world.plan())
    world.vanish("worker-2", at(10))
    world.put(gated_pod("worker-2", kind=kind, uid="second", created=at(10)))
    assert of_type(world.actions(at(11)), OpenGate) == ()
    assert of_type(world.actions(at(EXTRA + GRACE + 1)), OpenGate) == (OpenGate("worker-2", "second", ""),)


# The process dies


@EACH
def test_a_departure_that_was_acted_on_and_not_stored_is_found_again(kind: str) -> None:
    """Between the eviction and the status: the pod shows it."""
    world = running(kind)
    world.recorded("worker-2", 2, stage=Stage.SELECTED)
    world.leave("worker-2")
    (noted,) = world.plan().status.replacements
    assert (noted.id, noted.stage, noted.cause) == ("p-worker-2", Stage.TERMINATING, Cause.ROLLOUT)


def test_an_opening_that_was_not_stored_leaves_nothing_behind() -> None:
    """Between the opening and the status, before the link was stored: the successor runs on the device."""
    world = running("Deployment", 2, digest=NEW)
    old = pod("worker-7", OLD, kind="Deployment", node="node-1")
    world.remember(entry(old, device(1), vanished_at=at(-200)))
    world.set_workload(generation=2)
    assert world.plan().status.replacements == ()


def test_a_successor_made_without_a_gate_is_counted_and_not_waited_for() -> None:
    """A first adoption: the old revision makes pods without our gate."""
    world = running("Deployment", 2, digest=OLD, paused=True, parked="template-changed")
    world.sets[0] = replica_set(OLD, 2, 1, template_gates=())
    world.end("worker-1")
    world.recorded("worker-1", 1)
    world.change("worker-1", deletion=NOW)
    world.put(pod("worker-5", OLD, kind="Deployment", node="", phase=Phase.PENDING, ready=False))
    assert [e.pod_name for e in world.plan().status.replacements if e.stage is not Stage.SELECTED] == []


def test_claims_that_another_pod_owns_are_not_the_departed_pods() -> None:
    world = running("StatefulSet", digest=NEW)
    world.leave("worker-1")
    world.claims["worker-1-device"] = claim_of(pod("worker-1", uid="another"), device(1))
    assert tracked(world)["worker-1"].claims == ()


CHECK = {"name": "clean", "cel": "true"}


@pytest.mark.parametrize(
    ("release", "seconds_ago", "stage"),
    [
        ({}, 2, None),
        ({"settleSeconds": 5}, 2, Stage.SETTLING),
        ({"settleSeconds": 5}, 5.9, Stage.SETTLING),
        ({"settleSeconds": 5}, 6, None),
        ({"checks": [CHECK], "timeoutSeconds": 60}, 50, Stage.SETTLING),
        ({"checks": [CHECK], "timeoutSeconds": 60}, 61, None),
        ({"settleSeconds": 5}, None, None),
    ],
)
def test_an_evicted_pod_that_stays_as_an_object_is_noted_to_settle_for_its_successor(
    release: dict[str, Any], seconds_ago: float | None, stage: Stage | None
) -> None:
    """A kubelet that evicts leaves the object, and the claim went before anyone looked."""
    world = running("Deployment", digest=NEW)
    world.spec = {"release": release}
    world.end("worker-1")
    world.change("worker-1", ended_at=None if seconds_ago is None else at(-seconds_ago))
    world.put(gated_pod("worker-5", kind="Deployment", created=at(-1)))
    decided = world.plan()
    assert [e.stage for e in decided.status.replacements] == ([] if stage is None else [stage])
    assert len(of_type(decided.actions, OpenGate)) == (1 if stage is None else 0)


def test_an_evicted_pod_settles_once_and_is_then_forgotten_though_its_object_stays() -> None:
    world = running("Deployment", digest=NEW)
    world.spec = {"release": {"settleSeconds": 5}}
    world.end("worker-1")
    world.change("worker-1", ended_at=at(-1))
    assert world.plan().status.replacements == (), "nobody succeeds it yet"
    world.put(gated_pod("worker-5", kind="Deployment", created=at(0)))
    world.store(world.plan())
    assert not of_type(world.actions(at(4)), OpenGate)
    assert [a.pod_name for a in world.actions(at(7)) if isinstance(a, OpenGate)] == ["worker-5"]
    world.store(world.plan(at(7)))
    world.put(pod("worker-5", NEW, uid="q-worker-5", kind="Deployment", node="node-1"), device(1))
    assert world.plan(at(8)).status.replacements == ()
    world.put(gated_pod("worker-6", kind="Deployment", created=at(20)))
    world.store(world.plan(at(20)))
    assert world.plan(at(20)).status.replacements == (), "a pod of a later scale-up succeeds nobody"


def test_of_two_that_ended_each_has_one_successor() -> None:
    world = running("Deployment", digest=NEW)
    world.spec = {"release": {"settleSeconds": 5}}
    for name in ("worker-1", "worker-2"):
        world.end(name)
        world.change(name, ended_at=at(-1))
    world.put(gated_pod("worker-5", kind="Deployment", created=at(0)))
    assert [(e.pod_name, e.replacement_pod_name) for e in world.plan().status.replacements] == [
        ("worker-1", "worker-5")
    ]
    world.put(gated_pod("worker-6", kind="Deployment", created=at(0)))
    assert sorted((e.pod_name, e.replacement_pod_name) for e in world.plan().status.replacements) == [
        ("worker-1", "worker-5"),
        ("worker-2", "worker-6"),
    ]


@pytest.mark.parametrize("release", [{}, {"settleSeconds": 5}])
def test_what_went_in_order_before_anyone_looked_is_noted_only_to_settle(release: dict[str, int]) -> None:
    world = running("StatefulSet")
    world.spec = {"release": release}
    world.end("worker-1")
    world.vanish("worker-1")
    world.put(gated_pod("worker-1", created=at(-1)))
    decided = world.plan()
    assert [e.stage for e in decided.status.replacements] == ([Stage.SETTLING] if release else [])
    assert len(of_type(decided.actions, OpenGate)) == (0 if release else 1)
