"""lock_all: all keys or none; callers whose sets overlap neither deadlock nor starve."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

import solely
from solely import Released, State
from tests.client.concurrently import concurrently
from tests.client.modes import Observer
from tests.client.worker import Worker

WORKERS, ROUNDS = 8, 6
OVERLAPPING = [["a", "b"], ["b", "c"], ["c", "a"], ["a", "b", "c"], ["c", "b"], ["d", "a"], ["b", "d"], ["d", "c", "a"]]


async def test_all_keys_are_held_in_the_order_given_and_let_go_together(once: Any, observer: Observer) -> None:
    async with once.lock_all(["c", "a", "b"], ttl=30) as leases:
        assert [leases[n].key for n in range(3)] == ["c", "a", "b"]
        assert [observer.lock(key).state for key in "abc"] == [State.HELD] * 3
        assert not leases.lost
    assert [observer.lock(key).state for key in "abc"] == [State.FREE] * 3


async def test_a_key_given_twice_is_held_once(once: Any, observer: Observer) -> None:
    leases = await once.lock_all(["a", "b", "a"], ttl=30)
    assert await leases.release() == [Released.RELEASED] * 2
    assert observer.lock("a").state is State.FREE


async def test_none_is_held_if_one_cannot_be_had(once: Any, other: Any, observer: Observer) -> None:
    async with other.lock("b", ttl=30, purpose="in the way"):
        with pytest.raises(solely.Busy, match="in the way") as refusal:
            await once.lock_all(["a", "b", "c"], ttl=30, wait=0.2)
        assert refusal.value.key == "b"
        with pytest.raises(solely.Busy, match="in the way"):
            await once.lock_all(["a", "b", "c"], ttl=30, wait=0)
        assert [observer.lock(key).state for key in "abc"] == [State.FREE, State.HELD, State.FREE]
        assert [observer.lock(key).waiters for key in "abc"] == [0, 0, 0]


@concurrently()
async def test_it_waits_for_the_one_that_is_held(once: Any, other: Any) -> None:
    lease = await other.lock("b", ttl=30)
    waiting = asyncio.ensure_future(_hold_briefly(once, ["a", "b", "c"]))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await lease.release()
    await asyncio.wait_for(waiting, 100)


@concurrently()
async def test_keys_taken_early_are_kept_while_another_is_waited_for(once: Any, other: Any, observer: Observer) -> None:
    lease = await other.lock("z", ttl=30)
    waiting = asyncio.ensure_future(_hold_briefly(once, ["a", "z"], ttl=3.0))
    while not observer.lock("z").waiters:  # before, "a" is also held for a moment by the try to get all at once
        await asyncio.sleep(0.01)
    fence = observer.lock("a").fence
    await asyncio.sleep(4.0)
    assert observer.lock("a").fence == fence
    assert observer.lock("a").state is State.HELD
    await lease.release()
    await asyncio.wait_for(waiting, 100)


@concurrently()
async def test_overlapping_sets_neither_deadlock_nor_starve(once: Any, other: Any, observer: Observer) -> None:
    holders: dict[str, int] = dict.fromkeys("abcd", 0)
    chance = random.Random(7)

    async def worker(client: Any, keys: list[str]) -> None:
        for _ in range(ROUNDS):
            order = chance.sample(keys, len(keys))
            async with client.lock_all(order, ttl=30, wait=40):
                for key in keys:
                    holders[key] += 1
                    assert holders[key] == 1
                await asyncio.sleep(0.001)
                for key in keys:
                    holders[key] -= 1

    workers = (worker((once, other)[n % 2], keys) for n, keys in enumerate(OVERLAPPING))
    await asyncio.wait_for(asyncio.gather(*workers), 100)
    assert [observer.lock(key).state for key in "abcd"] == [State.FREE] * 4
    assert [observer.lock(key).waiters for key in "abcd"] == [0] * 4


async def test_overlapping_sets_of_8_processes_neither_deadlock_nor_starve(
    shared_url: str, start_worker: Callable[..., Worker]
) -> None:
    body = (
        "for _ in range({rounds}):\n"
        "    with once.lock_all({keys}, ttl=30, wait=40) as leases:\n"
        "        assert not leases.lost\n"
        "        time.sleep(0.001)\n"
    )
    workers = [start_worker(shared_url) for _ in OVERLAPPING]
    for worker in workers:
        worker.run("once.seen('x')")
    for worker, keys in zip(workers, OVERLAPPING, strict=True):
        worker.tell(body.format(rounds=ROUNDS, keys=keys))
    for worker in workers:
        assert worker.answer() is None
    observer = Observer(shared_url)
    assert [observer.lock(key).state for key in "abcd"] == [State.FREE] * 4
    observer.close()


async def _hold_briefly(client: Any, keys: list[str], ttl: float = 30) -> None:
    async with client.lock_all(keys, ttl=ttl, wait=20) as leases:
        assert not leases.lost
