"""Our gate on a raw pod spec: whether it is there, and the patch that takes it off."""

from typing import Any

from accelerator_rollout.cli.cluster import Raw
from accelerator_rollout.names import GATE


def has_gate(spec: Raw) -> bool:
    """Whether a pod spec, or that of a template, carries our gate."""
    return any(gate.get("name") == GATE for gate in spec.get("schedulingGates") or ())


def opening(meta: Raw) -> dict[str, Any]:
    """Return the strategic merge patch that removes our gate, and no other's, from this very pod."""
    return {
        "metadata": {"uid": meta["uid"]},
        "spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]},
    }
