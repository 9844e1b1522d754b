"""What says that the node let go of a departed pod's devices.

A graceful end proves it: the kubelet calls NodeUnprepareResources after all containers stopped and before it writes the
terminal phase [kubelet.SyncTerminatingPod]. A pod that was never bound had nothing prepared. A changed boot ID means
that no process of the old boot lives. Everything else is unproven and costs a wait: after a forced deletion a kubelet that
saw it gives the containers two seconds, one that finds the pod gone without having seen it still gives them the grace period
of the spec [pod_workers.calculateEffectiveGracePeriod], and both look for leftovers every 60 s.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from accelerator_rollout.api.models import Proof, Replacement, Unproven, UnprovenPolicy
from accelerator_rollout.records import NodeRecord, PodRecord


@dataclass(frozen=True, slots=True)
class ProofState:
    """The proof, or since when it is missing and (if it only takes time) until when."""

    proof: Proof | None
    due: datetime | None = None
    message: str = ""


def ended_in_order(pod: PodRecord) -> bool:
    """Whether the kubelet itself reported the end, so that unprepare has succeeded before."""
    return pod.terminal and pod.kubelet_terminal and pod.containers_terminated and not pod.by_pod_gc


def find_proof(
    replacement: Replacement,
    last_seen: PodRecord | None,
    node: NodeRecord | None,
    now: datetime,
    unproven: Unproven,
) -> ProofState:
    """Return what proves the release of `replacement`'s pod; a proof once recorded stays.

    `last_seen` is the pod's last known state, from the API or from the moment it vanished; None if nobody saw it.
    `unproven` says what to do without a proof: wait, on a Ready node only, or have a person decide.
    """
    if replacement.proof is not None:
        return ProofState(replacement.proof)
    if last_seen is not None:
        if not last_seen.bound:
            return ProofState(Proof.NEVER_BOUND)
        if ended_in_order(last_seen):
            return ProofState(Proof.KUBELET_TERMINAL_PHASE)
    if node is not None and replacement.boot_id and node.boot_id and node.boot_id != replacement.boot_id:
        return ProofState(Proof.NODE_REBOOTED)
    return _wait(replacement, node, now, unproven)


def _wait(replacement: Replacement, node: NodeRecord | None, now: datetime, unproven: Unproven) -> ProofState:
    vanished = replacement.vanished_at
    if vanished is None:
        return ProofState(None, message=f"pod {replacement.pod_name} has not ended")
    who = f"pod {replacement.pod_name} vanished" if replacement.pod_name else "an unknown predecessor left"
    if unproven.policy is UnprovenPolicy.PAUSE:
        return ProofState(
            None,
            message=f"{who} without word from the kubelet. Make sure that its node let go of the devices, and set "
            "spec.release.unproven.policy to Wait; or reboot the node",
        )
    start = vanished
    if replacement.node_name:
        if node is None:
            return ProofState(
                None,
                message=f"pod {replacement.pod_name} vanished without word from the kubelet, and its node "
                f"{replacement.node_name} is gone: its processes may still run. Make sure that the machine is off",
            )
        if not node.ready or node.ready_since is None:
            return ProofState(
                None,
                message=f"pod {replacement.pod_name} vanished without word from the kubelet, and its node "
                f"{node.name} is not Ready: the wait counts only on a Ready node. Repair or reboot the node",
            )
        start = max(vanished, node.ready_since)
    due = start + timedelta(seconds=(replacement.grace_seconds or 0) + unproven.extra_seconds)
    if now >= due:
        return ProofState(Proof.WAIT_ELAPSED)
    return ProofState(
        None,
        due,
        f"{who} without word from the kubelet: its devices count as free after {due:%H:%M:%S} UTC, "
        f"its grace period plus {unproven.extra_seconds} s",
    )
