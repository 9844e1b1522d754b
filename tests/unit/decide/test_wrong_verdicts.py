"""Each way to call a device free that is not is caught by the predicates of S1 and S2, apart from the code that decides.

In each world the true decision keeps the gate closed. A seed replaces one rule; with it the gate opens, or a hold ends,
and the predicate says so.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from accelerator_rollout.api.models import Proof, Replacement, Unproven
from accelerator_rollout.decide import allocatable, proof, release
from accelerator_rollout.decide.actions import EndHold, OpenGate
from accelerator_rollout.decide.invariants import Promise, violations
from accelerator_rollout.decide.plan import plan
from accelerator_rollout.decide.proof import ProofState
from accelerator_rollout.decide.snapshot import HoldAbility, Snapshot
from accelerator_rollout.records import (
    Capacity,
    Counter,
    Device,
    DeviceRequest,
    DeviceUse,
    NodeRecord,
    PodRecord,
    PublishedDevice,
    SliceRecord,
    Taint,
    TaintRuleRecord,
    Toleration,
)
from builders import (
    EXTRA,
    GRACE,
    NOW,
    OUR_HOLD,
    World,
    at,
    claim_of,
    device,
    ended,
    gated_pod,
    pod,
    pool,
    running,
)

Seed = Callable[[pytest.MonkeyPatch], None]
BROKEN = Taint("vendor.example.com/broken", "", "NoSchedule")
SLOW = Toleration("vendor.example.com/slow", "Exists", "", "")


# Worlds: `worker-2` has left, and its successor waits at the gate


def left() -> World:
    """In order: nothing is wrong yet, and the gate would open."""
    world = running("StatefulSet")
    world.recorded("worker-2", 2)
    world.end("worker-2")
    world.vanish("worker-2")
    world.put(gated_pod("worker-2"))
    return world


def with_pool(*slices: SliceRecord) -> Callable[[], World]:
    def make() -> World:
        world = left()
        world.slices = [*world.slices[:2], *slices]
        return world

    return make


def published(*devices: PublishedDevice, **over: Any) -> Callable[[], World]:
    return with_pool(pool(2, devices=devices, **over))


def still_allocated() -> World:
    world = left()
    world.claims["worker-2-device"] = claim_of(pod("worker-2"), device(2))
    return world


def taken() -> World:
    world = left()
    world.strangers.append(claim_of(pod("stranger", kind="Deployment"), device(2)))
    return world


def taken_twice() -> World:
    world = taken()
    world.strangers.append(claim_of(pod("another", kind="Deployment"), device(2)))
    return world


def tainted_by_rule() -> World:
    world = left()
    world.rules.append(TaintRuleRecord("rule", "r", "1", "", "node-2", "", BROKEN))
    return world


def tolerating_something_else() -> World:
    world = published(PublishedDevice("dev-2", (BROKEN,)))()
    name = "q-worker-2-device"
    world.claims[name] = replace(world.claims[name], requests=(DeviceRequest("device", (SLOW,)),))
    return world


def sibling_drawn() -> World:
    slot = Counter("card", "slots", Decimal(1))
    parts = tuple(PublishedDevice(name, draws=(slot,)) for name in ("dev-2", "half"))
    world = published(*parts, counters=(slot,))()
    half = Device(device(2).driver, device(2).pool, "half")
    world.strangers.append(claim_of(pod("stranger", kind="Deployment"), half))
    return world


def shared_and_full() -> World:
    memory = Capacity("memory", Decimal(80))
    world = published(PublishedDevice("dev-2", capacity=(memory,), shared=True))()
    part = DeviceUse(device(2), share_id="s", consumed=(("memory", Decimal(60)),))
    world.strangers.append(claim_of(pod("stranger", kind="Deployment"), uses=(part,)))
    return world


def settling() -> World:
    world = left()
    world.spec = {"release": {"settleSeconds": 5}}
    return world


def gone(last: Callable[[PodRecord], PodRecord]) -> Callable[[], World]:
    """Gone, and this is what was last seen of it."""

    def make() -> World:
        world = running("StatefulSet")
        world.recorded("worker-2", 2)
        seen = last(world.named("worker-2"))
        world.pods[seen.uid] = seen
        world.vanish("worker-2")
        world.put(gated_pod("worker-2"))
        return world

    return make


forced = gone(lambda p: p)


def waited(seconds: float, **node: Any) -> Callable[[], World]:
    """Gone by force so many seconds ago; facts of its node."""

    def make() -> World:
        world = forced()
        (stored,) = world.status.replacements
        since = stored.model_copy(update={"vanished_at": at(-seconds)})
        world.status = world.status.model_copy(update={"replacements": (since,)})
        world.nodes["node-2"] = replace(world.nodes["node-2"], **node)
        return world

    return make


def node_gone() -> World:
    world = waited(10_000)()
    del world.nodes["node-2"]
    return world


def other_claim_unheld() -> World:
    """Unproven, and nothing keeps its device; a pod that succeeds nobody waits, too."""
    world = forced()
    world.set_workload(replicas=5)
    world.put(gated_pod("worker-3"))
    return world


def held() -> World:
    world = forced()
    world.ability = HoldAbility.POSSIBLE
    world.claims["worker-2-device"] = claim_of(
        pod("worker-2"), device(2), reserved_for=(OUR_HOLD,), deletion=NOW
    )
    return world


def held_and_reborn() -> World:
    """A pod of the same name has ended; the one that left by force has not."""
    world = forced()
    reborn = ended(pod("worker-2", uid="reborn"))
    world.pods[reborn.uid] = reborn
    return world


# Seeds


def patched(module: Any, name: str, instead: Any) -> Seed:
    return lambda patch: patch.setattr(module, name, instead)


def none_found(module: Any, name: str) -> Seed:
    return patched(module, name, lambda *_, **__: None)


def published_at_once(device: Device, among: allocatable.Pool) -> PublishedDevice:
    return next(d for s in among.newest() for d in s.devices if d.name == device.name)


def oldest(among: allocatable.Pool) -> tuple[SliceRecord, ...]:
    generation = min(s.generation for s in among.slices)
    return tuple(s for s in among.slices if s.generation == generation)


def any_toleration(toleration: Toleration, taint: Taint) -> bool:
    return bool(toleration.key) and taint.blocks


def ended_whoever_says_so(pod: PodRecord) -> bool:
    return pod.terminal and pod.containers_terminated and not pod.by_pod_gc


def ended_while_containers_run(pod: PodRecord) -> bool:
    return pod.terminal and pod.kubelet_terminal and not pod.by_pod_gc


def ended_by_the_collector(pod: PodRecord) -> bool:
    return pod.terminal and pod.kubelet_terminal and pod.containers_terminated


def proven_by(what: Proof) -> Callable[..., ProofState]:
    return lambda *_, **__: ProofState(what)


def whatever_the_node_is(
    replacement: Replacement, node: NodeRecord | None, now: datetime, unproven: Unproven
) -> ProofState:
    due = (
        (replacement.vanished_at or now).timestamp()
        + (replacement.grace_seconds or 0)
        + unproven.extra_seconds
    )
    return ProofState(Proof.WAIT_ELAPSED if now.timestamp() >= due else None)


def without_grace(
    replacement: Replacement, node: NodeRecord | None, now: datetime, unproven: Unproven
) -> ProofState:
    due = (replacement.vanished_at or now).timestamp() + unproven.extra_seconds
    return ProofState(Proof.WAIT_ELAPSED if now.timestamp() >= due else None)


def of_that_name(snapshot: Snapshot, pod_uid: str) -> PodRecord | None:
    names = {e.pod_name for e in snapshot.rollout.status.replacements if e.pod_uid == pod_uid}
    found: Iterable[PodRecord] = (*snapshot.pods, *(v.pod for v in snapshot.vanished))
    return next((p for p in found if p.name in names and p.terminal), None)


@dataclass(frozen=True)
class Wrong:
    promise: Promise
    world: Callable[[], World]
    seed: Seed


S1, S2 = Promise.DEVICES_FREE, Promise.RELEASE_PROVEN
TWICE = (PublishedDevice("dev-2"), PublishedDevice("dev-2"))
WRONG = {
    "an allocated claim is free": Wrong(S1, still_allocated, none_found(release, "_allocated")),
    "a taken device is free": Wrong(S1, taken, none_found(allocatable, "taken")),
    "a device that two have is free": Wrong(S1, taken_twice, none_found(allocatable, "taken")),
    "a pool that is not there is whole": Wrong(S1, with_pool(), none_found(release, "_unavailable")),
    "part of a pool is a pool": Wrong(
        S1, with_pool(pool(2, slice_count=2)), patched(allocatable, "_published", published_at_once)
    ),
    "slices that disagree are believed": Wrong(
        S1,
        with_pool(pool(2, slice_count=2), pool(2, name="second", slice_count=3, devices=())),
        patched(allocatable, "_published", published_at_once),
    ),
    "a device may be there twice": Wrong(
        S1, published(*TWICE), patched(allocatable, "_contradiction", lambda *_: "")
    ),
    "an older generation counts": Wrong(
        S1,
        with_pool(pool(2), pool(2, name="newer", generation=2, devices=(PublishedDevice("other"),))),
        patched(allocatable.Pool, "newest", oldest),
    ),
    "a taint does not count": Wrong(
        S1, published(PublishedDevice("dev-2", (BROKEN,))), none_found(allocatable, "_tainted")
    ),
    "a taint rule does not count": Wrong(S1, tainted_by_rule, patched(allocatable, "_ruled", lambda *_: ())),
    "a toleration is for every taint": Wrong(
        S1, tolerating_something_else, patched(allocatable, "tolerates", any_toleration)
    ),
    "a partition needs no counters": Wrong(S1, sibling_drawn, none_found(allocatable, "_drawn")),
    "a shared device is never full": Wrong(S1, shared_and_full, none_found(allocatable, "_used_up")),
    "devices need not settle": Wrong(S2, settling, none_found(release, "_settling")),
    "anybody may report the end": Wrong(
        S2,
        gone(lambda p: replace(ended(p), kubelet_terminal=False)),
        patched(proof, "ended_in_order", ended_whoever_says_so),
    ),
    "the pod garbage collector proves an end": Wrong(
        S2,
        gone(lambda p: replace(ended(p), by_pod_gc=True)),
        patched(proof, "ended_in_order", ended_by_the_collector),
    ),
    "containers may still run": Wrong(
        S2,
        gone(lambda p: replace(ended(p), containers_terminated=False)),
        patched(proof, "ended_in_order", ended_while_containers_run),
    ),
    "a pod that vanished never had a node": Wrong(
        S2, forced, patched(release, "find_proof", proven_by(Proof.NEVER_BOUND))
    ),
    "a node that is gone has rebooted": Wrong(
        S2, node_gone, patched(release, "find_proof", proven_by(Proof.NODE_REBOOTED))
    ),
    "the wait counts on a node that is not Ready": Wrong(
        S2, waited(10_000, ready=False, ready_since=None), patched(proof, "_wait", whatever_the_node_is)
    ),
    "the wait counts from before the node was Ready": Wrong(
        S2, waited(10_000, ready_since=at(-5)), patched(proof, "_wait", whatever_the_node_is)
    ),
    "the grace period is no part of the wait": Wrong(
        S2, waited(EXTRA + GRACE / 2), patched(proof, "_wait", without_grace)
    ),
    "another pod of that name has ended": Wrong(
        S2, held_and_reborn, patched(release, "last_known", of_that_name)
    ),
    "what nobody holds is out of reach": Wrong(
        S2, other_claim_unheld, patched(release, "kept", lambda *_: True)
    ),
    "a hold ends without proof": Wrong(
        S2, held, patched(release, "find_proof", proven_by(Proof.WAIT_ELAPSED))
    ),
}


def broken(world: World) -> set[Promise]:
    snapshot = world.snapshot()
    decided = plan(snapshot, NOW)
    return {v.promise for v in violations(snapshot, decided, NOW)}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_verdict_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = WRONG[name]
    world = wrong.world()
    assert broken(world) == set()
    assert not any(isinstance(a, OpenGate | EndHold) for a in plan(world.snapshot(), NOW).actions)
    wrong.seed(monkeypatch)
    assert wrong.promise in broken(world)


def test_without_a_fault_the_gate_opens() -> None:
    assert any(isinstance(a, OpenGate) for a in left().actions())


def test_there_are_enough() -> None:
    assert len(WRONG) >= 15
