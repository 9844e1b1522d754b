"""The operator's budgets across AcceleratorRollouts: who shares which, and what the others of a group are doing."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from accelerator_rollout.decide.shared_budget import SharedBudget, peer
from accelerator_rollout.observe.interests import Key
from accelerator_rollout.records import Rollout

DEFAULT_GROUP: Final = "default"  # of objects without the label, or with one that names no budget


@dataclass(frozen=True, slots=True)
class SharedBudgets:
    """What the operator was told. `limits` are pods by group; without any nothing is shared.

    `troubled` are objects whose decisions keep failing: those do not hold their place in the queue.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    patience_seconds: float = 3600.0
    troubled: Callable[[Key], bool] = lambda _key: False

    def group_of(self, rollout: Rollout) -> str | None:
        """Return the group whose budget `rollout` shares; None if it shares none.

        A label that names no budget is no way out of one: it counts as if it were not there.
        """
        group = rollout.budget if rollout.budget in self.limits else DEFAULT_GROUP
        return group if group in self.limits else None

    def active_in(self, rollout: Rollout) -> Iterator[str]:
        """Yield the group in which `rollout` has pods in replacement, or waits: what an index is made of."""
        group = self.group_of(rollout)
        if group is not None:
            told = peer(rollout)
            if told.counted or told.waiting_since is not None:
                yield group

    def budget(self, rollout: Rollout, active: Callable[[str], Iterable[Rollout]]) -> SharedBudget | None:
        """Return the budget that `rollout` shares, with its peers."""
        group = self.group_of(rollout)
        if group is None:
            return None
        peers = tuple(
            peer(other, in_turn=not self.troubled(Key(other.namespace, other.name)))
            for other in active(group)
            if other.uid != rollout.uid
        )
        return SharedBudget(group, self.limits[group], self.patience_seconds, peers)

    def used(self, active: Callable[[str], Iterable[Rollout]]) -> dict[str, int]:
        """Return by group how many pods are in replacement, recorded choices among them."""
        return {group: sum(peer(one).counted for one in active(group)) for group in self.limits}

    def awaiting(
        self, old: Rollout | None, new: Rollout | None, active: Callable[[str], Iterable[Rollout]]
    ) -> Iterator[Key]:
        """Yield who may have its turn now that one of the group has changed."""
        before, after = self._standing(old), self._standing(new)
        if before == after:
            return
        for group in {group for group, _ in (before, after) if group is not None}:
            for other in active(group):
                told = peer(other)
                if told.choices or told.waiting_since is not None:
                    yield Key(other.namespace, other.name)

    def _standing(self, rollout: Rollout | None) -> tuple[str | None, object]:
        return (None, None) if rollout is None else (self.group_of(rollout), peer(rollout))
