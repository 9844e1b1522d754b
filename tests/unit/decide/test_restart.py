"""spec.restartedAt: every older pod is replaced at the revision it has, under all the rules of a rollout."""

from datetime import datetime, timedelta

import pytest

from accelerator_rollout.api.models import Outcome
from accelerator_rollout.decide.actions import Action, EvictPod, PreferVictim, UnpauseDeployment
from accelerator_rollout.decide.reasons import Halted, Waiting
from builders import CREATED, NEW, NOW, OLD, World, at, budget, device, of_type, pod, replica_set, running

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])


def restarted(kind: str, when: datetime = NOW, digest: str = NEW) -> World:
    world = running(kind, digest=digest)
    world.spec["restartedAt"] = f"{when:%Y-%m-%dT%H:%M:%SZ}"
    return world


def evicted(actions: tuple[Action, ...]) -> list[str]:
    return [a.pod_name for a in actions if isinstance(a, EvictPod)]


def reason(world: World, condition: str) -> tuple[str, str]:
    found = next(c for c in world.plan().status.conditions if c.type == condition)
    return str(found.status), found.reason


def renew(world: World, name: str) -> None:
    """Replace the pod by a healthy one of just now."""
    old = world.vanish(name, seen=False)
    world.put(
        pod(name, NEW, kind=world.kind, uid=f"new-{name}", created=NOW, node=old.node), device(name[-1])
    )


@EACH
def test_an_older_pod_is_evicted_and_its_workload_left_as_it_is(kind: str) -> None:
    decided = restarted(kind).plan()
    assert len(evicted(decided.actions)) == 1
    assert not of_type(decided.actions, UnpauseDeployment)
    assert not of_type(decided.actions, PreferVictim)
    assert decided.record_first
    assert "created before spec.restartedAt (2026-01-31 12:00:00 UTC)" in decided.notices[0].message


@EACH
def test_a_pod_of_the_same_second_is_not_older(kind: str) -> None:
    decided = restarted(kind, when=CREATED).plan()
    assert not evicted(decided.actions)
    assert next(c for c in decided.status.conditions if c.type == "Ready").status == "True"


@EACH
def test_a_time_to_come_is_waited_for(kind: str) -> None:
    world = restarted(kind, when=at(120))
    decided = world.plan()
    assert not evicted(decided.actions)
    assert decided.next_due == at(120)
    assert reason(world, "Ready")[0] == "True"
    assert evicted(world.actions(at(120)))


@EACH
def test_the_status_tells_the_truth_about_it(kind: str) -> None:
    world = restarted(kind)
    renew(world, "worker-1")
    decided = world.plan()
    status = decided.status
    assert (status.updated_replicas, status.replicas) == (1, 3)
    assert status.history[0].outcome is Outcome.IN_PROGRESS
    assert (status.history[0].revision, status.history[0].restarted_at) == (status.update_revision, NOW)
    told = next(c for c in status.conditions if c.type == "Ready")
    assert told.status == "False"
    assert "1 of 3 pods at revision" in told.message
    assert "created since 2026-01-31 12:00:00 UTC" in told.message


@EACH
def test_it_completes_once_every_pod_is_young_enough(kind: str) -> None:
    world = restarted(kind)
    world.store(world.plan())
    world.status = world.status.model_copy(update={"replacements": ()})
    for number in range(3):
        renew(world, f"worker-{number}")
    decided = world.plan(at(60))
    assert not decided.actions
    assert decided.status.updated_replicas == 3
    assert decided.status.history[0].outcome is Outcome.COMPLETED


def test_pods_of_another_revision_go_first() -> None:
    world = restarted("StatefulSet", digest="old-digest-0000")
    renew(world, "worker-2")
    world.change("worker-1", revision=NEW)
    assert evicted(world.actions()) == ["worker-0"]
    assert world.plan().status.history[0].restarted_at is None


@EACH
def test_it_obeys_pause_budget_and_disruption_budget(kind: str) -> None:
    world = restarted(kind)
    world.spec["paused"] = True
    assert not evicted(world.actions())
    assert reason(world, "Progressing") == ("False", Waiting.PAUSED)
    world.spec["paused"] = False
    world.budgets = [budget(0)]
    assert not evicted(world.actions())
    assert reason(world, "Progressing") == ("False", Waiting.BLOCKED_BY_PDB)
    world.budgets = [budget(1)]
    assert evicted(world.actions())
    renew(world, "worker-1")
    world.change("worker-1", ready=False, ready_since=None)
    assert not evicted(world.actions())


def test_a_persons_pause_of_the_deployment_holds_it_back() -> None:
    world = restarted("Deployment")
    world.set_workload(paused=True)
    assert not evicted(world.actions())
    assert reason(world, "Progressing") == ("False", Waiting.PAUSED_BY_USER)


def test_it_waits_until_the_deployments_controller_is_done() -> None:
    world = restarted("Deployment")
    world.sets.append(replica_set("old-digest-0000", 0, status_replicas=1))
    world.set_workload(paused=True, parked="step-taken")
    assert not evicted(world.actions())


@EACH
def test_an_abort_stops_it_and_another_time_goes_on(kind: str) -> None:
    world = restarted(kind)
    world.spec["action"] = {"type": "Abort", "id": "1"}
    decided = world.plan()
    assert not evicted(decided.actions)
    assert decided.status.halt is not None
    assert (decided.status.halt.reason, decided.status.halt.restarted_at) == (Halted.ABORTED, NOW)
    world.store(decided)
    assert not evicted(world.actions(at(60)))
    assert world.status.history[0].outcome is Outcome.ABORTED
    world.spec["restartedAt"] = f"{NOW + timedelta(seconds=30):%Y-%m-%dT%H:%M:%SZ}"
    again = world.plan(at(60))
    assert again.status.halt is None
    assert evicted(again.actions)


def test_a_restart_does_not_end_the_halt_of_a_revision() -> None:
    world = running("StatefulSet")
    world.spec["action"] = {"type": "Abort", "id": "1"}
    world.store(world.plan())
    world.spec["restartedAt"] = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
    decided = world.plan(at(60))
    assert decided.status.halt is not None
    assert not evicted(decided.actions)


@EACH
def test_a_second_look_keeps_to_the_first_choice(kind: str) -> None:
    world = restarted(kind)
    first = world.plan()
    world.store(first)
    again = world.plan(at(1))
    assert evicted(again.actions) == evicted(first.actions)
    assert not again.notices


def test_beside_a_partition_the_updated_pods_are_restarted_and_the_kept_ones_stay() -> None:
    world = restarted("StatefulSet")
    world.spec["strategy"] = {"partition": 2}
    for name in ("worker-0", "worker-1"):
        world.change(name, revision=OLD)
    assert evicted(world.plan().actions) == ["worker-2"]
    assert reason(world, "Ready")[0] == "False"
    renew(world, "worker-2")
    assert not evicted(world.plan().actions)
    assert reason(world, "Ready") == ("True", "PartitionReached")
