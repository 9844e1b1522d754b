"""Whatever happens in whatever order, no promise is broken; and once all is healed, the world comes to rest.

A walk that fails prints what happened, shrunk to the least that still fails. `WALKS_MODEL` sets how many long ones there are.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from model.walk import STEPS, Walk

WORLDS = {
    "Deployment": {"kind": "Deployment"},
    "Deployment, adopted while it runs": {"kind": "Deployment", "gated": False},
    "StatefulSet": {"kind": "StatefulSet"},
    "StatefulSet, parallel": {"kind": "StatefulSet", "ordered": False},
    "StatefulSet, adopted while it runs": {"kind": "StatefulSet", "gated": False},
    "Deployment, soaking": {"kind": "Deployment", "soak": 5},
    "StatefulSet, soaking": {"kind": "StatefulSet", "soak": 5},
    "Deployment, held": {"kind": "Deployment", "hold": True},
    "StatefulSet, held": {"kind": "StatefulSet", "hold": True},
    "Deployment, guarded": {"kind": "Deployment", "guard": True},
    "DaemonSet": {"kind": "DaemonSet", "replicas": 4},
    "DaemonSet, adopted while it runs": {"kind": "DaemonSet", "replicas": 4, "gated": False},
    "DaemonSet, held": {"kind": "DaemonSet", "replicas": 4, "hold": True},
    "Deployment, two at a time": {"kind": "Deployment", "replicas": 4, "devices": 5, "unavailable": 2},
    "Deployment, two at a time, soaking": {"kind": "Deployment", "unavailable": 2, "soak": 4},
    "Deployment, two at a time, held": {"kind": "Deployment", "unavailable": 2, "hold": True},
    "StatefulSet, two at a time": {"kind": "StatefulSet", "replicas": 4, "devices": 5, "unavailable": 2},
    "StatefulSet, two at a time, held": {
        "kind": "StatefulSet",
        "ordered": False,
        "unavailable": 2,
        "hold": True,
    },
    "DaemonSet, two at a time": {"kind": "DaemonSet", "replicas": 4, "unavailable": 2},
    "StatefulSet, held and guarded": {"kind": "StatefulSet", "hold": True, "guard": True},
}
EACH = pytest.mark.parametrize("world", WORLDS)

steps = st.lists(st.integers(0, STEPS - 1), max_size=60)
seeds = st.integers(0, 999)
_few = settings(
    max_examples=40,
    derandomize=True,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
_LONG = int(os.environ.get("WALKS_MODEL") or 200)  # walks, over all worlds
# Other walks in every run; what is printed repeats one that fails.
_many = settings(_few, max_examples=-(-_LONG // len(WORLDS)), derandomize=False, print_blob=True)

# Walks that once broke a promise, or its predicate: how the world is made, the seed, and who acts.
_COLLECTED = (
    ["round"] * 2 + ["tick"] * 3 + ["delete pod"] + ["round"] * 2 + ["tick"] * 3
    + ["kubelet", "node goes", "node", "node goes", "taint", "taint", "round", "kubelet", "node goes"]
)  # fmt: skip
_COLLECTED_AND_HELD = (
    ["round"] * 2 + ["tick"] * 2 + ["kubelet", "node", "taint"] + ["round"] * 6 + ["tick"] * 5 + ["node goes", "round"]
)  # fmt: skip
_FORCED_BESIDE_AN_EVICTION = ["round"] * 17 + ["evict", "round", "force"]
_NODE_GOES_IN_A_STEP = (
    ["round"] * 9 + ["tick", "kubelet", "new image", "round", "node", "node goes"] + ["round"] * 5
)  # fmt: skip
_EVICTED_TO_SETTLE = ["new image", "spec: settle", "round", "round", "evict"]
_REPLACED_WHILE_GATED = (
    ["round"] * 4 + ["spec: settle"] + ["round"] * 4 + ["new image", "round", "bad image"] + ["round"] * 3
)  # fmt: skip
_REPLACED_AND_CHECKED = (
    ["spec: placement", "round", "round", "spec: partition beside steps", "round", "spec: release checks"]
    + ["round"] * 2 + ["bad image"] + ["round"] * 3
)  # fmt: skip
_ENDED_LONG_AGO = (
    ["round"] * 3 + ["evict", "spec: partition", "spec: release timeout", "spec: release timeout", "spec: hold"]
    + ["evict", "driver", "spec: order", "kubelet", "spec: settle"]
)  # fmt: skip
_GUARDED_AND_NEVER_BOUND = (
    ["spec: guard", "round", "taint", "scale", "round", "new image", "uncordon", "round", "round", "operator"]
)  # fmt: skip
_RESTART_BESIDE_A_PARTITION = (
    ["round", "new image", "spec: placement", "round", "spec: stage timeouts", "spec: failure policy"] + ["round"] * 5
    + ["restart soon", "round", "spec: partition beside steps", "spec: allow later", "spec: no steps", "spec: guard"]
    + ["round", "spec: no partition", "round", "round", "force", "round", "round", "spec: on timeout", "round"]
    + ["new image", "spec: partition", "round", "round", "round", "revert"] + ["round"] * 4
    + ["spec: failure threshold", "round", "round"]
)  # fmt: skip
FOUND = {
    "an open pod gets the device of a collected one": ("Deployment, guarded", 659, _COLLECTED),
    "a held departure that no status tells of": ("StatefulSet, held and guarded", 0, _COLLECTED_AND_HELD),
    "a held departure beside a proven one": ("Deployment, held", 0, _FORCED_BESIDE_AN_EVICTION),
    "a held departure while another is replaced": ("StatefulSet, held", 0, _NODE_GOES_IN_A_STEP),
    "a pod that is gone before anyone looks settles": (
        "DaemonSet, adopted while it runs",
        384,
        _EVICTED_TO_SETTLE,
    ),
    "a gated pod that is replaced has nothing to settle": (
        "StatefulSet, held and guarded",
        18,
        _REPLACED_WHILE_GATED,
    ),
    "a gated pod that is replaced has nothing to check": (
        "StatefulSet, held and guarded",
        253,
        _REPLACED_AND_CHECKED,
    ),
    "a pod that ended long ago has settled": ("Deployment, guarded", 198, _ENDED_LONG_AGO),
    "a guarded pod that never had a node": ("Deployment, soaking", 187, _GUARDED_AND_NEVER_BOUND),
    "a restart beside a partition": ("Deployment", 691, _RESTART_BESIDE_A_PARTITION),
}


def walk(world: str, seed: int, numbers: list[int]) -> None:
    made = Walk.start(**WORLDS[world], seed=seed)  # type: ignore[arg-type]
    for number in numbers:
        made.step(number)
    made.come_to_rest()
    made.stays_at_rest()


@EACH
@given(seed=seeds, numbers=steps)
@_few
def test_walks(world: str, seed: int, numbers: list[int]) -> None:
    walk(world, seed, numbers)


@pytest.mark.parametrize("title", FOUND)
def test_walks_that_were_found(title: str) -> None:
    world, seed, steps_taken = FOUND[title]
    made = Walk.start(**WORLDS[world], seed=seed)  # type: ignore[arg-type]
    for step in steps_taken:
        made.take(step)
    made.come_to_rest()
    made.stays_at_rest()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@EACH
@given(seed=seeds, numbers=st.lists(st.integers(0, STEPS - 1), min_size=20, max_size=150))
@_many
def test_long_walks(world: str, seed: int, numbers: list[int]) -> None:
    walk(world, seed, numbers)


@EACH
def test_a_plain_rollout(world: str) -> None:
    made = Walk.start(**WORLDS[world])  # type: ignore[arg-type]
    made.come_to_rest()
    before = len(made.cluster.deletions)
    made.new_image()
    made.come_to_rest()
    assert len(made.cluster.deletions) - before == made.cluster.replicas
    assert made.cluster.overlaps == []
    made.stays_at_rest()


@EACH
def test_an_abort_in_the_middle_and_a_retry(world: str) -> None:
    made = Walk.start(**WORLDS[world])  # type: ignore[arg-type]
    made.come_to_rest()
    made.new_image()
    for _ in range(3):
        made.round()
    made.abort()
    for _ in range(60):
        made.round()
    halted, gone = made.cluster.rollout, len(made.cluster.deletions)
    assert halted is not None
    assert halted.status.halt is not None
    for _ in range(30):
        made.round()
    assert len(made.cluster.deletions) == gone, "nothing is replaced while halted"
    made.retry()
    made.come_to_rest()
    made.stays_at_rest()


@EACH
@pytest.mark.parametrize("image", ["good", "bad"])
def test_an_undo_in_the_middle(world: str, image: str) -> None:
    made = Walk.start(**WORLDS[world])  # type: ignore[arg-type]
    made.come_to_rest()
    made.new_image()
    made.come_to_rest()
    before = made.cluster.workload.template.digest
    made.bad_image() if image == "bad" else made.new_image()
    for _ in range(12):
        made.round()
    made.undo()
    made.come_to_rest()
    assert made.cluster.workload.template.digest == before
    made.stays_at_rest()


@EACH
def test_a_restart_replaces_every_pod_once(world: str) -> None:
    made = Walk.start(**WORLDS[world])  # type: ignore[arg-type]
    made.come_to_rest()
    made.new_image()
    made.come_to_rest()
    before = len(made.cluster.deletions)
    template = made.cluster.workload.template
    made.cluster.restart(1)
    made.cluster.tick(2)
    made.come_to_rest()
    assert len(made.cluster.deletions) - before == made.cluster.replicas
    assert made.cluster.workload.template == template
    made.stays_at_rest()
