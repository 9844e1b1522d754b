"""One node's DRA driver together with the kubelet's memory of what it prepared for whom."""

import asyncio
from dataclasses import dataclass, field

from lab.ledger import Holder, Ledger
from lab.nodes.claims import Claim
from lab.nodes.faults import Behaviour


class DriverError(Exception):
    """The driver answered a call with an error, or did not answer; the message is what a kubelet would report."""


@dataclass(slots=True)
class _Prepared:
    claim: Claim
    pods: set[str] = field(default_factory=set)  # UIDs; the last one to leave unprepares
    failed_unprepares: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    done: bool = False


class NodeDriver:
    """Prepares and unprepares claims, and notes both in the ledger when they take effect.

    A claim counts as prepared from the moment the call takes hold of the device, not from its success: the oracle
    must rather see an overlap too early than miss it.
    """

    def __init__(self, node: str, name: str, ledger: Ledger) -> None:
        self.node = node
        self.name = name
        self.up = True
        self._ledger = ledger
        self._prepared: dict[str, _Prepared] = {}

    async def prepare(self, claim: Claim, pod_uid: str, pod_name: str, behaviour: Behaviour) -> None:
        """Prepare the claim for the pod; raises DriverError. A claim that is prepared already only gains a user."""
        one = self._prepared.setdefault(claim.uid, _Prepared(claim))
        one.pods.add(pod_uid)
        async with one.lock:
            if one.done:
                return
            self._reachable("NodePrepareResources")
            self._note_prepared(claim, pod_uid, pod_name)
            await asyncio.sleep(behaviour.prepare_seconds)
            one.done = True

    def resume(self, claim: Claim, pod_uid: str, pod_name: str) -> None:
        """An earlier life of this program prepared the claim for the pod: it still is."""
        one = self._prepared.setdefault(claim.uid, _Prepared(claim))
        one.pods.add(pod_uid)
        one.done = True
        self._note_prepared(claim, pod_uid, pod_name)

    def tried(self, claim: Claim, pod_uid: str) -> None:
        """A prepare was attempted and failed: the kubelet will want to unprepare all the same."""
        self._prepared.setdefault(claim.uid, _Prepared(claim)).pods.add(pod_uid)

    async def unprepare(self, claim_uid: str, pod_uid: str, behaviour: Behaviour) -> None:
        """Take the pod from the claim's users and unprepare after the last one; raises DriverError."""
        one = self._prepared.get(claim_uid)
        if one is None:
            return
        if one.pods - {pod_uid}:
            one.pods.discard(pod_uid)
            return
        async with one.lock:
            if one.pods - {pod_uid} or self._prepared.get(claim_uid) is not one:
                one.pods.discard(pod_uid)
                return
            self._reachable("NodeUnprepareResources")
            if one.failed_unprepares < behaviour.unprepare_failures:
                one.failed_unprepares += 1
                raise DriverError(
                    f"NodeUnprepareResources failed for ResourceClaim {one.claim.name}: simulated failure "
                    f"{one.failed_unprepares}"
                )
            await asyncio.sleep(behaviour.unprepare_seconds)
            self._reachable("NodeUnprepareResources")
            self._note_unprepared(claim_uid)
            if one.pods - {pod_uid}:
                one.done = False  # somebody joined meanwhile: prepare anew for them
                one.pods.discard(pod_uid)
            else:
                del self._prepared[claim_uid]

    def claims_of(self, pod_uid: str) -> tuple[str, ...]:
        """UIDs of the claims of which the pod is a user, prepared or tried."""
        return tuple(uid for uid, one in self._prepared.items() if pod_uid in one.pods)

    def forget_all(self, cause: str) -> None:
        """Everything on the node stopped at once, as in a reboot: nothing is prepared any more."""
        self._prepared.clear()
        for entry in self._ledger.held(node=self.node):
            self._ledger.unprepared(self.node, entry.device, entry.holder.claim_uid, cause=cause)

    def _note_prepared(self, claim: Claim, pod_uid: str, pod_name: str) -> None:
        for allotted in claim.allotted or ():
            holder = Holder(
                claim_uid=claim.uid,
                claim_namespace=claim.namespace,
                claim_name=claim.name,
                pod_uid=pod_uid,
                pod_name=pod_name,
                admin=allotted.admin,
                share=allotted.share,
            )
            self._ledger.prepared(self.node, allotted.device, holder)

    def _note_unprepared(self, claim_uid: str) -> None:
        for entry in self._ledger.held(node=self.node, claim_uid=claim_uid):
            self._ledger.unprepared(self.node, entry.device, claim_uid)

    def _reachable(self, call: str) -> None:
        if not self.up:
            raise DriverError(f"{call}: DRA driver {self.name} is not registered")
