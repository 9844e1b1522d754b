"""The status that a simulated kubelet writes."""

from typing import Any

import pytest

from lab.nodes.status import (
    Containers,
    Running,
    Terminated,
    Waiting,
    as_reported,
    evicted_status,
    lost_in_reboot,
    pod_status,
    running_since,
    stopped,
    terminal_phase,
)

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def pod(
    *, conditions: list[dict[str, str]] | None = None, spec: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "metadata": {"name": "llm-0", "generation": 3},
        "spec": {"containers": [{"name": "vllm", "image": "example.com/llm:v1"}], **(spec or {})},
        "status": {"phase": "Pending", "conditions": conditions or []},
    }


def conditions_of(patch: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: one["status"] for one in patch["status"]["conditions"]}


RUNNING = Containers(state=Running(THEN), ready=True, sandbox=True)


def test_a_ready_pod_has_all_four_conditions_and_a_started_container() -> None:
    patch = pod_status(pod(), RUNNING, phase="Running", now=NOW, address="198.18.0.1")

    assert set(conditions_of(patch).values()) == {"True"}
    assert patch["status"]["containerStatuses"][0] | {"imageID": ""} == {
        "name": "vllm",
        "image": "example.com/llm:v1",
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": THEN}},
    }
    assert (patch["status"]["observedGeneration"], patch["status"]["podIPs"]) == (3, [{"ip": "198.18.0.1"}])


def test_a_transition_time_moves_only_with_its_status() -> None:
    before = [
        {"type": "Ready", "status": "True", "lastTransitionTime": THEN},
        {"type": "ContainersReady", "status": "False", "lastTransitionTime": THEN},
    ]
    patch = pod_status(pod(conditions=before), RUNNING, phase="Running", now=NOW)

    times = {one["type"]: one["lastTransitionTime"] for one in patch["status"]["conditions"]}
    assert (times["Ready"], times["ContainersReady"]) == (THEN, NOW)


@pytest.mark.parametrize("gate", ["False", "True"])
def test_a_pod_is_not_ready_before_its_readiness_gates_are(gate: str) -> None:
    gated = pod(
        conditions=[{"type": "example.com/warm", "status": gate}],
        spec={"readinessGates": [{"conditionType": "example.com/warm"}]},
    )
    patch = pod_status(gated, RUNNING, phase="Running", now=NOW)

    assert (conditions_of(patch)["ContainersReady"], conditions_of(patch)["Ready"]) == ("True", gate)


@pytest.mark.parametrize(
    ("exit_code", "phase", "reason"), [(0, "Succeeded", "Completed"), (137, "Failed", "Error")]
)
def test_a_stopped_pod_is_terminal_with_terminated_containers(
    exit_code: int, phase: str, reason: str
) -> None:
    ended = stopped(RUNNING, exit_code=exit_code, now=NOW)
    patch = pod_status(pod(), ended, phase=terminal_phase(ended), now=NOW)

    assert patch["status"]["phase"] == phase
    assert patch["status"]["containerStatuses"][0]["state"] == {
        "terminated": {"exitCode": exit_code, "reason": reason, "startedAt": THEN, "finishedAt": NOW}
    }
    assert conditions_of(patch)["Ready"] == "False"


def test_a_container_that_never_ran_ends_as_unknown_and_failed() -> None:
    ended = stopped(Containers(), exit_code=0, now=NOW)

    assert isinstance(ended.state, Terminated)
    assert (ended.state.reason, ended.state.exit_code) == ("ContainerStatusUnknown", 137)
    assert terminal_phase(ended) == "Failed"


def test_a_container_in_crash_loop_ends_with_its_last_exit() -> None:
    crash = Terminated(exit_code=1, reason="Error", finished=THEN)
    looping = Containers(state=Waiting("CrashLoopBackOff"), last=crash, restarts=2)

    ended = stopped(looping, exit_code=0, now=NOW)
    assert (ended.state, ended.restarts) == (crash, 2)


def test_an_evicted_pod_names_its_kubelet_as_the_cause() -> None:
    patch = evicted_status(pod(), stopped(RUNNING, exit_code=137, now=NOW), message="low on memory", now=NOW)

    assert (patch["status"]["phase"], patch["status"]["reason"]) == ("Failed", "Evicted")
    (target,) = (one for one in patch["status"]["conditions"] if one["type"] == "DisruptionTarget")
    assert target["reason"] == "TerminationByKubelet"


def test_init_containers_are_completed_once_the_pod_runs_and_sidecars_run_with_it() -> None:
    spec = {
        "initContainers": [
            {"name": "fetch", "image": "i"},
            {"name": "proxy", "image": "i", "restartPolicy": "Always"},
        ]
    }
    patch = pod_status(pod(spec=spec), RUNNING, phase="Running", now=NOW)

    states = {one["name"]: next(iter(one["state"])) for one in patch["status"]["initContainerStatuses"]}
    assert states == {"fetch": "terminated", "proxy": "running"}
    waiting = pod_status(pod(spec=spec), Containers(), phase="Pending", now=NOW)
    assert conditions_of(waiting)["Initialized"] == "False"


def test_what_was_reported_reads_back_and_a_reboot_counts_as_a_restart() -> None:
    running = pod()
    running["status"] = pod_status(running, RUNNING, phase="Running", now=NOW)["status"]

    assert running_since(running) == THEN
    assert as_reported(running) == RUNNING
    lost = lost_in_reboot(running, now=NOW)
    assert (lost.state, lost.restarts, lost.last and lost.last.exit_code) == (Waiting(), 1, 255)
    assert running_since(pod()) is None
