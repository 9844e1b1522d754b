"""A grace period that is too short for the teardown: whoever ends the pod, it is told of."""

from cluster.scenarios.successors import EACH, make
from lab.operator_process import OperatorProcess
from lab.resources import EVENTS
from lab.world import NEWER, MakeWorld, condition_of


@EACH
async def test_a_pod_whose_grace_is_too_short_is_told_of(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make(make_world, kind, 1, grace=3, faults={"teardown_seconds": 60})
    await world.settle_in()
    met = condition_of(await world.rollout(), "GuardrailsMet")
    assert met is not None
    assert "terminationGracePeriodSeconds is 3:" in met["message"], "told before anything is lost"
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    (gone,) = world.deletions()
    ended = world.recorder.first(
        "the end", kind="Pod", predicate=lambda p: p.uid == gone.uid and p.status.get("phase") == "Failed"
    )
    assert ended.monotonic - gone.monotonic > 2.8, "nobody shortens the grace that it has"
    (past,) = world.recorder.statuses(world.name, namespace=world.namespace)[-1]["history"][0]["replacements"]
    assert past["killedAfterGrace"] is True
    assert past["proof"] == "KubeletTerminalPhase"
    told = [
        e for e in (await world.api.list(EVENTS, world.namespace)).items if e["reason"] == "KilledAfterGrace"
    ]
    assert len(told) == 1
    world.assert_promises()


@EACH
async def test_a_drain_by_somebody_else_that_outlasts_the_grace_ends_by_sigkill_and_is_told(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Scaled down: flushing takes 60 s and the grace period is 3 s, where the reports had 120 s and 30 s."""
    world = await make(make_world, kind, 1, grace=3, faults={"teardown_seconds": 60})
    await world.settle_in()
    (old,) = await world.pods()
    name, uid = old["metadata"]["name"], old["metadata"]["uid"]
    await world.api.evict(name, world.namespace)
    ended = await world.recorder.until(
        lambda one: one.uid == uid and one.status.get("phase") == "Failed", what="the end", timeout=20
    )
    (container,) = ended.status["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 137
    await world.until_replaced(uid)
    await world.until_ready()
    entries = [
        entry
        for status in world.recorder.statuses(world.name, namespace=world.namespace)
        for entry in status.get("replacements") or []
        if entry["podUID"] == uid
    ]
    assert {e["cause"] for e in entries} == {"Departure"}
    assert entries[-1]["killedAfterGrace"] is True
    (told,) = [
        e for e in (await world.api.list(EVENTS, world.namespace)).items if e["reason"] == "KilledAfterGrace"
    ]
    assert f"pod {name} did not end within its grace period (3 s)" in told["message"]
    assert await world.gone() == 1
    world.assert_promises()
