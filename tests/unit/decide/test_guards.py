"""The guard on pods: who gets it, when it goes, and that nothing of it stays behind."""

from dataclasses import replace

import pytest

from accelerator_rollout.decide.actions import AddGuard, OpenGate, RemoveFinalizer, RemoveGuard
from accelerator_rollout.names import GUARD_FINALIZER
from builders import EXTRA, GRACE, NEW, World, at, ended, gated_pod, leaving, of_type, running

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
THEIRS = "example.com/theirs"
SPEC = {"release": {"guard": "Finalizer"}}


def guarded_world(kind: str = "StatefulSet") -> World:
    world = running(kind, digest=NEW)
    world.spec = SPEC
    for pod in tuple(world.pods.values()):
        world.pods[pod.uid] = replace(pod, finalizers=(THEIRS, GUARD_FINALIZER))
    return world


def removed(world: World, seconds: float = 0) -> set[str]:
    return {a.pod_name for a in world.actions(at(seconds)) if isinstance(a, RemoveGuard)}


@EACH
def test_each_pod_with_a_node_is_guarded_once(kind: str) -> None:
    world = running(kind, digest=NEW)
    assert not of_type(world.actions(), AddGuard)
    world.spec = SPEC
    assert of_type(world.actions(), AddGuard) == tuple(
        AddGuard(f"worker-{n}", f"p-worker-{n}") for n in range(3)
    )
    assert not of_type(guarded_world(kind).actions(), AddGuard)


@EACH
def test_a_gated_pod_gets_it_with_its_opening(kind: str) -> None:
    world = guarded_world(kind)
    world.set_workload(replicas=4)
    world.put(gated_pod("worker-3", kind=kind))
    assert of_type(world.actions(), AddGuard) == ()
    assert OpenGate("worker-3", "q-worker-3", "", guard=True) in world.actions()


def test_it_stays_until_the_end_is_reported() -> None:
    world = guarded_world()
    world.pods["p-worker-2"] = leaving(world.named("worker-2"))
    assert removed(world) == set()
    world.pods["p-worker-2"] = ended(world.named("worker-2"))
    assert removed(world) == {"worker-2"}


def test_the_garbage_collectors_word_ends_it_too_and_proves_nothing() -> None:
    world = guarded_world()
    world.recorded("worker-2", 2)
    world.pods["p-worker-2"] = replace(
        ended(leaving(world.named("worker-2"))), kubelet_terminal=False, by_pod_gc=True
    )
    decided = world.plan()
    assert RemoveGuard("worker-2", "p-worker-2") in decided.actions
    assert decided.status.replacements[0].proof is None


def test_a_pod_that_never_had_a_node_is_let_go_at_once() -> None:
    world = guarded_world()
    world.pods["p-worker-2"] = replace(leaving(world.named("worker-2")), node="")
    assert removed(world) == {"worker-2"}


def test_it_goes_where_it_is_not_wanted_any_more() -> None:
    world = guarded_world()
    world.pods["p-worker-2"] = leaving(world.named("worker-2"))
    world.spec = {}
    assert removed(world) == {"worker-0", "worker-1"}  # what is ending still gives its proof


def test_a_pod_that_is_not_the_workloads_any_more_is_let_go() -> None:
    world = guarded_world()
    taken = world.named("worker-2")
    del world.pods[taken.uid]
    world.former.append(taken)
    assert removed(world) == {"worker-2"}


@EACH
def test_the_object_stays_until_its_guards_are_gone(kind: str) -> None:
    world = guarded_world(kind)
    world.recorded("worker-2", 2)
    world.pods["p-worker-2"] = leaving(world.named("worker-2"))
    world.deletion = at(0)
    assert removed(world) == {"worker-0", "worker-1"}
    assert not of_type(world.actions(), RemoveFinalizer)
    assert "worker-2" in removed(world, GRACE + EXTRA)
    for pod in tuple(world.pods.values()):
        world.pods[pod.uid] = replace(pod, finalizers=(THEIRS,))
    world.set_workload(replicas=2)
    assert of_type(world.actions(at(GRACE + EXTRA)), RemoveFinalizer)
