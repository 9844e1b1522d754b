"""What an action is, for people."""

from collections.abc import Iterator
from datetime import datetime

from accelerator_rollout.decide import actions as a
from accelerator_rollout.decide.extent import extent
from accelerator_rollout.decide.ordering import first
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.records import PodRecord
from accelerator_rollout.workloads import driver_for


def said(action: a.Action) -> str:
    """Return the action as a clause without a subject."""
    match action:
        case a.AddFinalizer():
            return "add our finalizer to the AcceleratorRollout"
        case a.RemoveFinalizer():
            return "take our finalizer off the AcceleratorRollout"
        case a.ManageDeployment(name=name):
            return f"label Deployment {name}, so that the policy parks it"
        case a.UnmanageDeployment(name=name):
            return f"take our label and our pause off Deployment {name}"
        case a.PauseDeployment(name=name, reason=reason):
            return f"pause Deployment {name} ({reason})"
        case a.UnpauseDeployment(name=name, victim_uids=victims):
            return f"unpause Deployment {name}" + (f" for a step of {len(victims)}" if victims else "")
        case a.PreferVictim(pod_name=name):
            return f"mark pod {name} as the one to go next"
        case a.EvictPod(pod_name=name):
            return f"evict pod {name}"
        case a.OpenGate(pod_name=name, hostname=host):
            return f"open the gate of pod {name}" + (f", pinned to {host}" if host else "")
        case a.HoldClaim(claim_name=name):
            return f"hold ResourceClaim {name}"
        case a.EndHold(claim_name=name):
            return f"end the hold on ResourceClaim {name}"
        case a.AddGuard(pod_name=name):
            return f"guard pod {name}"
        case a.RemoveGuard(pod_name=name):
            return f"take our guard off pod {name}"
        case a.ReserveDevice(driver=driver, pool=pool, device=device):
            return f"reserve device {driver}/{pool}/{device}"
        case a.EndReservation(rule_name=name):
            return f"delete DeviceTaintRule {name}"
        case a.RunChecks(replacement_id=entry):
            return f"ask release.checks for replacement {entry}"
        case a.CheckHealth(pod_name=name):
            return f"ask health.checks about pod {name}"
        case a.RestoreTemplate(name=name, revision_name=revision):
            return f"write the pod template of {revision} into {name}"
        case a.ProbeGate():
            return "create a pod by dry run, to see whether it comes gated"


def upcoming(snapshot: Snapshot, now: datetime) -> Iterator[PodRecord]:
    """Yield the pods that are due, in the order in which they go if nothing changes: those that are down come first."""
    driver = driver_for(snapshot)
    if driver is None:
        return
    due = extent(snapshot, driver, snapshot.rollout.status.promoted, now, in_flight=False).due
    waiting = [p for p in snapshot.pods if p.uid in due]
    broken = [p for p in waiting if not p.ready]
    while broken:
        chosen = driver.choose(tuple(broken))
        broken.remove(chosen)
        yield chosen
    healthy = [p for p in waiting if p.ready]
    while healthy:
        chosen = first(tuple(healthy), snapshot, driver)
        healthy.remove(chosen)
        yield chosen
