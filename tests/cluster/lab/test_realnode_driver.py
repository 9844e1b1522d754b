"""The driver of the real node, called as a kubelet calls it: by both its sockets, again and again, and after crashes."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from lab.client import Api, Object
from lab.controlplane import ControlPlane
from lab.ledger import Device
from lab.realnode.driver.faults import CRASHED, Crash
from lab.realnode.driver.kubelet_api import (
    SERVICE,
    Caller,
    ClaimRef,
    Failure,
    PluginInfo,
    PreparedDevice,
    Unanswered,
)
from lab.realnode.driver_process import DriverFolders, DriverProcess
from lab.resources import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

DEVICES = 2

_Found = TypeVar("_Found")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Sockets have short paths, and pytest's folders have long ones."""
    folder = Path(tempfile.mkdtemp(prefix="driver-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def node(admin: Api, namespace: str) -> AsyncIterator[str]:
    await admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": namespace}})
    yield namespace
    await admin.delete_if_there(NODES, namespace)
    for one in (await slices(admin, namespace)).values():
        await admin.delete_if_there(RESOURCE_SLICES, one["metadata"]["name"])


@pytest.fixture
async def driver(control_plane: ControlPlane, node: str, short_path: Path) -> AsyncIterator[DriverProcess]:
    process = DriverProcess(
        kubeconfig=control_plane.kubeconfig,
        node=node,
        driver=f"{node}.example.dev",
        devices=DEVICES,
        folders=DriverFolders(short_path / "p", short_path / "r", short_path / "cdi"),
        folder=short_path,
    )
    async with process:
        yield process


@pytest.fixture
async def kubelet(driver: DriverProcess) -> AsyncIterator[Caller]:
    async with Caller(driver.places.socket(driver.driver)) as caller:
        yield caller


class Claims:
    """Claims as the scheduler leaves them: allocated, and reserved for a pod."""

    def __init__(self, admin: Api, namespace: str, driver: str) -> None:
        self.admin, self.namespace, self.driver = admin, namespace, driver

    async def make(self, name: str, *devices: str, allocated: bool = True) -> ClaimRef:
        body: Object = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "lpu",
                            "exactly": {
                                "deviceClassName": "any",
                                "allocationMode": "ExactCount",
                                "count": len(devices) or 1,
                            },
                        }
                    ]
                }
            },
        }
        made = await self.admin.create(RESOURCE_CLAIMS, body)
        if allocated:
            pod = await self._gated_pod(f"pod-of-{name}")
            made["status"] = {
                "allocation": {
                    "devices": {
                        "results": [
                            {"request": "lpu", "driver": self.driver, "pool": self.namespace, "device": one}
                            for one in devices
                        ]
                    }
                },
                "reservedFor": [
                    # A hold of ours may stand there too: it is no pod.
                    {
                        "apiGroup": "accelerator-rollout.dev",
                        "resource": "acceleratorrollouts",
                        "name": "llm",
                        "uid": "hold",
                    },
                    {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]},
                ],
            }
            await self.admin.replace(RESOURCE_CLAIMS, made, subresource="status")
        return ClaimRef(self.namespace, name, made["metadata"]["uid"])

    async def _gated_pod(self, name: str) -> Object:
        """The claim controller takes away whom it cannot find."""
        body: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "schedulingGates": [{"name": "example.dev/never"}],
                "containers": [{"name": "main", "image": "example.dev/none:1"}],
            },
        }
        return await self.admin.create(PODS, body)


@pytest.fixture
def claims(admin: Api, namespace: str, driver: DriverProcess) -> Claims:
    return Claims(admin, namespace, driver.driver)


async def slices(admin: Api, node: str) -> dict[str, Object]:
    page = await admin.list(RESOURCE_SLICES, field_selector=f"spec.nodeName={node}")
    return {one["metadata"]["name"]: one for one in page.items}


async def until(reached: Callable[[], Awaitable[_Found | None]], seconds: float = 20.0) -> _Found:
    """Nobody tells, so we have to ask."""
    async with asyncio.timeout(seconds):
        while True:
            if found := await reached():
                return found
            await asyncio.sleep(0.02)


async def until_unregistered(driver: DriverProcess) -> None:
    async def gone() -> bool:
        return not driver.places.registration(driver.driver).exists()

    await until(gone)


async def until_held(driver: DriverProcess) -> None:
    async def held() -> bool:
        return bool(driver.ledger().held())

    await until(held)


def deeds(driver: DriverProcess) -> list[tuple[str, str]]:
    return [(str(entry.deed), entry.device.name) for entry in driver.ledger().entries()]


# Registration


async def test_it_says_who_it_is_where_the_kubelet_looks_and_notes_that_it_was_registered(
    driver: DriverProcess,
) -> None:
    async with Caller(driver.places.registration(driver.driver)) as kubelet:
        info = await kubelet.get_info()
        assert info == PluginInfo(
            name=driver.driver,
            endpoint=driver.places.socket(driver.driver),
            type="DRAPlugin",
            versions=(SERVICE,),
        )
        assert not driver.places.registered(driver.driver).exists()

        await kubelet.notify()
        await driver.wait_registered()

        await kubelet.notify(error="no such version")
        assert not driver.places.registered(driver.driver).exists()
        assert "no such version" in driver.log.read_text()


async def test_told_to_deregister_it_takes_its_registration_away_and_comes_back_when_healed(
    driver: DriverProcess, kubelet: Caller
) -> None:
    registration = driver.places.registration(driver.driver)

    driver.order(registered=False)
    await until_unregistered(driver)
    assert await kubelet.unprepare(ClaimRef("any", "unknown", "uid")) == {"uid": None}  # it lives

    driver.order()
    await driver.wait_listening()
    async with Caller(registration) as caller:
        assert (await caller.get_info()).name == driver.driver


# The pool


async def test_it_publishes_the_whole_pool_owned_by_its_node(
    driver: DriverProcess, admin: Api, node: str
) -> None:
    (one,) = (await until(lambda: slices(admin, node))).values()

    assert one["spec"]["driver"] == driver.driver
    assert one["spec"]["pool"] == {"name": node, "generation": 1, "resourceSliceCount": 1}
    assert [device["name"] for device in one["spec"]["devices"]] == ["lpu-0", "lpu-1"]
    assert [owner["name"] for owner in one["metadata"]["ownerReferences"]] == [node]


async def test_slices_that_somebody_wipes_are_published_anew_in_a_higher_generation(
    driver: DriverProcess, admin: Api, node: str
) -> None:
    (name,) = await until(lambda: slices(admin, node))

    await admin.delete(RESOURCE_SLICES, name)

    async def again() -> Object | None:
        return (await slices(admin, node)).get(name)

    assert (await until(again))["spec"]["pool"]["generation"] == 2


async def test_a_restarted_driver_leaves_a_pool_alone_that_stands_as_it_should(
    driver: DriverProcess, admin: Api, node: str
) -> None:
    before = await until(lambda: slices(admin, node))

    await driver.stop()
    driver.start()
    looked = "found 1 slices of generation 1"
    await driver.wait_until(lambda: looked in driver.log.read_text(), "find its slice", seconds=20)

    (name,) = before
    await admin.delete(RESOURCE_SLICES, name)  # it looked, and watches: this it mends

    async def again() -> Object | None:
        return (await slices(admin, node)).get(name)

    assert (await until(again))["spec"]["pool"]["generation"] == 2, "it had raised the generation before"


async def test_unregistered_it_publishes_nothing(driver: DriverProcess, admin: Api, node: str) -> None:
    (name,) = await until(lambda: slices(admin, node))
    driver.order(registered=False)
    await until_unregistered(driver)

    await admin.delete(RESOURCE_SLICES, name)  # as the kubelet does after half a minute
    await asyncio.sleep(1.0)  # that nothing comes cannot be awaited
    assert await slices(admin, node) == {}

    driver.order()
    assert set(await until(lambda: slices(admin, node))) == {name}


# Preparing


async def test_a_prepared_claim_has_a_cdi_device_with_a_variable_and_a_file_for_each_device(
    driver: DriverProcess, kubelet: Caller, claims: Claims
) -> None:
    claim = await claims.make("one", "lpu-0", "lpu-1")

    answer = await kubelet.prepare(claim)

    kind = f"{driver.driver}/claim"
    assert answer == {
        claim.uid: tuple(
            PreparedDevice(
                requests=("lpu",),
                pool=claims.namespace,
                device=device,
                cdi=(f"{kind}={claim.uid}-{device}",),
            )
            for device in ("lpu-0", "lpu-1")
        )
    }
    (file,) = driver.places.cdi.iterdir()
    spec = yaml.safe_load(file.read_text())
    assert (file.suffix, spec["kind"]) == (".json", kind)
    edits = spec["devices"][1]["containerEdits"]
    inside = f"/accelerators/{driver.driver}/lpu-1"
    assert spec["devices"][1]["name"] == f"{claim.uid}-lpu-1"
    assert edits["env"] == [f"ACCELERATOR_LPU_1={inside}"]
    (mount,) = edits["mounts"]
    assert mount["containerPath"] == inside
    assert mount["hostPath"] == str(driver.places.files(driver.driver) / "lpu-1")


async def test_the_ledger_tells_which_pod_had_which_device_until_the_claim_was_unprepared(
    driver: DriverProcess, kubelet: Caller, claims: Claims
) -> None:
    claim = await claims.make("one", "lpu-1")
    await kubelet.prepare(claim)

    (entry,) = driver.ledger().held()
    assert entry.device == Device(driver.driver, claims.namespace, "lpu-1")
    assert (entry.node, entry.holder.pod_name) == (claims.namespace, "pod-of-one")
    assert (entry.holder.claim_uid, entry.holder.claim_name) == (claim.uid, "one")

    assert await kubelet.unprepare(claim) == {claim.uid: None}

    assert driver.ledger().held() == ()
    assert list(driver.places.cdi.iterdir()) == []
    assert deeds(driver) == [("prepared", "lpu-1"), ("unprepared", "lpu-1")]


async def test_what_was_done_already_is_answered_alike_and_not_done_again(
    driver: DriverProcess, kubelet: Caller, claims: Claims
) -> None:
    claim = await claims.make("one", "lpu-0")

    first = await kubelet.prepare(claim)
    assert await kubelet.prepare(claim) == first
    await kubelet.unprepare(claim)
    assert await kubelet.unprepare(claim) == {claim.uid: None}

    assert deeds(driver) == [("prepared", "lpu-0"), ("unprepared", "lpu-0")]


async def test_two_calls_at_once_for_one_claim_prepare_it_once(
    driver: DriverProcess, kubelet: Caller, claims: Claims
) -> None:
    claim = await claims.make("one", "lpu-0")
    driver.order(prepare_seconds=0.5)

    first, second = await asyncio.gather(kubelet.prepare(claim), kubelet.prepare(claim))

    assert first == second
    assert deeds(driver) == [("prepared", "lpu-0")]


async def test_of_a_batch_each_claim_has_its_own_answer(
    driver: DriverProcess, kubelet: Caller, claims: Claims
) -> None:
    good = await claims.make("good", "lpu-0")
    waiting = await claims.make("waiting", allocated=False)
    replaced = ClaimRef(claims.namespace, "good", "uid-of-an-earlier-claim")
    gone = ClaimRef(claims.namespace, "gone", "uid-of-gone")

    answer = await kubelet.prepare(good, waiting, replaced, gone)

    assert set(answer) == {good.uid, waiting.uid, replaced.uid, gone.uid}
    assert isinstance(answer[good.uid], tuple)
    assert answer[waiting.uid] == Failure(f"claim {waiting}: it is not allocated")
    for one in (replaced, gone):
        assert answer[one.uid] == Failure(f"claim {one}: no claim of this name has the UID {one.uid}")


async def test_a_device_that_two_claims_have_is_prepared_twice_and_the_ledger_shows_it(
    driver: DriverProcess, kubelet: Caller, claims: Claims
) -> None:
    first, second = await claims.make("first", "lpu-0"), await claims.make("second", "lpu-0")

    await kubelet.prepare(first)
    assert isinstance((await kubelet.prepare(second))[second.uid], tuple), "it refuses nothing by itself"
    await kubelet.unprepare(first)

    (overlap,) = driver.ledger().violations()
    assert (overlap.first.holder.claim_name, overlap.second.holder.claim_name) == ("first", "second")
    assert overlap.ended is not None


# Faults


async def test_the_next_prepares_and_unprepares_fail_as_often_as_ordered(
    driver: DriverProcess, kubelet: Caller, claims: Claims
) -> None:
    claim = await claims.make("one", "lpu-0")

    driver.order(fail_prepares=2)
    answers = [await kubelet.prepare(claim) for _ in range(3)]
    assert [isinstance(answer[claim.uid], Failure) for answer in answers] == [True, True, False]

    driver.order(fail_unprepares=3)
    gone = [await kubelet.unprepare(claim) for _ in range(4)]
    assert [answer[claim.uid] is None for answer in gone] == [False, False, False, True]
    assert deeds(driver) == [("prepared", "lpu-0"), ("unprepared", "lpu-0")]


async def test_a_slow_driver_has_the_device_from_the_start_of_prepare_to_the_end_of_unprepare(
    driver: DriverProcess, kubelet: Caller, claims: Claims
) -> None:
    claim = await claims.make("one", "lpu-0")
    driver.order(prepare_seconds=1.0, unprepare_seconds=1.0)
    loop = asyncio.get_running_loop()

    async def timed(call: Any) -> float:
        begin = loop.time()
        await call
        return loop.time() - begin

    preparing = asyncio.create_task(timed(kubelet.prepare(claim)))
    await until_held(driver)
    assert not preparing.done()
    assert await preparing >= 1.0

    unpreparing = asyncio.create_task(timed(kubelet.unprepare(claim)))
    await asyncio.sleep(0.5)
    assert driver.ledger().held()
    assert await unpreparing >= 1.0
    assert not driver.ledger().held()


async def test_a_call_that_the_kubelet_gave_up_goes_on_and_its_next_call_has_the_answer(
    driver: DriverProcess, claims: Claims
) -> None:
    claim = await claims.make("one", "lpu-0")
    driver.order(prepare_seconds=1.5)

    async with Caller(driver.places.socket(driver.driver), timeout_seconds=0.5) as hasty:
        with pytest.raises(Unanswered, match="DEADLINE_EXCEEDED"):
            await hasty.prepare(claim)
    async with Caller(driver.places.socket(driver.driver)) as patient:
        assert isinstance((await patient.prepare(claim))[claim.uid], tuple)

    assert deeds(driver) == [("prepared", "lpu-0")]


@pytest.mark.parametrize(
    ("crash", "held"),
    [(Crash.BEFORE_PREPARE, []), (Crash.WHILE_PREPARING, ["lpu-0"]), (Crash.AFTER_PREPARE, ["lpu-0"])],
)
async def test_a_driver_that_crashed_in_a_prepare_is_asked_again_and_prepares_once(
    driver: DriverProcess, claims: Claims, crash: Crash, held: list[str]
) -> None:
    claim = await claims.make("one", "lpu-0")
    driver.order(crash=crash)

    async with AsyncExitStack() as stack:
        kubelet = await stack.enter_async_context(Caller(driver.places.socket(driver.driver)))
        with pytest.raises(Unanswered, match="UNAVAILABLE"):
            await kubelet.prepare(claim)
    assert await driver.wait_ended() == CRASHED
    assert [entry.device.name for entry in driver.ledger().held()] == held

    driver.start()
    await driver.wait_listening()
    async with Caller(driver.places.socket(driver.driver)) as kubelet:
        assert isinstance((await kubelet.prepare(claim))[claim.uid], tuple), "it crashes once for each order"
    assert deeds(driver) == [("prepared", "lpu-0")]


@pytest.mark.parametrize("crash", [Crash.BEFORE_UNPREPARE, Crash.AFTER_UNPREPARE])
async def test_a_driver_that_crashed_in_an_unprepare_is_asked_again_and_lets_go_once(
    driver: DriverProcess, claims: Claims, crash: Crash
) -> None:
    claim = await claims.make("one", "lpu-0")
    async with Caller(driver.places.socket(driver.driver)) as kubelet:
        await kubelet.prepare(claim)
        driver.order(crash=crash)
        with pytest.raises(Unanswered, match="UNAVAILABLE"):
            await kubelet.unprepare(claim)
    assert await driver.wait_ended() == CRASHED

    driver.start()
    await driver.wait_listening()
    async with Caller(driver.places.socket(driver.driver)) as kubelet:
        assert await kubelet.unprepare(claim) == {claim.uid: None}
    assert deeds(driver) == [("prepared", "lpu-0"), ("unprepared", "lpu-0")]
    assert list(driver.places.cdi.iterdir()) == []


async def test_faults_that_mean_nothing_fail_the_call_and_say_so(
    driver: DriverProcess, kubelet: Caller, claims: Claims
) -> None:
    claim = await claims.make("one", "lpu-0")
    driver.places.faults.write_text('{"fail_preparse": 1}')

    answer = (await kubelet.prepare(claim))[claim.uid]

    assert isinstance(answer, Failure)
    assert "fail_preparse" in answer.message


# Its life


async def test_what_it_prepared_it_still_knows_after_a_restart_even_if_the_claim_is_gone(
    driver: DriverProcess, claims: Claims, admin: Api
) -> None:
    claim = await claims.make("one", "lpu-0")
    async with Caller(driver.places.socket(driver.driver)) as kubelet:
        first = await kubelet.prepare(claim)
    await admin.delete(RESOURCE_CLAIMS, claim.name, claim.namespace)

    driver.kill()
    driver.start()
    await driver.wait_listening()

    async with Caller(driver.places.socket(driver.driver)) as kubelet:
        assert await kubelet.prepare(claim) == first
        await kubelet.unprepare(claim)
    assert deeds(driver) == [("prepared", "lpu-0"), ("unprepared", "lpu-0")]


async def test_on_sigterm_the_kubelet_loses_sight_of_it_and_a_call_in_flight_ends(
    driver: DriverProcess, kubelet: Caller, claims: Claims
) -> None:
    claim = await claims.make("one", "lpu-0")
    driver.order(prepare_seconds=1.0)
    call = asyncio.create_task(kubelet.prepare(claim))
    await until_held(driver)

    await driver.stop()

    assert isinstance((await call)[claim.uid], tuple)
    assert not driver.places.registration(driver.driver).exists()
    assert not driver.places.socket(driver.driver).exists()
    assert driver.exit_code == 0


async def test_it_does_not_begin_without_what_an_earlier_life_saved(driver: DriverProcess) -> None:
    await driver.stop()
    driver.places.checkpoint(driver.driver).write_text("half a li")

    driver.start()

    assert await driver.wait_ended(seconds=30) == 2
    assert "is no checkpoint of this driver" in driver.log.read_text()
