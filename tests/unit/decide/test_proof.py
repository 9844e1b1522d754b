"""What proves that a node let go of a departed pod's devices, and what does not."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from accelerator_rollout.api.models import Proof, Replacement, Unproven, UnprovenPolicy
from accelerator_rollout.decide.proof import ProofState, find_proof
from accelerator_rollout.records import NodeRecord, PodRecord
from builders import EXTRA, GRACE, NOW, at, device, ended, entry, leaving, node, pod

POD = pod("worker-1")
NODE = node("node-1")


def found(
    last_seen: PodRecord | None,
    *,
    record: Replacement | None = None,
    of_node: NodeRecord | None = NODE,
    now: datetime = NOW,
    policy: UnprovenPolicy = UnprovenPolicy.WAIT,
) -> ProofState:
    unproven = Unproven(policy=policy, extra_seconds=EXTRA)
    return find_proof(record or entry(POD, device(1)), last_seen, of_node, now, unproven)


def gone(seconds_ago: float = 0, **over: Any) -> Replacement:
    return entry(POD, device(1), vanished_at=at(-seconds_ago), **over)


def test_the_kubelet_reports_the_end_only_after_it_unprepared() -> None:
    assert found(ended(POD)).proof is Proof.KUBELET_TERMINAL_PHASE


@pytest.mark.parametrize(
    ("why", "pod_record"),
    [
        ("the pod still terminates", leaving(POD)),
        ("somebody else wrote the phase", replace(ended(POD), kubelet_terminal=False)),
        ("a container still runs", replace(ended(POD), containers_terminated=False)),
        ("the pod garbage collector ended it", replace(ended(POD), by_pod_gc=True)),
        ("it vanished while it ran", POD),
        ("nobody saw it", None),
    ],
)
def test_nothing_else_about_a_pod_that_ran_is_proof(why: str, pod_record: PodRecord | None) -> None:
    assert found(pod_record).proof is None, why


def test_a_pod_that_no_node_ever_had_holds_nothing() -> None:
    assert found(replace(POD, node="")).proof is Proof.NEVER_BOUND


def test_no_process_outlives_a_reboot_of_its_node() -> None:
    rebooted = replace(NODE, boot_id="another")
    assert found(None, record=gone(), of_node=rebooted).proof is Proof.NODE_REBOOTED


@pytest.mark.parametrize("boot_id", ["", "boot-node-1"])
def test_a_node_that_does_not_tell_its_boot_or_tells_the_same_proves_nothing(boot_id: str) -> None:
    assert found(None, record=gone(), of_node=replace(NODE, boot_id=boot_id)).proof is None


def test_an_entry_without_a_boot_cannot_tell_a_reboot() -> None:
    assert found(None, record=gone(boot_id=""), of_node=replace(NODE, boot_id="another")).proof is None


def test_a_vanished_pod_counts_as_released_after_its_grace_period_and_the_extra_wait() -> None:
    record = gone()
    due = at(GRACE + EXTRA)
    before = found(None, record=record, now=at(GRACE + EXTRA - 1))
    assert (before.proof, before.due) == (None, due)
    assert found(None, record=record, now=due).proof is Proof.WAIT_ELAPSED


def test_the_wait_starts_only_when_the_object_is_gone() -> None:
    assert found(leaving(POD), now=at(100_000)).proof is None


def test_the_wait_does_not_count_while_the_node_is_not_ready() -> None:
    state = found(None, record=gone(), of_node=replace(NODE, ready=False), now=at(100_000))
    assert (state.proof, state.due) == (None, None)
    assert "node-1 is not Ready" in state.message


def test_the_wait_starts_again_when_the_node_comes_back() -> None:
    back = replace(NODE, ready_since=at(500))
    assert found(None, record=gone(), of_node=back, now=at(500 + GRACE + EXTRA - 1)).proof is None
    assert found(None, record=gone(), of_node=back, now=at(500 + GRACE + EXTRA)).proof is Proof.WAIT_ELAPSED


def test_a_node_object_that_is_gone_is_no_proof_and_says_what_to_do() -> None:
    state = found(None, record=gone(), of_node=None, now=at(100_000))
    assert (state.proof, state.due) == (None, None)
    assert "Make sure that the machine is off" in state.message


def test_an_unknown_predecessor_waits_without_a_node() -> None:
    unknown = gone(pod_uid="", pod_name="", node_name="")
    assert found(None, record=unknown, of_node=None, now=at(GRACE + EXTRA)).proof is Proof.WAIT_ELAPSED


def test_a_proof_once_recorded_stays() -> None:
    proven = gone(proof=Proof.KUBELET_TERMINAL_PHASE)
    assert found(None, record=proven, of_node=None).proof is Proof.KUBELET_TERMINAL_PHASE


def test_a_person_decides_where_no_time_is_enough() -> None:
    pause = UnprovenPolicy.PAUSE
    state = found(POD, record=gone(100_000), policy=pause)
    assert state.proof is None
    assert state.due is None
    assert "policy to Wait" in state.message
    assert found(ended(POD), policy=pause).proof is Proof.KUBELET_TERMINAL_PHASE
    rebooted = found(POD, record=gone(9), of_node=node("node-1", boot_id="another"), policy=pause)
    assert rebooted.proof is Proof.NODE_REBOOTED
