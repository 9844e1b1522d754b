"""What a kubelet writes into a pod's status: pure functions from a pod and its containers' state to a patch."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

Json = dict[str, Any]

FIELD_MANAGER: Final = "kubelet"
NEVER_STARTED: Final = "The container could not be located when the pod was terminated"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A container that does not run yet, or not again yet."""

    reason: str = "ContainerCreating"
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """A container that runs since a time of the API's format."""

    since: str


@dataclass(frozen=True, slots=True)
class Terminated:
    """A container that has stopped."""

    exit_code: int
    reason: str
    finished: str
    started: str = ""
    message: str = ""


State = Waiting | Running | Terminated


@dataclass(frozen=True, slots=True)
class Containers:
    """The state that all containers of a simulated pod share."""

    state: State = Waiting()
    ready: bool = False
    restarts: int = 0
    last: Terminated | None = None
    sandbox: bool = False  # devices are prepared and the sandbox stands: PodReadyToStartContainers


def api_time(at: datetime | None = None) -> str:
    """A time as the API spells it, to the second."""
    return (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_status(
    pod: Mapping[str, Any], containers: Containers, *, phase: str, now: str, address: str = ""
) -> Json:
    """The status patch (strategic merge) for a pod whose containers are in this state.

    Conditions keep their lastTransitionTime while their status stays the same.
    """
    started = not isinstance(containers.state, Waiting) or containers.restarts > 0
    ended = phase in {"Succeeded", "Failed"}
    initialized = started or ended or not pod["spec"].get("initContainers")
    why = (
        "PodFailed" if phase == "Failed" else "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
    )
    ready = containers.ready and gates_open(pod)
    gate_reason = "ReadinessGatesNotReady" if containers.ready else why
    status: Json = {
        "phase": phase,
        "observedGeneration": pod["metadata"].get("generation", 0),
        "startTime": pod.get("status", {}).get("startTime") or now,
        "conditions": [
            _condition(pod, "PodReadyToStartContainers", now, holds=containers.sandbox and not ended),
            _condition(pod, "Initialized", now, holds=initialized, reason="ContainersNotInitialized"),
            _condition(pod, "ContainersReady", now, holds=containers.ready, reason=why),
            _condition(pod, "Ready", now, holds=ready, reason=gate_reason),
        ],
        "containerStatuses": [
            _container_status(one, containers, running=isinstance(containers.state, Running))
            for one in pod["spec"]["containers"]
        ],
    }
    if address:
        status["podIP"] = address
        status["podIPs"] = [{"ip": address}]
    if inits := pod["spec"].get("initContainers"):
        status["initContainerStatuses"] = [
            _container_status(one, _init_state(one, containers, now, done=started), running=False)
            for one in inits
        ]
    return {"status": status}


def evicted_status(pod: Mapping[str, Any], containers: Containers, *, message: str, now: str) -> Json:
    """The status patch of a pod that its own kubelet evicted (eviction manager)."""
    patch = pod_status(pod, containers, phase="Failed", now=now)
    patch["status"] |= {"reason": "Evicted", "message": message}
    patch["status"]["conditions"].append(
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": message,
            "lastTransitionTime": now,
        }
    )
    return patch


def stopped(containers: Containers, *, exit_code: int, now: str, message: str = "") -> Containers:
    """The containers after they were told to stop; one that never ran is reported as a kubelet does: 137, unknown."""
    match containers.state:
        case Running(since=since):
            reason = "Completed" if exit_code == 0 else "Error"
            state = Terminated(
                exit_code=exit_code, reason=reason, started=since, finished=now, message=message
            )
        case Terminated() as state:
            pass
        case Waiting():
            state = containers.last or Terminated(
                exit_code=137,
                reason="ContainerStatusUnknown",
                finished=now,
                started=now,
                message=NEVER_STARTED,
            )
    return Containers(state=state, restarts=containers.restarts, last=containers.last)


def terminal_phase(containers: Containers) -> str:
    """Succeeded if all containers ended with code 0, Failed otherwise."""
    state = containers.state
    return "Succeeded" if isinstance(state, Terminated) and state.exit_code == 0 else "Failed"


def gates_open(pod: Mapping[str, Any]) -> bool:
    """Whether every readiness gate of the pod has its condition."""
    true = {one["type"] for one in _conditions(pod) if one["status"] == "True"}
    return all(gate["conditionType"] in true for gate in pod["spec"].get("readinessGates") or ())


def running_since(pod: Mapping[str, Any]) -> str | None:
    """When the pod's first container started, if the API shows the pod as running."""
    first = next(iter(_reported(pod)), {})
    if (pod.get("status") or {}).get("phase") != "Running":
        return None
    since = first.get("state", {}).get("running", {}).get("startedAt")
    return str(since) if since else None


def as_reported(pod: Mapping[str, Any]) -> Containers:
    """The containers of a running pod as the API shows them."""
    return Containers(
        state=Running(since=running_since(pod) or api_time()),
        ready=all(one.get("ready") for one in _reported(pod)),
        restarts=max((int(one.get("restartCount", 0)) for one in _reported(pod)), default=0),
        sandbox=True,
    )


def lost_in_reboot(pod: Mapping[str, Any], *, now: str) -> Containers:
    """The containers of a pod that ran when its node went down: to be started again."""
    before = as_reported(pod)
    since = running_since(pod) or now
    return Containers(
        restarts=before.restarts + 1,
        last=Terminated(exit_code=255, reason="Unknown", started=since, finished=now),
    )


def _reported(pod: Mapping[str, Any]) -> list[Json]:
    return list((pod.get("status") or {}).get("containerStatuses") or ())


def _conditions(pod: Mapping[str, Any]) -> list[Json]:
    return list(pod.get("status", {}).get("conditions") or ())


def _condition(pod: Mapping[str, Any], kind: str, now: str, *, holds: bool, reason: str = "") -> Json:
    status = "True" if holds else "False"
    before = next((one for one in _conditions(pod) if one["type"] == kind), {})
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    condition: Json = {"type": kind, "status": status, "lastTransitionTime": since or now}
    # An explicit null takes an old reason away: a strategic merge would keep it.
    return {**condition, "reason": reason if reason and not holds else None}


def _container_status(container: Mapping[str, Any], containers: Containers, *, running: bool) -> Json:
    image = container.get("image", "")
    status: Json = {
        "name": container["name"],
        "image": image,
        "imageID": "" if isinstance(containers.state, Waiting) else f"sha256:{image}",
        "ready": containers.ready,
        "started": running,
        "restartCount": containers.restarts,
        "state": _state(containers.state),
    }
    if containers.last is not None:
        status["lastState"] = _state(containers.last)
    return status


def _init_state(container: Mapping[str, Any], containers: Containers, now: str, *, done: bool) -> Containers:
    if container.get("restartPolicy") == "Always" or not done:
        return containers
    return Containers(
        state=Terminated(exit_code=0, reason="Completed", started=now, finished=now), ready=True
    )


def _state(state: State) -> Json:
    match state:
        case Waiting(reason=reason, message=message):
            return {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        case Running(since=since):
            return {"running": {"startedAt": since}}
        case Terminated():
            return {
                "terminated": {
                    "exitCode": state.exit_code,
                    "reason": state.reason,
                    "startedAt": state.started or state.finished,
                    "finishedAt": state.finished,
                    **({"message": state.message} if state.message else {}),
                }
            }
