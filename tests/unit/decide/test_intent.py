"""What people ask for once happens once: aborts, retries, and what has no effect."""

from typing import Any

import pytest

from accelerator_rollout.api.conditions import Condition
from accelerator_rollout.api.models import Cause, Outcome, Stage
from accelerator_rollout.decide import intent as intents
from accelerator_rollout.decide.actions import (
    Action,
    AddFinalizer,
    EvictPod,
    OpenGate,
    PauseDeployment,
    UnpauseDeployment,
)
from accelerator_rollout.decide.intent import Intent, Scene
from accelerator_rollout.decide.outcome import Notice
from accelerator_rollout.decide.plan import plan
from accelerator_rollout.decide.reasons import Announcement, Halted, Waiting
from accelerator_rollout.records import Phase
from accelerator_rollout.workloads import driver_for
from builders import (
    NEW,
    NOW,
    OLD,
    World,
    at,
    device,
    gated_pod,
    leaving,
    of_type,
    replica_set,
    running,
    template,
)

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
TARGET = NEW[:12]


def ask(world: World, kind: str, identity: str = "1") -> None:
    world.spec["action"] = {"type": kind, "id": identity}
    world.generation += 1


def asked(world: World, kind: str, identity: str = "1", seconds: float = 0) -> tuple[Action, ...]:
    """Ask, decide and store, as the executor would; return what is done."""
    ask(world, kind, identity)
    decided = world.plan(at(seconds))
    world.store(decided)
    return decided.actions


def disruptions(actions: tuple[Action, ...]) -> list[Action]:
    return [
        a for a in actions if isinstance(a, EvictPod) or (isinstance(a, UnpauseDeployment) and a.victim_uids)
    ]


def told(world: World, condition: str, seconds: float = 0) -> Condition | None:
    return next((c for c in world.plan(at(seconds)).status.conditions if c.type == condition), None)


def events(notices: tuple[Notice, ...]) -> list[str]:
    return [n.reason for n in notices]


# Once


@EACH
def test_an_abort_stops_what_would_be_done_now_and_is_stored_first(kind: str) -> None:
    world = running(kind)
    assert disruptions(world.actions())
    ask(world, "Abort")
    decided = world.plan()
    assert not disruptions(decided.actions)
    assert decided.record_first
    assert decided.status.observed_action_id == "1"
    assert decided.status.halt is not None
    assert (decided.status.halt.revision, decided.status.halt.reason) == (
        TARGET if kind == "Deployment" else NEW,
        Halted.ABORTED,
    )


@EACH
def test_an_abort_lasts_and_is_told_once(kind: str) -> None:
    world = running(kind)
    ask(world, "Abort")
    first = world.plan()
    world.store(first)
    assert events(first.notices) == [Halted.ABORTED]
    later = world.plan(at(3600))
    assert not disruptions(later.actions)
    assert not later.notices
    assert later.status.says_the_same(world.status)


def test_an_action_that_comes_with_a_new_object_counts_as_seen() -> None:
    world = running("StatefulSet")
    world.finalizers = ()
    world.status = world.status.model_copy(update={"adopted_at": None})
    ask(world, "Abort")
    decided = world.plan()
    assert isinstance(decided.actions[0], AddFinalizer)
    world.store(decided)
    world.finalizers = ("accelerator-rollout.dev/release",)
    assert world.status.observed_action_id == "1"
    assert disruptions(world.actions())


def test_with_a_status_that_was_lost_an_action_counts_as_seen() -> None:
    world = running("StatefulSet")
    world.status = world.status.model_copy(update={"adopted_at": None})
    asked(world, "Abort")
    assert (world.status.observed_action_id, world.status.halt) == ("1", None)
    asked(world, "Abort", "2")
    assert world.status.halt is not None


def test_an_id_that_was_seen_is_not_done_again_whatever_its_type() -> None:
    world = running("StatefulSet")
    asked(world, "Abort")
    asked(world, "Retry", "1")
    assert world.status.halt is not None


def test_an_action_waits_until_the_target_is_known() -> None:
    world = running("StatefulSet", observed_generation=1)
    asked(world, "Abort")
    assert (world.status.observed_action_id, world.status.halt) == ("", None)
    world.set_workload(observed_generation=2)
    world.store(world.plan())
    assert world.status.halt is not None


# What has no effect


@EACH
@pytest.mark.parametrize("action", ["Abort", "Retry", "Promote", "PromoteAll"])
def test_an_action_without_effect_is_seen_and_says_so(kind: str, action: str) -> None:
    world = running(kind, digest=NEW)
    ask(world, action)
    decided = world.plan()
    assert events(decided.notices) == [Announcement.NO_EFFECT]
    assert f"{action} (id 1) has no effect" in decided.notices[0].message
    assert decided.status.observed_action_id == "1"
    assert (decided.status.halt, decided.status.retried_at, decided.status.promoted) == (None, None, None)
    world.store(decided)
    assert not world.plan(at(9)).notices


def test_a_second_abort_says_that_the_first_stands() -> None:
    world = running("StatefulSet")
    asked(world, "Abort")
    ask(world, "Abort", "2")
    assert "halted already (Aborted)" in world.plan().notices[0].message


def test_an_action_for_a_workload_that_does_not_exist_is_over_with() -> None:
    world = running("StatefulSet")
    world.workload = None
    world.spec["workloadRef"] = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "worker"}
    ask(world, "Abort")
    decided = world.plan()
    assert decided.status.observed_action_id == "1"
    assert "does not exist" in decided.notices[0].message


# While halted


@EACH
def test_the_object_is_stalled_and_says_what_to_do(kind: str) -> None:
    world = running(kind)
    asked(world, "Abort")
    stalled, ready = told(world, "Stalled", 9), told(world, "Ready", 9)
    assert stalled is not None
    assert ready is not None
    assert (stalled.reason, ready.status, ready.reason) == ("Aborted", "False", "Aborted")
    assert "set spec.action to Retry" in stalled.message
    assert told(world, "Reconciling", 9) is None
    assert world.status.history[0].outcome is Outcome.ABORTED


@EACH
def test_the_pod_in_flight_is_finished(kind: str) -> None:
    world = running(kind)
    if kind == "Deployment":
        old = leaving(world.named("worker-0"))
        world.sets = [replica_set(OLD, 2), replica_set(NEW, 1, available=0)]
        fresh = gated_pod("worker-9", kind="Deployment")
    else:
        old = leaving(world.named("worker-2"))
        fresh = gated_pod("worker-2", kind=kind, aimed_at="node-2" if kind == "DaemonSet" else "")
    number = old.name[-1]
    world.recorded(old.name, number)
    world.end(old.name)
    world.vanish(old.name)
    world.put(fresh)
    actions = asked(world, "Abort")
    assert [a.pod_uid for a in actions if isinstance(a, OpenGate)] == [fresh.uid]
    assert not disruptions(actions)
    (kept,) = world.status.replacements
    assert kept.cause is Cause.ROLLOUT
    world.change(
        fresh.name, gates=(), node=f"node-{number}", phase=Phase.RUNNING, ready=True, ready_since=NOW
    )
    world.claims = {n: c for n, c in world.claims.items() if c.owner_pod_uid != fresh.uid}
    world.put(world.named(fresh.name), device(number))
    world.vanished.clear()
    if kind == "Deployment":
        world.sets = [replica_set(OLD, 2), replica_set(NEW, 1)]
    done = world.plan(at(30))
    assert not done.status.replacements
    assert not disruptions(done.actions)
    (past,) = done.status.history
    assert (past.outcome, len(past.replacements)) == (Outcome.ABORTED, 1)


@EACH
def test_broken_pods_of_an_old_revision_stay_too(kind: str) -> None:
    world = running(kind)
    asked(world, "Abort")
    world.change("worker-1", ready=False, ready_since=None)
    assert not disruptions(world.actions(at(60)))


def test_a_deployment_stays_parked() -> None:
    world = running("Deployment")
    assert not of_type(asked(world, "Abort"), UnpauseDeployment)
    assert not of_type(world.actions(at(60)), UnpauseDeployment)


def test_a_deployment_that_moves_without_leave_is_parked() -> None:
    world = running("Deployment", paused=False, parked=None)
    assert of_type(asked(world, "Abort"), PauseDeployment)


@EACH
def test_no_deadline_counts(kind: str) -> None:
    world = running(kind)
    world.store(world.plan())
    asked(world, "Abort", seconds=5)
    stalled = told(world, "Stalled", 99999)
    assert stalled is not None
    assert stalled.reason == "Aborted"


# How a halt ends


@EACH
def test_a_retry_goes_on_and_starts_the_clocks_anew(kind: str) -> None:
    world = running(kind)
    asked(world, "Abort")
    ask(world, "Retry", "2")
    decided = world.plan(at(100))
    assert disruptions(decided.actions)
    assert decided.record_first
    assert (decided.status.halt, decided.status.retried_at) == (None, at(100))
    assert Announcement.RETRIED in events(decided.notices)
    assert decided.status.last_progress_time == at(100)
    assert [p.outcome for p in decided.status.history] == [Outcome.IN_PROGRESS, Outcome.ABORTED]
    assert told(world, "Stalled", 100) is None


def test_another_template_ends_it() -> None:
    world = running("StatefulSet")
    asked(world, "Abort")
    world.set_workload(update_revision="third", template=template("third"))
    decided = world.plan(at(9))
    assert decided.status.halt is None
    assert disruptions(decided.actions)


def test_a_template_that_its_controller_has_not_seen_does_not_end_it_yet() -> None:
    world = running("StatefulSet")
    asked(world, "Abort")
    world.set_workload(generation=3, template=template("third"))
    assert world.plan(at(9)).status.halt is not None


@EACH
def test_it_ends_when_nothing_is_left_to_replace(kind: str) -> None:
    world = running(kind)
    asked(world, "Abort")
    settled = running(kind, digest=NEW)
    settled.status, settled.spec, settled.generation = world.status, world.spec, world.generation
    decided = settled.plan(at(9))
    assert decided.status.halt is None
    assert next(c for c in decided.status.conditions if c.type == "Ready").status == "True"
    assert decided.status.history[0].outcome is Outcome.COMPLETED


def test_a_pause_is_told_beside_it() -> None:
    world = running("StatefulSet")
    world.spec["paused"] = True
    asked(world, "Abort")
    paused = told(world, "Paused")
    assert paused is not None
    assert paused.status == "True"
    assert world.status.halt is not None


# What failure policies use


def scene(world: World) -> Scene:
    snapshot = world.snapshot()
    return Scene(snapshot, driver_for(snapshot), unfinished=True, restarting=False, now=NOW)


def test_a_failure_policy_halts_with_its_own_reason() -> None:
    held = intents.halt(
        Intent(), scene(running("StatefulSet")), "ReadyDeadlineExceeded", "pod worker-2 is not ready"
    )
    assert held.halt is not None
    assert (held.halt.revision, held.halt.reason) == (NEW, "ReadyDeadlineExceeded")
    assert held.halt.message.startswith("pod worker-2 is not ready. To go on, set")
    stops = held.stops()
    assert stops is not None
    assert stops.reason is Waiting.HALTED


def test_nothing_is_halted_whose_target_is_unknown() -> None:
    assert intents.halt(Intent(), scene(running("StatefulSet", observed_generation=1)), "R", "m").halt is None


def test_a_promotion_names_the_revision_and_counts_for_that_alone() -> None:
    world = running("StatefulSet")
    held = intents.promote(Intent(), scene(world), all_steps=True)
    assert held.promoted is not None
    assert (held.promoted.revision, held.promoted.all_steps) == (NEW, True)
    world.status = world.status.model_copy(update=held.stored())
    assert world.plan().status.promoted == held.promoted
    world.set_workload(update_revision="third", template=template("third"))
    assert world.plan().status.promoted is None


def test_a_halt_is_stored_with_a_stage_that_moves() -> None:
    """The effect and the sight of it are one write: a decision over the stored status finds both or none."""
    world = running("StatefulSet")
    ask(world, "Abort")
    one: Any = plan(world.snapshot(), NOW).status
    assert (one.observed_action_id, bool(one.halt)) == ("1", True)
    assert all(e.stage is not Stage.SELECTED for e in one.replacements)
