"""Which pod is replaced next, and why none is: never a second one down by our doing."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from accelerator_rollout.api.models import Proof, Stage
from accelerator_rollout.decide.actions import (
    ParkReason,
    PauseDeployment,
    PreferVictim,
    ProbeGate,
    UnpauseDeployment,
    victims_of,
)
from accelerator_rollout.decide.reasons import Waiting
from accelerator_rollout.decide.snapshot import Freshness, GateProbe, GateSource, Refused, Rival
from accelerator_rollout.names import GATE_LABEL, GATE_LABEL_VALUE
from accelerator_rollout.records import Phase
from builders import (
    NAME,
    NEW,
    NOW,
    OLD,
    World,
    at,
    budget,
    device,
    entry,
    gated_pod,
    of_type,
    pod,
    replica_set,
    running,
    template,
)

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])


def victims(world: World, now: datetime = NOW) -> list[str]:
    """Return the UIDs of the pods that are taken down now."""
    return [uid for action in world.actions(now) for uid in victims_of(action)]


def progress(world: World, now: datetime = NOW) -> str:
    return next(c.reason for c in world.plan(now).status.conditions if c.type == "Progressing")


# What may be leaving


def maybe_gone(kind: str, *names: str) -> World:
    """These pods were chosen, and told to go by somebody who is not there any more."""
    world = running(kind)
    for name in names:
        world.recorded(name, int(name[-1]), stage=Stage.SELECTED)
    world.maybe_sent = frozenset(world.named(name).uid for name in names)
    return world


@EACH
def test_a_pod_that_may_be_leaving_goes_before_other_healthy_ones(kind: str) -> None:
    assert victims(maybe_gone(kind, "worker-1")) == ["p-worker-1"]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_nobody_goes_beside_a_pod_that_may_be_leaving_and_is_not_to_go_any_more(kind: str) -> None:
    world = maybe_gone(kind, "worker-1")
    cordon(world, "node-1")
    assert victims(world) == []
    assert progress(world) == "EvictionUnanswered"
    world.maybe_sent = frozenset()
    assert victims(world) != []


@EACH
def test_a_pod_that_is_down_goes_beside_one_that_may_be_leaving(kind: str) -> None:
    world = maybe_gone(kind, "worker-1")
    world.change("worker-0", ready=False)
    assert victims(world) == ["p-worker-0"]


@EACH
def test_of_two_that_may_be_leaving_where_one_may_none_is_told_once_more(kind: str) -> None:
    world = maybe_gone(kind, "worker-1", "worker-2")
    assert victims(world) == []
    assert progress(world) == "EvictionUnanswered"


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_what_may_be_leaving_stays_recorded_for_whoever_decides_after_a_crash(kind: str) -> None:
    world = maybe_gone(kind, "worker-1")
    world.spec = {"paused": True}
    assert [r.pod_uid for r in world.plan().status.replacements] == ["p-worker-1"]
    world.maybe_sent = frozenset()
    assert world.plan().status.replacements == ()


# Choosing


def test_a_stateful_set_goes_from_the_highest_ordinal_down() -> None:
    assert victims(running("StatefulSet", 11)) == ["p-worker-10"]


def test_a_deployment_is_unpaused_for_one_step_that_takes_the_pod_we_prefer() -> None:
    actions = running("Deployment").actions()
    assert [type(a) for a in actions] == [PreferVictim, UnpauseDeployment]
    assert victims(running("Deployment")) == ["p-worker-0"]


def test_a_pod_that_is_preferred_already_is_not_told_again() -> None:
    world = running("Deployment")
    world.change("worker-0", deletion_cost=-1_000_000)
    assert [type(a) for a in world.actions()] == [UnpauseDeployment]


@EACH
def test_the_choice_is_recorded_before_the_pod_is_touched(kind: str) -> None:
    decided = running(kind).plan()
    assert decided.record_first
    assert [e.stage for e in decided.status.replacements] == [Stage.SELECTED]


@EACH
def test_a_second_look_keeps_to_the_first_choice(kind: str) -> None:
    world = running(kind)
    world.recorded("worker-1", 1, stage=Stage.SELECTED)
    decided = world.plan()
    assert victims(world) == ["p-worker-1"]
    assert not decided.record_first


@EACH
def test_a_broken_pod_goes_before_all_healthy_ones(kind: str) -> None:
    world = running(kind)
    world.change("worker-1", ready=False)
    world.sets = [replica_set(OLD, 3, 2)] if kind == "Deployment" else []
    assert victims(world) == ["p-worker-1"]


def test_of_the_broken_pods_of_a_stateful_set_the_lowest_goes_first() -> None:
    """An ordered one makes no later pod before the earlier ones are healthy: the other way round it never ends."""
    world = running("StatefulSet")
    for name in ("worker-0", "worker-1", "worker-2"):
        world.change(name, ready=False)
    assert victims(world) == ["p-worker-0"]


def test_a_broken_pod_that_keeps_its_controller_from_making_the_successor_is_replaced() -> None:
    """worker-2 left in order; then worker-0 broke, and an ordered StatefulSet makes no worker-2 before it heals."""
    world = running("StatefulSet")
    world.recorded("worker-2", 2)
    world.end("worker-2")
    world.vanish("worker-2")
    world.change("worker-0", ready=False)
    assert victims(world) == ["p-worker-0"]


def test_a_broken_pod_waits_until_the_devices_of_the_one_in_flight_are_free() -> None:
    world = running("StatefulSet")
    world.recorded("worker-2", 2)
    world.leave("worker-2")
    world.change("worker-0", ready=False)
    assert victims(world) == []


# S5


@EACH
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"ready": False}, id="is down"),
        pytest.param({"deletion": at(30)}, id="leaves"),
    ],
)
def test_a_healthy_pod_stays_while_a_pod_at_the_target(kind: str, change: dict[str, Any]) -> None:
    world = running(kind)
    world.put(pod("worker-1", NEW, kind=kind), device(1))
    world.change("worker-1", **change)
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(NEW, 1, 0)]
    assert victims(world) == []


@EACH
def test_a_healthy_pod_stays_while_a_pod_is_missing(kind: str) -> None:
    world = running(kind)
    world.set_workload(replicas=4)
    assert victims(world) == []
    assert progress(world) == "PodsUnavailable"


@EACH
def test_what_a_pod_that_is_down_waits_for_is_told_while_others_stay(kind: str) -> None:
    world = running(kind)
    words = "0/3 nodes are available: 1 cannot allocate all claims"
    world.put(pod("worker-1", NEW, kind=kind))
    waiting = {"phase": Phase.PENDING, "node": "", "ready_since": None, "unschedulable_message": words}
    world.change("worker-1", ready=False, **waiting)
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(NEW, 1, 0)]
    said = next(c for c in world.plan().status.conditions if c.type == "Progressing")
    assert said.reason == "PodsUnavailable"
    assert "pods are down already: worker-1" in said.message
    assert words in said.message


@EACH
def test_a_healthy_pod_stays_while_the_last_replacement_is_not_healthy(kind: str) -> None:
    world = running(kind)
    world.remember(
        entry(
            pod("worker-2", uid="first"),
            device(2),
            replacement_pod_uid="p-worker-2",
            released_at=at(-9),
            stage=Stage.WARMING_UP,
        )
    )
    world.put(pod("worker-2", NEW, kind=kind, ready=False), device(2))
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(NEW, 1, 0)]
    assert victims(world) == []
    assert progress(world) == "WarmingUp"


@EACH
def test_a_healthy_pod_stays_until_the_last_one_was_ready_for_min_ready_seconds(kind: str) -> None:
    world = running(kind)
    world.set_workload(min_ready_seconds=20)
    world.put(pod("worker-2", NEW, kind=kind, ready_since=at(-5)), device(2))
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(NEW, 1, 0)]
    assert victims(world) == []
    assert world.plan().next_due == at(15)
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(NEW, 1)]
    assert len(victims(world, at(15))) == 1


@EACH
def test_one_broken_pod_at_a_time(kind: str) -> None:
    world = running(kind)
    world.change("worker-0", ready=False)
    world.change("worker-1", ready=False)
    world.recorded("worker-2", 2)
    world.leave("worker-2")
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2, 0), replica_set(NEW, 1, 0)]
    assert victims(world) == []


@EACH
def test_a_bad_successor_is_replaced_in_its_turn(kind: str) -> None:
    """A third revision in mid-step, or the way back from a bad image."""
    world = running(kind)
    bad = "bad-digest-0000"
    world.remember(
        entry(
            pod("worker-2", uid="first"),
            device(2),
            replacement_pod_uid="p-worker-2",
            released_at=at(-9),
            stage=Stage.PREPARING,
        )
    )
    world.put(pod("worker-2", bad, kind=kind, ready=False, phase=Phase.PENDING), device(2))
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(bad, 1, 0)]
    assert victims(world) == ["p-worker-2"]


@EACH
def test_two_that_left_under_a_bad_image_do_not_wait_for_each_other(kind: str) -> None:
    world = running(kind)
    bad = "bad-digest-0000"
    for name in ("worker-1", "worker-2"):
        before = pod(name, uid=f"first-{name}")
        successor = {"replacement_pod_uid": f"p-{name}", "released_at": at(-9)}
        world.remember(entry(before, device(name[-1]), stage=Stage.PREPARING, **successor))
        world.put(pod(name, bad, kind=kind, ready=False, phase=Phase.PENDING), device(name[-1]))
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 1), replica_set(bad, 2, 0)]
    assert victims(world) == ["p-worker-1"]


@EACH
def test_a_gated_successor_of_a_revision_nobody_wants_is_replaced_and_never_opened(kind: str) -> None:
    world = running(kind)
    bad = "bad-digest-0000"
    world.recorded("worker-2", 2, replacement_pod_uid="q-worker-2", replacement_pod_name="worker-2")
    world.end("worker-2")
    world.vanish("worker-2")
    world.put(gated_pod("worker-2", bad, kind=kind))
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(bad, 1, 0)]
    assert victims(world) == ["q-worker-2"]
    assert all(type(a).__name__ != "OpenGate" for a in world.actions())


# S6


@EACH
def test_a_pause_starts_nothing(kind: str) -> None:
    world = running(kind)
    world.spec["paused"] = True
    assert (victims(world), progress(world)) == ([], "Paused")


@EACH
def test_a_pause_finishes_the_pod_in_flight(kind: str) -> None:
    world = running(kind)
    world.spec["paused"] = True
    world.recorded("worker-2", 2)
    world.end("worker-2")
    world.vanish("worker-2")
    world.put(gated_pod("worker-2", kind=kind))
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(NEW, 1, 0)]
    assert [type(a).__name__ for a in world.actions()] == ["OpenGate"]


@EACH
def test_a_choice_that_was_not_acted_on_is_dropped_by_a_pause(kind: str) -> None:
    world = running(kind)
    world.spec["paused"] = True
    world.recorded("worker-2", 2, stage=Stage.SELECTED)
    assert world.plan().status.replacements == ()


def test_somebody_elses_pause_of_a_deployment_is_left_alone() -> None:
    world = running("Deployment", parked=None)
    assert (world.actions(), progress(world)) == ((), "WorkloadPausedByUser")


def test_a_deployment_that_moves_without_leave_is_halted_before_it_began() -> None:
    world = running("Deployment", paused=False, parked=None)
    world.spec["paused"] = True
    assert world.actions() == (PauseDeployment(NAME, f"d-{NAME}", ParkReason.HALTED),)


@EACH
@pytest.mark.parametrize("freshness", [Freshness.STALE, Freshness.SYNCING, Freshness.UNREADABLE])
def test_an_unknown_world_is_left_as_it_is(kind: str, freshness: Freshness) -> None:
    world = running(kind)
    world.freshness = freshness
    assert world.actions() == ()


@EACH
def test_nothing_starts_while_the_controller_is_behind(kind: str) -> None:
    world = running(kind)
    world.set_workload(generation=3)
    assert (victims(world), progress(world)) == ([], "WaitingForController")


@EACH
def test_nothing_starts_before_it_is_known_that_new_pods_are_gated(kind: str) -> None:
    world = running(kind)
    by_label = template(gates=(), labels={GATE_LABEL: GATE_LABEL_VALUE})
    world.set_workload(template=by_label)
    assert (world.actions(), progress(world)) == ((ProbeGate(NEW),), "GateUnknown")
    world.probe = GateProbe(NEW, GateSource.POLICY)
    assert len(victims(world)) == 1
    world.probe = GateProbe("an older template", GateSource.POLICY)
    assert victims(world) == []


@EACH
def test_the_younger_of_two_objects_does_nothing(kind: str) -> None:
    world = running(kind)
    world.rivals.append(Rival("elder", "e", at(-2000)))
    assert world.actions() == ()
    world.rivals[0] = Rival("junior", "j", at(-10))
    assert len(victims(world)) == 1


@EACH
def test_nothing_is_touched_before_our_finalizer_is_there(kind: str) -> None:
    world = running(kind)
    world.finalizers = ()
    assert [type(a).__name__ for a in world.actions()] == ["AddFinalizer"]


# Budgets


@EACH
def test_a_budget_that_allows_nothing_is_named(kind: str) -> None:
    world = running(kind)
    world.budgets = [budget(0)]
    assert (victims(world), progress(world)) == ([], "BlockedByPDB")


@EACH
def test_a_budget_that_its_controller_cannot_evaluate_says_why(kind: str) -> None:
    world = running(kind)
    world.budgets = [budget(0, observed_generation=0, failure="daemonsets.apps does not implement scale")]
    assert (victims(world), progress(world)) == ([], "BlockedByPDB")
    (told,) = [c.message for c in world.plan().status.conditions if c.type == "Progressing"]
    assert "does not implement scale" in told
    assert ("minAvailable" in told) == (kind == "DaemonSet")


@EACH
def test_a_budget_does_not_keep_a_broken_pod(kind: str) -> None:
    world = running(kind)
    world.budgets = [budget(0)]
    world.change("worker-1", ready=False)
    world.sets = [replica_set(OLD, 3, 2)] if kind == "Deployment" else []
    assert victims(world) == ["p-worker-1"]


@pytest.mark.parametrize(
    ("budgets", "reason"),
    [
        ([budget(), budget(name="second")], "BlockedByPDB"),
        ([budget(generation=2)], "WaitingForController"),
    ],
)
def test_a_budget_that_cannot_be_judged_keeps_the_pod(budgets: list[Any], reason: str) -> None:
    world = running("Deployment")
    world.budgets = budgets
    assert (victims(world), progress(world)) == ([], reason)


def test_a_refused_eviction_is_tried_again_ten_seconds_later() -> None:
    world = running("StatefulSet")
    world.recorded("worker-2", 2, stage=Stage.SELECTED)
    world.refused = [Refused("p-worker-2", "Refused", "budget worker-pdb forbids it", NOW)]
    decided = world.plan()
    assert (victims(world), decided.next_due) == ([], at(10))
    (noted,) = decided.status.replacements
    assert (noted.stage, noted.reason, noted.message) == (
        Stage.EVICTING,
        "BlockedByPDB",
        "the eviction of pod worker-2 was turned down: budget worker-pdb forbids it",
    )
    world.store(decided)
    assert victims(world, at(10)) == ["p-worker-2"]


@pytest.mark.parametrize("policy", ["", "IfHealthyBudget", "AlwaysAllow"])
def test_a_budget_that_keeps_a_broken_pod_is_told_with_what_lets_it_go(policy: str) -> None:
    world = running("StatefulSet")
    world.change("worker-2", ready=False)
    world.budgets = [budget(0, unhealthy_policy=policy)]
    world.refused = [Refused("p-worker-2", "Refused", "it would violate the budget", NOW)]
    said = next(c.message for c in world.plan().status.conditions if c.type == "Progressing")
    assert "pod worker-2 was turned down: it would violate the budget" in said
    assert ("PodDisruptionBudget worker-pdb keeps it all the same" in said) == (policy != "AlwaysAllow")


# The arithmetic of the Deployment's controller


def test_a_deployment_stays_parked_where_its_controller_would_take_no_pod() -> None:
    world = running("Deployment")
    world.put(pod("worker-2", NEW, kind="Deployment", ready=True), device(2))
    world.sets = [replica_set(OLD, 2), replica_set(NEW, 1, 0)]  # its status lags behind its pods
    assert (victims(world), progress(world)) == ([], "StepNotSafe")


@pytest.mark.parametrize("lag", [{"generation": 2}, {"status_replicas": 2}])
def test_a_deployment_stays_parked_while_a_replica_set_has_not_settled(lag: dict[str, Any]) -> None:
    world = running("Deployment")
    world.sets = [replace(world.sets[0], **lag)]
    assert (victims(world), progress(world)) == ([], "WaitingForController")


def test_a_choice_stays_recorded_while_the_controller_is_free_to_act_on_it() -> None:
    world = running("Deployment", paused=False, parked=None, generation=3)
    world.recorded("worker-0", 0, stage=Stage.SELECTED)
    decided = world.plan()
    assert (decided.actions, [e.pod_name for e in decided.status.replacements]) == ((), ["worker-0"])


@EACH
def test_a_departure_that_wants_no_successor_holds_nothing_up_once_it_is_proven(kind: str) -> None:
    """Scaled down from four, and the device was tainted since: nobody waits for it."""
    world = running(kind)
    gone = pod("worker-3", kind=kind)
    world.remember(entry(gone, device(3), vanished_at=at(-9), proof="KubeletTerminalPhase"))
    assert len(victims(world)) == 1
    assert all(e.pod_name != "worker-3" for e in world.plan().status.replacements)


def test_an_older_departure_of_the_same_ordinal_holds_up_nobody() -> None:
    """Found by a random walk: its successor is the very pod that is to be replaced."""
    world = running("StatefulSet")
    bad = "bad-digest-0000"
    for uid, over in (("first", {"replacement_pod_uid": "p-worker-2"}), ("second", {})):
        before = pod("worker-2", uid=uid)
        world.remember(
            entry(before, released_at=at(-9), proof=Proof.WAIT_ELAPSED, stage=Stage.PREPARING, **over)
        )
    world.set_workload(replicas=4)  # an ordered StatefulSet makes the fourth once the third is ready
    world.put(pod("worker-2", bad, ready=False, phase=Phase.PENDING), device(2))
    assert victims(world) == ["p-worker-2"]


def test_the_pod_that_an_ordered_stateful_set_waits_for_goes_before_a_broken_successor() -> None:
    """Found by a random walk: worker-1 is made only once worker-0 is ready, and worker-2 broke in its turn."""
    world = running("StatefulSet")
    bad = "bad-digest-0000"
    world.vanish("worker-1", seen=False)
    past = {"released_at": at(-9), "proof": Proof.WAIT_ELAPSED}
    successor = {"replacement_pod_uid": "p-worker-2"} | past
    world.remember(
        entry(pod("worker-2", uid="first"), stage=Stage.PREPARING, **successor),
        entry(pod("worker-1"), stage=Stage.GATED, **past),
    )
    for name in ("worker-0", "worker-2"):
        world.put(pod(name, bad, ready=False, phase=Phase.PENDING), device(name[-1]))
    assert victims(world) == ["p-worker-0"]


def cordon(world: World, *names: str, on: bool = True) -> None:
    for name in names:
        world.nodes[name] = replace(world.nodes[name], unschedulable=on)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_pods_on_cordoned_nodes_are_left_alone_and_named(kind: str) -> None:
    world = running(kind)
    cordon(world, "node-1", "node-2")
    assert victims(world) == ["p-worker-0"]
    cordon(world, "node-0")
    assert victims(world) == []
    assert progress(world) == Waiting.NODE_UNSCHEDULABLE
    cordon(world, "node-1", on=False)
    assert victims(world) == ["p-worker-1"]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_pods_on_nodes_that_are_being_drained_are_left_alone_too(kind: str) -> None:
    world = running(kind)
    cordon(world, "node-1")
    for name in ("node-0", "node-2"):
        world.nodes[name] = replace(world.nodes[name], leaving="DrainInProgress")
    assert victims(world) == []
    assert progress(world) == Waiting.NODE_UNSCHEDULABLE
    told = next(c.message for c in world.plan().status.conditions if c.type == "Progressing")
    assert "node-0 (DrainInProgress)" in told
    world.nodes["node-2"] = replace(world.nodes["node-2"], leaving="")
    assert victims(world) == ["p-worker-2"]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_pod_that_is_down_goes_from_a_cordoned_node_too(kind: str) -> None:
    world = running(kind)
    cordon(world, "node-1")
    world.change("worker-1", ready=False, ready_since=None)
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 3, 2)]
    assert victims(world) == ["p-worker-1"]


def test_a_daemon_set_updates_cordoned_nodes_too() -> None:
    world = running("DaemonSet")
    cordon(world, "node-0", "node-1", "node-2")
    assert len(victims(world)) == 1


@pytest.mark.parametrize(("spec", "halted"), [({}, False), ({"paused": True}, True)])
def test_a_deployment_that_somebody_resumed_is_halted_only_if_it_may_not_move(
    spec: dict[str, Any], *, halted: bool
) -> None:
    """Its controller may be in the middle of a step: a pause would have it scale the old ReplicaSet up again."""
    world = running("Deployment")
    world.set_workload(paused=False, parked=None, generation=3, observed_generation=2)
    world.spec = spec
    assert bool(of_type(world.actions(), PauseDeployment)) is halted
    assert victims(world) == []
