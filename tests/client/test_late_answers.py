"""The store grants, but answers when the ttl is over, as it may while a client opens its first connection: that try is
given up and undone, and the next one is as good as any."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

import solely
from solely import AsyncClient, Client
from solely.ops import Op
from solely.stores import open_async_store, open_store
from tests.client.concurrently import run_at_once
from tests.client_modes import result_of

TTL = 2.0  # seconds: what is answered at once is answered within this, on a busy machine too
SHORT = 0.5  # seconds, where no answer comes in time anyway
LATER = 1.1  # times the ttl is too late


class _Late:
    """Any store whose first answers come late."""

    def __init__(self, store: Any, times: int, ttl: float) -> None:
        self._store = store
        self.times = times
        self.ttl = ttl

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def pause(self) -> float:
        self.times -= 1
        return self.ttl * LATER if self.times >= 0 else 0.0


class LateStore(_Late):
    def perform(self, ops: Sequence[Op]) -> Any:
        replies = self._store.perform(ops)
        time.sleep(self.pause())
        return replies


class AsyncLateStore(_Late):
    async def perform(self, ops: Sequence[Op]) -> Any:
        replies = await self._store.perform(ops)
        await asyncio.sleep(self.pause())
        return replies


Late = Callable[[int, float], Any]


@pytest.fixture
def late(kind: str) -> Late:
    """A client of the kind at hand whose store answers so many calls later than this ttl."""
    if kind == "blocking":
        return lambda times, ttl: Client(store=LateStore(open_store("memory://"), times, ttl))
    return lambda times, ttl: AsyncClient(store=AsyncLateStore(open_async_store("memory://"), times, ttl))


TAKING: dict[str, Callable[[Any, float], Any]] = {
    "try_lock": lambda once, ttl: once.try_lock("a", ttl=ttl),
    "lock": lambda once, ttl: once.lock("a", ttl=ttl),
    "lock_all": lambda once, ttl: once.lock_all(["a", "b"], ttl=ttl, wait=0),
    "claim": lambda once, ttl: once.claim("a", ttl=ttl, wait=0),
    "reserve": lambda once, ttl: once.reserve("a", hold=ttl),
    "reserve within limits": lambda once, ttl: once.reserve("a", hold=ttl, limit=1, per=60),
}


def test_a_grant_that_is_answered_too_late_is_asked_for_once_more(late: Late) -> None:
    run_at_once({how: partial(_is_asked_for_once_more, late, how) for how in TAKING})


async def _is_asked_for_once_more(late: Late, how: str) -> None:
    once = late(1, TTL)
    mine = await result_of(TAKING[how](once, TTL))
    assert mine
    assert not mine.lost
    await result_of(mine.release())
    assert await result_of(TAKING[how](once, TTL)), "the first try is not given back"
    await result_of(once.close())


def test_a_store_that_always_answers_too_late_grants_nothing(late: Late) -> None:
    run_at_once({how: partial(_grants_nothing, late, how) for how in ("claim", "reserve")})


async def _grants_nothing(late: Late, how: str) -> None:
    once = late(4, SHORT)
    mine = await result_of(TAKING[how](once, SHORT))
    assert not (mine.won if how == "claim" else mine)
    await result_of(once.close())


def test_who_cannot_be_granted_a_lock_for_that_is_told_why(late: Late) -> None:
    run_at_once({how: partial(_is_told_why, late, how) for how in ("lock", "lock_all")})


async def _is_told_why(late: Late, how: str) -> None:
    once = late(4, SHORT)
    with pytest.raises(solely.Busy, match="the store answered later than the ttl allows"):
        await result_of(once.lock("a", ttl=SHORT, wait=0) if how == "lock" else TAKING[how](once, SHORT))
    await result_of(once.close())
