"""first, first_many, seen, mark, forget: exactly one caller is first; the cache is asked first and is bounded."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from solely import Cache, Client, State, StoreError
from solely.ops import Op, Reply
from solely.stores.memory import Memory, MemoryStore
from solely.testing.clock import ManualClock
from tests.client.modes import Observer


async def test_only_the_first_is_first(once: Any, other: Any) -> None:
    assert not await once.seen("a")
    assert await once.first("a", ttl=30)
    assert not await once.first("a", ttl=30)
    assert not await other.first("a", ttl=30)
    assert await other.seen("a")
    assert not await other.seen("b")


async def test_of_many_at_once_exactly_one_is_first(once: Any, other: Any) -> None:
    answers = await asyncio.gather(*(client.first("a") for client in (once, other) * 10))
    assert answers.count(True) == 1


async def test_many_keys_are_answered_in_order_and_a_repeated_one_is_first_once(once: Any, other: Any) -> None:
    assert await other.first("b")
    assert await once.first_many(["a", "b", "c", "a"]) == [True, False, True, False]
    assert await once.first_many(["c", "d"]) == [False, True]


async def test_a_thousand_keys_in_one_call(once: Any) -> None:
    keys = [f"k{n}" for n in range(1_000)]
    assert await once.first_many(keys) == [True] * 1_000
    assert await once.first_many(keys) == [False] * 1_000


async def test_every_caller_gets_the_same_fence_of_a_mark_until_it_ends(once: Any, other: Any) -> None:
    (first,) = await once.ensure_marks(["a"], ttl=30)
    again = await other.ensure_marks(["b", "a", "b"], ttl=30)
    assert [mark.key for mark in again] == ["b", "a", "b"]
    assert again[1].fence == first.fence
    assert again[0] == again[2]
    assert again[0].fence > first.fence
    assert await once.ensure_marks([]) == []
    (longer,) = await once.ensure_marks(["a"], ttl=3_000)
    assert longer.fence == first.fence
    assert longer.left > 30
    assert not await once.first("a")
    assert await once.forget("a")
    (next_one,) = await other.ensure_marks(["a"])
    assert next_one.fence > again[0].fence


async def test_marks_of_many_keys_are_read_in_order(once: Any, other: Any) -> None:
    await other.first("b", ttl=30)
    none, found, *others = await once.read_marks(["a", "b", "c", "b"])
    assert (none, found.key, others[0]) == (None, "b", None)
    assert 0 < found.left <= 30
    assert others[1].fence == found.fence
    assert await once.read_marks([]) == []
    assert await once.first("a")  # reading marks nothing


async def test_mark_is_seen_whoever_was_first(once: Any, other: Any) -> None:
    await once.mark("a", ttl=30)
    await other.mark("a", ttl=30)
    assert await other.seen("a")
    assert not await other.first("a")


async def test_forget_makes_the_next_one_first_again(once: Any, other: Any) -> None:
    assert not await once.forget("a")
    assert await once.first("a")
    assert await other.forget("a")
    assert not await other.forget("a")
    assert await once.first("a")


async def test_a_mark_is_remembered_for_its_ttl(once: Any, observer: Observer) -> None:
    await once.first("a", ttl=timedelta(minutes=2))
    assert observer.mark("a").state is State.DONE
    assert 100 < observer.mark("a").left <= 120


def test_a_mark_ends_with_its_ttl() -> None:
    clock = ManualClock()
    with Client(store=MemoryStore(Memory(clock=clock))) as once:
        assert once.first("a", ttl=10)
        clock.advance(9.99)
        assert not once.first("a", ttl=10)
        clock.advance(0.02)
        assert not once.seen("a")
        assert once.first("a", ttl=10)


# -- the cache


class Counting(MemoryStore):
    """Counts the ops that reach the store."""

    def __init__(self) -> None:
        super().__init__(Memory())
        self.asked: list[Any] = []

    @property
    def ops(self) -> int:
        return len(self.asked)

    def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        self.asked += ops
        return super().perform(ops)


def test_what_the_cache_knows_costs_no_store_call() -> None:
    store = Counting()
    with Client(store=store, cache=True) as once:
        assert once.first("a")
        assert once.first_many(["b", "c"]) == [True, True]
        asked = store.ops
        assert not once.first("a")
        assert once.seen("b")
        assert once.first_many(["c", "a", "b"]) == [False] * 3
        assert store.ops == asked
        once.mark("a")
        asked += 1  # a mark that is known to be there may end too soon
        assert store.ops == asked
        assert once.first_many(["a", "d", "b"]) == [False, True, False]
        assert {op.key for op in store.asked[asked:]} == {"mark/d"}
        assert once.seen("d")
        assert store.ops == asked + 2


def test_what_is_not_seen_is_never_cached() -> None:
    store = Counting()
    with Client(store=store, cache=True) as once:
        assert not once.seen("a")
        assert not once.seen("a")
        assert store.ops == 2
        assert once.first("a")


async def test_the_cache_learns_what_others_marked(open_client: Callable[..., Any], store_url: str, once: Any) -> None:
    cached = open_client(store_url, cache=Cache())
    await once.mark("a", ttl=30)
    await once.mark("b", ttl=30)
    assert not await cached.first("a")
    assert await cached.seen("b")
    await once.forget("a")
    assert await cached.seen("a")  # within the cache's ttl: documented
    assert not await once.seen("a")


async def test_forget_goes_past_the_cache(open_client: Callable[..., Any], store_url: str) -> None:
    cached = open_client(store_url, cache=True)
    assert await cached.first("a")
    assert await cached.forget("a")
    assert not await cached.seen("a")
    assert await cached.first("a")


def test_the_cache_drops_the_least_recently_used_beyond_its_size() -> None:
    store = Counting()
    with Client(store=store, cache=Cache(size=2)) as once:
        assert once.first_many(["a", "b"]) == [True, True]
        assert once.seen("a")
        assert once.first("c")  # b was used least recently
        asked = store.ops
        assert once.seen("a")
        assert once.seen("c")
        assert store.ops == asked
        assert once.seen("b")
        assert store.ops == asked + 1


@pytest.mark.parametrize(("cache_ttl", "mark_ttl", "knows_until"), [(5.0, 100.0, 5.0), (100.0, 7.0, 7.0)])
def test_the_cache_forgets_at_its_own_ttl_or_the_marks_end(
    cache_ttl: float, mark_ttl: float, knows_until: float
) -> None:
    clock = ManualClock()
    cache = Cache(ttl=cache_ttl, clock=clock)
    with Client(store=MemoryStore(Memory(clock=clock)), cache=cache) as once:
        began = time.monotonic()
        assert once.first("a", ttl=mark_ttl)
        took = time.monotonic() - began  # which the cache subtracts from the time that the mark has left
        clock.advance(knows_until - took - 0.01)
        assert cache.has("mark/a")
        clock.advance(took + 0.02)
        assert not cache.has("mark/a")
        assert once.seen("a") == (mark_ttl > knows_until)


async def test_mark_extends_a_mark_that_ends_sooner(open_client: Callable[..., Any], store_url: str) -> None:
    clock = ManualClock()
    once, other = open_client(store_url, clock=clock), open_client(store_url, clock=clock)
    assert await once.first("a", ttl=10)
    assert await other.mark("a", ttl=100) is False
    clock.advance(99)
    assert not await once.first("a", ttl=10), "the work would run twice"
    clock.advance(1)
    assert await once.first("a", ttl=10)


async def test_mark_never_shortens(open_client: Callable[..., Any], store_url: str) -> None:
    clock = ManualClock()
    once = open_client(store_url, clock=clock)
    assert await once.mark("a", ttl=100) is True
    assert await once.mark("a", ttl=10) is False
    clock.advance(99)
    assert await once.seen("a")
    clock.advance(1)
    assert not await once.seen("a")


async def test_mark_extends_what_the_cache_knows(open_client: Callable[..., Any], store_url: str) -> None:
    clock = ManualClock()
    once = open_client(store_url, clock=clock, cache=True)
    other = open_client(store_url, clock=clock)
    assert await once.first("a", ttl=10)
    await once.mark("a", ttl=100)
    clock.advance(99)
    assert not await other.first("a")


async def test_first_does_not_extend(open_client: Callable[..., Any], store_url: str) -> None:
    clock = ManualClock()
    once = open_client(store_url, clock=clock)
    assert await once.first("a", ttl=10)
    assert not await once.first("a", ttl=100)
    assert await once.first_many(["a", "b"], ttl=100) == [False, True]
    clock.advance(10)
    assert await once.first("a", ttl=10)
