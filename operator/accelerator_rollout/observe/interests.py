"""Which AcceleratorRollouts must be decided anew when something changes: topics, and who asked for them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from accelerator_rollout.api.models import RolloutObject, Unreadable
from accelerator_rollout.records import Device, Rollout, TaintRuleRecord


class Key(NamedTuple):
    """Which AcceleratorRollout."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class WorkloadTopic:
    """A workload, by the name that references use."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class NamespaceTopic:
    """A namespace as a whole."""

    namespace: str


@dataclass(frozen=True, slots=True)
class AnyWorkloadTopic:
    """Every workload of a namespace: an object whose reference cannot be read may stand for any of them."""

    namespace: str


@dataclass(frozen=True, slots=True)
class PodTopic:
    """A pod that left."""

    uid: str


@dataclass(frozen=True, slots=True)
class ClaimTopic:
    """A claim that a departed pod had."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class PoolTopic:
    """The pool of a device that a departed pod had."""

    driver: str
    pool: str


@dataclass(frozen=True, slots=True)
class NodeTopic:
    """The node that a departed pod ran on."""

    name: str


Topic = (
    WorkloadTopic | NamespaceTopic | AnyWorkloadTopic | PodTopic | ClaimTopic | PoolTopic | NodeTopic | Device
)


class Interests:
    """Who asked for what. What changes about a topic that nobody asked for wakes nobody."""

    def __init__(self) -> None:
        self._keys: dict[Topic, set[Key]] = {}
        self._topics: dict[Key, frozenset[Topic]] = {}
        self._since: dict[WorkloadTopic, datetime] = {}

    def put(self, key: Key, rollout: Rollout, now: datetime) -> None:
        """Ask, in the name of `key`, for what `rollout` depends on, and for nothing else any more."""
        topics = frozenset(topics_of(rollout))
        before = self._topics.get(key, frozenset())
        self._topics[key] = topics
        for topic in topics - before:
            self._keys.setdefault(topic, set()).add(key)
            if isinstance(topic, WorkloadTopic):
                self._since.setdefault(topic, now)
        self._leave(key, before - topics)

    def drop(self, key: Key) -> None:
        """Ask for nothing in the name of `key`."""
        self._leave(key, self._topics.pop(key, frozenset()))

    def of(self, *topics: Topic) -> frozenset[Key]:
        """Return who asked for any of the topics."""
        return frozenset().union(*(self._keys.get(topic, ()) for topic in topics))

    def under(self, rule: TaintRuleRecord) -> frozenset[Key]:
        """Return who asked for a device that the rule matches."""
        matching = (t for t in self._keys if isinstance(t, Device) and rule.selects(t))
        return self.of(*matching)

    def referenced_since(self, workload: WorkloadTopic) -> datetime | None:
        """Return since when, without a break, somebody references the workload: before, nobody watched it."""
        return self._since.get(workload)

    def referenced(self, workload: WorkloadTopic) -> bool:
        """Return whether somebody references the workload, or may, as far as we can read."""
        return bool(self.of(workload, AnyWorkloadTopic(workload.namespace)))

    def _leave(self, key: Key, topics: Iterable[Topic]) -> None:
        for topic in topics:
            keys = self._keys.get(topic, set())
            keys.discard(key)
            if not keys:
                self._keys.pop(topic, None)
                if isinstance(topic, WorkloadTopic):
                    self._since.pop(topic, None)


def topics_of(rollout: Rollout) -> Iterator[Topic]:
    """Yield what `rollout` depends on."""
    yield NamespaceTopic(rollout.namespace)
    workload = workload_of(rollout)
    yield workload or AnyWorkloadTopic(rollout.namespace)
    if isinstance(rollout, RolloutObject):
        for replacement in rollout.status.replacements:
            if replacement.pod_uid:
                yield PodTopic(replacement.pod_uid)
            if replacement.node_name:
                yield NodeTopic(replacement.node_name)
            for claim in replacement.claims:
                yield ClaimTopic(rollout.namespace, claim.name)
                for held in claim.devices:
                    yield PoolTopic(held.driver, held.pool)
                    yield Device(held.driver, held.pool, held.device)


def workload_of(rollout: Rollout) -> WorkloadTopic | None:
    """Return the workload that `rollout` references, None where that cannot be read."""
    if isinstance(rollout, Unreadable):
        ref = rollout.workload_ref
        return WorkloadTopic(ref.kind, rollout.namespace, ref.name) if ref else None
    return WorkloadTopic(
        rollout.spec.workload_ref.kind.value, rollout.namespace, rollout.spec.workload_ref.name
    )
