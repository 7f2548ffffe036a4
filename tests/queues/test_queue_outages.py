"""Replies that are lost, stores that are away: repeated under one owner, given back, and never told as done."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import solely
from solely import State
from solely.errors import Unanswered
from solely.model import item_key
from solely.ops import Op, Read, Take
from solely.queues.flow import queue_of
from solely.resilience import Breaker
from solely.rules import MAX_VALUE_BYTES
from solely.stores.memory import AsyncMemoryStore, Memory, MemoryStore
from tests.client.away import switched
from tests.client_modes import result_of
from tests.corrupt_entries import push_raw
from tests.queues.workers import until
from tests.reservations.test_lost_replies import AsyncLosingStore, LosingStore

MOST_REQUESTS = 5  # no story here has as many
PATIENCE = 2.0  # seconds that an unanswered store is asked again; a third of them are left for undoing


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture(params=range(1, MOST_REQUESTS))
def losing(request: pytest.FixtureRequest, mode: str, memory: Memory) -> Any:
    """A client that does not hear the answer to its n-th request."""
    store = LosingStore(memory) if mode == "blocking" else AsyncLosingStore(memory)
    store.lose = request.param
    return store


def entry(memory: Memory, id: str = "a") -> Any:
    return memory.perform([Read(item_key(queue_of("jobs"), id))])[0]


# -- one reply is lost


async def test_push_take_and_give_back(open_client: Callable[..., Any], losing: Any, memory: Memory) -> None:
    queue = open_client(store=losing).queue("jobs")
    assert await result_of(queue.push("a", 1)) is True
    item = await result_of(queue.take(ttl=1_000))
    assert (item.payload, item.attempts) == (1, 1)
    assert await result_of(item.give_back(delay=1_000)) is True
    assert entry(memory).state is State.CLOSED


async def test_push_held_and_ack(open_client: Callable[..., Any], losing: Any, memory: Memory) -> None:
    queue = open_client(store=losing).queue("jobs")
    item = await result_of(queue.push_held("a", 1, ttl=1_000))
    assert (item.payload, item.attempts, item.fresh) == (1, 1, True)
    assert await result_of(item.ack()) is True
    assert entry(memory).value is None


async def test_a_push_of_what_another_put_in(open_client: Callable[..., Any], losing: Any, memory: Memory) -> None:
    """The same payload is no proof that it is one's own."""
    other = open_client(store=MemoryStore(memory) if isinstance(losing, MemoryStore) else AsyncMemoryStore(memory))
    await result_of(other.queue("jobs").push("a", 1))
    queue = open_client(store=losing).queue("jobs")
    assert await result_of(queue.push("a", 1)) is False
    assert (await result_of(queue.push_held("a", 1, ttl=1_000))).fresh is False


# -- no reply comes at all


def _takes(ops: Sequence[Op]) -> bool:
    return any(type(op) is Take and op.id != op.owner for op in ops)


class DeafStore(MemoryStore):
    """Takes what it is asked to take, and nobody hears of it."""

    def perform(self, ops: Sequence[Op]) -> Any:
        replies = self.memory.perform(ops)
        if _takes(ops):
            raise Unanswered("the reply was lost")
        return replies


class AsyncDeafStore(AsyncMemoryStore):
    """Takes what it is asked to take, and nobody hears of it."""

    def perform(self, ops: Sequence[Op]) -> Any:
        return asyncio.ensure_future(self._perform(ops))

    async def _perform(self, ops: Sequence[Op]) -> Any:
        replies = self.memory.perform(ops)
        if _takes(ops):
            raise Unanswered("the reply was lost")
        return replies


@pytest.fixture
def deaf(open_client: Callable[..., Any], mode: str, memory: Memory) -> Any:
    store = DeafStore(memory) if mode == "blocking" else AsyncDeafStore(memory)
    return open_client(store=store, timeout=PATIENCE).queue("jobs")


async def given_back(memory: Memory, id: str) -> None:
    """Returns once the item is free and counts no attempt: what a call undoes may take longer than the call."""
    await until(lambda: (entry(memory, id).state, entry(memory, id).attempts) == (State.FREE, 0), "it is given back")


@pytest.mark.parametrize("id", ["", "a"])
async def test_an_unanswered_take_gives_back_what_it_took(deaf: Any, memory: Memory, id: str) -> None:
    for one in ("a", "b"):
        await result_of(deaf.push(one, one))
    with pytest.raises(solely.StoreUnavailable, match="may or may not have happened"):
        await result_of(deaf.take(ttl=1_000, id=id))
    for one in ("a", "b"):
        await given_back(memory, one)


async def test_what_an_unanswered_call_pushed_and_held_stays_in_the_queue(deaf: Any, memory: Memory) -> None:
    with pytest.raises(solely.StoreUnavailable):
        await result_of(deaf.push_held("a", 1, ttl=1_000))
    await given_back(memory, "a")


# -- a batch in another order


class BackwardStore(MemoryStore):
    """Performs the last op of a batch first."""

    def perform(self, ops: Sequence[Op]) -> Any:
        return self.memory.perform(ops[::-1])[::-1]


class AsyncBackwardStore(AsyncMemoryStore):
    """Performs the last op of a batch first."""

    def perform(self, ops: Sequence[Op]) -> Any:
        return asyncio.ensure_future(self._perform(ops))

    async def _perform(self, ops: Sequence[Op]) -> Any:
        return self.memory.perform(ops[::-1])[::-1]


async def test_push_held_needs_no_order_of_the_batch(
    open_client: Callable[..., Any], memory: Memory, mode: str
) -> None:
    store = BackwardStore(memory) if mode == "blocking" else AsyncBackwardStore(memory)
    queue = open_client(store=store).queue("jobs")
    item = await result_of(queue.push_held("a", 1, ttl=1_000))
    assert (item.id, item.attempts, item.fresh) == ("a", 1, True)


# -- an answer that is of no use


async def test_an_item_that_came_too_late_is_given_back(
    open_client: Callable[..., Any], memory: Memory, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(memory) if mode == "blocking" else AsyncMemoryStore(memory)
    queue = open_client(store=store).queue("jobs")
    await result_of(queue.push("a", 1))
    monkeypatch.setattr("solely.queues.flow.deadline", lambda sent, left: sent)  # no time was left when it came
    assert await result_of(queue.take(ttl=1_000)) is None
    assert (entry(memory).state, entry(memory).attempts) == (State.FREE, 0)


POISON = (("a", b""), ("b", b"0" * 32 + b"x"), ("c", b"0" * 32 + b"j{"), ("d", b"0" * 32 + b"j" + b"[" * 5_000))


async def test_items_that_nobody_can_read_are_parked_and_keep_nobody_waiting(
    open_client: Callable[..., Any], memory: Memory, mode: str
) -> None:
    store = MemoryStore(memory) if mode == "blocking" else AsyncMemoryStore(memory)
    once = open_client(store=store)
    queue = once.queue("jobs")
    for id, kept in POISON:
        push_raw(memory, queue_of("jobs"), id, kept)
    assert await result_of(queue.push("good", 1))
    item = await result_of(queue.take(ttl=1_000))
    assert (item.id, item.payload) == ("good", 1)
    letters = await result_of(once.dead_letters("jobs").list())
    assert sorted(letter.payload for letter in letters) == sorted(kept for _, kept in POISON)
    assert {letter.origin for letter in letters} == {f"item {id!r}" for id, _ in POISON}
    assert all("a newer version or another program pushed" in letter.last_error for letter in letters)
    assert await result_of(queue.take(ttl=1_000)) is None


async def test_an_item_that_nobody_can_read_is_parked_by_who_wants_its_id(
    open_client: Callable[..., Any], memory: Memory, mode: str
) -> None:
    store = MemoryStore(memory) if mode == "blocking" else AsyncMemoryStore(memory)
    once = open_client(store=store)
    queue = once.queue("jobs")
    for id, kept in POISON:
        push_raw(memory, queue_of("jobs"), id, kept)
    assert await result_of(queue.take(ttl=1_000, id="a")) is None
    for id, _ in POISON:
        item = await result_of(queue.push_held(id, "mine", ttl=1_000))
        assert (item.fresh, item.payload) == (True, "mine")
    assert len(await result_of(once.dead_letters("jobs").list())) == len(POISON)


async def test_an_item_that_nobody_can_read_is_listed_as_such(
    open_client: Callable[..., Any], memory: Memory, mode: str
) -> None:
    store = MemoryStore(memory) if mode == "blocking" else AsyncMemoryStore(memory)
    queue = open_client(store=store).queue("jobs")
    await result_of(queue.push("good", 1))
    for id, kept in POISON:
        push_raw(memory, queue_of("jobs"), id, kept)
    listed = {item.id: (item.payload, bool(item.unreadable)) for item in await result_of(queue.list())}
    assert listed == {"good": (1, False)} | {id: (None, True) for id, _ in POISON}
    assert "a newer version or another program pushed" in (await result_of(queue.read("a"))).unreadable


async def test_one_that_is_too_large_to_be_parked_stays_out_of_the_way(
    open_client: Callable[..., Any], memory: Memory, mode: str
) -> None:
    store = MemoryStore(memory) if mode == "blocking" else AsyncMemoryStore(memory)
    once = open_client(store=store)
    queue, large = once.queue("jobs"), b"x" * MAX_VALUE_BYTES
    push_raw(memory, queue_of("jobs"), "large", large)
    await result_of(queue.push("good", 1))
    item = await result_of(queue.take(ttl=1_000))
    assert item.id == "good"
    (kept,) = [each for each in await result_of(queue.list()) if each.unreadable]
    assert (kept.id, kept.state, kept.left > 365 * 86_400) == ("large", State.CLOSED, True)
    assert entry(memory, "large").value == large
    assert await result_of(once.dead_letters("jobs").list()) == []


# -- the store is away


async def test_nothing_goes_on_without_its_store(open_client: Callable[..., Any], mode: str) -> None:
    store = switched(mode, "memory://")
    queue = open_client(store=store, timeout=PATIENCE, on_outage="proceed").queue("jobs")
    store.away = True
    calls: list[Callable[[], Any]] = [
        lambda: queue.push("a", 1),
        lambda: queue.push_held("a", 1, ttl=10),
        lambda: queue.take(ttl=10),
        lambda: queue.read("a"),
    ]
    for call in calls:
        with pytest.raises(solely.StoreUnavailable, match="it did not happen"):
            await result_of(call())
    store.away = False
    assert await result_of(queue.list()) == []


async def test_a_breaker_that_is_open_is_heard_at_once(open_client: Callable[..., Any], mode: str) -> None:
    store = switched(mode, "memory://")
    queue = open_client(store=store, timeout=PATIENCE, breaker=Breaker(threshold=1)).queue("jobs")
    store.away = True
    with pytest.raises(solely.StoreUnavailable):
        await result_of(queue.push("a", 1))
    asked = len(store.asked)
    calls: list[Callable[[], Any]] = [lambda: queue.push("a", 1), lambda: queue.take(ttl=10)]
    for call in calls:
        with pytest.raises(solely.StoreUnavailable, match="no request was sent to the store"):
            await result_of(call())
    assert len(store.asked) == asked


async def test_a_body_keeps_its_own_error_if_its_item_cannot_be_given_back(
    open_client: Callable[..., Any], mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    once = open_client("memory://")
    item = await result_of(once.queue("jobs").push_held("a", 1, ttl=10))
    await result_of(once.close())
    leave = item.__exit__ if mode == "blocking" else item.__aexit__
    with caplog.at_level(logging.WARNING, "solely"):
        assert await result_of(leave(OSError, OSError("its own"), None)) is None
    assert any(message.startswith("give_back_failed: ") for message in caplog.messages)
