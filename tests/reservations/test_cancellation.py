"""Cancellation at any await leaves nothing reserved and gives the hits back; what was sent stays recorded."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from solely import State
from solely.ops import Hit, Read, Unhit
from tests.client.modes import Observer
from tests.client.stepping import WAYS
from tests.client.test_cancellation import at_every_await, is_cancelled, plain

HOUR = 3_600
Work = Callable[[], Awaitable[Any]]
LIMITS: dict[str, Any] = {"limit": 1, "per": HOUR}


@pytest.fixture
def mode() -> str:
    return "asyncio"


def state(observer: Observer, key: str) -> State:
    found: State = observer.perform(Read(f"reservation/{key}"))[0].state
    return found


def hits(observer: Observer, key: str) -> int:
    """How many hits this limit has now."""
    allowance, _ = observer.perform(Hit(key, "nobody", 1, HOUR), Unhit(key, "nobody"))
    return 0 if allowance.allowed else int(allowance.hits)


@pytest.mark.parametrize("way", WAYS)
async def test_reserve(once: Any, observer: Observer, way: str) -> None:
    def check(key: str, outcome: Any) -> None:
        granted = not is_cancelled(outcome)
        assert state(observer, key) is (State.HELD if granted else State.FREE)
        assert hits(observer, f"hits/{key}") == hits(observer, f"group/{key}") == granted

    await at_every_await(way, plain(lambda key: once.reserve(key, group=(key, 1, HOUR), **LIMITS)), check)


@pytest.mark.parametrize("way", WAYS)
async def test_reserve_that_is_limited(once: Any, other: Any, observer: Observer, way: str) -> None:
    async def prepare(key: str) -> Work:
        await (await other.reserve(key, quiet=0, **LIMITS)).record()
        return lambda: once.reserve(key, group=(key, 1, HOUR), **LIMITS)

    def check(key: str, outcome: Any) -> None:
        assert is_cancelled(outcome) or outcome.reason == "limited"
        assert state(observer, key) is State.FREE
        assert hits(observer, f"hits/{key}") == 1
        assert hits(observer, f"group/{key}") == 0

    await at_every_await(way, prepare, check)


def prepared(once: Any, end: Callable[[Any], Awaitable[Any]]) -> Callable[[str], Awaitable[Work]]:
    async def prepare(key: str) -> Work:
        reservation = await once.reserve(key, **LIMITS)
        return lambda: end(reservation)

    return prepare


@pytest.mark.parametrize("way", WAYS)
async def test_record(once: Any, observer: Observer, way: str) -> None:
    def check(key: str, outcome: Any) -> None:
        assert state(observer, key) is State.DONE
        assert hits(observer, f"hits/{key}") == 1

    await at_every_await(way, prepared(once, lambda reservation: reservation.record()), check)


@pytest.mark.parametrize("way", WAYS)
async def test_release(once: Any, observer: Observer, way: str) -> None:
    def check(key: str, outcome: Any) -> None:
        assert state(observer, key) is State.FREE
        assert hits(observer, f"hits/{key}") == 0

    await at_every_await(way, prepared(once, lambda reservation: reservation.release()), check)


@pytest.mark.parametrize("way", WAYS)
async def test_a_guarded_body(once: Any, observer: Observer, way: str) -> None:
    """Cancelled before it is sent, it can be sent by another; cancelled after that, it stays recorded."""
    sent: set[str] = set()

    async def body(key: str) -> None:
        async with await once.reserve(key, **LIMITS):
            await asyncio.sleep(0)
            sent.add(key)

    def check(key: str, outcome: Any) -> None:
        assert state(observer, key) is (State.DONE if key in sent else State.FREE)
        assert hits(observer, f"hits/{key}") == (key in sent)

    await at_every_await(way, plain(body), check)


@pytest.mark.parametrize("way", WAYS)
async def test_limit(once: Any, observer: Observer, way: str) -> None:
    def check(key: str, outcome: Any) -> None:
        assert hits(observer, f"limit/{key}") == (not is_cancelled(outcome))

    await at_every_await(way, plain(lambda key: once.limit(key, limit=1, per=HOUR)), check)
