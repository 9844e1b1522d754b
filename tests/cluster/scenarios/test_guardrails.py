"""Given a workload that does not follow the guideline, then that is told, and stops it only where it is to be enforced."""

from lab.operator_process import OperatorProcess
from lab.world import NEWER, MakeWorld, Shape, condition_of

NEWEST = "example.com/llm:v3"
OTHERS = ["PreStopMissing", "GracePeriodTooShort", "PodDisruptionBudgetMissing"]
EXEMPT = {"exempt": [{"rule": rule, "reason": "not what this is about"} for rule in OTHERS]}


async def test_an_enforced_rule_stops_replacements_until_it_is_exempt(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape("StatefulSet", replicas=2), devices=(2,))
    await world.settle_in()
    await world.change_rollout({"guardrails": {"mode": "Enforce"}})
    await world.set_image(NEWER)
    found = await world.until_reason("Stalled", "GuardrailNotMet")
    stalled = condition_of(found, "Stalled")
    assert stalled is not None
    assert all(rule in stalled["message"] for rule in OTHERS)
    assert not world.deletions()

    await world.change_rollout({"guardrails": EXEMPT})
    found = await world.until_ready(image=NEWER)
    met = condition_of(found, "GuardrailsMet")
    assert met is not None
    assert met["status"] == "True"
    world.assert_promises()


async def test_a_manifest_with_a_pause_of_its_own_is_named_and_gets_one_step_at_a_time_all_the_same(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Our policy pauses in the very write of such a manifest; that alone must not be taken for the manifest's own word."""
    world = await make_world(Shape("Deployment", replicas=3), devices=(3,))
    await world.settle_in(spec={"guardrails": EXEMPT})
    await world.apply_workload(image=NEWER)
    found = await world.until_ready(image=NEWER)
    met = condition_of(found, "GuardrailsMet")
    assert met is not None
    assert met["status"] == "True", met

    await world.apply_workload(image=NEWEST, paused=False)
    await world.until_reason("GuardrailsMet", "PauseInManifest")
    for _ in range(3):  # a tool that keeps putting its manifest back
        await world.until_stage("Terminating", "Releasing", "Gated", "Scheduling", "Preparing", "WarmingUp")
        await world.apply_workload(image=NEWEST, paused=False)
    await world.until_ready(image=NEWEST)
    assert len(world.deletions()) == 6
    assert world.most_down() == 1
    world.assert_promises()

    await world.apply_workload(image=NEWEST)
    await world.until_reason("GuardrailsMet", "GuardrailsMet")
