"""A Deployment: how far its own controller would go, and what keeps it parked between two steps."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelerator_rollout.decide.actions import (
    Action,
    ManageDeployment,
    ParkReason,
    PauseDeployment,
    UnmanageDeployment,
    UnpauseDeployment,
)
from accelerator_rollout.names import GATE_LABEL, GATE_LABEL_VALUE
from accelerator_rollout.records import PodRecord, ReplicaSetRecord
from accelerator_rollout.workloads.deployment import DeploymentDriver, _Set, resolve, step_size
from builders import NAME, NEW, NOW, OLD, deployment, gated_pod, leaving, pod, replica_set, template
from model.rolling import RollingUpdate

UID = f"d-{NAME}"
UNPARK = UnpauseDeployment(NAME, UID)


def driver(
    *sets: ReplicaSetRecord, pods: tuple[PodRecord, ...] = (), replicas: int = 3, **over: Any
) -> DeploymentDriver:
    return DeploymentDriver(deployment(replicas, **over), sets, pods)


def parked(**over: Any) -> dict[str, Any]:
    return {"paused": True, "parked": "template-changed"} | over


# Percentages, as the controller rounds them [deployment/util ResolveFenceposts]


@pytest.mark.parametrize(
    ("value", "replicas", "up", "down"),
    [
        (0, 4, 0, 0),
        (2, 4, 2, 2),
        ("25%", 4, 1, 1),
        ("25%", 3, 1, 0),
        ("25%", 5, 2, 1),
        ("0%", 9, 0, 0),
        ("100%", 7, 7, 7),
        ("33%", 10, 4, 3),
    ],
)
def test_percentages_round_up_for_surge_and_down_for_unavailable(
    value: int | str, replicas: int, up: int, down: int
) -> None:
    assert resolve(value, replicas, round_up=True) == up
    assert resolve(value, replicas, round_up=False) == down


def test_what_is_no_percentage_is_an_error() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        resolve("many%", 3, round_up=True)


# The step


@pytest.mark.parametrize(
    ("replicas", "new", "old", "expected", "why"),
    [
        (4, (0, 0), [(4, 4)], 1, "a fresh start takes one"),
        (1, (0, 0), [(1, 1)], 1, "also where there is only one"),
        (4, (1, 1), [(3, 3)], 1, "the next one, once the last is available"),
        (4, (1, 0), [(3, 3)], 0, "none while the last is not"),
        (4, (0, 0), [(4, 3)], 1, "the broken one, and no healthy one with it"),
        (4, (0, 0), [(4, 2)], 1, "one of two broken ones: its replacement is down as well"),
        (4, (0, 0), [(4, 0)], 1, "one of all broken ones"),
        (4, (0, 0), [(3, 3), (1, 0)], 1, "the bad one in between, at a third revision"),
        (4, (3, 3), [(1, 0)], 1, "the bad one, on the way back"),
        (4, (1, 0), [(3, 2)], 0, "none while the newest is down, even a broken one"),
        (4, (4, 4), [], 0, "none when there is none"),
        (4, (0, 0), [(3, 3)], 0, "none where one is missing: it is made first"),
        (0, (0, 0), [], 0, "none of none"),
    ],
)
def test_the_controllers_own_arithmetic_gives_one_step(
    replicas: int, new: tuple[int, int], old: list[tuple[int, int]], expected: int, why: str
) -> None:
    assert step_size(replicas, 1, _Set(*new), tuple(_Set(*o) for o in old)) == expected, why


def test_a_budget_of_two_would_take_two() -> None:
    assert step_size(4, 2, _Set(0, 0), (_Set(4, 4),)) == 2


@st.composite
def _sets(draw: st.DrawFn) -> tuple[int, int, tuple[int, int], list[tuple[int, int]]]:
    """Return replicas, maxUnavailable, and (replicas, available) of the new and the old ReplicaSets."""
    replicas = draw(st.integers(0, 6))
    left, sizes = replicas, []
    for _ in range(3):
        size = draw(st.integers(0, left))
        sizes.append((size, draw(st.integers(0, size))))
        left -= size
    return replicas, draw(st.integers(1, 2)), sizes[0], sizes[1:]


@given(_sets())
def test_the_prediction_is_what_the_controller_then_does(
    world: tuple[int, int, tuple[int, int], list[tuple[int, int]]],
) -> None:
    """Against the model controller, stepped until it stands still with all its new pods gated."""
    replicas, unavailable, new, old = world
    controller = RollingUpdate(replicas, unavailable, new, list(old))
    before = sum(size for size, _ in old)
    controller.run_gated()
    predicted = step_size(replicas, unavailable, _Set(*new), tuple(_Set(*o) for o in old))
    assert predicted == before - sum(size for size, _ in controller.old)


# Complete, stepping, locked


def test_complete_when_no_old_pod_is_left() -> None:
    assert driver(replica_set(NEW, 3), replica_set(OLD, 0)).complete()
    assert not driver(replica_set(NEW, 2), replica_set(OLD, 1)).complete()
    assert not driver(replica_set(NEW, 3), replica_set(OLD, 0, status_replicas=1)).complete()


def test_not_complete_before_the_new_replica_set_exists_unless_none_is_asked_for() -> None:
    assert not driver(replica_set(OLD, 0)).complete()
    assert driver(replica_set(OLD, 0), replicas=0).complete()


def test_of_two_replica_sets_with_the_template_the_older_is_the_new_one() -> None:
    twin = replica_set(NEW, 1, uid="twin", name="a-twin")
    one = driver(replace(twin, created=NOW), replica_set(NEW, 2, created=NOW.replace(year=2025)))
    assert one.updated(pod("worker-0", NEW, kind="Deployment"))
    assert not one.complete()


def test_a_pause_without_our_annotation_is_a_persons() -> None:
    held = driver(replica_set(OLD, 3), paused=True).held_back()
    assert held is not None
    assert "kubectl rollout resume deployment/worker" in held.message
    assert driver(replica_set(OLD, 3), **parked()).held_back() is None


# Upkeep


def upkeep(one: DeploymentDriver, *, may_move: bool = False) -> tuple[Action, ...]:
    return one.upkeep(may_move=may_move)


def test_the_label_is_put_on_by_us() -> None:
    assert upkeep(driver(replica_set(NEW, 3), managed=False)) == (ManageDeployment(NAME, UID),)


def test_at_rest_a_deployment_is_not_parked() -> None:
    assert upkeep(driver(replica_set(NEW, 3), **parked())) == (UNPARK,)
    assert upkeep(driver(replica_set(NEW, 3))) == ()


def test_a_resumed_deployment_loses_our_annotation_lest_the_next_pause_look_like_ours() -> None:
    assert upkeep(driver(replica_set(NEW, 3), paused=False, parked="template-changed")) == (UNPARK,)


def test_a_deployment_whose_template_changed_before_it_had_any_pod_is_set_free() -> None:
    """Paused it makes no ReplicaSet: there is nothing to step through, and nothing would ever begin."""
    assert upkeep(driver(**parked())) == (UNPARK,)
    assert upkeep(driver(replica_set(OLD, 3), **parked())) == ()
    assert upkeep(driver(pods=(pod("worker-0", kind="Deployment"),), **parked())) == ()


def test_a_persons_pause_at_rest_stays() -> None:
    assert upkeep(driver(replica_set(NEW, 3), paused=True)) == ()


def test_it_is_parked_as_soon_as_the_step_is_taken() -> None:
    pods = (gated_pod("worker-9", kind="Deployment"),)
    one = driver(replica_set(OLD, 2), replica_set(NEW, 1, 0), pods=pods)
    assert upkeep(one, may_move=True) == (PauseDeployment(NAME, UID, ParkReason.STEP_TAKEN),)


@pytest.mark.parametrize(
    ("sets", "pods", "why"),
    [
        ((replica_set(OLD, 2),), (), "the old one has shrunk and the new one not grown: a pause undoes that"),
        ((replica_set(OLD, 2), replica_set(NEW, 1, 0)), (), "the gated pod does not exist"),
        (
            (replica_set(OLD, 2), replica_set(NEW, 1, 0)),
            (leaving(gated_pod("worker-9", kind="Deployment")),),
            "it is leaving",
        ),
    ],
)
def test_it_is_not_parked_in_the_middle_of_a_step(
    sets: tuple[ReplicaSetRecord, ...], pods: tuple[PodRecord, ...], why: str
) -> None:
    assert upkeep(driver(*sets, pods=pods)) == (), why


def test_it_is_halted_if_it_was_about_to_move_without_leave() -> None:
    one = driver(replica_set(OLD, 3))
    assert upkeep(one) == (PauseDeployment(NAME, UID, ParkReason.HALTED),)
    assert upkeep(one, may_move=True) == ()


def test_letting_go_takes_label_and_pause_and_nothing_else() -> None:
    assert driver(managed=True).let_go() == (UnmanageDeployment(NAME, UID),)
    assert driver(managed=False, **parked()).let_go() == (UnmanageDeployment(NAME, UID),)
    assert driver(managed=False, paused=True).let_go() == ()


def test_revisions_that_make_ungated_pods_are_named() -> None:
    by_label = {GATE_LABEL: GATE_LABEL_VALUE}
    sets = (
        replica_set(OLD, 2, template_gates=()),
        replica_set("none", 0, template_gates=()),
        replica_set("label", 1, template_gates=(), template_labels=by_label),
        replica_set(NEW, 1),
    )
    assert driver(*sets).ungated_revisions() == (f"{NAME}-old",)


def test_the_revision_is_named_before_its_replica_set_exists() -> None:
    assert driver(template=template("abcdefghijklmnop")).revision() == "abcdefghijkl"
