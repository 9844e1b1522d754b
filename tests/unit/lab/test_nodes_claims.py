"""What a simulated kubelet reads from claims and pods, and what its driver notes."""

import asyncio
from typing import Any

import pytest

from lab.ledger import Device, Ledger
from lab.nodes.claims import Allotted, Claim, ClaimStore, claim_names, claim_of
from lab.nodes.driver import DriverError, NodeDriver
from lab.nodes.faults import Behaviour

LPU_0 = Device(driver="lpu.example.dev", pool="node-a", name="lpu-0")
CLAIM = Claim(
    namespace="models",
    name="llm-0-acc",
    uid="c1",
    allotted=(Allotted(device=LPU_0, admin=False, share=""),),
    reserved_for=frozenset({"p1", "p2"}),
)
AT_ONCE = Behaviour(prepare_seconds=0, unprepare_seconds=0)


def claim_body(
    *, allocated: bool = True, reserved: tuple[str, ...] = ("p1",), **result: object
) -> dict[str, Any]:
    status: dict[str, Any] = {
        "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved]
    }
    if allocated:
        one = {"request": "r", "driver": "lpu.example.dev", "pool": "node-a", "device": "lpu-0", **result}
        status["allocation"] = {"devices": {"results": [one]}}
    return {"metadata": {"namespace": "models", "name": "llm-0-acc", "uid": "c1"}, "status": status}


def pod(*, claims: list[dict[str, Any]], status: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": "llm-0"}, "spec": {"resourceClaims": claims}, "status": status or {}}


def test_a_claim_is_usable_only_when_allocated_and_reserved_for_that_pod() -> None:
    assert claim_of(claim_body()).usable_by("p1")
    assert not claim_of(claim_body()).usable_by("p2")
    assert not claim_of(claim_body(allocated=False)).usable_by("p1")
    assert not claim_of({"metadata": {"namespace": "m", "name": "c", "uid": "u"}}).usable_by("p1")


def test_admin_access_and_shares_are_told_apart_from_owning() -> None:
    assert claim_of(claim_body(adminAccess=True)).allotted == (Allotted(LPU_0, admin=True, share=""),)
    assert claim_of(claim_body(shareID="s1")).allotted == (Allotted(LPU_0, admin=False, share="s1"),)


def test_a_pod_s_claims_are_the_named_the_generated_and_the_extended_ones() -> None:
    both = pod(
        claims=[
            {"name": "a", "resourceClaimName": "shared"},
            {"name": "b", "resourceClaimTemplateName": "t"},
            {"name": "c", "resourceClaimTemplateName": "t"},
        ],
        status={
            "resourceClaimStatuses": [
                {"name": "b", "resourceClaimName": "llm-0-b"},
                {"name": "c", "resourceClaimName": None},
            ],
            "extendedResourceClaimStatus": {"resourceClaimName": "llm-0-extended"},
        },
    )
    assert claim_names(both) == ("shared", "llm-0-b", "llm-0-extended")


def test_a_claim_that_is_not_generated_yet_is_waited_for() -> None:
    assert claim_names(pod(claims=[{"name": "a", "resourceClaimTemplateName": "t"}])) is None


def test_the_store_wakes_who_waits_for_a_claim_once_and_no_other() -> None:
    store, mine, other = ClaimStore(), asyncio.Event(), asyncio.Event()
    store.wake(("models", "llm-0-acc"), mine)
    store.wake(("models", "llm-1-acc"), other)
    store.put(claim_body())
    assert (mine.is_set(), other.is_set()) == (True, False)

    mine.clear()
    store.drop(claim_body())
    assert not mine.is_set()
    assert store.get(("models", "llm-0-acc")) is None


async def test_a_shared_claim_is_prepared_once_and_unprepared_after_its_last_pod() -> None:
    ledger = Ledger()
    driver = NodeDriver("node-a", "lpu.example.dev", ledger)
    await driver.prepare(CLAIM, "p1", "llm-0", AT_ONCE)
    await driver.prepare(CLAIM, "p2", "llm-1", AT_ONCE)
    await driver.unprepare("c1", "p1", AT_ONCE)
    assert len(ledger.held()) == 1

    await driver.unprepare("c1", "p2", AT_ONCE)
    assert ledger.held() == ()
    assert len(ledger.entries()) == 2


async def test_the_last_two_pods_of_a_shared_claim_may_leave_at_the_same_time() -> None:
    ledger = Ledger()
    driver = NodeDriver("node-a", "lpu.example.dev", ledger)
    for pod_uid in ("p1", "p2"):
        await driver.prepare(CLAIM, pod_uid, pod_uid, AT_ONCE)
    slow = Behaviour(unprepare_seconds=0.01)
    await asyncio.gather(*(driver.unprepare("c1", pod_uid, slow) for pod_uid in ("p1", "p2")))

    assert ledger.held() == ()
    assert driver.claims_of("p1") == driver.claims_of("p2") == ()


async def test_a_prepare_cut_short_still_counts_until_it_is_unprepared() -> None:
    ledger = Ledger()
    driver = NodeDriver("node-a", "lpu.example.dev", ledger)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await driver.prepare(CLAIM, "p1", "llm-0", Behaviour(prepare_seconds=60))
    assert [entry.device for entry in ledger.held()] == [LPU_0]

    await driver.unprepare("c1", "p1", AT_ONCE)
    assert ledger.held() == ()


async def test_unprepare_fails_as_often_as_asked_and_the_device_stays_held_meanwhile() -> None:
    ledger = Ledger()
    driver = NodeDriver("node-a", "lpu.example.dev", ledger)
    await driver.prepare(CLAIM, "p1", "llm-0", AT_ONCE)
    failing = Behaviour(unprepare_seconds=0, unprepare_failures=2)
    for _ in range(2):
        with pytest.raises(DriverError, match="NodeUnprepareResources failed for ResourceClaim llm-0-acc"):
            await driver.unprepare("c1", "p1", failing)
        assert len(ledger.held()) == 1

    await driver.unprepare("c1", "p1", failing)
    assert ledger.held() == ()


async def test_a_driver_that_is_down_fails_both_ways_and_says_that_it_is_not_registered() -> None:
    ledger = Ledger()
    driver = NodeDriver("node-a", "lpu.example.dev", ledger)
    await driver.prepare(CLAIM, "p1", "llm-0", AT_ONCE)
    driver.up = False

    with pytest.raises(
        DriverError, match=r"NodeUnprepareResources: DRA driver lpu\.example\.dev is not registered"
    ):
        await driver.unprepare("c1", "p1", AT_ONCE)
    with pytest.raises(DriverError, match="NodePrepareResources"):
        await driver.prepare(
            Claim("models", "other", "c2", CLAIM.allotted, CLAIM.reserved_for), "p2", "x", AT_ONCE
        )
    assert [entry.holder.claim_uid for entry in ledger.held()] == ["c1"]
    assert driver.claims_of("p2") == ("c2",), "the kubelet unprepares also what it failed to prepare"


async def test_a_reboot_leaves_nothing_prepared_and_says_why() -> None:
    ledger = Ledger()
    driver = NodeDriver("node-a", "lpu.example.dev", ledger)
    await driver.prepare(CLAIM, "p1", "llm-0", AT_ONCE)
    driver.forget_all("reboot")

    assert ledger.held() == ()
    assert ledger.entries()[-1].cause == "reboot"
