"""One process acts at a time: whoever holds the Lease, for as long as it can be sure that nobody else does."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from accelerator_rollout.control.leadership import AlwaysLeader, Elector, Lease, Record, Terms
from accelerator_rollout.errors import ActError, ConflictError, GoneError, UnavailableError

TERMS = Terms(duration=15, deadline=10.0, retry=2.0)


@dataclass
class Clocks:
    """True time, and for each process a clock that began somewhere else."""

    now: float = 1000.0

    def of(self, offset: float) -> Callable[[], float]:
        return lambda: self.now + offset


@dataclass
class Api:
    """The one stored Lease. Requests take as long as they are told to, and a process may be cut off."""

    clocks: Clocks
    lease: Lease | None = None
    version: int = 0
    writes: int = 0
    before: dict[str, list[Callable[[], object]]] = field(
        default_factory=dict
    )  # what happens ahead of a verb

    def put(self, record: Record) -> Lease:
        self.version += 1
        self.lease = Lease(record, str(self.version))
        return self.lease

    def holder(self) -> str:
        return self.lease.record.holder if self.lease else ""

    def edit(self, **changes: object) -> None:
        assert self.lease is not None
        self.put(replace(self.lease.record, **changes))  # type: ignore[arg-type]


class Wire:
    """The API as one process sees it."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.cut = False
        self.answers_lost = False
        self.takes = 0.0  # seconds from the server's deed to our seeing the answer

    async def read(self) -> Lease | None:
        self._arrive("read")
        return self.api.lease

    async def create(self, record: Record) -> Lease:
        self._arrive("create")
        if self.api.lease is not None:
            raise ConflictError("there is one")
        self.api.writes += 1
        uid = f"uid-{self.api.version}"
        return self._answer(
            self.api.put(replace(record, uid=uid, acquired=self._time(), renewed=self._time()))
        )

    async def write(self, old: Lease, record: Record, *, acquired: bool) -> Lease:
        self._arrive("write")
        if self.api.lease is None:
            raise GoneError("it is gone")
        if (old.version, old.record.uid) != (self.api.lease.version, self.api.lease.record.uid):
            raise ConflictError("it has changed")
        self.api.writes += 1
        since = self._time() if acquired else record.acquired
        return self._answer(self.api.put(replace(record, acquired=since, renewed=self._time())))

    def _arrive(self, verb: str) -> None:
        if self.cut:
            raise UnavailableError("no answer")
        for deed in self.api.before.pop(verb, []):
            deed()

    def _answer(self, lease: Lease) -> Lease:
        self.api.clocks.now += self.takes
        if self.answers_lost:
            raise UnavailableError("no answer")
        return lease

    def _time(self) -> str:
        return f"{self.api.clocks.now:.6f}"


class Process:
    """A candidate whose term, if it has one, is served at once."""

    def __init__(self, api: Api, name: str, offset: float = 0.0, terms: Terms = TERMS) -> None:
        self.wire = Wire(api)
        self.elector = Elector(self.wire, name, terms, api.clocks.of(offset))

    async def attempt(self) -> None:
        with contextlib.suppress(ActError):
            await self.elector.attempt()
        # As `run` does, which the tests of terms below try with real tasks.
        self.elector._serving = self.elector._term

    def acts(self) -> bool:
        return self.elector.allows()


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def api(clocks: Clocks) -> Api:
    """A Lease that was given back."""
    found = Api(clocks)
    found.put(Record("", 1, "1", "1", 7, "uid"))
    return found


@pytest.fixture
def one(api: Api) -> Process:
    return Process(api, "one", offset=-500.0)


@pytest.fixture
def two(api: Api) -> Process:
    """Its clock is an hour ahead of the other's: nothing may hang on that."""
    return Process(api, "two", offset=3600.0)


async def test_who_comes_first_holds_a_lease_that_was_given_back(
    api: Api, one: Process, two: Process
) -> None:
    await one.attempt()
    await two.attempt()
    assert (one.acts(), two.acts()) == (True, False)
    assert api.lease is not None
    assert (api.lease.record.holder, api.lease.record.transitions) == ("one", 8)


async def test_of_two_that_take_it_at_once_one_gets_it(api: Api, one: Process, two: Process) -> None:
    taken = asyncio.Event()

    def other_is_faster() -> None:
        api.edit(holder="two", duration=15)
        taken.set()

    api.before["write"] = [other_is_faster]
    await one.attempt()
    assert taken.is_set()
    assert not one.acts()
    await one.attempt()
    assert not one.acts()


async def test_of_two_that_create_it_at_once_one_gets_it(api: Api, one: Process) -> None:
    api.lease = None
    api.before["create"] = [lambda: api.put(Record("two", 15, uid="another"))]
    await one.attempt()
    await one.attempt()
    assert not one.acts()


async def test_a_holder_that_renews_stays_holder_and_nobody_else_becomes_one(
    clocks: Clocks, one: Process, two: Process
) -> None:
    for _ in range(30):
        await one.attempt()
        await two.attempt()
        assert (one.acts(), two.acts()) == (True, False)
        clocks.now += TERMS.retry


@pytest.mark.parametrize("offsets", [(0.0, 0.0), (-86400.0, 0.0), (0.0, 86400.0)])
async def test_a_cut_off_holder_has_stopped_before_another_begins(
    clocks: Clocks, api: Api, offsets: tuple[float, float]
) -> None:
    one, two = (Process(api, name, at) for name, at in zip(("one", "two"), offsets, strict=True))
    await one.attempt()
    await two.attempt()
    cut = clocks.now
    one.wire.cut = True
    stopped = began = None
    while began is None:
        clocks.now += 0.25
        if (clocks.now - cut) % TERMS.retry == 0:
            await one.attempt()
            await two.attempt()
        assert not (one.acts() and two.acts())
        stopped = stopped or (None if one.acts() else clocks.now - cut)
        began = clocks.now - cut if two.acts() else None
        assert began is not None or clocks.now - cut < 60
    assert stopped == TERMS.deadline
    assert TERMS.duration <= began <= TERMS.duration + TERMS.retry


async def test_no_write_may_be_under_way_when_another_begins(clocks: Clocks, one: Process) -> None:
    await one.attempt()
    assert one.elector.seconds_left() == TERMS.duration
    clocks.now += 9.0
    assert one.elector.seconds_left() == 6.0
    clocks.now += 9.0
    assert one.elector.seconds_left() == 0.0


async def test_time_counts_from_when_a_renewal_was_sent_and_not_from_its_answer(
    clocks: Clocks, one: Process
) -> None:
    one.wire.takes = 9.0
    await one.attempt()
    assert one.acts()
    clocks.now += 1.0
    assert not one.acts()


async def test_a_renewal_that_is_answered_after_the_deadline_begins_a_new_term(
    clocks: Clocks, api: Api, one: Process
) -> None:
    await one.attempt()
    first = one.elector._term
    clocks.now += 4.0
    one.wire.takes = 7.0
    try:
        await one.elector.attempt()
    finally:
        one.wire.takes = 0.0
    assert one.elector._term > first
    assert not one.acts()  # what is still under way was decided in the term before
    assert api.holder() == "one"


async def test_a_holder_that_was_stopped_past_its_lease_does_not_act_when_it_goes_on(
    clocks: Clocks, one: Process, two: Process
) -> None:
    await one.attempt()
    await two.attempt()
    clocks.now += 16.0
    await two.attempt()
    assert two.acts()
    assert not one.acts()  # asked before it has looked at the Lease
    await one.attempt()
    assert (one.acts(), two.acts()) == (False, True)


async def test_a_lease_is_not_taken_over_by_one_that_has_just_come(
    clocks: Clocks, api: Api, two: Process
) -> None:
    """Its times may be years old: they are another machine's."""
    api.edit(holder="one", duration=15, renewed="2001-01-01T00:00:00.000000Z")
    await two.attempt()
    clocks.now += 14.9
    await two.attempt()
    assert not two.acts()
    clocks.now += 0.1
    await two.attempt()
    assert two.acts()


async def test_a_holders_longer_duration_is_waited_for(clocks: Clocks, api: Api, two: Process) -> None:
    api.edit(holder="one", duration=60)
    await two.attempt()
    clocks.now += 59.0
    await two.attempt()
    assert not two.acts()
    clocks.now += 1.0
    await two.attempt()
    assert two.acts()


async def test_what_is_given_back_is_taken_at_once(api: Api, one: Process, two: Process) -> None:
    await one.attempt()
    await two.attempt()
    one.elector.stand_down()
    assert not one.acts()
    await one.elector.release()
    await two.attempt()
    assert two.acts()


async def test_a_name_that_a_person_took_out_is_no_giving_back(
    clocks: Clocks, api: Api, one: Process, two: Process
) -> None:
    await one.attempt()
    api.edit(holder="")
    await two.attempt()
    assert one.acts()  # it cannot know yet
    assert not two.acts()


async def test_only_ones_own_lease_is_given_back(api: Api, one: Process, two: Process) -> None:
    await one.attempt()
    await two.attempt()
    before = api.writes
    await two.elector.release()
    api.edit(holder="three")
    await one.elector.release()
    assert api.writes == before
    assert api.holder() == "three"


async def test_a_renewal_without_an_answer_does_not_keep_it_from_being_given_back(
    api: Api, one: Process
) -> None:
    await one.attempt()
    one.wire.answers_lost = True
    await one.attempt()
    one.wire.answers_lost = False
    await one.elector.release()
    assert api.holder() == ""


async def test_a_deleted_lease_ends_the_term_and_its_creator_waits(
    clocks: Clocks, api: Api, one: Process, two: Process
) -> None:
    await one.attempt()
    await two.attempt()
    one.wire.cut = True
    api.lease = None
    await two.attempt()  # creates it
    assert api.holder() == "two"
    assert one.acts()  # cut off: it cannot know
    assert not two.acts()
    waited = 0.0
    while not two.acts():
        clocks.now += 1.0
        waited += 1.0
        await two.attempt()
        assert not (one.acts() and two.acts())
    assert waited == TERMS.duration
    one.wire.cut = False
    await one.attempt()
    assert not one.acts()


async def test_a_holder_that_finds_its_lease_deleted_stops_at_once(
    clocks: Clocks, api: Api, one: Process
) -> None:
    await one.attempt()
    api.lease = None
    await one.attempt()
    assert not one.acts()
    clocks.now += TERMS.duration - 1
    await one.attempt()
    assert not one.acts()
    clocks.now += 1
    await one.attempt()
    assert one.acts()


async def test_a_lease_that_was_created_is_not_given_back_while_somebody_may_still_act(
    api: Api, two: Process
) -> None:
    api.lease = None
    await two.attempt()
    await two.elector.release()
    assert api.holder() == "two"


async def test_a_label_on_the_lease_harms_nobody(api: Api, one: Process) -> None:
    await one.attempt()
    first = one.elector._term
    api.edit()
    await one.attempt()
    assert one.acts()
    assert one.elector._term == first


async def test_a_lost_answer_to_taking_it_costs_one_look(api: Api, one: Process) -> None:
    one.wire.answers_lost = True
    await one.attempt()
    assert not one.acts()
    one.wire.answers_lost = False
    await one.attempt()
    assert one.acts()


# Terms, with real tasks


QUICK = Terms(duration=3, deadline=1.0, retry=0.02)  # a busy machine may stop us for some tenths


async def leading(process: Process, log: list[str]) -> None:
    async def lead() -> None:
        log.append("begins")
        try:
            await asyncio.Event().wait()
        finally:
            log.append("is cancelled")

    await process.elector.run(lead)


async def seen(log: list[str], wanted: list[str]) -> None:
    async with asyncio.timeout(5):
        while log != wanted:  # noqa: ASYNC110 - a list calls nobody
            await asyncio.sleep(0.005)


async def test_a_term_ends_at_the_deadline_although_nobody_answers_and_a_new_one_begins_later() -> None:
    api = Api(Clocks())
    api.put(Record("", 1, uid="uid"))
    one = Process(api, "one")
    one.elector = Elector(one.wire, "one", QUICK)
    log: list[str] = []
    running = asyncio.create_task(leading(one, log))
    await seen(log, ["begins"])
    assert one.acts()
    one.wire.cut = True
    await seen(log, ["begins", "is cancelled"])
    assert not one.acts()
    one.wire.cut = False
    await seen(log, ["begins", "is cancelled", "begins"])
    assert one.acts()
    running.cancel()
    await asyncio.wait([running])
    assert log[-1] == "is cancelled"
    assert not one.acts()


async def test_standing_down_cancels_nothing_that_waits_for_its_answer() -> None:
    api = Api(Clocks())
    api.put(Record("", 1, uid="uid"))
    one = Process(api, "one")
    one.elector = Elector(one.wire, "one", QUICK)
    log: list[str] = []
    running = asyncio.create_task(leading(one, log))
    await seen(log, ["begins"])
    one.elector.stand_down()
    await asyncio.sleep(0)
    assert not one.acts()
    assert log == ["begins"]
    running.cancel()
    await asyncio.wait([running])


async def test_what_goes_wrong_in_a_term_ends_the_process() -> None:
    api = Api(Clocks())
    api.put(Record("", 1, uid="uid"))
    elector = Elector(Wire(api), "one", QUICK)

    async def lead() -> None:
        raise RuntimeError("a defect")

    with pytest.raises(ExceptionGroup) as group:
        await elector.run(lead)
    assert str(group.value.exceptions[0]) == "a defect"


async def test_without_an_election_everything_is_allowed_until_the_end() -> None:
    alone = AlwaysLeader()
    assert alone.allows()
    alone.stand_down()
    assert not alone.allows()
