"""A held claim keeps its devices from everybody until the release is proven, and nothing of a hold stays behind."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from accelerator_rollout.names import FIELD_MANAGER, GROUP, PLURAL
from lab.client import Api, EventType, Object, PatchType
from lab.install import Account
from lab.operator_process import OperatorProcess
from lab.recorder import Recorded
from lab.resources import ACCELERATOR_ROLLOUTS, PODS, RESOURCE_CLAIMS
from lab.world import NEWER, MakeWorld, Shape, World, condition_of, gated

# After a forced deletion the containers still get their grace period, and then the driver takes its time.
LINGERING = {"teardown_seconds": 1.0, "unprepare_seconds": 0.5}
WAIT = {"unproven": {"extraSeconds": 3}}


@pytest.fixture
async def sweeper(
    account: Account, admin: Api, namespace: str, tmp_path: Path
) -> AsyncIterator[OperatorProcess]:
    """An operator that does not wait long before it sweeps a hold whose object is gone."""
    arguments = (f"--namespaces={namespace}", "--log-format=text", "--orphan-hold-seconds=3")
    async with await OperatorProcess.under(account, admin, tmp_path, arguments=arguments) as process:
        yield process


def holds_of(claim: Object) -> list[str]:
    """The UIDs of the AcceleratorRollouts that hold a claim."""
    reserved = (claim.get("status") or {}).get("reservedFor") or []
    return [e["uid"] for e in reserved if (e.get("apiGroup"), e["resource"]) == (GROUP, PLURAL)]


async def until_held(world: World, count: int) -> list[Object]:
    """Await that so many claims are held, and return them."""
    return await until_claims(
        world, lambda claims: len([c for c in claims if holds_of(c)]) == count, held=True
    )


async def until_claims(
    world: World, wanted: Callable[[list[Object]], bool], *, held: bool = False
) -> list[Object]:
    """Await a state of the namespace's claims; return them, or the held ones."""
    seen: Recorded | None = None
    while not wanted(found := await world.claims()):
        seen = await world.recorder.until(
            lambda one: one.kind == "ResourceClaim", what="a change of a claim", after=seen
        )
    return [c for c in found if holds_of(c)] if held else found


async def test_a_rollout_under_holds(kind: str, make_world: MakeWorld, operator: OperatorProcess) -> None:
    world = await make_world(
        Shape(kind, replicas=3, hold="Auto", faults={"teardown_seconds": 0.3}), devices=(3,)
    )
    await world.settle_in()
    assert len(await until_held(world, 3)) == 3

    await world.set_image(NEWER)
    done = await world.until_ready(image=NEWER, seconds=90)

    said = condition_of(done, "HoldInForce")
    assert said is not None
    assert (said["status"], said["reason"]) == ("True", "HoldPossible")
    assert len(world.deletions()) == 3
    assert world.assert_gates_after_release() == 3
    world.assert_promises()
    assert len(await until_held(world, 3)) == 3
    _assert_two_writes_each(world)


def _assert_two_writes_each(world: World) -> None:
    """One that holds a claim, one that lets go: counted from what the claims carried, one version after the other."""
    changes: dict[str, int] = {}
    held: dict[str, bool] = {}
    for one in world.recorder.events(kind="ResourceClaim"):
        now = bool(holds_of(one.object))
        if one.type is not EventType.DELETED and now != held.get(one.uid, False):
            changes[one.uid] = changes.get(one.uid, 0) + 1
            held[one.uid] = now
    assert changes
    assert max(changes.values()) <= 2


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
@pytest.mark.parametrize("hold", ["Auto", "Never"])
async def test_a10_a_stranger_waits_while_a_pod_is_deleted_by_force(
    kind: str, hold: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=1, grace=2, hold=hold, faults=LINGERING), devices=(1,))
    await world.settle_in(spec={"release": {"hold": hold, **WAIT}})
    (victim,) = await world.pods()
    if hold == "Auto":
        await until_held(world, 1)
    await world.make_pod("stranger")
    await world.recorder.until(
        lambda p: p.name == "stranger" and _unschedulable(p), what="the stranger to wait"
    )

    await world.api.delete(PODS, victim["metadata"]["name"], world.namespace, grace_seconds=0)
    await world.until_reason("DevicesReleased", "ReleaseUnproven" if hold == "Auto" else "DeviceTaken")
    await world.recorder.until(
        lambda p: (
            p.kind == "Pod" and p.name in ("stranger", "worker") and bool(p.object["spec"].get("nodeName"))
        ),
        what="the stranger to get the device",
        timeout=30,
    )
    await world.recorder.until(lambda p: p.name == "stranger" and _running(p), what="the stranger to run")

    overlaps = world.ledger.violations()
    if hold == "Auto":
        assert not overlaps
    else:
        assert len(overlaps) == 1  # Kubernetes' own doing, which only a hold prevents


def _unschedulable(one: Recorded) -> bool:
    return any(c.get("reason") == "Unschedulable" for c in one.status.get("conditions") or [])


def _running(one: Recorded) -> bool:
    return one.status.get("phase") == "Running"


async def test_after_a_restart_the_hold_tells_what_departed_meanwhile(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=1, grace=2, hold="Always", faults=LINGERING), devices=(1,))
    await world.settle_in(spec={"release": {"hold": "Always", **WAIT}})
    (victim,) = await world.pods()
    (claim,) = await until_held(world, 1)
    operator.kill()
    await world.api.delete(PODS, victim["metadata"]["name"], world.namespace, grace_seconds=0)
    await world.recorder.until(
        lambda p: p.kind == "Pod" and p.uid != victim["metadata"]["uid"] and gated(p.object),
        what="the successor at its gate",
    )
    (still,) = [c for c in await world.claims() if c["metadata"]["uid"] == claim["metadata"]["uid"]]
    assert still["status"].get("allocation")

    await operator.restart()
    told = await world.until_reason("DevicesReleased", "ReleaseUnproven")
    (entry,) = told["status"]["replacements"]
    assert (entry["podUID"], entry["podName"]) == (victim["metadata"]["uid"], victim["metadata"]["name"])
    assert entry["nodeName"] == victim["spec"]["nodeName"]
    await world.until(lambda o: not o["status"].get("replacements"), "the departure to be made good")
    await world.until_ready()
    world.assert_promises()


async def test_deleting_the_object_ends_every_hold(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=2, hold="Auto", faults=LINGERING), devices=(2,))
    await world.settle_in()
    await until_held(world, 2)
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    await world.api.delete(ACCELERATOR_ROLLOUTS, world.name, world.namespace)
    await world.api.wait_gone(ACCELERATOR_ROLLOUTS, world.name, world.namespace)
    assert not [c for c in await world.claims() if holds_of(c)]
    world.ledger.assert_clean()


async def test_a_hold_whose_object_is_gone_is_swept(make_world: MakeWorld, sweeper: OperatorProcess) -> None:
    """Somebody removed the finalizer while the operator was away: one pod lives on, the other one has gone, too."""
    world = await make_world(Shape(replicas=2, grace=1, hold="Auto"), devices=(2,))
    await world.settle_in()
    await until_held(world, 2)
    await sweeper.stop()
    (victim, _) = await world.pods()
    await world.api.patch(
        ACCELERATOR_ROLLOUTS, world.name, {"metadata": {"finalizers": None}}, world.namespace
    )
    await world.api.delete(ACCELERATOR_ROLLOUTS, world.name, world.namespace)
    await world.api.delete(PODS, victim["metadata"]["name"], world.namespace)
    await world.api.wait_gone(PODS, victim["metadata"]["name"], world.namespace)
    assert len([c for c in await world.claims() if holds_of(c)]) == 2

    await sweeper.restart()
    assert not await until_held(world, 0)
    await world.recorder.until(
        lambda c: c.type is EventType.DELETED and c.kind == "ResourceClaim", what="the claim to go"
    )
    world.ledger.assert_clean()


async def test_deleting_the_workload_leaves_no_claim_behind(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(
        Shape(kind, replicas=2, hold="Auto", faults={"teardown_seconds": 0.3}), devices=(2,)
    )
    await world.settle_in()
    await until_held(world, 2)
    await world.api.delete(world.workload, world.name, world.namespace)
    await world.until_reason("Progressing", "WorkloadNotFound")
    await until_claims(world, lambda claims: not claims)
    world.ledger.assert_clean()


async def test_never_takes_the_holds_away(make_world: MakeWorld, operator: OperatorProcess) -> None:
    world = await make_world(Shape(replicas=2, hold="Auto"), devices=(2,))
    await world.settle_in()
    await until_held(world, 2)
    await world.change_rollout({"release": {"hold": "Never"}})
    assert not await until_held(world, 0)
    assert all(c["status"].get("allocation") for c in await world.claims())
    found = await world.until(lambda o: condition_of(o, "HoldInForce") is None, "the condition to go")
    assert condition_of(found, "Ready") is not None
    assert not world.deletions()


async def test_a_pod_that_the_kubelet_evicts_frees_its_device_in_few_writes(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """Its controller reserves the claim for the ended pod again and again while it is allocated."""
    world = await make_world(Shape(replicas=1, grace=1, hold="Auto"), devices=(1,))
    await world.settle_in()
    (claim,) = await until_held(world, 1)
    (victim,) = await world.pods()
    world.nodes.node_of(victim).evict(victim["metadata"]["uid"])
    await world.recorder.until(
        lambda c: c.uid == claim["metadata"]["uid"] and not c.status.get("allocation"),
        what="the device to be free",
    )
    await world.until(lambda o: not o["status"].get("replacements"), "the departure to be made good")
    await world.until_ready()
    ours = [
        one
        for one in world.recorder.events(kind="ResourceClaim")
        if one.uid == claim["metadata"]["uid"] and _last_writer(one.object) == FIELD_MANAGER
    ]
    assert len(ours) <= 4
    world.assert_promises()


def _last_writer(body: Object) -> str:
    fields = body["metadata"].get("managedFields") or [{}]
    return str(max(fields, key=lambda f: f.get("time", "")).get("manager", ""))


async def test_a_hold_that_somebody_keeps_taking_away_is_not_fought_for(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(replicas=1, hold="Auto"), devices=(1,))
    await world.settle_in()
    for _ in range(3):
        (claim,) = await until_held(world, 1)
        pods = [e for e in claim["status"]["reservedFor"] if e["resource"] == "pods"]
        await world.api.patch(
            RESOURCE_CLAIMS,
            claim["metadata"]["name"],
            {"status": {"reservedFor": pods}},
            world.namespace,
            patch_type=PatchType.MERGE,
            subresource="status",
        )
    found = await world.until_reason("HoldInForce", "HoldDisputed")
    said = condition_of(found, "HoldInForce")
    assert said is not None
    assert claim["metadata"]["name"] in said["message"]
    assert not [c for c in await world.claims() if holds_of(c)]
