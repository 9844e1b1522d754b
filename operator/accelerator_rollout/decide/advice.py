"""For each reason: its cause and the next step, for people, in the words of docs/conditions.md; a test holds the two together.

A reason may mean one thing of a release and another of a rollout that stands still, so there is a table for each topic, as on
the page. What an object is called, and since when, stands in the message beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from accelerator_rollout.api.models import Guardrail
from accelerator_rollout.decide.reasons import (
    Halted,
    Holding,
    NotFree,
    Overdue,
    Refusal,
    Reserving,
    Trouble,
    Waiting,
)


@dataclass(frozen=True, slots=True)
class Advice:
    """What a reason means, and what to do about it."""

    cause: str
    todo: str


Table = Mapping[str, Advice]

# Of a departed pod whose devices are not free.
RELEASING: Final[Table] = {
    NotFree.POD_TERMINATING: Advice(
        "the old pod has not ended: its preStop hook and its containers get their grace period",
        "Wait. Beyond twice the grace period, look at the node: a process that cannot die holds the device",
    ),
    NotFree.DRIVER_UNAVAILABLE: Advice(
        "the old pod is terminating, and the pool of its devices is not published: it cannot end before its driver unprepares them",
        "Repair the driver on that node; everything goes on by itself",
    ),
    NotFree.TERMINATION_STUCK: Advice(
        "the old pod is terminating since twice its grace period",
        "Look at the kubelet's and the driver's log on that node. A forced deletion would hand on devices in use",
    ),
    NotFree.DEALLOCATION_STALLED: Advice(
        "nobody reserves the claim any more, and it has stayed allocated for a fifth of release.timeoutSeconds",
        "Is the controller manager running? The message names finalizers; do not remove them",
    ),
    NotFree.ORPHANED_CLAIM: Advice(
        "the claim has stayed reserved that long for pods that are gone",
        "Is the controller manager running (before 1.33 a restart of it could leave such claims)?",
    ),
    NotFree.CLAIM_ALLOCATED: Advice(
        "the old pod's ResourceClaim is still allocated",
        "Wait. If it stays: is the driver on that node running (an unprepare that fails keeps the pod Terminating), is the controller manager?",
    ),
    NotFree.DEVICE_TAKEN: Advice(
        "the claim of somebody whom no AcceleratorRollout manages was allocated the device meanwhile (why managed ones swap (docs/adr/0014-managed-workloads-swap-devices.md))",
        "Nothing, or ask its owner (named if it is in the same namespace). Goes on when the device is free",
    ),
    NotFree.POOL_MISSING: Advice(
        "the device's pool has no ResourceSlice",
        "Repair the driver on that node",
    ),
    NotFree.POOL_INCOMPLETE: Advice(
        "the pool shows fewer slices of its newest generation than it announces",
        "Wait for the driver to publish the rest; restart it if it does not",
    ),
    NotFree.POOL_CONTRADICTORY: Advice(
        "slices of one generation disagree, or list a device twice",
        "Restart the driver; report it to its vendor",
    ),
    NotFree.DEVICE_MISSING: Advice(
        "the device is not in its pool's newest generation",
        "The driver withdrew it: look for a failed device",
    ),
    NotFree.DEVICE_TAINTED: Advice(
        "a taint of the slice or of a DeviceTaintRule keeps the scheduler off",
        "Find out who set the taint; remove it when the device is fit",
    ),
    NotFree.DEVICE_UNREACHABLE: Advice(
        "no node that exists may use the device",
        "Is the node gone that its ResourceSlice names?",
    ),
    NotFree.DOUBLE_ALLOCATION: Advice(
        "several claims are allocated the device whole: the first that goes frees it under the other",
        "Stop one of the pods; nothing more is replaced meanwhile",
    ),
    NotFree.PARTITION_HELD: Advice(
        "the device is a partition, and held siblings draw the counters that it needs",
        "Wait for them, or ask their owners",
    ),
    NotFree.CAPACITY_HELD: Advice(
        "others draw too much of a shared device's capacity",
        "Wait for them, or ask for less",
    ),
    NotFree.RELEASE_UNPROVEN: Advice(
        "the pod vanished without word from its kubelet (a forced deletion, a lost node)",
        "Wait for the time in the message; on a node that is not Ready, repair or reboot it first",
    ),
    NotFree.SETTLING: Advice(
        "the devices are free, and to be left alone for release.settleSeconds",
        "Wait until the time in the message",
    ),
    NotFree.CHECKS_RUNNING: Advice(
        "the release is proven, and release.checks are being asked about the devices",
        "Wait a moment",
    ),
    NotFree.CHECK_FAILED: Advice(
        "a check is not true of a device, or cannot be evaluated; the message names both",
        "Look at the device; the check is asked again every 10 seconds",
    ),
    NotFree.HOLD_ENDING: Advice(
        "the release is proven, and our hold on the claim goes with the next write",
        "Wait a moment. If it stays, see the Events (ActionFailed)",
    ),
    NotFree.STATE_UNKNOWN: Advice(
        "an object that the verdict hangs on cannot be read",
        "The message names it",
    ),
}

# Of a replacement, or of a rollout that starts none.
WAITING: Final[Table] = {
    Waiting.STATE_UNKNOWN: Advice(
        "the operator's view of the cluster is not to be trusted",
        "Is the API server reachable? Nothing is disrupted meanwhile",
    ),
    Waiting.PAUSED: Advice(
        "spec.paused is true",
        "Set it to false",
    ),
    Waiting.NODE_UNSCHEDULABLE: Advice(
        "only pods on nodes are left that are cordoned, or whose conditions tell of a drain, a shutdown or maintenance (DrainInProgress, Drained, GracefulNodeShutdownInProgress, MaintenanceInProgress)",
        "Uncordon the node or end its maintenance, or drain it: a drained pod comes back, updated, where there is room",
    ),
    Waiting.STEP_PAUSE: Advice(
        "a canary step has its pods, and waits for a promotion or for time (docs/canary.md)",
        "Look at the new pods; then Promote, Undo or Abort",
    ),
    Waiting.STEP_NOT_HEALTHY: Advice(
        "a canary step has its pods, and not all of them are healthy",
        "See what the pods wait for",
    ),
    Waiting.PARTITION_REACHED: Advice(
        "all pods but those that spec.strategy.partition keeps are updated; the object is Ready",
        "Lower the partition to update them, too",
    ),
    Waiting.PARTITION_EXCEEDED: Advice(
        "pods that the partition keeps left by themselves and came back at the new revision",
        "Nothing to repair; to get the old revision back, undo",
    ),
    Waiting.OUTSIDE_WINDOW: Advice(
        "spec.windows let no replacement start now (docs/windows.md)",
        "The message says when it goes on; to go on at once, open a window",
    ),
    Waiting.HALTED: Advice(
        "an Abort or a failure stopped the rollout (Stalled has the reason of that)",
        "docs/abort-undo-restart.md",
    ),
    Waiting.UNDOING: Advice(
        "an Undo is about to write the workload's former pod template",
        "Wait. If it stays, see the Events (ActionFailed)",
    ),
    Waiting.PAUSED_BY_USER: Advice(
        "somebody paused the Deployment",
        "kubectl rollout resume deployment/NAME",
    ),
    Waiting.WORKLOAD_GOING: Advice(
        "the workload is being deleted",
        "Nothing; the object then says WorkloadNotFound",
    ),
    Waiting.CONTROLLER_BEHIND: Advice(
        "the workload's controller has not seen its newest spec",
        "Wait; if it stays, is the controller manager running?",
    ),
    Waiting.GATE_UNKNOWN: Advice(
        "whether new pods come gated could not be found out",
        "The message says why the dry-run pod failed",
    ),
    Waiting.DOUBLE_ALLOCATION: Advice(
        "a device of the workload is allocated to two claims",
        "The message names those of this namespace: stop one of the pods",
    ),
    Waiting.DRIVER_UNAVAILABLE: Advice(
        "the pool of the next pod's devices is not published: nobody would unprepare them",
        "Repair the driver on that node",
    ),
    Waiting.BLOCKED_BY_PDB: Advice(
        "a PodDisruptionBudget forbids taking the pod down",
        "The message names it",
    ),
    Waiting.PODS_UNAVAILABLE: Advice(
        "pods that are down already use up maxUnavailable",
        "Heal or replace them; broken pods of an old revision go first by themselves",
    ),
    Waiting.EVICTION_UNANSWERED: Advice(
        "the eviction of a chosen pod may still be on its way: its answer was lost, or another operator sent it",
        "Wait, two minutes at most",
    ),
    Waiting.NEXT_IN_LINE: Advice(
        "recorded ahead of time: the pod is replaced once the last replacement is healthy",
        "Nothing",
    ),
    Waiting.SHARED_BUDGET_USED_UP: Advice(
        "others of the group use up the operator's budget (docs/shared-budget.md)",
        "Wait for its turn. If it takes long: which of the group is Stalled?",
    ),
    Waiting.STEP_NOT_SAFE: Advice(
        "unpausing the Deployment would replace more or fewer pods than may go now",
        "Usually passes by itself; else compare replicas of its ReplicaSets, and see docs/several-at-once.md",
    ),
    Waiting.DEVICE_BUDGET: Advice(
        "the workload's pods and unproven departures use as many device sets as it may",
        "Wait for the release named in DevicesReleased",
    ),
    Waiting.OTHER_RELEASE_UNPROVEN: Advice(
        "devices of another departed pod look free and are not proven so; a pod that opens could get them",
        "Wait for that release",
    ),
    Waiting.OTHER_SETTLING: Advice(
        "devices of another departed pod settle; a pod that opens could get them",
        "Wait for that pod",
    ),
    Waiting.NODE_NOT_AVAILABLE: Advice(
        "release.placement is SameNode, and the node is gone",
        "Bring the node back, or set Any",
    ),
    Waiting.STEP_NOT_LOCKED: Advice(
        "the Deployment is not paused yet, so opening the gate could start a second step",
        "Wait a moment",
    ),
    Waiting.AWAITING_REPLACEMENT: Advice(
        "the workload's controller has not made the successor",
        "A quota, a webhook? See the Events of the ReplicaSet, StatefulSet or DaemonSet",
    ),
    Waiting.WAITING_FOR_ADMISSION: Advice(
        "only scheduling gates of others are left on the pod",
        "Ask whoever owns the gates in the message",
    ),
    Waiting.AWAITING_SCHEDULER: Advice(
        "the gate is open and the scheduler has not placed the pod",
        "The message has the scheduler's own words",
    ),
    Waiting.AWAITING_BINDING: Advice(
        "the successor has its devices, and its claim names conditions that must come true before it is bound",
        "The devices are being attached. If it takes long, see status.devices of the claim and the driver's log",
    ),
    Waiting.AWAITING_NODE: Advice(
        "the pod has a node and its containers have not started",
        "The node's and the driver's logs; what keeps containers from running shows as its own reason",
    ),
    Waiting.PREPARE_FAILED: Advice(
        "the node has not begun to start the pod for a fifth of release.timeoutSeconds",
        "The pod's Events (FailedPrepareDynamicResources) and the driver's log. No pod is deleted for it",
    ),
    Waiting.AWAITING_READINESS: Advice(
        "the pod runs and is not ready",
        "Its readiness probe and its log",
    ),
    Waiting.AWAITING_MIN_READY: Advice(
        "it is ready, and must stay so",
        "Wait",
    ),
    Waiting.AWAITING_SOAK: Advice(
        "it is available, and watched for health.soakSeconds",
        "Wait",
    ),
    Waiting.HEALTH_CHECK_FAILING: Advice(
        "a check of health.checks is not true of it, fewer than failureThreshold times in a row",
        "The message names the check; it is asked again every 10 seconds",
    ),
    Waiting.GOING_AWAY: Advice(
        "the object is being deleted",
        "Wait for what is in flight",
    ),
}

# Of a container that does not run.
TROUBLE: Final[Table] = {
    Trouble.IMAGE_ERROR: Advice(
        "the image cannot be had (ErrImagePull, ImagePullBackOff, InvalidImageName, …)",
        "Correct the image, or the pull secret. The next template change replaces this pod first",
    ),
    Trouble.CREATE_CONTAINER_ERROR: Advice(
        "the runtime cannot create or start the container (also CreateContainerConfigError, RunContainerError, StartError)",
        "The message of the runtime: a missing ConfigMap, a device file that is not there after a reboot",
    ),
    Trouble.CRASH_LOOP: Advice(
        "the container ended and is started again; the exit code is in the message",
        "kubectl logs POD --previous",
    ),
    Trouble.DEVICE_MEMORY_ERROR: Advice(
        "the container ended and said that its device has too little memory left",
        "If a later start succeeds, the memory of the pod before was still being freed: set release.settleSeconds, or a check (docs/checks.md). Else the model does not fit",
    ),
    Trouble.OUT_OF_MEMORY_KILLED: Advice(
        "the kernel killed it at its memory limit (host memory)",
        "Raise resources.limits.memory",
    ),
}

# Of condition HoldInForce.
HOLDING: Final[Table] = {
    Holding.IN_FORCE: Advice(
        "the condition is true: devices of departed pods stay allocated until their release is proven",
        "Nothing",
    ),
    Holding.NOT_PERMITTED: Advice(
        "the operator lacks the optional role",
        "Install deploy/kustomize/overlays/hold, or set release.hold: Never",
    ),
    Holding.NOT_SUPPORTED: Advice(
        "the cluster is older than Kubernetes 1.36",
        "Upgrade it; without a hold, releases that cannot be proven cost a wait",
    ),
    Holding.DISPUTED: Advice(
        "somebody else keeps taking our entry out of the claim in the message",
        "Its managedFields name who writes reservedFor",
    ),
}

# Of condition Stalled.
STALLED: Final[Table] = {
    Refusal.WORKLOAD_NOT_FOUND: Advice(
        "spec.workloadRef names nothing that exists",
        "Create it; a wrong name needs a new object",
    ),
    Refusal.WORKLOAD_CONFLICT: Advice(
        "an older AcceleratorRollout names the same workload",
        "Delete one of the two",
    ),
    Refusal.STRATEGY_NOT_SUPPORTED: Advice(
        "the update strategy leaves us no control",
        "RollingUpdate for a Deployment, OnDelete for a StatefulSet or DaemonSet",
    ),
    Refusal.CHECK_INVALID: Advice(
        "an expression in release.checks can never be evaluated",
        "The message says why; correct it",
    ),
    Refusal.WINDOW_INVALID: Advice(
        "a schedule or a time zone in spec.windows means nothing",
        "The message names the field and what to write",
    ),
    Refusal.GUARDRAIL_NOT_MET: Advice(
        "guardrails.mode is Enforce, and the workload does not follow the guideline",
        "The message names the rules: correct it, or exempt them with a reason",
    ),
    Refusal.HOLD_NOT_POSSIBLE: Advice(
        "release.hold is Always and claims cannot be held here",
        "The message says why; Auto does without",
    ),
    Refusal.SURGE_NOT_ALLOWED: Advice(
        "maxSurge is above 0: on a fixed pool a deadlock",
        "Set maxSurge: 0, maxUnavailable: 1",
    ),
    Refusal.MAX_UNAVAILABLE_TOO_HIGH: Advice(
        "the Deployment would take more pods down at once than spec.strategy.maxUnavailable allows",
        "Lower the Deployment's maxUnavailable, or raise ours",
    ),
    Refusal.PODS_NOT_GATED: Advice(
        "pods made from the template carry no gate",
        "Add the gate or the label; install the policy",
    ),
    Refusal.NAMED_CLAIMS: Advice(
        "all pods share a named ResourceClaim",
        "Use a resourceClaimTemplateName",
    ),
    Refusal.NO_DEVICE_CLAIMS: Advice(
        "the template asks for no devices by DRA, and no pod has any by an extended resource",
        "Nothing to prove here: leave it to the workload's controller",
    ),
    "SpecUnreadable": Advice(
        "the object is newer or older than this operator knows",
        "The message names the field; upgrade the operator",
    ),
    Overdue.EVICTION: Advice(
        "a PodDisruptionBudget has kept the next pod for disruption.timeoutSeconds",
        "The message names it. Get the pods that it counts healthy, or change it: it is never overridden",
    ),
    Overdue.RELEASE: Advice(
        "devices were not free within release.timeoutSeconds",
        "The message repeats what holds them",
    ),
    Overdue.SCHEDULE: Advice(
        "a successor has no node health.scheduleTimeoutSeconds after its gate opened",
        "The message has the scheduler's words, or who took the device",
    ),
    Overdue.PREPARE: Advice(
        "its containers do not run health.prepareTimeoutSeconds after it came to its node",
        "The message names pod, node and devices; see the pod's Events and the driver's log. Subject to failurePolicy",
    ),
    Overdue.READY: Advice(
        "it is not ready health.readyTimeoutSeconds after it began to run",
        "Its log and its probes; a greater timeout for a model that loads for longer. Subject to failurePolicy",
    ),
    Overdue.HEALTH: Advice(
        "while it soaked, its checks were not true, or it became unready again, health.failureThreshold times in a row",
        "The message names the check. Subject to failurePolicy",
    ),
    Overdue.PROGRESS: Advice(
        "nothing moved for progressDeadlineSeconds, and what is awaited has no deadline of its own",
        "The message says what it waits for",
    ),
    Halted.ABORTED: Advice(
        "spec.action was Abort",
        "Retry to go on, Undo to go back, or change the template",
    ),
    Halted.UNDO_FAILED: Advice(
        "the former pod template was gone from the revision history before it could be restored",
        "Set the template by hand, or Retry to stay with the present one",
    ),
}

# Of condition ReservationInForce.
RESERVING: Final[Table] = {
    Reserving.IN_FORCE: Advice(
        "devices of departed pods are tainted until their successors have them",
        "Nothing",
    ),
    Reserving.NOT_TOLERATED: Advice(
        "the workload's own claim template does not tolerate the taint: nothing is reserved",
        "Add the toleration in the message to the ResourceClaimTemplate it names",
    ),
    Reserving.NOT_PERMITTED: Advice(
        "the optional role is not installed",
        "kubectl apply --server-side -k deploy/kustomize/overlays/reservation",
    ),
    Reserving.NOT_SUPPORTED: Advice(
        "the cluster does not serve DeviceTaintRules",
        "Kubernetes 1.36 (where they are turned on) or newer",
    ),
}

# Of condition GuardrailsMet.
GUARDRAILS: Final[Table] = {
    Guardrail.UNGATED_REVISION: Advice(
        "a ReplicaSet of an old template can still make pods without the gate",
        "Finish the first gated rollout",
    ),
    Guardrail.NOT_PARKED: Advice(
        "the parking policy is not installed",
        "deploy/admission, Kubernetes 1.36 or newer",
    ),
    Guardrail.PAUSE_IN_MANIFEST: Advice(
        "what is applied to the Deployment says something about spec.paused, which undoes the pause between two steps each time",
        "Leave the field out of the manifest",
    ),
    Guardrail.PRE_STOP_MISSING: Advice(
        "no container flushes and lets go of the device before SIGKILL can come",
        "Add a preStop hook",
    ),
    Guardrail.GRACE_TOO_SHORT: Advice(
        "the default grace of 30 s, or less",
        "Fit terminationGracePeriodSeconds to the hardware",
    ),
    Guardrail.BUDGET_MISSING: Advice(
        "no budget matches the pods",
        "Add one with maxUnavailable: 1",
    ),
    Guardrail.BUDGET_BLOCKS_BROKEN: Advice(
        "the budget can forbid evicting broken pods for ever",
        "unhealthyPodEvictionPolicy: AlwaysAllow",
    ),
}

# On the page by their names, in the order of its tables.
TABLES: Final[Mapping[str, Table]] = {
    "Why devices are not free": RELEASING,
    "Why nothing moves": WAITING,
    "Why a container does not run": TROUBLE,
    "Whether devices are held": HOLDING,
    "Why it is Stalled": STALLED,
    "Whether devices are reserved": RESERVING,
    "Guardrails": GUARDRAILS,
}


def advice(reason: str, *tables: Table) -> Advice | None:
    """Return the advice of the first table that knows the reason; None if none does."""
    return next((table[reason] for table in tables if reason in table), None)
