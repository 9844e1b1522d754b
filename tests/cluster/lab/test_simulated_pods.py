"""A pod's life and end on a simulated node, as the real API server and the real controllers see it."""

import pytest

from cluster.lab.workload import (
    Bench,
    claim_spec,
    container_state,
    is_ready,
    is_terminal,
    phase_is,
    restarts,
    waiting_for,
)
from lab.client import EventType, Object, condition, has_condition
from lab.ledger import Deed
from lab.nodes import FOREVER, FaultError, StartFailure
from lab.recorder import Recorder
from lab.resources import PODS, RESOURCE_CLAIMS

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
async def _one_device(bench: Bench) -> None:
    await bench.nodes.add("node-a", devices=1)


def writer_of_phase(pod: Object) -> list[str]:
    """The field managers that own the pod's status.phase."""
    return [
        entry["manager"]
        for entry in pod["metadata"]["managedFields"]
        if entry.get("subresource") == "status" and "f:phase" in entry["fieldsV1"].get("f:status", {})
    ]


# Starting


async def test_a_pod_becomes_ready_once_its_device_is_prepared(bench: Bench) -> None:
    await bench.pod()
    pod = await bench.ready()

    assert {one["type"] for one in pod["status"]["conditions"] if one["status"] == "True"} >= {
        "Initialized",
        "ContainersReady",
        "PodReadyToStartContainers",
        "PodScheduled",
    }
    assert writer_of_phase(pod) == ["kubelet"]
    (held,) = bench.nodes.ledger.held()
    assert (held.holder.pod_name, held.device.name, held.node) == ("llm", "lpu-0", "node-a")


async def test_a_slow_driver_keeps_the_pod_pending_while_the_device_is_already_held(
    bench: Bench, recorder: Recorder
) -> None:
    await bench.pod(prepare_seconds=0.6)
    await bench.until("llm", waiting_for("ContainerCreating"))
    await bench.ready()
    await recorder.caught_up()

    (prepared,) = bench.nodes.ledger.entries()
    running = recorder.first(kind="Pod", predicate=lambda one: one.status.get("phase") == "Running")
    assert running.monotonic - prepared.monotonic > 0.6


async def test_a_prepare_that_fails_is_told_by_an_event_and_tried_again(
    bench: Bench, recorder: Recorder
) -> None:
    await bench.pod(prepare_failures=1)
    failed = await recorder.until(
        lambda one: one.kind == "Event" and one.object.get("reason") == "FailedPrepareDynamicResources"
    )
    assert "NodePrepareResources failed" in failed.object["message"]
    assert bench.nodes.ledger.entries() == ()

    await bench.ready()
    assert len(bench.nodes.ledger.held()) == 1


async def test_an_image_that_never_starts_is_in_image_pull_back_off_with_its_device_prepared(
    bench: Bench,
) -> None:
    await bench.pod(image="example.com/llm:broken")
    pod = await bench.until("llm", waiting_for("ImagePullBackOff"))

    assert pod["status"]["phase"] == "Pending"
    assert len(bench.nodes.ledger.held()) == 1
    await bench.delete()
    await bench.gone()
    assert bench.nodes.ledger.held() == ()


async def test_a_container_that_cannot_be_created_says_so_and_starts_in_the_end(bench: Bench) -> None:
    await bench.pod(start_failure=StartFailure.CREATE, start_failures=1)

    await bench.until("llm", waiting_for("CreateContainerError"))
    await bench.ready()


async def test_a_pod_that_never_gets_ready_runs_and_can_be_healed(bench: Bench) -> None:
    await bench.pod(never_ready=True)
    pod = await bench.until("llm", phase_is("Running"))
    assert not is_ready(pod)

    await bench.heal("llm", "never_ready")
    await bench.ready()


async def test_a_pod_that_crashes_twice_backs_off_and_then_stays_up(bench: Bench) -> None:
    await bench.pod(crash_times=2, crash_after_seconds=0.05, ready_seconds=0.3)
    looping = await bench.until("llm", waiting_for("CrashLoopBackOff"))
    assert looping["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1

    assert restarts(await bench.ready()) == 2
    assert len(bench.nodes.ledger.entries()) == 1, "a restarted container keeps its devices"


async def test_readiness_waits_for_the_gates_of_others(bench: Bench) -> None:
    gate = "example.com/warm"
    await bench.pod(readiness_gate=gate)
    await bench.until("llm", lambda pod: has_condition(pod, "ContainersReady"))
    assert not is_ready(await bench.api.get(PODS, "llm", bench.namespace))

    warm = {"status": {"conditions": [{"type": gate, "status": "True"}]}}
    await bench.patch_status("llm", warm)
    await bench.ready()


# Ending


async def test_a_graceful_end_is_stop_then_unprepare_then_terminal_phase_then_free_then_gone(
    bench: Bench, recorder: Recorder
) -> None:
    await bench.pod(teardown_seconds=0.3, unprepare_seconds=0.3)
    await bench.ready()
    await bench.delete()
    await bench.gone()
    await recorder.caught_up()

    deleting = recorder.first(kind="Pod", predicate=lambda one: one.deleting)
    terminal = recorder.first(kind="Pod", predicate=is_terminal)
    allocated = recorder.first(kind="ResourceClaim", predicate=lambda one: bool(one.status.get("allocation")))
    free = recorder.first(
        kind="ResourceClaim",
        predicate=lambda one: one.version > allocated.version and not one.status.get("allocation"),
    )
    gone = recorder.first(kind="Pod", type=EventType.DELETED)
    recorder.order(allocated, deleting, terminal, free)
    recorder.order(terminal, gone)

    unprepared = bench.nodes.ledger.entries()[-1]
    assert unprepared.deed is Deed.UNPREPARED
    assert deleting.monotonic + 0.5 < unprepared.monotonic < terminal.monotonic
    assert terminal.status["phase"] == "Succeeded"
    assert container_state(terminal.object)["terminated"]["exitCode"] == 0


async def test_the_terminal_phase_is_written_by_the_kubelet(bench: Bench) -> None:
    await bench.pod(finalizer="example.com/look")
    await bench.ready()
    await bench.delete()
    pod = await bench.until("llm", phase_is("Succeeded"))

    assert writer_of_phase(pod) == ["kubelet"]
    await bench.let_go("llm")


async def test_containers_that_outlast_their_grace_are_killed_within_it(
    bench: Bench, recorder: Recorder
) -> None:
    await bench.pod(grace=1, pre_stop={"exec": {"command": ["/bin/sh", "-c", "drain && sleep 60"]}})
    await bench.ready()
    await bench.delete()
    await bench.gone()
    await recorder.caught_up()

    deleting = recorder.first(kind="Pod", predicate=lambda one: one.deleting)
    terminal = recorder.first(kind="Pod", predicate=is_terminal)
    assert container_state(terminal.object)["terminated"]["exitCode"] == 137
    assert terminal.status["phase"] == "Failed"
    assert 0.9 < terminal.monotonic - deleting.monotonic < 3


async def test_while_unprepare_fails_the_pod_has_no_terminal_phase_and_the_claim_stays_allocated(
    bench: Bench,
) -> None:
    await bench.pod(unprepare_failures=FOREVER)
    await bench.ready()
    await bench.delete()
    pod = await bench.until("llm", lambda pod: pod is not None and "terminated" in container_state(pod))

    assert pod["status"]["phase"] == "Running"
    (claim,) = await bench.claims()
    assert claim["status"]["allocation"]
    assert len(bench.nodes.ledger.held()) == 1

    await bench.heal("llm", "unprepare_failures")
    await bench.gone()
    assert bench.nodes.ledger.held() == ()


async def test_a_process_that_cannot_die_keeps_its_pod_beyond_the_grace(
    bench: Bench, recorder: Recorder
) -> None:
    await bench.pod(grace=1, never_dies=True)
    await bench.ready()
    await bench.delete()
    with pytest.raises(TimeoutError):
        await recorder.until(is_terminal, timeout=2)
    assert len(bench.nodes.ledger.held()) == 1

    await bench.heal("llm", "never_dies")
    await bench.gone()


async def test_a_bound_pod_that_was_never_prepared_ends_in_order_too(
    bench: Bench, recorder: Recorder
) -> None:
    await bench.pod(prepare_failures=FOREVER)
    await recorder.until(
        lambda one: one.kind == "Event" and one.object.get("reason") == "FailedPrepareDynamicResources"
    )
    await bench.delete()
    await bench.gone()
    await recorder.caught_up()

    terminal = recorder.first(kind="Pod", predicate=is_terminal)
    assert terminal.status["phase"] == "Failed"
    assert container_state(terminal.object)["terminated"]["reason"] == "ContainerStatusUnknown"
    assert bench.nodes.ledger.entries() == ()


async def test_a_pod_that_was_never_bound_is_gone_at_once(bench: Bench, recorder: Recorder) -> None:
    await bench.pod("first")
    await bench.ready("first")
    await bench.pod("second")
    await bench.until("second", lambda pod: has_condition(pod, "PodScheduled", "False"))
    await bench.delete("second")
    await bench.gone("second")
    await recorder.caught_up()

    assert not recorder.events(kind="Pod", name="second", predicate=is_terminal)


async def test_a_pod_that_completes_frees_its_device_and_keeps_its_object(bench: Bench) -> None:
    await bench.pod(restart_policy="Never", complete_after_seconds=0.1)
    await bench.until("llm", phase_is("Succeeded"))

    assert bench.nodes.ledger.held() == ()
    await bench.delete()
    await bench.gone()


async def test_a_pod_that_may_not_restart_fails_once_its_device_is_unprepared(
    bench: Bench, recorder: Recorder
) -> None:
    await bench.pod(restart_policy="Never", crash_after_seconds=0.1, unprepare_seconds=0.3)
    terminal = await recorder.until(is_terminal)

    assert terminal.status["phase"] == "Failed"
    assert bench.nodes.ledger.entries()[-1].monotonic < terminal.monotonic
    assert container_state(terminal.object)["terminated"]["exitCode"] == 1


async def test_a_pod_evicted_by_its_kubelet_fails_after_unprepare_and_stays_as_an_object(
    bench: Bench,
) -> None:
    await bench.pod(unprepare_seconds=0.2)
    pod = await bench.ready()
    bench.nodes.node_of(pod).evict(pod["metadata"]["uid"])
    pod = await bench.until("llm", phase_is("Failed"))

    assert pod["status"]["reason"] == "Evicted"
    target = condition(pod, "DisruptionTarget")
    assert target is not None
    assert target["reason"] == "TerminationByKubelet"
    assert bench.nodes.ledger.held() == ()


async def test_a_claim_shared_by_two_pods_is_unprepared_after_the_last_of_them(bench: Bench) -> None:
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "shared"},
        "spec": claim_spec(bench.nodes.driver),
    }
    await bench.api.create(RESOURCE_CLAIMS, body, bench.namespace)
    for name in ("first", "second"):
        await bench.pod(name, claim="shared")
    for name in ("first", "second"):
        await bench.ready(name)
    await bench.delete("first")
    await bench.gone("first")
    assert len(bench.nodes.ledger.held()) == 1

    await bench.delete("second")
    await bench.gone("second")
    assert [entry.deed for entry in bench.nodes.ledger.entries()] == [Deed.PREPARED, Deed.UNPREPARED]


async def test_the_nodes_own_defaults_apply_to_pods_that_say_nothing(bench: Bench) -> None:
    await bench.nodes.node("node-a").set_faults(never_ready=True)
    await bench.pod()
    await bench.until("llm", phase_is("Running"))

    await bench.nodes.node("node-a").set_faults(never_ready=None)
    await bench.ready()


async def test_a_fault_that_cannot_be_read_fails_the_test_that_set_it(bench: Bench) -> None:
    wrong = {"metadata": {"annotations": {"lab.accelerator-rollout.dev/never-redy": "true"}}}
    await bench.pod()
    await bench.ready()
    await bench.api.patch(PODS, "llm", wrong, bench.namespace)

    with pytest.raises(BaseExceptionGroup, match="the simulated nodes failed") as caught:
        await bench.nodes_failed()
    assert caught.group_contains(FaultError, match="never-redy is not a fault")
