"""A StatefulSet with OnDelete: its controller recreates what we evict."""

import pytest

from accelerator_rollout.decide.actions import EvictPod
from accelerator_rollout.workloads.base import NotNow
from accelerator_rollout.workloads.statefulset import StatefulSetDriver
from builders import NEW, OLD, gated_pod, leaving, pod, stateful_set


def driver(*pods: object, **over: object) -> StatefulSetDriver:
    return StatefulSetDriver(stateful_set(len(pods), **over), pods)  # type: ignore[arg-type]


def test_only_on_delete_leaves_the_deletion_to_us() -> None:
    assert driver().refusal() is None
    assert driver(update_strategy="RollingUpdate").refusal() is not None


def test_the_target_is_the_controllers_own_update_revision() -> None:
    assert driver().revision() == NEW
    assert driver().updated(pod("worker-0", NEW))
    assert not driver().updated(pod("worker-0", OLD))


@pytest.mark.parametrize("over", [{"generation": 3}, {"update_revision": ""}])
def test_a_revision_that_speaks_of_an_older_template_is_not_believed(over: dict[str, object]) -> None:
    behind = driver(**over)
    assert behind.behind() is not None
    assert isinstance(behind.replace((pod("worker-0"),)), NotNow)


def test_complete_when_no_live_pod_is_old() -> None:
    assert driver(pod("worker-0", NEW), leaving(pod("worker-1", OLD))).complete()
    assert not driver(pod("worker-0", NEW), pod("worker-1", OLD)).complete()


def test_the_highest_ordinal_goes_first_as_a_number_and_not_as_a_word() -> None:
    pods = tuple(pod(f"worker-{n}") for n in (2, 10, 9))
    assert driver().choose(pods).name == "worker-10"


def test_of_pods_that_are_down_the_lowest_goes_first() -> None:
    pods = tuple(pod(f"worker-{n}", ready=n == 10) for n in (2, 10, 9))
    assert driver().choose(pods).name == "worker-2"


def test_a_pod_holds_up_its_own_predecessor_and_those_after_it() -> None:
    assert driver().holds_up(pod("worker-1"), "worker-2")
    assert driver().holds_up(pod("worker-2"), "worker-2")
    assert not driver().holds_up(pod("worker-2"), "worker-1")
    assert not driver().holds_up(pod("worker-10"), "worker-9")


def test_a_pod_is_replaced_by_its_eviction_with_its_uid() -> None:
    assert driver().replace((pod("worker-0"),)) == (EvictPod("worker-0", "p-worker-0"),)


def test_nothing_of_ours_is_on_a_stateful_set() -> None:
    one = driver(gated_pod("worker-0"))
    assert one.upkeep(may_move=False) == one.let_go() == ()
    assert one.open_blocked(gated_pod("worker-0")) is one.held_back() is None
    assert not one.stepping()
    assert one.ungated_revisions() == ()
