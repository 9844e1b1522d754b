"""The proof that the oracle works: it sees the double use that a forced deletion causes, and none where there is none."""

import pytest

from cluster.lab.workload import Bench, is_ready
from lab.client import Object
from lab.ledger import Deed, DevicePreparedTwiceError
from lab.recorder import Recorder
from lab.resources import DEPLOYMENTS, PODS

pytestmark = pytest.mark.cluster


async def only_pod(bench: Bench) -> Object:
    await bench.api.wait_for(
        DEPLOYMENTS,
        "llm",
        lambda one: one is not None and one["status"].get("readyReplicas") == 1,
        bench.namespace,
        timeout=15,
    )
    (pod,) = (await bench.api.list(PODS, bench.namespace)).items
    return pod


async def replace(bench: Bench, recorder: Recorder, *, force: bool) -> tuple[Object, Object]:
    """On one device, delete the Deployment's pod and await that its replacement is Ready."""
    await bench.nodes.add("node-a", devices=1)
    await bench.deployment(teardown_seconds=0.3, unprepare_seconds=1.0)
    old = await only_pod(bench)
    await bench.delete(old["metadata"]["name"], force=force)
    ready = await recorder.until(
        lambda one: one.kind == "Pod" and one.uid != old["metadata"]["uid"] and is_ready(one.object),
        timeout=20,
        what="a Ready replacement",
    )
    return old, ready.object


async def test_a_forced_deletion_under_a_plain_deployment_uses_the_device_twice_and_the_ledger_says_so(
    bench: Bench, recorder: Recorder
) -> None:
    old, new = await replace(bench, recorder, force=True)

    (overlap,) = bench.nodes.ledger.violations()
    assert overlap.first.holder.pod_uid == old["metadata"]["uid"]
    assert overlap.second.holder.pod_uid == new["metadata"]["uid"]
    with pytest.raises(
        DevicePreparedTwiceError, match=f"while it was still prepared for .*{old['metadata']['name']}"
    ):
        bench.nodes.ledger.assert_clean()


async def test_a_graceful_deletion_with_the_same_slow_driver_does_not(
    bench: Bench, recorder: Recorder
) -> None:
    await replace(bench, recorder, force=False)

    bench.nodes.ledger.assert_clean()
    assert [entry.deed for entry in bench.nodes.ledger.entries()] == [
        Deed.PREPARED,
        Deed.UNPREPARED,
        Deed.PREPARED,
    ]


async def test_after_a_forced_deletion_the_device_stays_prepared_until_teardown_and_unprepare_are_over(
    bench: Bench,
) -> None:
    await bench.nodes.add("node-a", devices=1)
    await bench.pod(grace=1, teardown_seconds=60, unprepare_seconds=0.2)
    await bench.ready()
    (prepared,) = bench.nodes.ledger.held()
    await bench.delete(force=True)
    await bench.gone()
    assert bench.nodes.ledger.held() == (prepared,)

    released = await bench.released()
    assert released.deed is Deed.UNPREPARED
    assert released.monotonic - prepared.monotonic > 1.2, "the spec's grace of 1 s, then the unprepare"


async def test_a_forced_deletion_of_a_pod_with_a_finalizer_ends_in_order(
    bench: Bench, recorder: Recorder
) -> None:
    await bench.nodes.add("node-a", devices=1)
    await bench.pod(finalizer="example.com/guard", unprepare_seconds=0.5)
    await bench.ready()
    await bench.delete(force=True)
    terminal = await recorder.until(lambda one: one.kind == "Pod" and one.status.get("phase") == "Succeeded")

    assert bench.nodes.ledger.held() == ()
    assert terminal.deleting
    await bench.api.patch(PODS, "llm", {"metadata": {"finalizers": None}}, bench.namespace)
    await bench.gone()
