"""Undo: what is restored, that it is stored first, and that whoever changes the template meanwhile has the last word."""

from dataclasses import replace

import pytest

from accelerator_rollout.decide.actions import Action, EvictPod, RestoreTemplate, UnpauseDeployment
from accelerator_rollout.decide.outcome import EventType, Plan
from accelerator_rollout.decide.reasons import Announcement, Halted, Refusal, Waiting
from builders import NEW, OLD, World, at, replica_set, revision, running, template

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
THIRD = "third-digest-00"


def history(kind: str, digest: str = OLD) -> World:
    """A workload whose history has a third template (the oldest), OLD and NEW; the template is NEW."""
    world = running(kind, digest=digest)
    if kind == "Deployment":
        world.sets = [
            replica_set(THIRD, 0, number=1),
            replica_set(OLD, 3 if digest == OLD else 0, number=2),
            replica_set(NEW, 3 if digest == NEW else 0, number=3),
        ]
    else:
        world.revisions = [revision(THIRD, 1), revision(OLD, 2), revision(NEW, 3)]
    return world


def undo(world: World, identity: str = "1") -> Plan:
    world.spec["action"] = {"type": "Undo", "id": identity}
    world.generation += 1
    return world.plan()


def restores(decided: Plan) -> list[tuple[str, str]]:
    return [(a.leaves, a.restores) for a in decided.actions if isinstance(a, RestoreTemplate)]


def disruptions(decided: Plan) -> list[Action]:
    return [
        a
        for a in decided.actions
        if isinstance(a, EvictPod) or (isinstance(a, UnpauseDeployment) and a.victim_uids)
    ]


def name_of(kind: str, digest: str) -> str:
    return f"worker-{digest[:3]}" if kind == "Deployment" else f"worker-{digest}"


def events(decided: Plan) -> list[str]:
    return [n.reason for n in decided.notices]


@EACH
@pytest.mark.parametrize("digest", [OLD, NEW], ids=["in the middle", "at rest"])
def test_the_newest_before_the_present_one_is_restored(kind: str, digest: str) -> None:
    decided = undo(history(kind, digest))
    assert restores(decided) == [(NEW, OLD)]
    assert not disruptions(decided)
    assert decided.record_first
    assert decided.status.undo is not None
    assert decided.status.undo.revision_name == name_of(kind, OLD)
    assert events(decided) == [Announcement.UNDOING]


@EACH
def test_the_revision_that_the_pods_were_last_all_at_comes_first(kind: str) -> None:
    world = history(kind)
    last = THIRD[:12] if kind == "Deployment" else THIRD
    world.status = world.status.model_copy(update={"current_revision": last})
    assert restores(undo(world)) == [(NEW, THIRD)]


@EACH
def test_a_revision_without_our_gate_is_passed_over(kind: str) -> None:
    world = history(kind)
    world.sets = [replace(s, template_gates=()) if s.template_digest == OLD else s for s in world.sets]
    world.revisions = [replace(r, gated=r.template_digest != OLD) for r in world.revisions]
    assert restores(undo(world)) == [(NEW, THIRD)]


@EACH
def test_without_a_former_revision_nothing_is_done(kind: str) -> None:
    world = history(kind, NEW)
    world.sets = [s for s in world.sets if s.template_digest == NEW]
    world.revisions = [r for r in world.revisions if r.template_digest == NEW]
    decided = undo(world)
    assert (restores(decided), decided.status.undo) == ([], None)
    assert events(decided) == [Announcement.NO_EFFECT]
    assert decided.status.observed_action_id == "1"


@EACH
def test_it_is_done_over_the_stored_status_and_nothing_is_replaced_before(kind: str) -> None:
    world = history(kind)
    world.store(undo(world))
    later = world.plan(at(30))
    assert restores(later) == [(NEW, OLD)]
    assert not disruptions(later)
    assert not later.notices
    told = next(c for c in later.status.conditions if c.type == "Progressing")
    assert told.reason == Waiting.UNDOING


@EACH
@pytest.mark.parametrize("wins", [OLD, "a-fourth-one"], ids=["restored", "somebody else was faster"])
def test_it_is_over_once_the_workload_has_another_template(kind: str, wins: str) -> None:
    world = history(kind)
    world.store(undo(world))
    world.set_workload(template=template(wins), generation=3)
    decided = world.plan(at(2))
    assert (restores(decided), decided.status.undo) == ([], None)
    assert events(decided) == ([Announcement.UNDONE] if wins == OLD else [])


@EACH
def test_a_former_template_that_vanished_halts(kind: str) -> None:
    world = history(kind)
    world.store(undo(world))
    world.sets = [s for s in world.sets if s.template_digest != OLD or s.replicas]
    if kind == "Deployment":
        world.sets = [replace(s, uid="another") if s.template_digest == OLD else s for s in world.sets]
        world.change("worker-0", ready=True)
    world.revisions = [r for r in world.revisions if r.template_digest != OLD]
    decided = world.plan(at(2))
    assert (restores(decided), decided.status.undo) == ([], None)
    assert decided.status.halt is not None
    assert decided.status.halt.reason == Halted.UNDO_FAILED
    assert not disruptions(decided)


@EACH
def test_it_keeps_a_halt_until_the_template_is_written(kind: str) -> None:
    world = history(kind)
    world.spec["action"] = {"type": "Abort", "id": "0"}
    world.store(world.plan())
    decided = undo(world)
    assert restores(decided) == [(NEW, OLD)]
    assert decided.status.halt is not None
    world.store(decided)
    if kind == "StatefulSet":
        world.set_workload(update_revision=OLD)
    if kind == "DaemonSet":
        world.revisions[1] = revision(OLD, 4)
    world.set_workload(template=template(OLD))
    assert world.plan(at(2)).status.halt is None


@EACH
@pytest.mark.parametrize("action", ["Abort", "Retry"])
def test_an_abort_or_retry_takes_it_back_while_it_is_not_written(kind: str, action: str) -> None:
    world = history(kind)
    world.store(undo(world))
    world.spec["action"] = {"type": action, "id": "2"}
    decided = world.plan(at(2))
    assert (restores(decided), decided.status.undo) == ([], None)
    assert (decided.status.halt is not None) == (action == "Abort")
    assert bool(disruptions(decided)) == (action == "Retry")


@EACH
def test_a_second_undo_has_no_effect_while_one_is_under_way(kind: str) -> None:
    world = history(kind)
    world.store(undo(world))
    decided = undo(world, "2")
    assert events(decided) == [Announcement.NO_EFFECT]
    assert restores(decided) == [(NEW, OLD)]


@EACH
def test_it_works_while_paused_and_while_new_pods_would_not_be_gated(kind: str) -> None:
    """A template that lost the gate is refused: the way back must be open."""
    world = history(kind)
    world.spec["paused"] = True
    world.set_workload(template=template(NEW, gates=()))
    assert restores(undo(world)) == [(NEW, OLD)]


def test_without_the_optional_role_it_says_what_to_install() -> None:
    world = history("StatefulSet")
    world.restore = False
    decided = undo(world)
    assert restores(decided) == []
    assert "-k deploy/kustomize/overlays/undo" in decided.notices[0].message


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_a_workload_whose_controller_would_move_at_once_is_left_alone(kind: str) -> None:
    world = history(kind)
    world.set_workload(update_strategy="RollingUpdate")
    decided = undo(world)
    assert restores(decided) == []
    assert events(decided) == [Announcement.NO_EFFECT, Refusal.STRATEGY_NOT_SUPPORTED]
    assert "RollingUpdate" in decided.notices[0].message


@EACH
def test_a_tool_that_owns_the_template_is_named(kind: str) -> None:
    world = history(kind)
    world.set_workload(managed_by="Argo CD")
    (notice,) = undo(world).notices
    assert notice.type is EventType.WARNING
    assert (
        "managed by Argo CD, which will put the template back unless the change is reverted there"
        in notice.message
    )


def test_the_pods_of_the_undone_revision_are_brought_back() -> None:
    world = history("StatefulSet")
    world.change("worker-2", revision=NEW, ready=False, ready_since=None)
    world.store(undo(world))
    world.set_workload(template=template(OLD), update_revision=OLD)
    decided = world.plan(at(3))
    assert [a.pod_name for a in decided.actions if isinstance(a, EvictPod)] == ["worker-2"]
