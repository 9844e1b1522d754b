"""A DaemonSet with OnDelete: its controller makes a pod anew where we evicted one, and its revisions tell the target."""

from typing import Any

import pytest

from accelerator_rollout.decide.actions import EvictPod
from accelerator_rollout.records import RevisionRecord
from accelerator_rollout.workloads.base import NotNow
from accelerator_rollout.workloads.daemonset import DaemonSetDriver
from builders import CREATED, NEW, NOW, OLD, daemon_set, gated_pod, leaving, pod, revision

BOTH = (revision(OLD, 1), revision(NEW, 2))


def driver(*pods: Any, revisions: tuple[RevisionRecord, ...] = BOTH, **over: Any) -> DaemonSetDriver:
    return DaemonSetDriver(daemon_set(len(pods), **over), revisions, pods)


def on_node(number: int, digest: str = OLD, **over: Any) -> Any:
    return pod(f"worker-{number}", digest, kind="DaemonSet", **over)


def test_only_on_delete_leaves_the_deletion_to_us() -> None:
    assert driver().refusal() is None
    refused = driver(update_strategy="RollingUpdate").refusal()
    assert refused is not None
    assert "OnDelete" in refused.message


def test_the_target_is_the_revision_with_the_daemon_sets_own_template() -> None:
    assert driver().revision() == NEW
    assert driver().updated(on_node(0, NEW))
    assert not driver().updated(on_node(0, OLD))


def test_after_a_rollback_the_target_is_the_older_revision_whatever_its_number() -> None:
    back = driver(revisions=(revision(NEW, 1), revision(OLD, 2)))
    assert back.revision() == NEW


def test_of_two_revisions_with_one_template_the_newer_counts() -> None:
    twice = driver(revisions=(revision(NEW, 3, name="b", revision="b"), revision(NEW, 2)))
    assert twice.revision() == "b"


@pytest.mark.parametrize(
    "over", [{"generation": 3}, {"revisions": (revision(OLD, 1),)}, {"revisions": ()}], ids=str
)
def test_while_no_revision_speaks_of_the_newest_template_nothing_is_known(over: dict[str, Any]) -> None:
    behind = driver(**over)
    assert behind.behind() is not None
    assert isinstance(behind.replace((on_node(0),)), NotNow)


def test_without_a_target_no_pod_is_at_it() -> None:
    assert not driver(revisions=()).updated(on_node(0, ""))


def test_complete_when_no_live_pod_is_old() -> None:
    assert driver(on_node(0, NEW), leaving(on_node(1, OLD))).complete()
    assert not driver(on_node(0, NEW), on_node(1, OLD)).complete()


def test_the_oldest_goes_first_and_of_equals_the_first_node() -> None:
    pods = (on_node(2, created=CREATED), on_node(1, created=CREATED), on_node(0, created=NOW))
    assert driver().choose(pods).name == "worker-1"


def test_a_pod_is_replaced_by_its_eviction_with_its_uid() -> None:
    assert driver().replace((on_node(0),)) == (EvictPod("worker-0", "p-worker-0"),)


def test_nothing_of_ours_is_on_a_daemon_set_and_no_node_waits_for_another() -> None:
    waiting = gated_pod("worker-0", kind="DaemonSet")
    one = driver(waiting)
    assert one.upkeep(may_move=False) == one.let_go() == one.prepare((waiting,)) == ()
    assert one.open_blocked(waiting) is one.held_back() is None
    assert not one.stepping()
    assert not one.holds_up(waiting, "worker-1")
    assert one.ungated_revisions() == ()
