"""One deadline for the whole call: connecting, every try and undoing together take no longer than the timeout."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import solely
from solely import AsyncClient, Client
from solely.ops import Op, Release
from solely.stores import open_async_store, open_store
from solely.testing.proxy import FaultProxy
from tests.client.concurrently import concurrently
from tests.client.modes import InThread, in_thread
from tests.lateness import Lateness, measured_lateness
from tests.service.serving import running

TIMEOUT = 2.0
# Seconds beyond the timeout, with how late a busy machine is beside. Tries that may begin until the timeout is over and
# last 0.4 of it, and 2 s of undoing behind them, would take at least 2.2 s more than the timeout.
SLACK = 1.7
CALLS: dict[str, Callable[[Any], Any]] = {
    "lock": lambda once: once.lock("a", ttl=30, wait=1),
    "try_lock": lambda once: once.try_lock("a", ttl=30),
    "lock_all": lambda once: once.lock_all(["a", "b"], ttl=30, wait=1),
    "first": lambda once: once.first("a"),
    "claim": lambda once: once.claim("a", ttl=30, wait=1),
    "reserve": lambda once: once.reserve("a", hold=30, limit=5, per=60),
    "limit": lambda once: once.limit("a", limit=5, per=60),
    "push": lambda once: once.queue("q").push("a", b"x"),
}


async def _all_end_in_time(once: Any) -> None:
    started = time.monotonic()
    ends = dict[str, float]()

    async def ended(name: str) -> None:
        with pytest.raises(solely.StoreUnavailable, match="happen"):
            await (in_thread(CALLS[name], once.it) if isinstance(once, InThread) else CALLS[name](once))
        ends[name] = time.monotonic() - started

    with measured_lateness() as lateness:
        await asyncio.gather(*map(ended, CALLS))
    late = {name: f"{took:.1f} s" for name, took in ends.items() if took > TIMEOUT + SLACK + lateness.seconds}
    assert not late


@concurrently()
async def test_a_store_that_falls_silent_is_given_up_within_the_timeout(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any]
) -> None:
    once = open_client(proxied_url, timeout=TIMEOUT)
    assert await once.seen("warm") is False
    proxy.half_open()
    await _all_end_in_time(once)
    proxy.heal()


@concurrently()
async def test_a_store_that_never_said_a_word_is_given_up_within_the_timeout(
    silent_url: str, open_client: Callable[..., Any]
) -> None:
    await _all_end_in_time(open_client(silent_url, timeout=TIMEOUT))


def test_the_service_says_503_within_its_store_timeout(proxied_url: str, proxy: FaultProxy, lateness: Lateness) -> None:
    with running(url=proxied_url, store_timeout=TIMEOUT) as it:
        assert it.post("/v1/marks/seen", {"keys": ["warm"]}).status_code == 200
        proxy.half_open()
        started = time.monotonic()
        answer = it.post("/v1/locks/acquire", {"key": "a", "ttl": 30, "wait": 1})
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert time.monotonic() - started < TIMEOUT + SLACK + lateness.seconds
        proxy.heal()


class _Deaf:
    """A store in memory that answers nothing for as long as `deaf` is set, and performs it then."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.hears = threading.Event()
        self.hears.set()
        self.asked: list[Op] = []
        self.done: list[Op] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class DeafStore(_Deaf):
    """For threads."""

    def perform(self, ops: Sequence[Op]) -> Any:
        self.asked += ops
        self.hears.wait()
        self.done += ops
        return self._store.perform(ops)


class AsyncDeafStore(_Deaf):
    """For asyncio."""

    async def perform(self, ops: Sequence[Op]) -> Any:
        self.asked += ops
        while not self.hears.is_set():
            await asyncio.sleep(0.005)
        self.done += ops
        return await self._store.perform(ops)


@pytest.fixture
def deaf(kind: str) -> Any:
    return DeafStore(open_store("memory://")) if kind == "blocking" else AsyncDeafStore(open_async_store("memory://"))


@pytest.fixture
def once(kind: str, deaf: Any) -> Any:
    return InThread(Client(store=deaf, timeout=0.5)) if kind == "blocking" else AsyncClient(store=deaf, timeout=0.5)


async def test_a_try_that_never_ends_does_not_outlive_the_timeout(once: Any, deaf: Any) -> None:
    """Whatever a store waits for, in its queue or on its way: the caller hears of it."""
    deaf.hears.clear()
    async with asyncio.timeout(100):
        with pytest.raises(solely.StoreUnavailable, match="may or may not have happened"):
            await once.lock("a", ttl=30, wait=0.1)
        with pytest.raises(solely.StoreUnavailable, match="may or may not have happened"):
            await once.first("b")
    deaf.hears.set()
    await once.close()


async def test_undoing_goes_on_behind_a_caller_whose_time_is_over(once: Any, deaf: Any) -> None:
    deaf.hears.clear()
    async with asyncio.timeout(100):
        with pytest.raises(solely.StoreUnavailable):
            await once.try_lock("a", ttl=30)
        assert not deaf.done
        deaf.hears.set()
        while not any(type(op) is Release for op in deaf.done):
            await asyncio.sleep(0.01)
        while await once.try_lock("a", ttl=30) is None:
            await asyncio.sleep(0.01)
        await once.close()


async def test_closing_waits_for_what_is_still_being_undone(once: Any, deaf: Any) -> None:
    deaf.hears.clear()
    async with asyncio.timeout(100):
        with pytest.raises(solely.StoreUnavailable):
            await once.try_lock("a", ttl=30)
        threading.Timer(0.2, deaf.hears.set).start()
        await once.close()
    assert any(type(op) is Release for op in deaf.done)
