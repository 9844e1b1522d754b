"""Given trouble between operator and API server, or an operator that goes and comes, then no pod pays for it."""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from lab.client import Api, ApiError, Object, PatchType
from lab.install import Account
from lab.kubeconfig import Connection
from lab.operator_process import OperatorProcess
from lab.resources import (
    ACCELERATOR_ROLLOUTS,
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    PODS,
)
from lab.wire import Sent, Wire
from lab.world import GOOD, NEWER, MakeWorld, Shape, World, image_of, is_ready

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
SLOW = {"teardown_seconds": 1, "unprepare_seconds": 0.3}
RESYNC: Final = 2  # seconds; 60 by default
RARELY: Final = 60  # seconds: no resync makes up for what a watch does not bring in time
LATE: Final = 2.0  # seconds
INACTIVE: Final = 70  # seconds after which Kopf begins a watch anew that brought nothing
SOON = {"release": {"unproven": {"extraSeconds": 2}}}


@dataclass(frozen=True, slots=True)
class Behind:
    """An operator, and the wire between it and the API server."""

    wire: Wire
    operator: OperatorProcess
    connection: Connection

    def bring(self, token: str) -> None:
        """Let the operator's kubeconfig name another token, as a rotation does."""
        fresh = replace(self.connection, token=token)
        fresh.write_kubeconfig(self.operator.kubeconfig, context="lab", user="operator")

    async def gauge(self, name: str) -> float:
        """What a metric without labels says now."""
        found = re.search(rf"^accelerator_rollout_{name} (\S+)$", await self.operator.metrics(), re.MULTILINE)
        assert found is not None, name
        return float(found.group(1))


MakeBehind = Callable[..., Awaitable[Behind]]  # (*, resync=RESYNC)


@pytest.fixture
async def make_behind(
    account: Account, admin: Api, namespace: str, tmp_path: Path
) -> AsyncIterator[MakeBehind]:
    """Starts an operator that sees the cluster through a wire only."""
    async with AsyncExitStack() as stack:

        async def make(*, resync: int = RESYNC) -> Behind:
            own = await account.connection(admin)
            wire = await stack.enter_async_context(Wire(own))
            plain = replace(own, server=wire.url, ca=None, tls_server_name=None)
            kubeconfig = tmp_path / "wire.kubeconfig"
            plain.write_kubeconfig(kubeconfig, context="lab", user="operator")
            arguments = (
                f"--namespaces={namespace}",
                f"--resync-seconds={resync}",
                "--request-timeout-seconds=2",
            )
            process = OperatorProcess(kubeconfig, tmp_path / "operator.log", arguments=arguments)
            await stack.enter_async_context(process)
            return Behind(wire, process, plain)

        yield make


async def made(make_world: MakeWorld, kind: str, replicas: int = 2, **over: Any) -> World:
    """A world whose pods have a node each, if of a DaemonSet."""
    facts: dict[str, Any] = {"grace": 3, "faults": SLOW} | over
    shape = Shape(kind, replicas=replicas, **facts)
    return await make_world(shape, devices=(1,) * replicas if kind == "DaemonSet" else (replicas,))


async def patched(world: World, pod: Object, body: Object) -> None:
    """Patch a pod that may be gone already."""
    name = pod["metadata"]["name"]
    try:
        await world.api.patch(PODS, name, body, world.namespace, patch_type=PatchType.STRATEGIC)
    except ApiError as error:
        if not error.is_not_found:
            raise


async def until_refused(behind: Behind) -> None:
    """Await that the operator says itself that it cannot see."""
    async with asyncio.timeout(30):
        while True:
            try:
                await behind.operator.wait_ready(seconds=0.1)
            except Exception as error:  # noqa: BLE001 - it is what is awaited, if it says so
                if "503" in str(error):
                    return
            await asyncio.sleep(0.1)


# The wire


@EACH
async def test_an_edit_is_handled_although_every_watch_is_in_a_black_hole(
    kind: str, make_world: MakeWorld, make_behind: MakeBehind
) -> None:
    world = await made(make_world, kind)
    behind = await make_behind()
    await world.settle_in(spec=SOON)
    missed = await behind.gauge("watch_missed_changes_total")
    behind.wire.freeze()
    await world.set_image(NEWER)
    await world.until(
        lambda o: bool(o["status"].get("replacements")), "the edit to be handled", seconds=INACTIVE
    )
    assert await behind.gauge("watch_missed_changes_total") > missed, "the watches brought it all the same"
    assert await behind.gauge("store_age_seconds") < INACTIVE
    behind.wire.cut()  # as Kopf does it itself after that time
    await world.until_ready(image=NEWER, seconds=90)
    assert await world.gone() == 2
    world.assert_promises()


@EACH
async def test_a5_events_of_pods_that_come_late_cost_no_pod(
    kind: str, make_world: MakeWorld, make_behind: MakeBehind
) -> None:
    """Scaled down: 2 s late, for 5 s. All else is known at once, so that the pods look well while they leave."""
    world = await made(make_world, kind)
    behind = await make_behind(resync=RARELY)
    await world.settle_in(spec=SOON)
    behind.wire.late = {"pods": LATE}
    behind.wire.sent.clear()
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER, seconds=90)
    assert await world.gone() == 2
    assert world.assert_gates_after_release() == 2
    assert world.most_down() == 1
    world.assert_promises()
    assert_read_right_before(world, behind.wire.sent)


def assert_read_right_before(world: World, sent: list[Sent]) -> None:
    """Assert that whatever takes a pod down names its object's UID, and that both were read after the last write."""
    workload = world.workload.path(world.name, world.namespace)
    pods = {one.uid: PODS.path(one.name, world.namespace) for one in world.deletions()}
    read: set[str] = set()
    taken: list[set[str]] = []
    for request in sent:
        if not request.writes:
            read.add(request.path)
            continue
        if request.path.endswith("/eviction"):
            uid = request.json()["deleteOptions"]["preconditions"]["uid"]
            assert {workload, pods[uid]} <= read
            taken.append({uid})
        elif request.path == workload and b'"paused": false' in request.body:
            assert workload in read
            assert request.json()["metadata"].keys() >= {"uid", "resourceVersion"}
            taken.append({uid for uid, path in pods.items() if path in read})
        read = set()
    assert all(len(victims) == 1 for victims in taken), taken
    assert {uid for victims in taken for uid in victims} == pods.keys()
    assert len(taken) == len(pods)


@EACH
async def test_too_many_requests_for_a_while_need_no_restart_and_cost_no_pod(
    kind: str, make_world: MakeWorld, make_behind: MakeBehind
) -> None:
    """Scaled down: 10 s of refusals, for 2 min."""
    world = await made(make_world, kind)
    behind = await make_behind()
    await world.settle_in(spec=SOON)
    pid = behind.operator.pid
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    behind.wire.refused, behind.wire.retry_after = {"": 429}, 2
    behind.wire.cut()
    before = behind.wire.requests.total()
    await until_refused(behind)
    await asyncio.sleep(10)  # that nothing happens cannot be awaited
    assert await world.gone() == 1
    assert behind.wire.requests.total() - before < 300, "nobody hammers the server"
    behind.wire.refused = {}
    await world.until_ready(image=NEWER, seconds=90)
    assert await world.gone() == 2
    assert behind.operator.pid == pid
    assert behind.operator.is_running
    world.assert_promises()


@pytest.mark.parametrize(
    ("kind", "how"),
    [("StatefulSet", "429"), ("StatefulSet", "500"), ("Deployment", "silence"), ("DaemonSet", "silence")],
)
async def test_claims_that_cannot_be_read_keep_every_pod(
    kind: str, how: str, make_world: MakeWorld, make_behind: MakeBehind
) -> None:
    world = await made(make_world, kind)
    behind = await make_behind()
    await world.settle_in()
    if how == "silence":
        behind.wire.silent = {"/resourceclaims"}
    else:
        behind.wire.refused = {"/resourceclaims": int(how)}
    behind.wire.cut()
    await until_refused(behind)
    await world.set_image(NEWER)
    await world.until_reason("Progressing", "StateUnknown")
    assert await world.gone() == 0
    behind.wire.refused, behind.wire.silent = {}, set()
    behind.wire.cut()
    await world.until_ready(image=NEWER, seconds=90)
    assert await world.gone() == 2
    world.assert_promises()


@EACH
async def test_a_token_that_expires_in_mid_step_is_read_anew(
    kind: str, make_world: MakeWorld, make_behind: MakeBehind
) -> None:
    world = await made(make_world, kind)
    behind = await make_behind()
    await world.settle_in(spec=SOON)
    pid = behind.operator.pid
    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    behind.wire.token = secrets.token_hex(8)  # whatever it has is refused now
    behind.wire.cut()
    await until_refused(behind)
    assert await world.gone() == 1
    behind.bring(behind.wire.token)
    await world.until_ready(image=NEWER, seconds=90)
    assert await world.gone() == 2
    assert behind.operator.pid == pid
    world.assert_promises()


ODD: Final[dict[str, Callable[[Object], Object]]] = {
    "null lists": lambda o: o | {"spec": dict.fromkeys(o.get("spec") or {}), "status": {"conditions": None}},
    "unknown enums": lambda o: o | {"spec": _unknown(o.get("spec")), "status": _unknown(o.get("status"))},
}


def _unknown(value: Any) -> Any:
    """Every word in it is one that nobody knows."""
    if isinstance(value, dict):
        return {key: _unknown(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_unknown(inner) for inner in value]
    return "Telepathic" if isinstance(value, str) else value


@pytest.mark.parametrize("how", ODD)
async def test_one_odd_object_of_every_kind_in_a_list_hinders_no_other(
    how: str, make_world: MakeWorld, make_behind: MakeBehind
) -> None:
    world = await make_world(Shape("StatefulSet", replicas=2, grace=3, faults=SLOW), devices=(4,))
    await world.make_workload()
    await world.make_rollout(SOON)
    other = replace(world, name="odd", shape=replace(world.shape, kind="Deployment", replicas=1))
    await other.make_workload()
    await other.make_rollout(SOON)
    await world.make_pod("odd")
    behind = await make_behind()
    behind.wire.rewritten["odd"] = ODD[how]
    await behind.operator.restart()  # its first lists show it so
    await world.until_ready()
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    assert await world.gone() == 2
    assert behind.operator.is_running


# The process


@EACH
async def test_it_ends_within_its_grace_in_mid_wait_and_the_next_one_goes_on(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, kind, grace=6, faults={"teardown_seconds": 3, "unprepare_seconds": 0.3})
    await world.settle_in(spec=SOON)
    await world.set_image(NEWER)
    flying = (await world.until_stage("Terminating"))["status"]["replacements"]
    begin = time.monotonic()
    assert await operator.stop() == 0
    assert time.monotonic() - begin < 5, "a fraction of the 30 s that a pod gets"
    assert (await world.rollout())["status"]["replacements"][0]["podUID"] == flying[0]["podUID"]
    operator.start()
    await operator.wait_ready()
    await world.until_ready(image=NEWER, seconds=90)
    assert await world.gone() == 2
    world.assert_promises()


@EACH
async def test_another_process_at_rest_writes_no_status_and_costs_no_pod(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    """An upgrade of the operator alone, with a rollout behind it."""
    world = await made(make_world, kind)
    await world.settle_in(spec=SOON)
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    await world.until(
        lambda o: is_ready(o) and o["status"]["history"][0]["outcome"] == "Completed",
        "the end of the rollout",
    )
    await asyncio.sleep(1.5)  # what counts down after it, if anything
    before = await world.rollout()
    workload = await world.api.get(world.workload, world.name, world.namespace)
    assert await operator.stop() == 0
    operator.start()
    await operator.wait_ready()
    await asyncio.sleep(5)  # that nothing happens cannot be awaited
    after = await world.rollout()
    assert after["status"] == before["status"]
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    again = await world.api.get(world.workload, world.name, world.namespace)
    assert again["metadata"]["resourceVersion"] == workload["metadata"]["resourceVersion"]
    assert await world.gone() == 2
    world.assert_promises()


# Other people's writes


@EACH
async def test_labels_that_others_patch_all_the_time_in_mid_step_cost_no_pod(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await made(make_world, kind)
    await world.settle_in()

    async def touch() -> None:
        for number in range(10_000):
            label = {"metadata": {"labels": {"touched": str(number)}}}
            for pod in await world.pods():
                await patched(world, pod, label)
            await world.api.patch(
                ACCELERATOR_ROLLOUTS, world.name, label, world.namespace, patch_type=PatchType.MERGE
            )
            await asyncio.sleep(0.1)

    await world.set_image(NEWER)
    await world.until_stage("Terminating")
    touching = asyncio.create_task(touch())
    try:
        await world.until_ready(image=NEWER, seconds=90)
    finally:
        touching.cancel()
        await asyncio.gather(touching, return_exceptions=True)
    assert await world.gone() == 2
    world.assert_promises()


def _rewriting(world: World) -> list[Object]:
    """A policy that gives every new pod of the namespace a CPU request, as a webhook may."""
    name = f"{world.namespace}.example.com"
    mutation = (
        'Object{spec: Object.spec{containers: [Object.spec.containers{name: "model", '
        'resources: Object.spec.containers.resources{requests: {"cpu": "100m"}, limits: {"cpu": "1"}}}]}}'
    )
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ],
        },
        "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": mutation}},
        ],
    }
    version = "admissionregistration.k8s.io/v1"
    binding = {"policyName": name}
    return [
        {"apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": version,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": binding,
        },
    ]


@pytest.fixture
async def rewriting(admin: Api, namespace: str) -> AsyncIterator[Callable[[World], Awaitable[None]]]:
    """Puts that policy, and takes it away in the end."""

    async def put(world: World) -> None:
        await admin.apply_manifest(_rewriting(world))

        async def rewrites() -> bool:
            probe = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "probe", "namespace": world.namespace},
                "spec": {"containers": [{"name": "model", "image": GOOD}]},
            }
            path = PODS.path(namespace=world.namespace)
            tried = await admin.request("POST", path, params={"dryRun": "All"}, body=probe)
            return "100m" in str(tried["spec"])

        async with asyncio.timeout(20):
            while not await rewrites():  # noqa: ASYNC110 - when a policy has come into force shows only a try
                await asyncio.sleep(0.2)

    yield put
    name = f"{namespace}.example.com"
    await admin.delete_if_there(MUTATING_ADMISSION_POLICY_BINDINGS, name)
    await admin.delete_if_there(MUTATING_ADMISSION_POLICIES, name)


@EACH
async def test_a_webhook_that_rewrites_pods_and_late_tolerations_of_live_ones_restart_nothing(
    kind: str,
    make_world: MakeWorld,
    operator: OperatorProcess,
    rewriting: Callable[[World], Awaitable[None]],
) -> None:
    world = await made(make_world, kind)
    await rewriting(world)
    await world.settle_in()
    for pod in await world.pods():
        assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "100m"
        tolerated = [
            *(pod["spec"].get("tolerations") or []),
            {"key": "example.com/late", "operator": "Exists"},
        ]
        await patched(world, pod, {"spec": {"tolerations": tolerated}})
    version = (await world.rollout())["metadata"]["resourceVersion"]
    await asyncio.sleep(4)  # that nothing happens cannot be awaited
    assert await world.gone() == 0
    assert (await world.rollout())["metadata"]["resourceVersion"] == version
    await world.set_image(NEWER)
    await world.until_ready(image=NEWER)
    assert await world.gone() == 2
    assert {image_of(p) for p in await world.pods()} == {NEWER}
    world.assert_promises()
