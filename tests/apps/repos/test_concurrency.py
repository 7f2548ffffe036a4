"""Locks and deduplication within one process: as the document has them, without its admitted holes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from solely import Busy, InvalidInput
from solely.apps.repos.concurrency import (
    DeduplicationStore,
    DistributedLock,
    MemoryDedup,
    MemoryLock,
    ProcessedIssueTracker,
    ReviewedMRTracker,
)
from solely.testing.clock import ManualClock
from tests.conftest import PATIENT

URL = "https://gitlab.com/group/project.git"
BOUND = 10_000
MILLION = 1_000_000
TOGETHER = 500  # locks that are acquired at once, which share the work of a batch


@pytest.fixture
async def lock() -> AsyncIterator[MemoryLock]:
    made = MemoryLock()
    yield made
    await made.aclose()


def calls_of(work: Callable[[], Any]) -> int:
    """How many functions it calls, built-in ones included: the same on any machine."""
    count = 0

    def counting(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


async def test_both_protocols_are_recognized_at_run_time(lock: MemoryLock) -> None:
    assert isinstance(lock, DistributedLock)
    assert isinstance(MemoryDedup(), DeduplicationStore)
    assert not isinstance(MemoryDedup(), DistributedLock)
    assert not isinstance(object(), DeduplicationStore)


# -- MemoryLock


async def test_one_holder_at_a_time_has_the_key_in_the_order_of_arrival(lock: MemoryLock) -> None:
    order, inside = list[int](), 0

    async def work(number: int) -> None:
        nonlocal inside
        async with lock.acquire(URL):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            order.append(number)
            inside -= 1

    await asyncio.gather(*(work(number) for number in range(20)))
    assert order == list(range(20))


async def test_keys_do_not_wait_for_each_other_and_an_error_releases(lock: MemoryLock) -> None:
    async with lock.acquire("one"), lock.acquire("two"):
        pass
    with pytest.raises(ZeroDivisionError):
        async with lock.acquire("one"):
            raise ZeroDivisionError
    async with asyncio.timeout(PATIENT), lock.acquire("one"):
        pass


async def test_the_wait_is_bounded_and_says_who_holds_the_key() -> None:
    lock = MemoryLock(wait=0.01)
    async with lock.acquire(URL):
        with pytest.raises(Busy, match="held by"):
            async with lock.acquire(URL):
                pytest.fail("two holders")
    await lock.aclose()


async def test_a_cancelled_waiter_leaves_nothing_behind(lock: MemoryLock) -> None:
    async with lock.acquire(URL):
        waiter = asyncio.create_task(lock.acquire(URL).__aenter__())
        await asyncio.sleep(0.01)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
    async with asyncio.timeout(PATIENT), lock.acquire(URL):
        assert len(lock) == 1


def evictions(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int, int, int]]:
    """The warnings of evictions so far: their names, and what they counted."""
    return [
        (record.message.partition(":")[0], *(vars(record)[fact] for fact in ("count", "max_size", "current_size")))
        for record in caplog.records
        if (record.name, record.levelname) == ("solely.repos", "WARNING")
    ]


async def test_held_locks_are_never_evicted_and_the_least_recently_used_go_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lock = MemoryLock(max_size=2)
    async with lock.acquire("held"), lock.acquire("held too"), lock.acquire("and this"):
        assert len(lock) == 3
        async with lock.acquire("used"):
            pass
        assert set(lock._used) == {"held", "held too", "and this"}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), lock.acquire("held"):
                pytest.fail("two holders")
    assert len(lock) == 2
    assert list(lock._unused) == ["held too", "held"], "the last ones to be released"
    assert evictions(caplog)[0] == ("repo_lock_eviction", 1, 2, 3)
    await lock.aclose()


async def _lock_all(lock: MemoryLock, keys: int) -> None:
    async def one(number: int) -> None:
        async with lock.acquire(f"repository-{number}"):
            pass

    for start in range(0, keys, TOGETHER):
        await asyncio.gather(*(one(number) for number in range(start, min(keys, start + TOGETHER))))


@pytest.mark.only_with_all
@pytest.mark.timeout(1200)  # more than a minute of one core, of which a busy machine gives a tenth
async def test_a_million_locks_through_a_bound_of_ten_thousand() -> None:
    lock = MemoryLock(max_size=BOUND)
    async with lock.acquire("held throughout"):
        await _lock_all(lock, MILLION)
        assert "held throughout" in lock._used
    assert len(lock) == BOUND
    await lock.aclose()


def test_the_work_of_a_lock_does_not_grow_with_the_locks_that_are_held() -> None:
    """The document's eviction looks at every held lock again at each release."""

    async def calls(held: int) -> int:
        lock = MemoryLock(max_size=10)
        holders = [lock.acquire(f"held-{number}") for number in range(held)]
        for each in holders:
            await each.__aenter__()
        before = [lock._used.total(), len(lock)]
        counted = calls_of(lambda: _pass_through(lock, 1000))
        assert before == [held, held]
        for each in holders:
            await each.__aexit__(None, None, None)
        await lock.aclose()
        return counted

    few, many = asyncio.run(calls(20)), asyncio.run(calls(2000))
    assert many <= few * 1.1


def _pass_through(lock: MemoryLock, keys: int) -> None:
    for number in range(keys):
        lock._used[f"passing-{number}"] += 1
        lock._leave(f"passing-{number}")


# -- MemoryDedup


async def test_a_key_is_seen_after_it_was_marked_until_its_ttl_ends() -> None:
    clock = ManualClock()
    dedup = MemoryDedup(clock=clock)
    assert not await dedup.is_seen("review:42:7:abc")
    await dedup.mark_seen("review:42:7:abc", ttl_seconds=60)
    await dedup.mark_seen("an hour by default")
    clock.advance(59)
    assert await dedup.is_seen("review:42:7:abc")
    clock.advance(2)
    assert not await dedup.is_seen("review:42:7:abc")
    assert await dedup.is_seen("an hour by default")
    clock.advance(3600)
    assert not await dedup.is_seen("an hour by default")


async def test_first_is_true_once_and_a_second_mark_never_shortens() -> None:
    clock = ManualClock()
    dedup = MemoryDedup(clock=clock)
    assert [await dedup.first("key", 60) for _ in range(3)] == [True, False, False]
    await dedup.mark_seen("key", 1)
    clock.advance(30)
    assert await dedup.is_seen("key")
    clock.advance(31)
    assert await dedup.first("key", 60)


async def test_over_the_bound_the_older_half_is_evicted_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    dedup = MemoryDedup(max_size=10)
    for number in range(11):
        await dedup.mark_seen(f"key-{number}")
    assert [number for number in range(11) if await dedup.is_seen(f"key-{number}")] == [6, 7, 8, 9, 10]
    assert evictions(caplog) == [("dedup_store_eviction", 6, 10, 5)]
    tiny = MemoryDedup(max_size=1)
    await tiny.mark_seen("one")
    await tiny.mark_seen("two")
    assert (await tiny.is_seen("one"), await tiny.is_seen("two")) == (False, True)
    with pytest.raises(InvalidInput, match="max_size=0"):
        MemoryDedup(max_size=0)


def test_a_million_keys_through_a_bound_of_ten_thousand_take_linear_time() -> None:
    """Ten times the keys are ten times the calls: no eviction looks at what stays."""

    async def mark(dedup: MemoryDedup, keys: int) -> None:
        for number in range(keys):
            await dedup.mark_seen(f"key-{number}")

    def calls(keys: int) -> int:
        dedup = MemoryDedup(max_size=1_000)
        counted = calls_of(lambda: asyncio.run(mark(dedup, keys)))
        assert len(dedup) <= 1_000
        return counted

    few, many = calls(5_000), calls(50_000)
    assert many <= 10.5 * few
    dedup = MemoryDedup(max_size=BOUND)
    asyncio.run(mark(dedup, MILLION))
    assert BOUND // 2 <= len(dedup) <= BOUND


# -- trackers


def test_reviewed_merge_requests_and_processed_issues_are_tracked_within_bounds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reviewed, processed = ReviewedMRTracker(max_size=4), ProcessedIssueTracker(max_size=4)
    for number in range(5):
        assert not reviewed.is_reviewed(42, number, "abc")
        reviewed.mark(42, number, "abc")
        processed.mark(f"PROJ-{number}")
    assert [reviewed.is_reviewed(42, number, "abc") for number in range(5)] == [False, False, False, True, True]
    assert not reviewed.is_reviewed(42, 4, "another commit")
    assert [processed.is_processed(f"PROJ-{number}") for number in range(5)] == [False, False, False, True, True]
    assert evictions(caplog) == [("reviewed_mr_eviction", 3, 4, 2), ("processed_issue_eviction", 3, 4, 2)]
