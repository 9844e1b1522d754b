"""What must be true of the demo: each a sentence, whether it holds, and what was found instead."""

from collections.abc import Iterator
from dataclasses import dataclass

from lab.client import condition
from lab.demo.acts import Observed, Rolled
from lab.demo.journeys import Extremes, Journey
from lab.demo.manifests import REPLICAS
from lab.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Check:
    """One sentence about the demo."""

    sentence: str
    holds: bool
    found: str = ""  # what was seen instead


def of_rollout(rolled: Rolled, journeys: list[Journey], worst: Extremes) -> Iterator[Check]:
    """What our rollout must show."""
    status = rolled.status
    updated = status.get("updatedReplicas")
    ready = condition({"status": status}, "Ready") or {}
    yield Check(
        f"all {REPLICAS} pods are updated and Ready=True",
        updated == REPLICAS and ready.get("status") == "True",
        f"updatedReplicas {updated}, Ready={ready.get('status')} {ready.get('reason')}",
    )
    yield Check(
        f"as many pods were deleted as there are replicas, {REPLICAS}",
        rolled.deleted == REPLICAS and len(journeys) == REPLICAS,
        f"{rolled.deleted} deleted, {len(journeys)} of them old",
    )
    early = [j.new.short if j.new else "?" for j in journeys if not opened_after_release(j)]
    yield Check(
        "each gate opened only after the predecessor had ended and its claim was deallocated",
        not early and bool(journeys),
        f"not so, or never seen, for {', '.join(early) or 'any pod'}",
    )
    unproven = [j.old.short for j in journeys if j.proof != "KubeletTerminalPhase"]
    yield Check(
        "each release was proven by the kubelet's own word",
        not unproven,
        f"another proof or none for {', '.join(unproven)}",
    )
    yield Check(
        f"never more than {REPLICAS} device sets were held or could be taken",
        0 < worst.device_sets <= REPLICAS,
        f"{worst.device_sets} at once",
    )
    yield Check(
        f"at least {REPLICAS - 1} pods served at every moment",
        worst.serving >= REPLICAS - 1,
        f"{worst.serving} at the worst moment",
    )


def opened_after_release(journey: Journey) -> bool:
    """Whether the gate opened after the kubelet's terminal phase and the deallocation; False if any was never seen."""
    if journey.opened is None or journey.ended is None or journey.freed is None:
        return False
    return max(journey.ended.version, journey.freed.version) < journey.opened.version


def of_plain_rollout(rolled: Rolled) -> Iterator[Check]:
    """What makes the comparison one."""
    yield Check(
        "the plain Deployment did the same rollout on the same nodes",
        rolled.deleted == REPLICAS,
        f"{rolled.deleted} pods deleted",
    )


def of_stranger(plain: Observed, ours: Observed) -> Iterator[Check]:
    """What the first hazard must show."""
    yield Check(
        "the plain Deployment was shown to wait for the device that the stranger took",
        plain.waiting == 1 and plain.reason == "ProgressDeadlineExceeded",
        f"{plain.waiting} pods waiting, {plain.reason}",
    )
    yield Check(
        "ours named DeviceTaken and the device",
        ours.reason == "DeviceTaken" and "lpu-" in ours.message,
        f"{ours.reason}: {ours.message}",
    )
    yield Check(
        "ours deleted no further pod: one was down, the others served",
        ours.deleted == 1 and ours.serving == REPLICAS - 1,
        f"{ours.deleted} deleted, {ours.serving} served",
    )
    yield Check(
        f"ours went on unaided when the stranger left, {REPLICAS} deletions in all",
        ours.went_on and ours.deleted_in_all == REPLICAS,
        f"{ours.deleted_in_all} deletions",
    )


def of_anti_pattern(plain: Observed, ours: Observed) -> Iterator[Check]:
    """What the second hazard must show."""
    yield Check(
        "the plain Deployment was shown to deadlock: its surge pod waits, nothing moves",
        plain.surplus == 1 and plain.waiting == 1 and plain.reason == "ProgressDeadlineExceeded",
        f"{plain.surplus} surge pods, {plain.waiting} waiting, {plain.reason}",
    )
    yield Check(
        "ours refused: Stalled with SurgeNotAllowed and the fix",
        ours.reason == "SurgeNotAllowed" and "maxSurge 0" in ours.message,
        f"{ours.reason}: {ours.message}",
    )
    yield Check(
        f"ours disrupted nothing: template parked, no pod deleted, no surge pod, {REPLICAS} served",
        ours.held and ours.deleted == 0 and ours.surplus == 0 and ours.serving == REPLICAS,
        f"parked: {ours.held}, {ours.deleted} deleted, {ours.surplus} surge pods, {ours.serving} served",
    )


def of_ledger(ledger: Ledger) -> Iterator[Check]:
    """The oracle's verdict on all that was played."""
    overlaps = ledger.violations()
    yield Check(
        "the ledger is clean: no device was ever prepared for two claims at once",
        not overlaps and bool(ledger.entries()),
        "; ".join(str(one) for one in overlaps) or "nothing was prepared at all",
    )
