"""Any one reply may be lost: what was asked is asked again, and the outcome is the same, to the last hit and count."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from solely import State
from solely.errors import Unanswered
from solely.ops import Hit, Op, Read, Unhit
from solely.stores.memory import AsyncMemoryStore, Memory, MemoryStore
from tests.client_modes import result_of

HOUR = 3_600
LIMITS: dict[str, Any] = {"limit": 1, "per": HOUR, "group": ("all", 5, HOUR)}
MOST_REQUESTS = 10  # no story here has as many


class Losing:
    """Loses the reply to the k-th request: it was performed, and nobody knows."""

    memory: Memory
    lose = 0
    asked = 0

    def _lost(self) -> None:
        self.asked += 1
        if self.asked == self.lose:
            raise Unanswered("the reply was lost")


class LosingStore(Losing, MemoryStore):
    def perform(self, ops: Sequence[Op]) -> Any:
        replies = self.memory.perform(ops)
        self._lost()
        return replies


class AsyncLosingStore(Losing, AsyncMemoryStore):
    def perform(self, ops: Sequence[Op]) -> Any:
        return asyncio.ensure_future(self._perform(ops))

    async def _perform(self, ops: Sequence[Op]) -> Any:
        replies = self.memory.perform(ops)
        self._lost()
        return replies


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture(params=range(1, MOST_REQUESTS))
def losing(request: pytest.FixtureRequest, mode: str, memory: Memory) -> Any:
    store = LosingStore(memory) if mode == "blocking" else AsyncLosingStore(memory)
    store.lose = request.param
    return store


def seen(memory: Memory) -> tuple[State, int, int]:
    """The state of the reservation, and the hits of its own limit and of its group's."""
    entry: Any = memory.perform([Read("reservation/cpu")])[0]
    counts = []
    for key in ("hits/cpu", "group/all"):
        allowance, _ = memory.perform([Hit(key, "nobody", 1, HOUR), Unhit(key, "nobody")])
        counts.append(0 if allowance.allowed else allowance.hits)  # type: ignore[union-attr]
    return entry.state, counts[0], counts[1]


@pytest.mark.parametrize("quiet", [300, 0])
async def test_reserve_and_record(open_client: Callable[..., Any], losing: Any, memory: Memory, quiet: float) -> None:
    once = open_client(store=losing)
    reservation = await result_of(once.reserve("cpu", quiet=quiet, **LIMITS))
    assert reservation
    await result_of(reservation.record())
    assert seen(memory) == (State.DONE if quiet else State.FREE, 1, 1)
    await result_of(once.reserve("cpu"))
    (info,) = await result_of(once.reservations())
    assert info.sent == 1


async def test_reserve_and_release(open_client: Callable[..., Any], losing: Any, memory: Memory) -> None:
    once = open_client(store=losing)
    reservation = await result_of(once.reserve("cpu", **LIMITS))
    assert await result_of(reservation.release()) is True
    assert seen(memory) == (State.FREE, 0, 0)


async def test_one_that_is_limited(open_client: Callable[..., Any], losing: Any, memory: Memory) -> None:
    memory.perform([Hit("hits/cpu", "another", 1, HOUR)])
    once = open_client(store=losing)
    refused = await result_of(once.reserve("cpu", **LIMITS))
    assert refused.reason == "limited"
    assert refused.count in (1, 2)  # a refusal that was repeated may count twice
    assert seen(memory) == (State.FREE, 1, 0)


async def test_one_that_is_suppressed(open_client: Callable[..., Any], losing: Any, memory: Memory) -> None:
    other = open_client(store=MemoryStore(memory) if isinstance(losing, MemoryStore) else AsyncMemoryStore(memory))
    held = await result_of(other.reserve("cpu"))
    once = open_client(store=losing)
    assert (await result_of(once.reserve("cpu", **LIMITS))).reason == "reserved"
    await result_of(held.release())
    assert seen(memory) == (State.FREE, 0, 0)


async def test_limit(open_client: Callable[..., Any], losing: Any) -> None:
    once = open_client(store=losing)
    first = await result_of(once.limit("api", limit=1, per=HOUR))
    assert first
    assert first.hits == 1
    assert not await result_of(once.limit("api", limit=1, per=HOUR))
