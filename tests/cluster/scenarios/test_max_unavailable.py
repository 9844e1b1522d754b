"""Given that two pods may be down, when the template changes, then two are replaced at once, and never a third."""

import pytest

from lab.operator_process import OperatorProcess
from lab.resources import POD_DISRUPTION_BUDGETS
from lab.world import NEWER, MakeWorld, Shape

SLOW = {"teardown_seconds": 0.6, "unprepare_seconds": 0.4}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
async def test_two_pods_at_once_and_never_a_third(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    devices = (1, 1, 1, 1) if kind == "DaemonSet" else (4,)
    made = Shape(kind, replicas=4, unavailable=2, faults=SLOW)
    world = await make_world(made, devices=devices)
    await world.settle_in(spec={"strategy": {"maxUnavailable": "50%"}})

    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)

    assert len(world.deletions()) == 4
    assert world.most_down() == 2
    assert world.assert_gates_after_release() == 4
    world.assert_promises()


async def test_a_budget_for_one_pod_makes_it_one_at_a_time(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape("StatefulSet", replicas=3, faults=SLOW), devices=(3,))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "worker", "namespace": world.namespace},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "worker"}}},
    }
    await world.api.create(POD_DISRUPTION_BUDGETS, budget)
    await world.settle_in(spec={"strategy": {"maxUnavailable": 2}})
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    assert len(world.deletions()) == 3
    assert world.most_down() == 1
    world.assert_promises()
