"""A budget across AcceleratorRollouts: at most so many pods of a group in replacement at once, whoever asks first.

Counted are the pods that we replace, from the recorded choice until the successor is healthy. Nobody knows of the others
but by their statuses, and two may decide at the same moment. What keeps the number all the same:

- A choice is stored before it is acted on (`record_first`), and the store has it before the write returns.
- Right before the act the executor decides again, over the others as the store has them then. *Every* recorded choice
  counts, older or younger. Of two that act, one was confirmed last, when the other's choice had been stored: it saw it.
- One process records the choices of a group one after another, each decided over those before (`Executor._record`).
- All the same, two that chose at once may both find the budget used up (two processes, or an answer that was lost). Then
  the younger drops its choice, and the older goes on once that is stored. A choice that may have been acted on already
  (`maybe_sent`: the eviction is done, or its answer lost, and the pod does not show it yet) is never dropped, or its
  place would be given away.

Who has no recorded choice waits for its turn: those who have waited longer go first, by `status.budgetWaitSince`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from accelerator_rollout.api.conditions import Condition, ConditionStatus, ConditionType, find_condition
from accelerator_rollout.api.models import Cause, Replacement, RolloutObject, Stage, Unreadable
from accelerator_rollout.names import BUDGET_LABEL, FINALIZER

_ALL_PATIENCE: Final = 10 * 366 * 86400.0  # seconds; beyond, nobody is given up
_NO_TURN: Final = datetime.max.replace(tzinfo=UTC)
_CHOSEN: Final = frozenset((Stage.SELECTED, Stage.EVICTING))  # not known to have left


@dataclass(frozen=True, slots=True)
class Peer:
    """What the others may know of one AcceleratorRollout: numbers and times, and no name.

    `waiting_since` is when it began to wait for this budget; None if it does not, or could not take its turn.
    """

    uid: str
    created: datetime
    in_flight: int = 0
    choices: tuple[datetime, ...] = ()
    waiting_since: datetime | None = None
    stalled_since: datetime | None = None

    @property
    def counted(self) -> int:
        """How many pods it has in replacement, recorded choices among them."""
        return self.in_flight + len(self.choices)


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """The budget of a group, and the other AcceleratorRollouts in it.

    What is in replacement counts until its object has been Stalled for `patience_seconds`.
    """

    group: str
    limit: int  # pods
    patience_seconds: float
    peers: tuple[Peer, ...]

    def using(self, now: datetime) -> tuple[Peer, ...]:
        """Return the peers whose pods in replacement count."""
        return tuple(p for p in self.peers if p.counted and not self._given_up(p, now))

    def next_given_up(self, now: datetime) -> datetime | None:
        """Return when the next peer that is Stalled ceases to count."""
        stalled = (p.stalled_since for p in self.using(now) if p.stalled_since is not None)
        if self.patience_seconds > _ALL_PATIENCE:
            return None
        wait = timedelta(seconds=self.patience_seconds)
        return min((since + wait for since in stalled), default=None)

    def _given_up(self, peer: Peer, now: datetime) -> bool:
        since = peer.stalled_since
        return since is not None and (now - since).total_seconds() >= self.patience_seconds


@dataclass(frozen=True, slots=True)
class UsedUp:
    """Why the pod is not replaced now. `keep`: its recorded choice stands."""

    message: str
    keep: bool
    due: datetime | None


def peer(rollout: RolloutObject | Unreadable, *, in_turn: bool = True) -> Peer:
    """Return what others may know of `rollout`; without its wait if it is known not to take its turn.

    One that cannot be read any more may have had a pod in flight: it counts as one, until it has been Stalled for long.
    """
    if isinstance(rollout, Unreadable):
        conditions = rollout.conditions
        return Peer(
            rollout.uid,
            _NO_TURN,
            in_flight=1 if FINALIZER in rollout.finalizers else 0,
            stalled_since=_stalled_since(conditions),
        )
    status = rollout.status
    ready = find_condition(status.conditions, ConditionType.READY)
    # What is left on nodes that are gone outlives a rollout, and keeps nobody waiting (see `stranded`).
    complete = ready is not None and ready.status == ConditionStatus.TRUE
    ours = [] if complete else [e for e in status.replacements if e.cause is Cause.ROLLOUT]
    choices = tuple(_whole(e.started_at) for e in ours if e.stage in _CHOSEN)
    stalled_since = _stalled_since(status.conditions)
    unknown = ready is not None and ready.status == ConditionStatus.UNKNOWN
    waits = in_turn and not (choices or stalled_since or unknown or rollout.deletion)
    return Peer(
        rollout.uid,
        rollout.created,
        in_flight=sum(e.stage not in _CHOSEN for e in ours),
        choices=choices,
        waiting_since=status.budget_wait_since if waits else None,
        stalled_since=stalled_since,
    )


@dataclass(frozen=True, slots=True)
class Wish:
    """What an AcceleratorRollout would replace now: so many healthy pods beside those it has in replacement already."""

    rollout: RolloutObject
    victim_uid: str  # of the first of them
    pods: int = 1
    in_flight: int = 0


def used_up(shared: SharedBudget, wish: Wish, maybe_sent: frozenset[str], now: datetime) -> UsedUp | None:
    """Return that the budget does not let the pods be replaced now; None if it does."""
    rollout, victim_uid = wish.rollout, wish.victim_uid
    using = shared.using(now)
    most = shared.limit - wish.in_flight - wish.pods  # of others
    counted = sum(p.counted for p in using)
    own = _choice(rollout, victim_uid)
    if own is None:
        ahead = sum(
            _turn(p.waiting_since, p.created, p.uid) < _my_turn(rollout, now) for p in _waiting(shared)
        )
        keep, free = False, counted + ahead <= most
    else:
        mine = (_whole(own.started_at), rollout.uid)
        older = sum(p.in_flight + sum((at, p.uid) < mine for at in p.choices) for p in using)
        keep, free = older <= most or victim_uid in maybe_sent, counted <= most
    if free:
        return None
    pods = "pod" if shared.limit == 1 else "pods"
    return UsedUp(
        f"the operator lets at most {shared.limit} {pods} of budget {shared.group} (label {BUDGET_LABEL}) be in "
        "replacement at once, and others have their turn",
        keep,
        shared.next_given_up(now),
    )


def waiting_since(before: datetime | None, now: datetime) -> datetime:
    """Return since when to wait, for the status: from the first time on, and through restarts."""
    return before or _whole(now)


def _waiting(shared: SharedBudget) -> list[Peer]:
    return [p for p in shared.peers if p.waiting_since is not None]


def _my_turn(rollout: RolloutObject, now: datetime) -> tuple[datetime, datetime, str]:
    return _turn(rollout.status.budget_wait_since or now, rollout.created, rollout.uid)


def _turn(since: datetime | None, created: datetime, uid: str) -> tuple[datetime, datetime, str]:
    return _whole(since or created), created, uid


def _choice(rollout: RolloutObject, pod_uid: str) -> Replacement | None:
    stored = (e for e in rollout.status.replacements if e.pod_uid == pod_uid)
    return next((e for e in stored if e.stage in _CHOSEN), None)


def _whole(moment: datetime) -> datetime:
    # As the API stores it: what is compared must be the same before and after it was stored.
    return moment.replace(microsecond=0)


def _stalled_since(conditions: tuple[Condition, ...]) -> datetime | None:
    stalled = find_condition(conditions, ConditionType.STALLED)
    return stalled.last_transition_time if stalled and stalled.status == ConditionStatus.TRUE else None
