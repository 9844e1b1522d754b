"""What we do not drive is refused with the fix in the message, and nothing of it is disrupted."""

from typing import Any

import pytest

from lab.client import PatchType
from lab.operator_process import OperatorProcess
from lab.resources import ACCELERATOR_ROLLOUTS, DEPLOYMENTS, PODS, RESOURCE_CLAIMS
from lab.world import GOOD, NEWER, MakeWorld, Shape, World, condition_of, gated, image_of

CASES: dict[str, tuple[Shape, str, str]] = {
    "surge": (Shape(surge=1, unavailable=0), "SurgeNotAllowed", "maxSurge 0"),
    "max unavailable": (Shape(unavailable=2), "MaxUnavailableTooHigh", "maxUnavailable to 1"),
    "recreate": (Shape(strategy="Recreate"), "StrategyNotSupported", "RollingUpdate"),
    "rolling StatefulSet": (
        Shape("StatefulSet", strategy="RollingUpdate"),
        "StrategyNotSupported",
        "OnDelete",
    ),
    "no gate": (Shape(gate="none"), "PodsNotGated", "schedulingGates"),
    "no gate, StatefulSet": (Shape("StatefulSet", gate="none"), "PodsNotGated", "schedulingGates"),
    "named claim": (Shape(named_claim="shared"), "NamedClaimsNotSupported", "resourceClaimTemplateName"),
}


async def _refused(world: World, reason: str) -> dict[str, Any]:
    rollout = await world.until_reason("Stalled", reason)
    stalled = condition_of(rollout, "Stalled")
    ready = condition_of(rollout, "Ready")
    assert stalled is not None
    assert ready is not None
    assert (stalled["status"], ready["status"]) == ("True", "False")
    assert condition_of(rollout, "Reconciling") is None
    return stalled


@pytest.mark.parametrize("case", CASES)
async def test_a_workload_that_we_cannot_drive(
    case: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    shape, reason, fix = CASES[case]
    world = await make_world(shape, devices=(3,))
    await world.make_workload()
    await world.make_rollout()
    stalled = await _refused(world, reason)
    assert fix in stalled["message"]
    assert "worker" in stalled["message"]


async def test_the_bad_manifest_moves_no_pod(make_world: MakeWorld, operator: OperatorProcess) -> None:
    """Given surge 1 on a full pool, when the image changes, then no surge pod is made and no pod goes."""
    world = await make_world(Shape(surge=1, unavailable=0), devices=(3,))
    await world.make_workload()
    await world.make_rollout()
    await _refused(world, "SurgeNotAllowed")
    await world.until(lambda o: o["status"].get("readyReplicas") == 3, "open gates although refused")
    await world.set_image(NEWER)
    deployment = await world.api.get(DEPLOYMENTS, "worker", world.namespace)
    assert deployment["spec"]["paused"], "parked in the write that changed it"
    pods = await world.pods()
    assert [image_of(p) for p in pods] == [GOOD] * 3

    fix = {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}}
    await world.api.patch(DEPLOYMENTS, "worker", fix, world.namespace, patch_type=PatchType.MERGE)
    await world.until_ready(image=NEWER)
    assert len(world.deletions()) == 3
    world.assert_promises()


async def test_a_missing_workload_is_awaited(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=1), devices=(1,))
    await world.make_rollout()
    await _refused(world, "WorkloadNotFound")
    await world.make_workload()
    await world.until_ready()
    world.assert_promises()


async def test_the_younger_of_two_objects_on_one_workload_does_nothing(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=2), devices=(2,))
    await world.settle_in()
    await world.make_rollout(name="younger")
    rollout = await world.until_reason("Stalled", "WorkloadConflict", name="younger")
    stalled = condition_of(rollout, "Stalled")
    assert stalled is not None
    assert "AcceleratorRollout worker" in stalled["message"]
    assert not rollout["metadata"].get("finalizers")

    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    assert len(world.deletions()) == 2

    await world.api.delete(ACCELERATOR_ROLLOUTS, "worker", world.namespace)
    await world.until(
        lambda o: (condition_of(o, "Ready") or {}).get("status") == "True",
        "the younger to take over",
        name="younger",
    )


async def test_paused_starts_nothing_and_resumes(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=2, faults={"teardown_seconds": 1}), devices=(2,))
    await world.settle_in(spec={"paused": True})
    await world.set_image(NEWER)
    await world.until_reason("Progressing", "Paused")
    assert not world.deletions()

    await world.change_rollout({"paused": False})
    await world.until_stage("Terminating")
    await world.change_rollout({"paused": True})
    await world.until_reason("Progressing", "Paused")
    assert len(world.deletions()) == 1, "the pod in flight is finished, no further one started"

    await world.change_rollout({"paused": False})
    await world.until_ready(image=NEWER)
    assert len(world.deletions()) == 2
    world.assert_promises()


async def test_a_users_own_pause_is_respected(make_world: MakeWorld, operator: OperatorProcess) -> None:
    world = await make_world(Shape(replicas=2), devices=(2,))
    await world.settle_in()
    await world.api.patch(
        DEPLOYMENTS, "worker", {"spec": {"paused": True}}, world.namespace, patch_type=PatchType.MERGE
    )
    await world.set_image(NEWER)
    await world.until_reason("Progressing", "WorkloadPausedByUser")
    assert not world.deletions()

    await world.api.patch(
        DEPLOYMENTS, "worker", {"spec": {"paused": False}}, world.namespace, patch_type=PatchType.MERGE
    )
    await world.until_ready(image=NEWER)
    assert len(world.deletions()) == 2
    world.assert_promises()


async def test_a_running_workload_is_adopted_by_adding_the_gate(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Adding the gate to the template is itself the first gated rollout."""
    world = await make_world(Shape(kind, replicas=2, gate="none"), devices=(2,))
    await world.make_workload()
    await world.make_rollout()
    await _refused(world, "PodsNotGated")
    await world.until(lambda o: o["status"].get("readyReplicas") == 2, "the workload to run")
    gate = {"schedulingGates": [{"name": "accelerator-rollout.dev/device-release"}]}
    await world.api.patch(
        world.workload,
        "worker",
        {"spec": {"template": {"spec": gate}}},
        world.namespace,
        patch_type=PatchType.STRATEGIC,
    )
    await world.until_ready()
    rollout = await world.until(lambda o: o["status"]["updatedReplicas"] == 2, "all pods gated once")
    assert rollout["status"]["history"][0]["outcome"] == "Completed"
    assert len(world.deletions()) == 2
    assert world.assert_gates_after_release() == 2
    world.assert_promises()


async def test_a_named_claim_passes_to_a_successor_once_the_old_pod_has_gone(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Refused, for replacing one pod frees nothing; and a pod that leaves all the same strands no successor."""
    shape = Shape(kind, replicas=2, named_claim="shared", faults={"teardown_seconds": 2})
    world = await make_world(shape, devices=(1,))
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "shared", "namespace": world.namespace},
        "spec": {
            "devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": world.device_class}}]}
        },
    }
    await world.api.create(RESOURCE_CLAIMS, claim)
    await world.make_workload()
    await world.make_rollout()
    await _refused(world, "NamedClaimsNotSupported")
    await world.until_replaced("")
    first = [p["metadata"]["uid"] for p in await world.pods()]
    old = (await world.pods())[0]["metadata"]
    await world.api.delete(PODS, old["name"], world.namespace)
    await world.until_replaced(old["uid"])
    await world.recorder.caught_up()
    ended = world.recorder.first(
        "the end",
        kind="Pod",
        predicate=lambda p: p.uid == old["uid"] and p.status.get("phase") in ("Succeeded", "Failed"),
    )
    opened = world.recorder.first(
        "opening",
        kind="Pod",
        predicate=lambda p: p.name.startswith("worker") and p.uid not in first and not gated(p.object),
    )
    world.recorder.order(ended, opened)
    (kept,) = await world.claims()
    assert kept["status"]["allocation"], "its sibling never let go of it"
    world.ledger.assert_clean()
