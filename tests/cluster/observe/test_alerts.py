"""Every alert fires by the real fault that it is about, with what is wrong in its labels, and no other fires for it.

The alerts' durations are a sixtieth of those that are installed (lab.monitoring).
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from lab.client import Api
from lab.install import Account
from lab.leases import LEASES, NAME
from lab.monitoring import MONITORING, Observe, Observed
from lab.resources import PODS, RESOURCE_CLAIMS
from lab.world import BROKEN, NEWER, MakeWorld, Shape, World

pytestmark = pytest.mark.slow

SLOW: Final = {"teardown_seconds": 1.0, "unprepare_seconds": 0.5}


async def begin(
    make_world: MakeWorld,
    observe: Observe,
    shape: Shape,
    *arguments: str,
    spec: Mapping[str, Any] | None = None,
) -> tuple[World, Observed]:
    """Return a workload that is well, and its operator under watch."""
    world = await make_world(shape, devices=(shape.replicas,))
    observed = await observe(*arguments)
    await world.settle_in(spec=spec)
    assert await observed.monitoring.fired() == set()
    return world, observed


def about(world: World) -> dict[str, str]:
    """The labels by which an alert names the object."""
    return {"namespace": world.namespace, "name": world.name}


async def test_a_rollout_that_is_stalled(make_world: MakeWorld, observe: Observe) -> None:
    world, observed = await begin(
        make_world, observe, Shape(replicas=2, faults=SLOW), spec={"health": {"prepareTimeoutSeconds": 2}}
    )
    await world.set_image(BROKEN)
    labels = await observed.monitoring.until_fires("Stalled")
    assert labels.items() >= (about(world) | {"reason": "PrepareTimeout"}).items()
    assert await observed.monitoring.fired() == {"Stalled"}


async def test_a_release_that_nothing_proves_and_what_it_costs(
    make_world: MakeWorld, observe: Observe
) -> None:
    """A pod is deleted by force, and a person is to look first: a gate and a hold grow old."""
    spec = {"release": {"unproven": {"policy": "Pause"}}}
    world, observed = await begin(
        make_world, observe, Shape(replicas=1, grace=2, hold="Auto", faults=SLOW), spec=spec
    )
    await observed.monitoring.until("accelerator_rollout_holds_in_force == 1", "the hold")
    (victim,) = await world.pods()
    await world.api.delete(PODS, victim["metadata"]["name"], world.namespace, grace_seconds=0)
    for alert, seconds in {"ReleaseUnproven": 30, "GateOld": 60, "HoldLong": 150}.items():
        labels = await observed.monitoring.until_fires(alert, seconds=seconds)
        assert labels.items() >= about(world).items(), alert
    # What waits for a person is stalled, too.
    assert await observed.monitoring.fired() - {"Stalled"} == {"ReleaseUnproven", "GateOld", "HoldLong"}


async def test_a_device_that_a_stranger_takes(make_world: MakeWorld, observe: Observe) -> None:
    world, observed = await begin(make_world, observe, Shape(replicas=2, faults=SLOW))
    await world.make_pod("stranger")
    await world.set_image(NEWER)
    labels = await observed.monitoring.until_fires("DeviceTaken")
    assert labels.items() >= about(world).items()
    assert await observed.monitoring.fired() == {"DeviceTaken"}
    await world.api.delete(PODS, "stranger", world.namespace)
    await world.until_ready(image=NEWER)
    await observed.monitoring.until_quiet("DeviceTaken")


async def test_a_device_that_is_allocated_twice(make_world: MakeWorld, observe: Observe) -> None:
    world, observed = await begin(make_world, observe, Shape(replicas=2, faults=SLOW))
    (first, *_) = await world.claims()
    request = {"name": "device", "exactly": {"deviceClassName": world.device_class}}
    twin = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "twin", "namespace": world.namespace},
        "spec": {"devices": {"requests": [request]}},
    }
    await world.api.create(RESOURCE_CLAIMS, twin)
    theirs = {"apiGroup": "example.com", "resource": "things", "name": "thing", "uid": "of-a-thing"}
    status = {"allocation": first["status"]["allocation"], "reservedFor": [theirs]}
    await world.api.patch(RESOURCE_CLAIMS, "twin", {"status": status}, world.namespace, subresource="status")
    await world.set_image(NEWER)
    labels = await observed.monitoring.until_fires("DoubleAllocation")
    assert labels.items() >= about(world).items()
    assert await observed.monitoring.fired() == {"DoubleAllocation"}


async def test_an_operator_that_is_gone(make_world: MakeWorld, observe: Observe) -> None:
    _, observed = await begin(make_world, observe, Shape(replicas=1))
    observed.operator.kill()
    await observed.monitoring.until_fires("OperatorDown")
    assert await observed.monitoring.fired() == {"OperatorDown"}
    await observed.operator.restart()
    await observed.monitoring.until_quiet("OperatorDown")


async def test_a_lease_that_nobody_who_is_watched_holds(
    admin: Api, account: Account, observe: Observe
) -> None:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    spec = {"holderIdentity": "elsewhere", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now}
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME},
        "spec": spec,
    }
    await admin.delete_if_there(LEASES, NAME, account.namespace)
    await admin.create(LEASES, body, account.namespace)
    try:
        observed = await observe("--leader-election=on", f"--lease-namespace={account.namespace}")
        await observed.monitoring.until_fires("NoLeader")
        assert await observed.monitoring.fired() == {"NoLeader"}
    finally:
        await admin.delete_if_there(LEASES, NAME, account.namespace)


async def test_an_api_server_that_is_away(make_world: MakeWorld, observe: Observe) -> None:
    _, observed = await begin(make_world, observe, Shape(replicas=1))
    observed.wire.down = True
    observed.wire.cut()
    for alert in ("StoreStale", "WatchDown", "ApiErrors"):
        await observed.monitoring.until_fires(alert)
    assert await observed.monitoring.fired() == {"StoreStale", "WatchDown", "ApiErrors"}
    observed.wire.down = False
    for alert in ("StoreStale", "WatchDown", "ApiErrors"):
        await observed.monitoring.until_quiet(alert)


async def test_a_watch_that_is_refused(make_world: MakeWorld, observe: Observe) -> None:
    _, observed = await begin(make_world, observe, Shape(replicas=1))
    observed.wire.unwatchable.add("resourceslices")
    observed.wire.cut()
    labels = await observed.monitoring.until_fires("WatchDown")
    assert labels["resource"] == "resourceslices"
    # A store that a watch is missing from is not believed.
    await observed.monitoring.until_fires("StoreStale")
    assert await observed.monitoring.fired() == {"WatchDown", "StoreStale"}


async def test_decisions_that_cannot_be_carried_out(make_world: MakeWorld, observe: Observe) -> None:
    world, observed = await begin(make_world, observe, Shape(replicas=1, faults=SLOW))
    observed.wire.refused["/status"] = 403
    # One object alone comes back ever more seldom, and that is not scaled.
    for number in range(4):
        await world.make_rollout({}, name=f"more-{number}")
    labels = await observed.monitoring.until_fires("ReconcileErrors")
    assert labels["error"] == "ForbiddenError"
    assert await observed.monitoring.fired() == {"ReconcileErrors"}


async def test_objects_that_wait_for_a_worker(make_world: MakeWorld, observe: Observe) -> None:
    """The only worker waits for answers that never come."""
    world, observed = await begin(make_world, observe, Shape(replicas=1, faults=SLOW), "--workers=1")
    observed.wire.silent.add("/status")
    for number in range(8):
        await world.make_rollout({}, name=f"more-{number}")
    await observed.monitoring.until_fires("QueueSlow")
    assert await observed.monitoring.fired() <= {"QueueSlow", "ReconcileErrors", "ApiErrors"}


def test_no_alert_is_left_out() -> None:
    told = Path(__file__).read_text(encoding="utf-8")
    rules = yaml.safe_load((MONITORING / "rules.yaml").read_text(encoding="utf-8"))
    alerts = {r["alert"].removeprefix("AcceleratorRollout") for g in rules["groups"] for r in g["rules"]}
    assert alerts - {name for name in alerts if re.search(rf'"{name}"', told)} == set()
