"""What hooks are told of one hold is told in order: of nothing that was lost do they hear that it was renewed."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import solely
from solely import AsyncClient, Client, events
from solely.leases.hold import Hold
from solely.leases.keeper import Keeper
from solely.model import HELD, Entry
from solely.ops import Op, Renew
from solely.stores import open_async_store, open_store
from solely.testing.clock import ManualClock
from tests.client_modes import result_of

TTL = 0.5  # seconds
PATIENCE = 20.0  # seconds for what takes half of one


class _Holding:
    """A memory store on a clock that stands still, so that nothing expires there. The answers to its renewals are held
    back until `free` is set: meanwhile the holder's own clock says that the lease is lost."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.free = threading.Event()
        self.answered: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class HoldingStore(_Holding):
    def perform(self, ops: Sequence[Op]) -> Any:
        replies = self._store.perform(ops)
        if isinstance(ops[0], Renew):
            assert self.free.wait(PATIENCE)
            self.answered += replies
        return replies


class AsyncHoldingStore(_Holding):
    async def perform(self, ops: Sequence[Op]) -> Any:
        replies = await self._store.perform(ops)
        if isinstance(ops[0], Renew):
            async with asyncio.timeout(PATIENCE):
                while not self.free.is_set():
                    await asyncio.sleep(0.01)
            self.answered += replies
        return replies


@pytest.fixture
def holding(kind: str) -> Callable[..., tuple[Any, Any]]:
    """A client of the kind at hand, and its store that holds renewals back."""

    def make(heard: list[events.Event]) -> tuple[Any, Any]:
        if kind == "blocking":
            store: Any = HoldingStore(open_store("memory://", clock=ManualClock()))
            make_client: Any = Client
        else:
            store = AsyncHoldingStore(open_async_store("memory://", clock=ManualClock()))
            make_client = AsyncClient

        def hear(event: events.Event) -> None:
            heard.append(event)
            if isinstance(event, events.Lost):
                store.free.set()  # the answer comes right behind

        return make_client(store=store, timeout=PATIENCE, hooks=[hear]), store

    return make


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_renewal_whose_answer_comes_after_the_loss_is_not_told(holding: Callable[..., Any]) -> None:
    heard: list[events.Event] = []
    once, store = holding(heard)
    lease = await result_of(once.lock("a", ttl=TTL, on_lost="flag"))
    await until(lambda: store.answered)
    assert store.answered[0].owner, "the store did renew it"
    assert lease.lost
    await result_of(lease.release())
    await result_of(once.close())
    assert [type(event) for event in heard] == [events.Acquired, events.Lost, events.ReleasedLease]


async def test_a_call_of_renew_that_is_answered_after_the_loss_raises(holding: Callable[..., Any]) -> None:
    heard: list[events.Event] = []
    once, store = holding(heard)
    lease = await result_of(once.lock("a", ttl=TTL, on_lost="flag", renew=False))
    with pytest.raises(solely.LeaseLost):
        await result_of(lease.renew())
    assert store.answered[0].owner, "the store did renew it"
    assert lease.lost
    await result_of(lease.release())
    await result_of(once.close())
    assert [type(event) for event in heard] == [events.Acquired, events.Lost, events.ReleasedLease]


def test_a_loss_that_is_found_while_a_renewal_is_being_told_is_told_after_it() -> None:
    """By another thread: which does not wait for the hook, nor does the hook wait for it."""
    heard: list[str] = []
    hold = Hold("lock/a", "owner", 30.0, Entry("lock/a", HELD, fence=1, left=30.0), 0.0, False, lambda: 0.0)
    hold.on_lost = lambda _: heard.append("on_lost")

    def report(_: Hold, renewed: Entry | None) -> None:
        if renewed is None:
            heard.append("lost")
            return
        other = threading.Thread(target=book.lose, args=(hold, "cleared"))
        other.start()
        other.join(PATIENCE)
        assert not other.is_alive()
        assert hold.lost == "cleared"
        heard.append("renewed")

    book = Keeper(lambda _: None, report)
    book.add(hold)
    entry = Entry("lock/a", HELD, fence=1, left=30.0, owner="owner")
    assert book.renewed(hold, entry, 30.0, 1.0)
    assert heard == ["renewed", "lost", "on_lost"]
    assert not book.renewed(hold, entry, 30.0, 2.0)
    book.lose(hold, "expired")
    assert heard == ["renewed", "lost", "on_lost"]
