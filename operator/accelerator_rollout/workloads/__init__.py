"""What differs between workload kinds, behind one protocol (`base.Driver`)."""

from accelerator_rollout.decide.budget import max_unavailable
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.records import DaemonSetRecord, DeploymentRecord, StatefulSetRecord
from accelerator_rollout.workloads.base import Driver
from accelerator_rollout.workloads.daemonset import DaemonSetDriver
from accelerator_rollout.workloads.deployment import DeploymentDriver
from accelerator_rollout.workloads.statefulset import StatefulSetDriver


def driver_for(snapshot: Snapshot) -> Driver | None:
    """Return the driver of the snapshot's workload; None without a workload."""
    match snapshot.workload:
        case DeploymentRecord() as deployment:
            return DeploymentDriver(
                deployment, snapshot.replica_sets, snapshot.pods, max_unavailable(snapshot)
            )
        case StatefulSetRecord() as stateful_set:
            return StatefulSetDriver(stateful_set, snapshot.pods)
        case DaemonSetRecord() as daemon_set:
            return DaemonSetDriver(daemon_set, snapshot.revisions, snapshot.pods)
        case None:
            return None
