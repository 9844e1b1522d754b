"""Worlds in which a rollout is stuck, each for one cause, and what a person who reads of it has to be told."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from accelerator_rollout.api.models import Stage, Undo
from accelerator_rollout.decide.reasons import Halted, NotFree, Overdue, Refusal, Trouble, Waiting
from accelerator_rollout.decide.snapshot import CheckRun, GateProbe, GateSource, HealthRun, Rival
from accelerator_rollout.names import GATE_LABEL, GATE_LABEL_VALUE
from accelerator_rollout.records import (
    Phase,
    PodClaim,
    PublishedDevice,
    Reservation,
    Taint,
)
from builders import (
    NEW,
    NOW,
    OLD,
    World,
    at,
    budget,
    claim_of,
    device,
    entry,
    node,
    pod,
    running,
    template,
)

D, S = "Deployment", "StatefulSet"
QUERY: Final = {
    "name": "no errors",
    "prometheus": {"address": "http://prometheus:9090", "query": "up", "condition": "value == 1.0"},
}
TAINTED: Final = PublishedDevice("dev-2", taints=(Taint("example.com/unhealthy", "", "NoSchedule"),))
RUNS_NOT_READY: Final[dict[str, Any]] = {"ready": False, "ready_since": None}
CRASHED: Final[dict[str, Any]] = {
    "waiting_reason": "CrashLoopBackOff",
    "exit_code": 3,
    "exit_reason": "Error",
}
NO_IMAGE: Final[dict[str, Any]] = {"waiting_reason": "ErrImagePull", "waiting_message": "no such tag"}
BEGUN: Final[dict[str, Any]] = {"sandboxed": True}
PENDING: Final[dict[str, Any]] = {"ready": False, "ready_since": None, "phase": Phase.PENDING}
FAR: Final = at(4000)  # later than any deadline


@dataclass(frozen=True)
class Stuck:
    """A cause: how the world gets there, and what is to be told of it."""

    title: str  # as in docs/stuck.md
    world: Callable[[], World]
    reason: str  # of condition Stalled
    names: tuple[str, ...]  # the objects
    cause: str
    todo: str
    detail: str = ""  # the reason in `status.replacements`, or of what is waited for
    now: datetime = NOW


# Refused


def workload(kind: str, **over: object) -> Callable[[], World]:
    def make() -> World:
        world = running(kind)
        world.set_workload(**over)
        return world

    return make


def spec(kind: str, **fields: object) -> Callable[[], World]:
    def make() -> World:
        world = running(kind)
        world.spec = dict(fields)
        return world

    return make


def without_workload() -> World:
    world = running(D)
    world.workload, world.pods = None, {}
    return world


def rival() -> World:
    world = running(S)
    world.rivals.append(Rival("elder", "e", at(-5000)))
    return world


def without_policy() -> World:
    world = running(D)
    world.set_workload(template=template(gates=(), labels={GATE_LABEL: GATE_LABEL_VALUE}))
    world.probe = GateProbe(NEW, GateSource.NONE)
    return world


def bad_check() -> World:
    world = running(S)
    world.bad_checks = {"healthy of spec.release.checks": "syntax error"}
    return world


def without_budget() -> World:
    world = running(S)
    world.spec = {"guardrails": {"mode": "Enforce"}}
    world.budgets = []
    return world


# Kept from going on


def kept_by_budget() -> World:
    world = running(S)
    world.spec = {"disruption": {"timeoutSeconds": 40}}
    world.budgets = [budget(0)]
    world.store(world.plan())
    return world


# Its predecessor's devices do not come free


def departed(change: Callable[[World], object] = lambda _: None, **recorded: Any) -> Callable[[], World]:
    """`worker-2` left, and its release is late."""

    def make() -> World:
        world = running(S)
        world.recorded("worker-2", 2, **recorded)
        world.leave("worker-2")
        change(world)
        world.store(world.plan())
        return world

    return make


def ended_holding(world: World) -> None:
    """The kubelet reported its end, and its claim stays allocated."""
    held = world.claims["worker-2-device"]
    world.end("worker-2")
    world.claims["worker-2-device"] = held


def nobody_reserves(world: World) -> None:
    ended_holding(world)
    held = world.claims["worker-2-device"]
    world.claims["worker-2-device"] = replace(held, reserved_for=(), finalizers=("example.com/keep",))


def reserved_for_the_gone(world: World) -> None:
    ended_holding(world)
    held = world.claims["worker-2-device"]
    gone = Reservation("", "pods", "worker-9", "p-worker-9")
    world.claims["worker-2-device"] = replace(held, reserved_for=(gone,))


def silent_driver(world: World) -> None:
    world.slices = [one for one in world.slices if one.pool != "node-2"]


def taken(world: World) -> None:
    world.end("worker-2")
    stranger = pod("stranger", kind=S)
    world.strangers.append(claim_of(stranger, device(2)))


def ended_with(**over: Any) -> Callable[[World], None]:
    """It ended in order, and then its pool is published like this."""

    def change(world: World) -> None:
        world.end("worker-2")
        world.slices = [replace(one, **over) if one.pool == "node-2" else one for one in world.slices]

    return change


def unpublished(world: World) -> None:
    world.end("worker-2")
    silent_driver(world)


def lost_node(world: World) -> None:
    world.vanish("worker-2")
    world.nodes["node-2"] = node("node-2", ready=False, ready_since=None)


def gone_node(world: World) -> None:
    world.vanish("worker-2")
    del world.nodes["node-2"]


def failing_check(world: World) -> None:
    world.spec = {"release": {"checks": [{"name": "healthy", "cel": "false"}]}}
    world.end("worker-2")
    why = "check healthy on device lpu.example.com/node-2/dev-2: not true"
    world.checked["p-worker-2"] = CheckRun(1, FAR, (why,))


# The new pod does not become healthy


def successor(stage: Stage, spec: dict[str, Any] | None = None, **facts: Any) -> Callable[[], World]:
    """The successor of `worker-2` has been at this stage since NOW."""

    def make() -> World:
        world = running(S)
        world.spec = spec or {}
        new = pod("worker-2", NEW, kind=S, **facts)
        world.put(new, *([device(2)] if new.bound else []))
        over = {"replacement_pod_uid": new.uid, "replacement_pod_name": "worker-2", "released_at": at(-9)}
        first = pod("worker-2", uid="first")
        world.remember(entry(first, device(2), stage=stage, stage_started_at=NOW, **over))
        world.store(world.plan())
        return world

    return make


def failing_health() -> World:
    """It soaks, and a check is not true of it."""
    make = successor(Stage.SOAKING, {"health": {"soakSeconds": 60, "failureThreshold": 3, "checks": [QUERY]}})
    world = make()
    world.health["p-worker-2"] = HealthRun(1, at(30), ("check no errors: not true",), 3)
    return world


def undo_without_revision() -> World:
    """An Undo is under way, and the template that it would restore is gone from the history."""
    world = running(S)
    old = next(one for one in world.revisions if one.template_digest == OLD)
    world.revisions = [one for one in world.revisions if one is not old]
    undo = Undo(revision_name=old.name, revision_uid=old.uid, leaves=NEW, restores=OLD, at=at(-60))
    world.status = world.status.model_copy(update={"undo": undo})
    return world


def aborted() -> World:
    world = running(S)
    world.spec["action"] = {"type": "Abort", "id": "1"}
    world.store(world.plan())
    return world


def nothing_moves() -> World:
    world = running(S)
    world.spec = {"progressDeadlineSeconds": 600}
    world.nodes = {name: replace(one, unschedulable=True) for name, one in world.nodes.items()}
    world.store(world.plan())
    return world


POD, NODE, DEVICE = "pod worker-2", "node node-2", "lpu.example.com/node-2/dev-2"
POOL = "pool node-2 of driver lpu.example.com"

STUCK: Final = (
    Stuck("the workload does not exist", without_workload, Refusal.WORKLOAD_NOT_FOUND,
          ("StatefulSet worker",), "does not exist", "Create it"),
    Stuck("two objects name one workload", rival, Refusal.WORKLOAD_CONFLICT,
          ("AcceleratorRollout elder", "StatefulSet worker"), "already manages", "Delete one of the two"),
    Stuck("all pods would go at once", workload(D, strategy="Recreate"), Refusal.STRATEGY_NOT_SUPPORTED,
          ("Deployment worker",), "takes all pods down at once", "Set spec.strategy to RollingUpdate"),
    Stuck("its own controller would delete pods", workload(S, update_strategy="RollingUpdate"),
          Refusal.STRATEGY_NOT_SUPPORTED, ("StatefulSet worker",), "without asking whether devices are free", "to OnDelete"),
    Stuck("a surge", workload(D, max_surge=1), Refusal.SURGE_NOT_ALLOWED,
          ("Deployment worker",), "waits for a device that the old pod holds", "to maxSurge 0"),
    Stuck("more pods at once than may go", workload(D, max_unavailable=2), Refusal.MAX_UNAVAILABLE_TOO_HIGH,
          ("Deployment worker",), "would take more than 1 down at once", "maxUnavailable to 1"),
    Stuck("pods without the gate", workload(S, template=template(gates=())), Refusal.PODS_NOT_GATED,
          ("StatefulSet worker",), "carry no gate", "Add schedulingGates"),
    Stuck("the policy that adds the gate is missing", without_policy, Refusal.PODS_NOT_GATED,
          ("Deployment worker",), "the admission policy is not installed", "Install it (deploy/admission)"),
    Stuck("one claim for all pods", workload(S, template=template(claims=(PodClaim("device", "shared", named=True),))),
          Refusal.NAMED_CLAIMS, ("StatefulSet worker", "ResourceClaim shared"), "replacing one frees nothing",
          "Use a resourceClaimTemplateName"),
    Stuck("no devices by DRA", workload(D, template=template(claims=())), Refusal.NO_DEVICE_CLAIMS,
          ("Deployment worker",), "no devices whose release could be proven", "by a ResourceClaimTemplate"),
    Stuck("a check that means nothing", bad_check, Refusal.CHECK_INVALID,
          ("check healthy of spec.release.checks",), "syntax error", "Correct it"),
    Stuck("a window that means nothing", spec(S, windows=[{"type": "Allow", "schedule": "0 25 * * *", "durationSeconds": 60}]),
          Refusal.WINDOW_INVALID, ("spec.windows[0].schedule",), "bad hour", "Write minute, hour"),
    Stuck("the guideline is enforced, and not met", without_budget, Refusal.GUARDRAIL_NOT_MET,
          ("spec.guardrails.mode",), "no PodDisruptionBudget matches", "add one with maxUnavailable 1"),
    Stuck("a hold that cannot be had", spec(S, release={"hold": "Always"}), Refusal.HOLD_NOT_POSSIBLE,
          ("spec.release.hold",), "is Always, but", "install the optional role"),
    Stuck("a PodDisruptionBudget that allows nothing", kept_by_budget, Overdue.EVICTION,
          (POD, NODE, "PodDisruptionBudget worker-pdb"), "allows no disruption", "get the pods that it counts healthy",
          Waiting.BLOCKED_BY_PDB, at(40)),
    Stuck("a process that does not die", departed(), Overdue.RELEASE,
          (POD, NODE), "a process that cannot die", "See the kubelet's and the driver's log", NotFree.TERMINATION_STUCK, FAR),
    Stuck("a driver that is gone while its pod terminates", departed(silent_driver), Overdue.RELEASE,
          (POD, NODE, POOL), "cannot end before its devices are unprepared", "Repair the driver",
          NotFree.DRIVER_UNAVAILABLE, FAR),
    Stuck("a claim that nobody deallocates", departed(nobody_reserves), Overdue.RELEASE,
          (POD, "ResourceClaim worker-2-device", "example.com/keep"), "though nobody reserves it",
          "Is the controller manager running?", NotFree.DEALLOCATION_STALLED, FAR),
    Stuck("a claim reserved for pods that are gone", departed(reserved_for_the_gone), Overdue.RELEASE,
          (POD, "ResourceClaim worker-2-device", "worker-9"), "that do not exist any more",
          "Is the controller manager running?", NotFree.ORPHANED_CLAIM, FAR),
    Stuck("somebody else got the device", departed(taken), Overdue.RELEASE,
          (POD, DEVICE, "ResourceClaim stranger-device"), "was allocated to", "ask its owner", NotFree.DEVICE_TAKEN, FAR),
    Stuck("a device that failed", departed(ended_with(devices=())), Overdue.RELEASE,
          (POD, "device dev-2", POOL), "is not in pool", "look for a failed device", NotFree.DEVICE_MISSING, FAR),
    Stuck("a tainted device", departed(ended_with(devices=(TAINTED,))), Overdue.RELEASE,
          (POD, DEVICE), "is tainted example.com/unhealthy:NoSchedule", "Find out who set the taint",
          NotFree.DEVICE_TAINTED, FAR),
    Stuck("a pool that is not published", departed(unpublished), Overdue.RELEASE,
          (POD, POOL), "has no ResourceSlice", "Repair the driver on that node", NotFree.POOL_MISSING, FAR),
    Stuck("a pool that is published in part", departed(ended_with(slice_count=2)), Overdue.RELEASE,
          (POD, POOL), "shows 1 of 2 ResourceSlices", "restart it if it does not", NotFree.POOL_INCOMPLETE, FAR),
    Stuck("a node that is not Ready", departed(lost_node, vanished_at=NOW), Overdue.RELEASE,
          (POD, NODE), "vanished without word from the kubelet", "Repair or reboot the node", NotFree.RELEASE_UNPROVEN, FAR),
    Stuck("a node that is gone", departed(gone_node, vanished_at=NOW), Overdue.RELEASE,
          (POD, NODE), "its processes may still run", "Make sure that the machine is off", NotFree.RELEASE_UNPROVEN, FAR),
    Stuck("a device that fails its check", departed(failing_check), Overdue.RELEASE,
          (POD, DEVICE), "check healthy", "Look at the device", NotFree.CHECK_FAILED, FAR),
    Stuck("a pod that is placed nowhere", successor(Stage.SCHEDULING, **PENDING | {"node": ""}), Overdue.SCHEDULE,
          (POD,), "has no node", "kubectl describe pod", Waiting.AWAITING_SCHEDULER, FAR),
    Stuck("a driver that fails to prepare", successor(Stage.PREPARING, **PENDING), Overdue.PREPARE,
          (POD, NODE, DEVICE), "its driver fails to prepare", "the driver's log", Waiting.PREPARE_FAILED, FAR),
    Stuck("an image that cannot be had", successor(Stage.PREPARING, **PENDING | BEGUN | NO_IMAGE), Overdue.PREPARE,
          (POD, NODE, DEVICE), "no such tag", "Correct the image", Trouble.IMAGE_ERROR, FAR),
    Stuck("a program that crashes", successor(Stage.WARMING_UP, **RUNS_NOT_READY | CRASHED), Overdue.READY,
          (POD, NODE, DEVICE), "ended with exit code 3", "kubectl logs worker-2 --previous", Trouble.CRASH_LOOP, FAR),
    Stuck("a program that never becomes ready", successor(Stage.WARMING_UP, **RUNS_NOT_READY), Overdue.READY,
          (POD, NODE, DEVICE), "is not ready", "See its log and its probes", Waiting.AWAITING_READINESS, FAR),
    Stuck("a pod that is ready and not well", failing_health, Overdue.HEALTH,
          (POD, NODE, DEVICE), "check no errors", "until it recovers, or the pod template changes", now=at(31)),
    Stuck("only pods on cordoned nodes are left", nothing_moves, Overdue.PROGRESS,
          ("pod worker-0 on node node-0",), "no pod could come back there", "Uncordon the node", Waiting.NODE_UNSCHEDULABLE, FAR),
    Stuck("somebody aborted it", aborted, Halted.ABORTED,
          ("StatefulSet worker",), "was aborted", "set spec.action to Retry", now=at(5)),
    Stuck("the template to go back to is gone", undo_without_revision, Halted.UNDO_FAILED,
          ("StatefulSet worker",), "revision", "Retry"),
)  # fmt: skip
