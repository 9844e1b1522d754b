"""An eviction that was sent by a process that died and arrives late takes no second pod down, whatever its successor wants.

The one write that is guarded by a UID alone: the next process must count what it finds recorded.
"""

from collections.abc import Callable

import pytest

from accelerator_rollout.decide.actions import EvictPod
from model.operator import Operator
from model.walk import Walk

EVICTING = pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
LATE = pytest.mark.parametrize("rounds", [0, 1, 2, 5, 20, 60, 110])
REPLICAS = 4


def keep_the_chosen_one(walk: Walk) -> None:
    """Its node is about to be drained, so another pod is next."""
    (late,) = walk.operator.held_up
    walk.cluster.cordon(walk.cluster.pods[late.pod_uid].node, on=True)


def order_another_first(walk: Walk) -> None:
    walk.cluster.edit({"strategy": {"order": {"policy": "OldestFirst"}}})


def change_nothing(_walk: Walk) -> None:
    pass


def dies_while_it_evicts(kind: str) -> Walk:
    """At rest, a new image, and a process that ends while its first eviction is on the wire."""
    walk = Walk.start(kind, replicas=REPLICAS, devices=REPLICAS)
    walk.come_to_rest()
    walk.cluster.edit({"strategy": {"maxUnavailable": 1}})
    walk.new_image()
    for _ in range(30):
        walk.cluster.run_all()
        walk.all_see()
        wants = walk.operator.decide(walk.operator.snapshot(), walk.cluster.now)  # type: ignore[operator]
        evicts = [n for n, a in enumerate(wants.actions) if isinstance(a, EvictPod)]
        if evicts:
            walk.operate(dies_before=evicts[0] + wants.record_first)
            assert walk.operator.held_up
            return walk
        walk.operate()
        walk.cluster.tick()
    raise AssertionError("nothing was evicted")


def down(walk: Walk) -> int:
    return REPLICAS - sum(p.ready for p in walk.cluster.live())


@EVICTING
@LATE
@pytest.mark.parametrize("then", [change_nothing, order_another_first, keep_the_chosen_one])
def test_a_late_eviction_takes_no_second_pod_down(
    kind: str, rounds: int, then: Callable[[Walk], None]
) -> None:
    walk = dies_while_it_evicts(kind)
    then(walk)
    for _ in range(rounds):
        walk.round()
        assert down(walk) <= 1
    walk.operator.deliver()
    for _ in range(60):
        assert down(walk) <= 1
        walk.round()
    walk.come_to_rest()
    walk.stays_at_rest()


@EVICTING
def test_what_never_arrives_is_waited_for_no_longer_than_two_minutes(kind: str) -> None:
    walk = dies_while_it_evicts(kind)
    keep_the_chosen_one(walk)
    before = len(walk.cluster.deletions)
    walk.operator.held_up.clear()
    for _ in range(115):
        walk.round()
    waited = len(walk.cluster.deletions) - before
    for _ in range(60):
        walk.round()
    # A DaemonSet's pods tolerate cordons, so there the chosen one goes at once.
    assert (waited > 0) == (kind == "DaemonSet")
    assert len(walk.cluster.deletions) > before


def test_a_process_that_forgets_what_is_recorded_takes_a_second_pod_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Operator, "unseen", lambda _: frozenset())
    walk = dies_while_it_evicts("StatefulSet")
    keep_the_chosen_one(walk)
    for _ in range(2):
        walk.round()
    walk.operator.deliver()
    assert down(walk) == 2
