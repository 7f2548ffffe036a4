"""The mutex of the document: one probe per URL at a time, with its backoff, its log lines and its status."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import AsyncIterator

import pytest

from solely import AsyncClient
from solely.apps.probes.mutex import PREFIX, ProbeMutex
from solely.testing.clock import ManualClock

URL = "https://shop.example/login"


class Pauses:
    """Counts how long it was slept, and does not sleep."""

    def __init__(self) -> None:
        self.all: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.all.append(seconds)


@pytest.fixture
async def once() -> AsyncIterator[AsyncClient]:
    async with AsyncClient("memory://") as it:
        yield it


def test_the_key_is_the_first_16_hex_digits_of_sha_256_of_the_url() -> None:
    assert ProbeMutex.target_key(URL) == hashlib.sha256(URL.encode()).hexdigest()[:16]
    assert ProbeMutex.target_key(URL) != ProbeMutex.target_key(URL + "/")


async def test_jitter_stays_within_20_percent_and_the_sequence_is_2_5_10_10_in_10_000_draws(once: AsyncClient) -> None:
    mutex, bases = ProbeMutex(once, chance=random.Random(7)), (2.0, 5.0, 10.0, 10.0)
    for attempt, base in enumerate(bases, 1):
        drawn = [mutex.backoff(attempt) for _ in range(10_000)]
        assert base * 0.8 <= min(drawn) < base * 0.81
        assert base * 1.19 < max(drawn) <= base * 1.2
        assert abs(sum(drawn) / len(drawn) - base) < base * 0.01  # spread evenly, to either side
    between = [mutex.apply_jitter(0.1) for _ in range(10_000)]
    assert 0.08 <= min(between) < max(between) <= 0.12


async def test_a_free_mutex_is_acquired_at_once_and_a_held_one_is_retried_once_after_a_pause(once: AsyncClient) -> None:
    pauses = Pauses()
    mutex = ProbeMutex(once, sleep=pauses)
    held, tries = await mutex.acquire(URL, max_hold=60)
    assert (bool(held), tries, pauses.all) == (True, 1, [])
    refused, tries = await mutex.acquire(URL, max_hold=60)
    assert (bool(refused), tries) == (False, 2)
    assert [1.6 <= pause <= 2.4 for pause in pauses.all] == [True]
    assert (await mutex.acquire(URL + "/other", max_hold=60))[0]  # another target is free
    assert held
    assert await mutex.release(URL, held)
    assert (await mutex.acquire(URL, max_hold=60))[0]


async def test_who_asks_again_and_again_lets_a_scheduled_probe_go_first(once: AsyncClient) -> None:
    replicas = [ProbeMutex(once, sleep=Pauses(), retries=0) for _ in range(2)]
    asked, _ = await replicas[0].acquire(URL, max_hold=60, scheduled=False)
    assert asked
    assert not (await replicas[1].acquire(URL, max_hold=60))[0]
    await replicas[0].release(URL, asked, scheduled=False)
    for replica in replicas:
        assert not (await replica.acquire(URL, max_hold=60, scheduled=False))[0]
    held, _ = await replicas[1].acquire(URL, max_hold=60)
    assert held
    await replicas[1].release(URL, held)
    assert (await replicas[0].acquire(URL, max_hold=60, scheduled=False))[0]


async def test_the_backoff_escalates_over_all_replicas_and_starts_again_when_it_is_acquired(once: AsyncClient) -> None:
    pauses = Pauses()
    replicas = [ProbeMutex(once, sleep=pauses, retries=1, jitter=0.0) for _ in range(3)]
    held, _ = await replicas[0].acquire(URL, max_hold=60)
    assert held
    for replica in (replicas[1], replicas[2]):
        assert not (await replica.acquire(URL, max_hold=60))[0]
    assert pauses.all == [2.0, 10.0]  # after the first and the third refusal; the second and fourth are given up
    assert (await replicas[0].status()).backoff_attempts == {ProbeMutex.target_key(URL): 4}
    await replicas[0].release(URL, held)
    held, _ = await replicas[1].acquire(URL, max_hold=60)
    assert (await replicas[0].status()).backoff_attempts == {}
    assert not (await replicas[2].acquire(URL, max_hold=60))[0]
    assert pauses.all == [2.0, 10.0, 2.0]


async def test_the_number_of_retries_is_a_setting(once: AsyncClient) -> None:
    pauses = Pauses()
    await ProbeMutex(once).acquire(URL, max_hold=60)
    refused, tries = await ProbeMutex(once, sleep=pauses, retries=3, jitter=0.0).acquire(URL, max_hold=60)
    assert (bool(refused), tries, pauses.all) == (False, 4, [2.0, 5.0, 10.0])
    refused, tries = await ProbeMutex(once, sleep=pauses, retries=0).acquire(URL, max_hold=60)
    assert (bool(refused), tries, len(pauses.all)) == (False, 1, 3)


async def test_a_mutex_whose_holder_has_died_expires_after_60_seconds() -> None:
    clock = ManualClock()
    async with AsyncClient("memory://", clock=clock) as once:
        dead = await once.reserve(PREFIX + ProbeMutex.target_key(URL), hold=60, quiet=0, renew=False)
        mutex = ProbeMutex(once, retries=0)
        clock.advance(59.9)
        assert not (await mutex.acquire(URL, max_hold=60))[0]
        clock.advance(0.2)
        held, _ = await mutex.acquire(URL, max_hold=60)
        assert held
        assert held.fence > dead.fence
        assert not await mutex.release(URL, dead)  # the one that comes too late learns that it was
        assert (await mutex.status()).active_probes == 1


async def test_the_three_log_lines_have_the_levels_of_the_document(
    once: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "solely.probes")
    mutex, key = ProbeMutex(once, sleep=Pauses(), retries=0, jitter=0.0), ProbeMutex.target_key(URL)
    held, _ = await mutex.acquire(URL, max_hold=60)
    assert held
    await mutex.acquire(URL, max_hold=60)
    await mutex.release(URL, held)
    assert [(each.levelname, each.getMessage()) for each in caplog.records if each.name == "solely.probes"] == [
        ("DEBUG", f"PROBE MUTEX: Acquired lock for {key}"),
        ("INFO", f"PROBE MUTEX: Lock held for {key}, backoff=2.0s"),
        ("DEBUG", f"PROBE MUTEX: Released lock for {key}"),
    ]


async def test_the_status_counts_the_probes_of_all_replicas(once: AsyncClient) -> None:
    replicas = [ProbeMutex(once) for _ in range(2)]
    urls = [f"https://shop.example/{number}" for number in range(3)]
    for number, url in enumerate(urls):
        await replicas[number % 2].acquire(url, max_hold=60)
    for replica in replicas:
        status = await replica.status()
        assert (status.active_probes, status.active_probe_keys) == (3, sorted(map(ProbeMutex.target_key, urls)))


async def test_contending_replicas_never_hold_it_at_the_same_time(once: AsyncClient) -> None:
    holding = most = done = 0

    async def replica() -> None:
        nonlocal holding, most, done
        mutex = ProbeMutex(once, backoff=(0.01,), retries=1_000)
        held, _ = await mutex.acquire(URL, max_hold=60)
        assert held
        holding += 1
        most = max(most, holding)
        await asyncio.sleep(0.002)
        holding -= 1
        done += await mutex.release(URL, held)

    await asyncio.gather(*(replica() for _ in range(20)))
    assert (most, done) == (1, 20)
