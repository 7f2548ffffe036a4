"""Bugs that peers ship, by number, each shown absent: on real servers through the fault proxy, or in processes."""

import asyncio
import binascii
import hashlib
import math
import time
import zlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import solely
from solely import AsyncClient, Released, State
from solely.events import Renewed
from solely.testing.proxy import FaultProxy
from tests.client.concurrently import concurrently
from tests.client.modes import Observer
from tests.client.wire import acquires, others
from tests.client.worker import Worker
from tests.conftest import in_collection
from tests.mongo_server import Mongod

PATIENT = 4.0  # seconds: two tries of 1.4 s, which no busy machine needs for one answer
SOON = 20.0  # seconds: well below the ttl of 30 that a client blocked by its own key would wait for


@concurrently()
async def test_bug_01_reply_of_acquire_lost_does_not_block_its_own_client(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any], beside: Observer
) -> None:
    once = open_client(proxied_url, timeout=PATIENT)
    for then in ("hang", "reset", "close"):
        fault = proxy.drop_replies(answering=acquires("a"), then=then)
        start = time.monotonic()
        lease = await once.lock("a", ttl=30, wait=SOON)
        assert fault.hits == 1
        assert time.monotonic() - start < SOON
        assert beside.lock("a").fence == lease.fence
        assert await lease.release() is Released.RELEASED
        assert beside.lock("a").state is State.FREE


async def test_bug_01_holds_for_try_lock_and_lock_all_as_well(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any], beside: Observer
) -> None:
    once = open_client(proxied_url, timeout=PATIENT)
    fault = proxy.drop_replies(answering=acquires("a"), then="reset")
    lease = await once.try_lock("a", ttl=30)
    assert lease is not None
    assert fault.hits == 1
    await lease.release()
    fault = proxy.drop_replies(answering=acquires("b"), then="reset")
    async with once.lock_all(["a", "b"], ttl=30, wait=0):
        assert fault.hits == 1
    assert beside.lock("a").state is beside.lock("b").state is State.FREE


@concurrently()
async def test_reply_of_a_resume_lost_is_the_same_grant_when_repeated(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any], beside: Observer
) -> None:
    once = open_client(proxied_url, timeout=PATIENT)
    for then in ("hang", "reset", "close"):
        given = await once.lock("a", ttl=30)
        fault = proxy.drop_replies(answering=acquires("a"), then=then)
        lease = await once.resume(given.hand_over())
        assert fault.hits == 1
        assert beside.lock("a").fence == lease.fence > given.fence
        assert await lease.release() is Released.RELEASED
        assert beside.lock("a").state is State.FREE


async def test_bug_01_reply_of_first_lost_is_still_first(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any]
) -> None:
    once = open_client(proxied_url, timeout=PATIENT)
    fault = proxy.drop_replies(answering=lambda request: b"mark/a" in request, then="reset")
    assert await once.first("a")
    assert fault.hits == 1
    assert not await once.first("a")


@concurrently()
async def test_bug_02_reply_of_release_lost_is_still_released(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any], beside: Observer
) -> None:
    once = open_client(proxied_url, timeout=PATIENT)
    for then in ("hang", "reset", "close"):
        lease = await once.lock("a", ttl=30)
        fault = proxy.drop_replies(answering=others("a"), then=then)
        assert await lease.release() is Released.RELEASED
        assert fault.hits == 1
        assert beside.lock("a").state is State.FREE
    async with once.lock("a", ttl=30):
        fault = proxy.drop_replies(answering=others("a"), then="reset")
    assert fault.hits == 1


@concurrently("asyncio")
async def test_bug_03_acquire_cancelled_after_the_command_left_leaves_nothing_held(
    proxied_url: str, proxy: FaultProxy, beside: Observer
) -> None:
    async with AsyncClient(proxied_url, timeout=PATIENT) as once:
        await once.seen("warm")
        for then in ("hang", "reset"):
            fault = proxy.drop_replies(answering=acquires("a"), then=then)
            task = asyncio.ensure_future(_take(once, "a"))
            assert await asyncio.to_thread(fault.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert beside.lock("a").state is State.FREE


@concurrently()
async def test_bug_04_an_expired_holder_does_not_release_its_successor(once: Any, observer: Observer) -> None:
    expired = await once.lock("a", ttl=1.0, renew=False, on_lost="flag")
    successor = await once.lock("a", ttl=30, wait=SOON)
    assert await expired.release() is Released.EXPIRED
    assert observer.lock("a").fence == successor.fence
    assert await successor.release() is Released.RELEASED


@concurrently()
async def test_bug_05_renewal_survives_errors_and_the_holder_is_told_when_it_cannot(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any], beside: Observer
) -> None:
    renewed: SimpleQueue[Renewed] = SimpleQueue()
    once = open_client(proxied_url, timeout=2.0, hooks=[lambda event: keep(renewed, event)])
    lease = await once.lock("a", ttl=5.0, on_lost="flag")  # 2.5 s for a renewal, whatever befalls it
    for _ in range(2):
        proxy.reset()
        await asyncio.to_thread(renewed.get, timeout=30)
    fault = proxy.drop_replies(answering=others("a"), then="reset")
    assert await asyncio.to_thread(fault.wait, 30)
    for _ in range(2):  # the first may be what the lost reply was about
        await asyncio.to_thread(renewed.get, timeout=30)
    assert fault.hits == 1
    assert not lease.lost
    assert beside.lock("a").fence == lease.fence
    proxy.refuse()
    proxy.reset()
    start = time.monotonic()
    while not lease.lost:
        assert time.monotonic() - start < 30
        await asyncio.sleep(0.01)
    assert beside.lock("a").state is State.HELD or time.monotonic() - start > 4.9
    proxy.heal()


def keep(events: SimpleQueue[Renewed], event: solely.Event) -> None:
    """Puts the event aside if it is a renewal."""
    if isinstance(event, Renewed):
        events.put(event)


async def test_bug_06_no_expiry_is_refused_and_the_longest_ttl_locks(once: Any, other: Any) -> None:
    for endless in (None, math.inf, -1, 0, 1e300):
        with pytest.raises(solely.InvalidInput):
            await once.lock("a", ttl=endless)
        assert await once.first(f"unharmed {endless}", ttl=60)
    async with once.lock("a", ttl=366 * 86_400, renew=False):
        assert await other.try_lock("a") is None
        with pytest.raises(solely.Busy) as refusal:
            await other.lock("a", wait=0.05)
        assert refusal.value.left == pytest.approx(366 * 86_400, abs=60)
    assert await other.try_lock("a") is not None


@concurrently()
async def test_bug_07_a_waiter_heeds_the_holders_remaining_time(once: Any, other: Any) -> None:
    await once.seen("warm")
    start = time.monotonic()
    await other.lock("a", ttl=2.0, renew=False)
    lease = await once.lock("a", ttl=30, wait=60)
    assert 1.8 < time.monotonic() - start < 20
    assert 0.3 < lease.waited < 20


def _colliding(fold: Callable[[bytes], int]) -> tuple[str, str]:
    """Two key names that a fold to 16 bits makes one."""
    names: dict[int, str] = {}
    for number in range(70_000):
        name = f"job:{number}"
        if names.setdefault(fold(name.encode()), name) != name:
            return names[fold(name.encode())], name
    raise AssertionError("no fold to 16 bits has room for 70,000 names")


FOLDS: dict[str, Callable[[bytes], int]] = {
    "crc16": lambda data: binascii.crc_hqx(data, 0),
    "crc32": lambda data: zlib.crc32(data) & 0xFFFF,
    "adler32": lambda data: zlib.adler32(data) & 0xFFFF,
    "md5": lambda data: int.from_bytes(hashlib.md5(data).digest()[:2]),
    "sha1": lambda data: int.from_bytes(hashlib.sha1(data).digest()[:2]),
    "sha256": lambda data: int.from_bytes(hashlib.sha256(data).digest()[:2]),
    "crc32 high": lambda data: zlib.crc32(data) >> 16,
}


async def test_bug_08_names_that_collide_when_folded_are_still_two_locks(once: Any, other: Any) -> None:
    for fold in FOLDS.values():
        first, second = _colliding(fold)
        async with once.lock(first, ttl=30), other.lock(second, ttl=30, wait=0):
            pass
        assert await once.first(first)
        assert await other.first(second)
        await once.forget(first)
        await once.forget(second)


async def test_bug_12_a_whole_day_is_a_day(once: Any, observer: Observer) -> None:
    day = timedelta(days=1)
    async with once.lock("a", ttl=day):
        assert observer.lock("a").left == pytest.approx(86_400, abs=60)
    await once.first("a", ttl=day)
    assert observer.mark("a").left == pytest.approx(86_400, abs=60)
    assert await once.first_many(["b"], ttl=timedelta(days=2, seconds=1)) == [True]
    assert observer.mark("b").left == pytest.approx(172_801, abs=60)


def test_bug_13_four_processes_on_one_sqlite_file_meet_no_locked_database(
    tmp_path: Path, start_worker: Callable[..., Worker]
) -> None:
    url = f"sqlite:///{tmp_path / 'shared.sqlite3'}"
    body = (
        "done, ends = 0, time.monotonic() + 2.0\n"
        "while time.monotonic() < ends:\n"
        "    once.first(f'own-{os.getpid()}-{done}', ttl=60)\n"
        "    once.first(f'same-{done % 50}', ttl=60)\n"
        "    lease = once.try_lock('shared', ttl=30)\n"
        "    if lease:\n"
        "        lease.release()\n"
        "    done += 1\n"
        "done"
    )
    workers = [start_worker(url) for _ in range(4)]
    for worker in workers:
        worker.run("once.seen('x')")
    for worker in workers:
        worker.tell(body)
    rounds = [worker.answer() for worker in workers]  # any "database is locked" would be raised here
    assert min(rounds) > 10
    with solely.Client(url) as once:
        marks = [f"own-{w.pid}-{n}" for w, done in zip(workers, rounds, strict=True) for n in range(done)]
        assert not any(once.first_many(marks))


# -- the ghost: an acquire that the network delivers after its own undoing


@concurrently()
async def test_an_acquire_delivered_after_its_compensating_release_takes_nothing(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any], beside: Observer
) -> None:
    once = open_client(proxied_url, timeout=5.0)  # for two tries at least, on a busy machine too
    await once.seen("warm")
    fault = proxy.delay("to_server", None, n=100, where=acquires("a"))
    with pytest.raises(solely.StoreUnavailable):
        await once.lock("a", ttl=30, wait=5)
    assert fault.hits >= 2
    before = proxy.seen["to_server"]
    assert before > 0
    proxy.heal()  # delivers what was held
    await _stays_free(beside, "a")
    async with once.lock("a", ttl=30, wait=SOON) as lease:
        assert beside.lock("a").fence == lease.fence


@concurrently("asyncio")
async def test_a_cancelled_acquire_delivered_late_takes_nothing(
    proxied_url: str, proxy: FaultProxy, beside: Observer
) -> None:
    async with AsyncClient(proxied_url, timeout=PATIENT) as once:
        await once.seen("warm")
        fault = proxy.delay("to_server", None, n=100, where=acquires("a"))
        task = asyncio.ensure_future(_take(once, "a"))
        assert await asyncio.to_thread(fault.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        proxy.heal()
        await _stays_free(beside, "a")


@concurrently()
async def test_a_late_copy_of_an_answered_try_takes_nothing_after_the_release(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any], beside: Observer
) -> None:
    """The first try is delayed, the second is answered, the lease is used and released; then the first arrives."""
    once = open_client(proxied_url, timeout=2.0)
    await once.seen("warm")
    fault = proxy.delay("to_server", None, n=1, where=acquires("a"))
    lease = await once.lock("a", ttl=30, wait=SOON)
    assert fault.hits == 1
    assert await lease.release() is Released.RELEASED
    proxy.heal()
    await _stays_free(beside, "a")


# -- found by these tests


async def test_many_first_calls_make_the_indexes_of_mongodb_once(
    standalone: Mongod, open_client: Callable[..., Any]
) -> None:
    """Made by each caller at once they took seconds, so that what was cancelled meanwhile was not undone in time."""

    def made() -> int:
        return int(standalone.ask("serverStatus")["metrics"]["commands"]["createIndexes"]["total"])

    async def late(turns: int) -> bool:
        for _ in range(turns):
            await asyncio.sleep(0)
        return bool(await once.first(f"mark {turns}"))

    once = open_client(in_collection(standalone.url_of("solely")))
    before = made()
    assert all(await asyncio.gather(*map(late, range(24))))
    assert made() == before + 1


async def _stays_free(beside: Observer, key: str) -> None:
    for _ in range(20):
        assert beside.lock(key).state is State.FREE
        await asyncio.sleep(0.02)


async def _take(client: Any, key: str) -> Any:
    return await client.lock(key, ttl=30, wait=10)
