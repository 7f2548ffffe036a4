"""Cancellation at any await leaves no item leased; what was done stays done; and nothing is lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from solely import Entry, State
from solely.model import item_key, line_key
from solely.ops import Read
from solely.queues.flow import queue_of
from solely.testing.clock import ManualClock
from tests.client.modes import Observer
from tests.client.stepping import WAYS
from tests.client.test_cancellation import at_every_await, is_cancelled, plain

Work = Callable[[], Awaitable[Any]]
pytestmark = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def mode() -> str:
    return "asyncio"


def item(observer: Observer, queue: str) -> Entry:
    """The one item of this queue; without a value if there is none."""
    found: Entry = observer.perform(Read(item_key(queue_of(queue), "a")))[0]
    return found


def prepared(once: Any, call: Callable[[Any], Awaitable[Any]]) -> Callable[[str], Awaitable[Work]]:
    """A queue with one item."""

    async def prepare(key: str) -> Work:
        queue = once.queue(key)
        await queue.push("a", key)
        return lambda: call(queue)

    return prepare


def in_hand(once: Any, call: Callable[[Any], Awaitable[Any]]) -> Callable[[str], Awaitable[Work]]:
    """An item that was taken."""

    async def prepare(key: str) -> Work:
        taken = await once.queue(key).push_held("a", key, ttl=1_000)
        return lambda: call(taken)

    return prepare


@pytest.mark.parametrize("id", ["", "a"])
async def test_take(once: Any, observer: Observer, way: str, id: str) -> None:
    def check(key: str, outcome: Any) -> None:
        there = State.FREE, 0  # nobody got it: that is no attempt
        assert (item(observer, key).state, item(observer, key).attempts) == (
            there if is_cancelled(outcome) else (State.HELD, 1)
        )
        assert item(observer, key).value is not None

    await at_every_await(way, prepared(once, lambda queue: queue.take(ttl=1_000, id=id)), check)


async def test_a_cancelled_take_leaves_the_others_as_they_were(once: Any, observer: Observer, way: str) -> None:
    async def prepare(key: str) -> Work:
        queue = once.queue(key)
        await queue.push_held("a", key, ttl=1_000)
        return lambda: queue.take(ttl=1_000)

    def check(key: str, outcome: Any) -> None:
        assert is_cancelled(outcome) or outcome is None
        assert (item(observer, key).state, item(observer, key).attempts) == (State.HELD, 1)

    await at_every_await(way, prepare, check)


async def test_push_held(once: Any, observer: Observer, way: str) -> None:
    def check(key: str, outcome: Any) -> None:
        assert item(observer, key).state is (State.FREE if is_cancelled(outcome) else State.HELD)

    await at_every_await(way, plain(lambda key: once.queue(key).push_held("a", key, ttl=1_000)), check)


async def test_resume(once: Any, other: Any, observer: Observer, way: str) -> None:
    tokens: dict[str, str] = {}

    async def prepare(key: str) -> Work:
        taken = await other.queue(key).push_held("a", key, ttl=1_000)
        tokens[key] = taken.hand_over()
        return lambda: once.queue(key).resume(tokens[key])

    def check(key: str, outcome: Any) -> None:
        assert item(observer, key).value is not None
        assert item(observer, key).attempts == 1
        if not is_cancelled(outcome):
            assert item(observer, key).state is State.HELD
            del tokens[key]

    await at_every_await(way, prepare, check)
    for key, token in tokens.items():  # what was not resumed yet can be; what was, others can take
        queue = once.queue(key)
        again = await (queue.resume(token) if item(observer, key).state is State.HELD else queue.take(ttl=1_000))
        assert await again.ack() is True


async def test_ack_and_give_back(once: Any, observer: Observer, way: str) -> None:
    def acked(key: str, outcome: Any) -> None:
        assert is_cancelled(outcome) or outcome is True
        assert item(observer, key).value is None

    def returned(key: str, outcome: Any) -> None:
        assert is_cancelled(outcome) or outcome is True
        assert item(observer, key).state is State.CLOSED

    await at_every_await(way, in_hand(once, lambda taken: taken.ack()), acked)
    await at_every_await(way, in_hand(once, lambda taken: taken.give_back(delay=1_000)), returned)


async def test_a_guarded_body(once: Any, observer: Observer, way: str) -> None:
    """Cancelled before its end, the item is there for another; cancelled after that, it is gone."""
    done: set[str] = set()

    async def body(key: str) -> None:
        async with await once.queue(key).push_held("a", key, ttl=1_000):
            await asyncio.sleep(0)
            done.add(key)

    def check(key: str, outcome: Any) -> None:
        assert item(observer, key).state is State.FREE
        assert (item(observer, key).value is None) == (key in done)

    await at_every_await(way, plain(body), check)


async def test_a_take_that_waits(once: Any, observer: Observer, way: str) -> None:
    def check(key: str, outcome: Any) -> None:
        assert observer.perform(Read(line_key(queue_of(key))))[0].waiters == 0
        assert item(observer, key).value is None

    await at_every_await(way, plain(lambda key: once.queue(key).take(ttl=1_000, wait=0.03)), check)


async def test_a_take_that_is_woken(once: Any, other: Any, observer: Observer, way: str, clock: ManualClock) -> None:
    def check(key: str, outcome: Any) -> None:
        assert observer.perform(Read(line_key(queue_of(key))))[0].waiters == 0
        assert (item(observer, key).state is State.HELD) is not is_cancelled(outcome)
        assert item(observer, key).value is not None

    async def prepare(key: str) -> Work:
        await other.queue(key).push("a", key, delay=0.01)
        asyncio.get_running_loop().call_later(0.005, clock.advance, 0.01)
        return lambda: once.queue(key).take(ttl=1_000, wait=60)

    await at_every_await(way, prepare, check)
