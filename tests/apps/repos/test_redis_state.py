"""Locks and deduplication that pods share: waits are bounded, losses are reported, and Entra ID logs in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from solely import AsyncClient, Busy, InvalidInput, LeaseLost, StoreUnavailable
from solely.apps.repos.concurrency import DeduplicationStore, DistributedLock, MemoryDedup, MemoryLock
from solely.apps.repos.redis_state import RedisDedup, RedisLock, create_dedup, create_lock
from tests.conftest import PATIENT, isolated
from tests.entra import EntraIdentity, no_thread_is_left
from tests.servers import Valkey
from tests.stores.test_credentials import Guarded

__all__ = ["no_thread_is_left"]

URL = "https://gitlab.com/group/project.git"


@pytest.fixture
def url(valkey_url: str) -> str:
    return isolated(valkey_url)


@pytest.fixture
async def pods(url: str) -> AsyncIterator[list[RedisLock]]:
    locks = [RedisLock(url, wait=0.05) for _ in range(2)]
    yield locks
    for each in locks:
        await each.aclose()


async def test_one_pod_at_a_time_has_the_key_under_its_logical_name(pods: list[RedisLock], url: str) -> None:
    one, other = pods
    assert isinstance(one, DistributedLock)
    async with one.acquire(URL), AsyncClient(url) as once:
        (held,) = await once.locks()
        assert (held.key, 290 < held.left <= 300) == (f"lock:{URL}", True)
        with pytest.raises(Busy, match="held by"):
            async with other.acquire(URL):
                pytest.fail("two holders")
    async with other.acquire(URL):
        pass


async def test_a_holder_that_lost_its_lock_does_not_release_that_of_the_next(pods: list[RedisLock], url: str) -> None:
    one, other = pods
    async with AsyncClient(url) as once:
        first = one.acquire(URL)
        await first.__aenter__()
        assert await once.clear_lock(f"lock:{URL}", reason="a test wants it")
        async with other.acquire(URL):
            with pytest.raises(LeaseLost):
                await first.__aexit__(None, None, None)
            assert [each.key for each in await once.locks()] == [f"lock:{URL}"]


async def test_marks_are_shared_persistent_and_expire(url: str) -> None:
    one, other = RedisDedup(url), RedisDedup(url)
    assert isinstance(one, DeduplicationStore)
    await one.mark_seen("review:42:7:abc", ttl_seconds=86_400)
    assert await other.is_seen("review:42:7:abc")
    assert [await each.first("note:42:7:1", 60) for each in (one, other, one)] == [True, False, False]
    await one.aclose()
    restarted = RedisDedup(url)
    assert await restarted.is_seen("review:42:7:abc")
    assert not await restarted.is_seen("review:42:7:def")
    async with AsyncClient(url) as once:
        marks = {each.key: each.left for each in await once.marks()}
    assert set(marks) == {"dedup:review:42:7:abc", "dedup:note:42:7:1"}
    assert (86_000 < marks["dedup:review:42:7:abc"] <= 86_400, marks["dedup:note:42:7:1"] <= 60) == (True, True)
    for each in (other, restarted):
        await each.aclose()


async def test_in_an_outage_waits_end_failed_renewals_are_logged_and_a_lost_lease_ends_the_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Valkey() as server:
        lock, other = RedisLock(server.url), RedisLock(server.url)

        async def wait() -> None:
            with pytest.raises(StoreUnavailable):
                async with asyncio.timeout(PATIENT), other.acquire(URL):
                    pytest.fail("nobody granted it")

        with pytest.raises(LeaseLost):
            async with asyncio.timeout(PATIENT), lock.acquire(URL, ttl_seconds=2):
                server.pause()
                waiting = asyncio.create_task(wait())
                await asyncio.sleep(PATIENT)
        await waiting
        server.resume()
        for each in (lock, other):
            await each.aclose()
    failed = [each for each in caplog.records if each.message.startswith("lock_renewal_failed: ")]
    assert {vars(each)["key"] for each in failed} == {f"lock:{URL}"}
    assert {"lost" in vars(each)["error"] for each in failed} == {True, False}, "the failure, and what it led to"
    assert {(each.name, each.levelname) for each in failed} == {("solely.repos", "WARNING")}


# -- factories


async def test_the_backend_is_chosen_by_argument_or_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATE_BACKEND", raising=False)
    made: list[Any] = [create_lock(), create_dedup(), create_lock("redis", url), create_dedup("redis", url)]
    monkeypatch.setenv("STATE_BACKEND", "redis")
    made += [create_lock(redis_url=url), create_dedup(redis_url=url), create_lock("memory"), create_dedup("memory")]
    kinds = [MemoryLock, MemoryDedup, RedisLock, RedisDedup, RedisLock, RedisDedup, MemoryLock, MemoryDedup]
    assert [type(each) for each in made] == kinds
    for each in made:
        await each.aclose()


def test_an_unknown_backend_and_a_redis_without_an_address_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_BACKEND", "memcached")
    for create in (create_lock, create_dedup):
        with pytest.raises(InvalidInput, match="'memcached' is unknown; give memory or redis"):
            create()
        with pytest.raises(InvalidInput, match="needs redis_url, or redis_host"):
            create("redis")


# -- Entra ID


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with Guarded() as server:
        server.lock_out()
        yield server


@pytest.mark.usefixtures("no_thread_is_left")
async def test_with_redis_host_the_login_is_by_entra_and_its_tokens_are_refreshed(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open connections go on as tokens change; nothing of it is left when both are closed."""
    identity = EntraIdentity(guarded, life=5.0)
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", identity)
    place: dict[str, Any] = {"redis_host": "127.0.0.1", "redis_port": guarded.port, "redis_ssl": False}
    lock = create_lock("redis", "redis://never.example.org", **place, azure_client_id="the-identity")
    dedup = create_dedup("redis", **place)
    await dedup.mark_seen("key")
    async with asyncio.timeout(PATIENT), lock.acquire(URL, ttl_seconds=2):
        while len(identity.asked) < 4:  # each of them has renewed its token, or one has twice
            assert await dedup.is_seen("key")
            await asyncio.sleep(0.01)
    assert identity.made == [{"managed_identity_client_id": "the-identity"}, {}]
    for each in (lock, dedup):
        await each.aclose()
    assert identity.closed == 2
