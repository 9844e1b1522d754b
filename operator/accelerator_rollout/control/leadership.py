"""Whether we may write at all. Every write asks here right before it is sent.

One process of several acts: the one that holds a Lease (coordination.k8s.io). The rules are those of client-go:

- Nobody compares clocks of two machines. A candidate looks at the Lease again and again, and takes it over once the record
  has not changed for the Lease's duration on its own clock.
- A holder counts from when it *sent* the renewal that succeeded, and stops at the renew deadline. That is shorter than the
  duration, which nobody counts from earlier than the server's answer: it has stopped before another begins.
- A write that is under way at the deadline gets no longer than the duration leaves it (`seconds_left`).
- A holder that ends gives the Lease back, and the next one need not wait.

What client-go does not do: whoever finds no Lease at all waits for one duration after it has created one. Somebody may have
deleted it, and its holder cannot know yet.

What could go wrong all the same, and why it does no harm. A request of the former holder may be carried out after its end, if
the API server or the wire held it up for longer than the time between deadline and takeover. Then the server compares: the
status, claims, Deployments and templates are written with the resourceVersion that was decided on, and the new holder's first
comparison with the cluster came later. An eviction carries the UID of its pod and nothing else, but that pod stood in the
status before: for two minutes the new holder takes every choice that it finds there for maybe sent, chooses no other
healthy pod beside it, and keeps it in the status for whoever follows (`loop._Memory.inherit`). An opening carries the UID of
a pod whose predecessor was proven gone, which stays true. A process that is stopped in the few instructions between the last
look here and the socket is such a case; a request that was held up for longer than those two minutes is one too many.

A holder that lost the Lease becomes a candidate again, with its watches and its store: an API server that does not answer for
ten seconds must not cost all processes a start from nothing, after which every pod that vanished meanwhile would be unproven.
What is under way in the lost term is cancelled before the next one begins, so nothing that was decided in one is sent in another.
"""

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from accelerator_rollout.clock import Stopwatch, steady_seconds
from accelerator_rollout.errors import ActError, ConflictError, GoneError

_log = logging.getLogger(__name__)

_NOW: Final = 0.0
_GIVEN_BACK: Final = 1  # seconds, as client-go writes it: the API wants more than none
_JITTER: Final = 1.2  # candidates must not ask in step


class Leadership(Protocol):
    """Who may act. An implementation answers from its own clock and never blocks."""

    def allows(self) -> bool:
        """Whether a write may be sent now."""
        ...

    def seconds_left(self) -> float:
        """For how many seconds nobody else can begin to act: no write may be under way for longer."""
        ...


class AlwaysLeader:
    """For a single operator that nothing else keeps from acting beside another."""

    def __init__(self) -> None:
        self._over = False

    def allows(self) -> bool:
        """Return true until the end."""
        return not self._over

    def seconds_left(self) -> float:
        """Return infinity."""
        return math.inf

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Lead for ever."""
        await lead()

    def stand_down(self) -> None:
        """Allow nothing more."""
        self._over = True

    async def release(self) -> None:
        """Do nothing: there is nothing to give back."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a Lease says. Its times are other machines' times: they are compared with each other, never with ours."""

    holder: str  # "" for nobody
    duration: int  # seconds
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease as it is stored."""

    record: Record
    version: str


class Leases(Protocol):
    """Who reads and writes the one Lease. Every method raises ActError; none takes longer than a part of the deadline."""

    async def read(self) -> Lease | None:
        """Return the Lease; None if there is none."""
        ...

    async def create(self, record: Record) -> Lease:
        """Create the Lease, acquired and renewed now. Raises ConflictError if there is one."""
        ...

    async def write(self, old: Lease, record: Record, *, acquired: bool) -> Lease:
        """Renew the Lease, and with `acquired` take it. Raises ConflictError if it is not the `old` one any more."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds. The differences are what keeps two holders apart, so none of them may vanish (`config` sees to it)."""

    duration: int = 15
    deadline: float = 10.0
    retry: float = 2.0


class Elector:
    """A candidate for the Lease, and its holder while it lasts.

    `identity` is this process's alone: a process that died is another holder, whose Lease has to run out.
    """

    def __init__(
        self,
        leases: Leases,
        identity: str,
        terms: Terms,
        clock: Stopwatch = steady_seconds,
    ) -> None:
        self._leases, self._identity, self._terms, self._clock = leases, identity, terms, clock
        self._held: Lease | None = None  # as we wrote it last
        self._sent = -math.inf  # when that write was sent
        self._not_before = -math.inf  # until then somebody may still act of whom no Lease tells
        self._term = 0  # counts up
        self._serving = 0  # the term in which `lead` runs
        self._maybe_ours = False  # the Lease as it is stored, whatever answer we got
        self._seen: Record | None = None
        self._seen_at = -math.inf
        self._ended = False
        self._changed = asyncio.Event()

    # What others ask

    def allows(self) -> bool:
        """Whether a write may be sent now."""
        # What still winds up from one term must not find itself allowed by the next.
        return self._elected() and self._serving == self._term and not self._ended

    def seconds_left(self) -> float:
        """For how many seconds nobody else can begin to act."""
        if self._held is None:
            return _NOW
        return max(_NOW, self._sent + self._terms.duration - self._clock())

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Compete for ever. `lead` is called when a term begins and cancelled when it is over."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._compete(), name="candidate")
            while True:
                await self._until(self._elected)
                await self._serve(lead)

    def stand_down(self) -> None:
        """Allow nothing more, and renew nothing more. What is under way is not cancelled: it is to be answered first."""
        self._ended = True

    async def release(self) -> None:
        """Give the Lease back if we hold it. To be called when no write of ours is under way any more."""
        if not self._maybe_ours or self._clock() < self._not_before:
            return  # whoever took it from us would begin at once, and somebody before us may still act
        for _ in range(2):  # a renewal that was cancelled may have been done: then the version is another
            try:
                lease = await self._leases.read()
                if lease is None or lease.record.holder != self._identity:
                    return
                await self._leases.write(
                    lease, replace(lease.record, holder="", duration=_GIVEN_BACK), acquired=False
                )
            except ConflictError:
                continue
            except ActError as error:
                _log.warning("the Lease could not be given back, so it has to run out: %s", error)
            else:
                _log.info("gave the Lease back")
            return

    # A term

    def _elected(self) -> bool:
        return (
            self._held is not None and self._not_before <= self._clock() < self._sent + self._terms.deadline
        )

    async def _serve(self, lead: Callable[[], Awaitable[None]]) -> None:
        term = self._serving = self._term
        task = asyncio.ensure_future(lead())
        over = asyncio.create_task(self._until(lambda: self._is_over(term)), name="until the term is over")
        try:
            await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Also what waits for an answer: whatever came of it would belong to a term that is over.
            for one in (task, over):
                one.cancel()
            await asyncio.wait((task, over))
            self._serving = 0
        if not task.cancelled():
            task.result()

    def _is_over(self, term: int) -> bool:
        """Whether the term is over; makes sure that it stays over."""
        if self._term == term and self._held is not None and not self._elected():
            _log.warning("the Lease could not be renewed in time: not acting any more")
            self._drop()
        return self._term != term or self._held is None

    # The Lease

    async def _compete(self) -> None:
        while not self._ended:
            try:
                await self.attempt()
            except ConflictError:
                _log.debug("another candidate was faster")
            except ActError as error:
                _log.warning("the Lease cannot be had, or not be kept: %s", error)
            pause = self._terms.retry
            await asyncio.sleep(pause if self._held else pause * random.uniform(1, _JITTER))  # noqa: S311 - no secret

    async def attempt(self) -> None:
        """Try once to renew or to get the Lease. Raises ActError; what is held then stays so until the deadline."""
        if self._held is not None:
            try:
                await self._renew(self._held)
            except GoneError:
                _log.warning("somebody deleted the Lease: not acting any more")
                self._drop()
            except ConflictError:
                pass  # somebody wrote it, a label perhaps
            else:
                return
        lease = await self._leases.read()
        now = self._clock()
        if lease is None:
            await self._create(now)
            return
        self._look(lease.record, now)
        record = lease.record
        if record.holder == self._identity:
            if self._held is None:
                await self._take(lease)
            else:
                await self._renew(lease)
        else:
            self._maybe_ours = False
            if self._held is not None:
                _log.warning("somebody else holds the Lease now: %s", record.holder or "nobody")
                self._drop()
            # A holder that gives it back writes this; where a person took its name out, it may not know yet.
            given_back = not record.holder and record.duration <= _GIVEN_BACK
            if given_back or now >= self._seen_at + max(record.duration, self._terms.duration):
                await self._take(lease)

    def _look(self, record: Record, now: float) -> None:
        if record == self._seen:
            return
        if record.holder and (self._seen is None or self._seen.holder != record.holder):
            _log.info("the Lease is held by %s", record.holder)
        self._seen, self._seen_at = record, now

    async def _create(self, now: float) -> None:
        # Told by nobody: a holder may have renewed right before the Lease went.
        lasts = max(self._terms.duration, self._seen.duration if self._seen else 0)
        self._not_before = now + lasts
        self._seen, self._maybe_ours = None, True
        sent = self._clock()
        lease = await self._leases.create(Record(self._identity, self._terms.duration))
        _log.info("there was no Lease: acting in %d s, in case that it was deleted under somebody", lasts)
        self._begin(lease, sent)

    async def _take(self, lease: Lease) -> None:
        former, sent, self._maybe_ours = lease.record, self._clock(), True
        wanted = replace(
            former,
            holder=self._identity,
            duration=self._terms.duration,
            transitions=former.transitions + (former.holder != self._identity),
        )
        taken = await self._leases.write(lease, wanted, acquired=True)
        _log.info("holding the Lease; before: %s", former.holder or "nobody")
        self._begin(taken, sent)

    async def _renew(self, lease: Lease) -> None:
        sent = self._clock()
        renewed = await self._leases.write(lease, lease.record, acquired=False)
        if self._held is None or self._clock() >= self._sent + self._terms.deadline:
            # The term before is over, whether or not somebody has noticed yet. The next one begins by taking.
            self._drop()
            await self._take(renewed)
            return
        self._held, self._sent = renewed, sent
        self._look(renewed.record, self._clock())
        self._tell()

    def _begin(self, lease: Lease, sent: float) -> None:
        self._held, self._sent, self._term = lease, sent, self._term + 1
        self._look(lease.record, self._clock())
        self._tell()

    def _drop(self) -> None:
        self._held, self._sent = None, -math.inf
        self._tell()

    # Waiting

    def _tell(self) -> None:
        self._changed.set()

    async def _until(self, true: Callable[[], bool]) -> None:
        """Return once `true` is: looked at after each change, and whenever the time alone can have made it so."""
        while not true():
            self._changed.clear()
            moments = (self._not_before, self._sent + self._terms.deadline)
            now = self._clock()
            next_one = min((at - now for at in moments if at > now), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(next_one):
                    await self._changed.wait()
