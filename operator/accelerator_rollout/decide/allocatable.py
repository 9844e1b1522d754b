"""Could someone new be allocated this device now, and if not, why: the scheduler's own rules, on what the API shows.

The rules are those of the scheduler's structured allocator (KEP-4381): only `status.allocation` counts, an admin access
result does not (KEP-5018); a pool is its highest generation, complete with as many slices as it announces, invalid
with a device or counter set twice; taints of the slice and of DeviceTaintRules (KEP-5055) keep out claims that do not
tolerate them; a partition is free only with the counters that it draws (KEP-4815), a shared device as far as its
capacity goes (KEP-5075). In one thing we are stricter: slices that disagree on their number are believed by nobody.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from itertools import pairwise

from accelerator_rollout.decide.reasons import NotFree
from accelerator_rollout.records import (
    Access,
    Capacity,
    ClaimRecord,
    Counter,
    Device,
    DeviceRequest,
    DeviceUse,
    NodeRecord,
    NodeTerm,
    PublishedDevice,
    SliceRecord,
    Taint,
    TaintRuleRecord,
    Toleration,
)

_NAME_FIELD = "metadata.name"
_NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why devices are not free: the cause, the sentence for people, and when time alone may change it."""

    reason: NotFree
    message: str
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """One allocation result that counts, and what to call its claim."""

    use: DeviceUse
    title: str


@dataclass(frozen=True, slots=True)
class Pool:
    """What of a cluster decides on one pool: its slices of all generations, the taint rules, whoever holds a device.

    `nodes` are the nodes that may be asked for; where it is None nobody asks from where a device can be reached.
    """

    driver: str
    name: str
    slices: tuple[SliceRecord, ...]
    rules: tuple[TaintRuleRecord, ...]
    holders: tuple[Holder, ...]
    nodes: tuple[NodeRecord, ...] | None = None

    @property
    def title(self) -> str:
        """What to call it."""
        return f"pool {self.name} of driver {self.driver}"

    def newest(self) -> tuple[SliceRecord, ...]:
        """Return the slices that count."""
        generation = max((s.generation for s in self.slices), default=0)
        return tuple(s for s in self.slices if s.generation == generation)

    def of(self, device: Device) -> tuple[DeviceUse, ...]:
        """Return who has the device."""
        return tuple(h.use for h in self.holders if h.use.device == device)


def holders_of(claims: Iterable[ClaimRecord], namespace: str) -> tuple[Holder, ...]:
    """Return the allocation results that count; names of other namespaces are nobody's business here."""
    return tuple(
        Holder(
            use,
            f"ResourceClaim {claim.name}" if claim.namespace == namespace else "a claim of another namespace",
        )
        for claim in claims
        for use in claim.uses or ()
        if not use.admin
    )


def obstacle_to(device: Device, pool: Pool, requests: Sequence[DeviceRequest] = ()) -> Obstacle | None:
    """Return what keeps a new claim from the device, in the order in which it would be repaired; None if nothing.

    `requests` are what the new claim may ask for it with: each has to tolerate its taints and find its capacity. An
    empty sequence stands for one that tolerates nothing and asks for no capacity in particular.
    """
    published = _published(device, pool)
    if isinstance(published, Obstacle):
        return published
    asked = requests or (DeviceRequest(""),)
    return (
        _tainted(device, published, pool.rules, asked)
        or _out_of_reach(device, published, pool)
        or _taken(device, pool, asked)
        or _drawn(device, published, pool)
        or _used_up(device, published, pool, asked)
    )


def unpublished(device: Device, pool: Pool) -> Obstacle | None:
    """Return why the device is not offered at all."""
    found = _published(device, pool)
    return found if isinstance(found, Obstacle) else None


def _published(device: Device, pool: Pool) -> PublishedDevice | Obstacle:
    newest = pool.newest()
    if not newest:
        return Obstacle(
            NotFree.POOL_MISSING, f"{pool.title} has no ResourceSlice: is the driver running on that node?"
        )
    where = f"{pool.title} at generation {newest[0].generation}"
    counts = {s.slice_count for s in newest}
    if len(counts) > 1:
        said = " and ".join(str(n) for n in sorted(counts))
        return Obstacle(
            NotFree.POOL_CONTRADICTORY, f"{where} has slices that disagree on their count: {said}"
        )
    (count,) = counts
    if len(newest) < count:
        return Obstacle(NotFree.POOL_INCOMPLETE, f"{where} shows {len(newest)} of {count} ResourceSlices")
    wrong = _contradiction(newest, count)
    if wrong:
        return Obstacle(NotFree.POOL_CONTRADICTORY, f"{where} {wrong}")
    found = next((d for s in newest for d in s.devices if d.name == device.name), None)
    return found or Obstacle(NotFree.DEVICE_MISSING, f"device {device.name} is not in {where}")


def _contradiction(newest: Sequence[SliceRecord], count: int) -> str:
    if len(newest) > count:
        return f"has more slices than {count}"
    names = sorted(d.name for s in newest for d in s.devices)
    if any(a == b for a, b in pairwise(names)):
        return "has a device twice"
    sets = sorted(name for s in newest for name in {c.set for c in s.counters})
    if any(a == b for a, b in pairwise(sets)):
        return "has a counter set twice"
    known = {(c.set, c.name) for s in newest for c in s.counters}
    lost = next((c for s in newest for d in s.devices for c in d.draws if (c.set, c.name) not in known), None)
    return f"lacks the counter {lost.name} of set {lost.set}, which a device draws" if lost else ""


def _tainted(
    device: Device, found: PublishedDevice, rules: Iterable[TaintRuleRecord], asked: Sequence[DeviceRequest]
) -> Obstacle | None:
    for taint in (*found.taints, *_ruled(device, rules)):
        if taint.blocks and not all(any(tolerates(t, taint) for t in r.tolerations) for r in asked):
            return Obstacle(NotFree.DEVICE_TAINTED, f"device {device} is tainted {taint.key}:{taint.effect}")
    return None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether the toleration is for this taint (KEP-5055; of nodes the same rules have been known for long)."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def _ruled(device: Device, rules: Iterable[TaintRuleRecord]) -> Iterable[Taint]:
    return (rule.taint for rule in rules if rule.selects(device))


def _out_of_reach(device: Device, found: PublishedDevice, pool: Pool) -> Obstacle | None:
    if pool.nodes is None:
        return None
    access = found.access
    if access is None:
        access = next(s.access for s in pool.newest() if found in s.devices)
    if any(reaches(access, node) for node in pool.nodes):
        return None
    return Obstacle(NotFree.DEVICE_UNREACHABLE, f"device {device} can be used from no node that exists")


def reaches(access: Access, node: NodeRecord) -> bool:
    """Whether the node may use what is offered so."""
    if access.node:
        return access.node == node.name
    return access.every or any(_fits(term, node) for term in access.terms)


def _fits(term: NodeTerm, node: NodeRecord) -> bool:
    if not term.labels and not term.fields:
        return False  # an empty term selects nothing
    named = {_NAME_FIELD: node.name}
    return all(t.takes(node.labels) for t in term.labels) and all(t.takes(named) for t in term.fields)


def _taken(device: Device, pool: Pool, asked: Sequence[DeviceRequest]) -> Obstacle | None:
    return None if all(request.admin for request in asked) else taken(device, pool)


def taken(device: Device, pool: Pool) -> Obstacle | None:
    """Return who has the device whole."""
    whole = [h for h in pool.holders if h.use.device == device and not h.use.share_id]
    if len(whole) > 1:
        names = " and ".join(sorted(h.title for h in whole))
        return Obstacle(
            NotFree.DOUBLE_ALLOCATION,
            f"device {device} is allocated {len(whole)} times at once, to {names}: the first that goes frees it under "
            "the other. Stop one of their pods",
        )
    if whole:
        return Obstacle(NotFree.DEVICE_TAKEN, f"device {device} was allocated to {whole[0].title} meanwhile")
    return None


def _drawn(device: Device, found: PublishedDevice, pool: Pool) -> Obstacle | None:
    """Return that partitions which others hold leave too little of a counter."""
    if not found.draws or (found.shared and pool.of(device)):
        return None  # of a shared device that is in use the counters are drawn already
    newest = pool.newest()
    left = {(c.set, c.name): c.value for s in newest for c in s.counters}
    held = {h.use.device.name for h in pool.holders}
    for sibling in (d for s in newest for d in s.devices if d.name in held):
        _draw(left, sibling.draws)
    _draw(left, found.draws)
    # As the scheduler counts: every counter of the pool, also one that this device does not draw.
    short = sorted(key for key, value in left.items() if value < _NOTHING)
    if not short:
        return None
    names = ", ".join(sorted(h.title for h in pool.holders))
    return Obstacle(
        NotFree.PARTITION_HELD,
        f"device {device} draws on counter {short[0][1]} of set {short[0][0]}, of which others hold too much: {names}",
    )


def _draw(left: dict[tuple[str, str], Decimal], draws: Iterable[Counter]) -> None:
    for counter in draws:
        left[counter.set, counter.name] -= counter.value


def _used_up(
    device: Device, found: PublishedDevice, pool: Pool, asked: Sequence[DeviceRequest]
) -> Obstacle | None:
    """Return that what others draw leaves too little of a capacity, or that a request cannot be met at all."""
    drawn: dict[str, Decimal] = {}
    for use in pool.of(device):
        for name, amount in use.consumed:
            drawn[name] = drawn.get(name, _NOTHING) + amount
    for request in asked:
        amounts = dict(request.capacity)
        unknown = sorted(amounts.keys() - {c.name for c in found.capacity})
        if unknown:
            return Obstacle(NotFree.CAPACITY_HELD, f"device {device} has no capacity {unknown[0]}")
        for capacity in found.capacity:
            wanted = rounded(amounts.get(capacity.name), capacity)
            if wanted is None or drawn.get(capacity.name, _NOTHING) + wanted > capacity.value:
                return Obstacle(
                    NotFree.CAPACITY_HELD, f"device {device} has too little left of capacity {capacity.name}"
                )
    return None


def rounded(asked: Decimal | None, capacity: Capacity) -> Decimal | None:
    """Return what a request draws of a capacity (KEP-5075): rounded up to what is valid; None if nothing valid is enough."""
    if asked is None:
        return capacity.value if capacity.default is None else capacity.default
    if capacity.least is not None:
        asked = max(asked, capacity.least)
        if capacity.step:
            steps = ((asked - capacity.least) / capacity.step).to_integral_value(ROUND_CEILING)
            asked = capacity.least + steps * capacity.step
        return None if capacity.most is not None and asked > capacity.most else asked
    if capacity.choices:
        return next((choice for choice in capacity.choices if asked <= choice), None)
    return asked
