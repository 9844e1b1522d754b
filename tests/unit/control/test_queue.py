"""One worker a key, no change lost, errors put off more and more, and no busy loop over a world that lags behind."""

import asyncio

import pytest

from accelerator_rollout.control.queue import KeyedQueue


@pytest.fixture
def queue() -> KeyedQueue[str]:
    return KeyedQueue(first_delay=0.02, longest_delay=0.2, moved_delay=0.01)


async def is_empty(queue: KeyedQueue[str], seconds: float = 0.0) -> bool:
    try:
        async with asyncio.timeout(seconds or 0.001):
            await queue.get()
    except TimeoutError:
        return True
    return False


async def test_a_key_waits_once(queue: KeyedQueue[str]) -> None:
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert queue.depth == 2
    assert [await queue.get(), await queue.get()] == ["a", "b"]


async def test_a_key_that_is_worked_on_comes_back_only_afterwards(queue: KeyedQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    assert await is_empty(queue)
    queue.done("a")
    assert await queue.get() == "a"


async def test_no_two_workers_have_the_same_key(queue: KeyedQueue[str]) -> None:
    busy: set[str] = set()
    worked = 0

    async def work() -> None:
        nonlocal worked
        while True:
            key = await queue.get()
            assert key not in busy
            busy.add(key)
            await asyncio.sleep(0)
            busy.discard(key)
            worked += 1
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(4)]
    for _ in range(200):
        for key in "abc":
            queue.add(key)
        await asyncio.sleep(0)
    for worker in workers:
        worker.cancel()
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert worked > 100


async def test_the_earliest_deadline_counts(queue: KeyedQueue[str]) -> None:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    queue.add_after("a", 5)
    queue.add_after("a", 0.02)
    queue.add_after("a", 10)
    assert await queue.get() == "a"
    assert loop.time() - begin < 1
    queue.close()


async def test_errors_put_a_key_off_more_and_more_until_it_succeeds(queue: KeyedQueue[str]) -> None:
    delays = []
    for _ in range(8):
        queue.add("a")
        await queue.get()
        delays.append(queue.failed("a"))
        queue.close()
    assert delays[3] > delays[0]
    assert max(delays) <= 0.2 * 1.25
    queue.add("a")
    await queue.get()
    queue.done("a")
    queue.add("a")
    await queue.get()
    assert queue.failed("a") <= 0.02 * 1.25
    queue.close()


async def test_the_servers_own_wish_is_the_least_wait(queue: KeyedQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    assert queue.failed("a", 7.0) == 7.0
    queue.close()


async def test_a_failing_key_is_not_hurried_by_what_changed_meanwhile(queue: KeyedQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.failed("a", 5.0)
    assert await is_empty(queue)
    queue.close()


async def test_a_world_that_moved_is_looked_at_at_once_if_it_was_heard_of(queue: KeyedQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.moved("a")
    assert not await is_empty(queue)


async def test_a_world_that_moved_unheard_is_looked_at_later_and_later(queue: KeyedQueue[str]) -> None:
    loop = asyncio.get_running_loop()
    waits = []
    queue.add("a")
    for _ in range(4):
        begin = loop.time()
        await queue.get()
        waits.append(loop.time() - begin)
        queue.moved("a")
    assert waits[1] > 0.005
    assert waits[3] > waits[1]
    queue.close()


async def test_a_forgotten_key_does_not_come_back(queue: KeyedQueue[str]) -> None:
    queue.add_after("a", 0.01)
    queue.forget("a")
    assert await is_empty(queue, 0.05)


async def test_it_tells_how_long_keys_wait() -> None:
    waits: list[float] = []
    queue = KeyedQueue[str](waited=waits.append)
    queue.add("a")
    await asyncio.sleep(0.02)
    await queue.get()
    assert waits[0] >= 0.015
