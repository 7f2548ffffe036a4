"""A store that lost its data (FLUSHALL, a restart without persistence, a removed file) does not say that what it lost
was released: somebody else may have held the key since."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any

import psycopg
import pytest

import solely
from solely import Released
from solely.errors import Unanswered
from solely.events import Event, Lost, ReleasedLease
from solely.ops import Op, Release
from solely.stores import open_async_store, open_store
from solely.stores.postgres.settings import parse
from tests.client.concurrently import KINDS
from tests.client.data_loss import lose, lose_everything
from tests.client_modes import result_of
from tests.conftest import STORES
from tests.servers import Valkey

KEEPING = [name for name in STORES if name not in ("memory", "http")]  # those whose data a test can take away
# Of PostgreSQL a test can only empty the table, and that does not make a new store of it: it has a test of its own.
made_anew = pytest.mark.parametrize("store_url", [n for n in KEEPING if not n.startswith("postgres")], indirect=True)


@pytest.fixture(params=KEEPING)
def store_url(request: pytest.FixtureRequest) -> str:
    """A fresh store that can lose its data."""
    return STORES[request.param](request)


async def test_release_after_the_store_lost_its_data_says_lost(once: Any, store_url: str) -> None:
    lease = await once.lock("a", ttl=60)
    lose_everything(store_url)
    assert await lease.release() is Released.LOST
    assert await lease.release() is Released.LOST, "a repeat is answered alike"


async def test_release_after_another_took_the_key_says_lost(once: Any, other: Any, store_url: str) -> None:
    lease = await once.lock("a", ttl=60)
    lose_everything(store_url)
    successor = await other.lock("a", ttl=60)
    assert await lease.release() is Released.LOST
    assert await once.try_lock("a") is None
    assert await successor.release() is Released.RELEASED


async def test_release_says_lost_when_the_holder_knows_it(open_client: Callable[..., Any], store_url: str) -> None:
    events: list[Event] = []
    once, other = open_client(store_url, hooks=[events.append]), open_client(store_url)
    lease = await once.lock("a", ttl=60)
    lose_everything(store_url)
    successor = await other.lock("a", ttl=60)
    with pytest.raises(solely.LeaseLost, match="the store no longer had it"):
        await lease.renew()
    assert lease.lost
    assert lease.lost_how == "lost"
    assert await lease.release() is Released.LOST
    assert [event.how for event in events if isinstance(event, Lost)] == ["lost"]
    assert [event.outcome for event in events if isinstance(event, ReleasedLease)] == ["lost"]
    await successor.release()


async def test_a_block_whose_lock_the_store_lost_ends_with_lease_lost(once: Any, store_url: str) -> None:
    with pytest.raises(solely.LeaseLost, match="the store no longer had it"):
        async with once.lock("a", ttl=60):
            lose_everything(store_url)


async def test_a_block_of_many_locks_that_the_store_lost_ends_with_lease_lost(once: Any, store_url: str) -> None:
    with pytest.raises(solely.LeaseLost, match="the store no longer had it"):
        async with once.lock_all(["a", "b", "c"], ttl=60):
            lose_everything(store_url)


async def test_many_locks_of_which_the_store_lost_one_say_which(once: Any, store_url: str) -> None:
    leases = await once.lock_all(["a", "b", "c"], ttl=60)
    lose(store_url, "lock/b")
    assert await leases.release() == [Released.RELEASED, Released.LOST, Released.RELEASED]


async def test_a_lock_that_the_store_lost_alone_is_not_said_to_be_released(once: Any, store_url: str) -> None:
    lease = await once.lock("a", ttl=60)
    lose(store_url, "lock/a")
    assert await lease.release() is Released.LOST


async def test_many_tasks_that_let_go_of_what_the_store_lost_are_told_so(once: Any, store_url: str) -> None:
    """In asyncio their releases go out in one batch, together with what others take."""
    leases = [await once.lock(key, ttl=60) for key in "abcd"]
    lose(store_url, "lock/b")
    *outcomes, lease = await asyncio.gather(*(lease.release() for lease in leases), once.lock("e", ttl=60))
    assert outcomes == [Released.RELEASED, Released.LOST, Released.RELEASED, Released.RELEASED]
    assert await lease.release() is Released.RELEASED


@made_anew
async def test_a_token_of_a_lease_that_the_store_lost_is_told_so(once: Any, other: Any, store_url: str) -> None:
    token = (await once.lock("a", ttl=60)).hand_over()
    lose_everything(store_url)
    assert await once.release(token) is Released.LOST
    successor = await other.lock("a", ttl=60)
    assert await once.release(token) is Released.LOST
    assert await successor.release() is Released.RELEASED


async def test_a_claim_that_the_store_lost_is_not_said_to_be_released(once: Any, store_url: str) -> None:
    claim = await result_of(once.claim("a", ttl=60))
    lose_everything(store_url)
    assert await result_of(claim.release()) is Released.LOST
    claim = await result_of(once.claim("b", ttl=60))
    lose_everything(store_url)
    assert await result_of(claim.fail(ValueError("no"))) == "lost"


async def test_a_reservation_that_the_store_lost_is_not_said_to_be_released(once: Any, store_url: str) -> None:
    reservation = await result_of(once.reserve("a", hold=60))
    lose_everything(store_url)
    assert await result_of(reservation.release()) is False
    reservation = await result_of(once.reserve("b", hold=60))
    lose_everything(store_url)
    with pytest.raises(solely.UnknownReservation):
        await result_of(reservation.record())


async def queue_of(once: Any) -> Any:
    """A queue of either client: the blocking one's is answered on a thread, too."""
    queue = once.queue("jobs")
    return await queue if isawaitable(queue) else queue


@made_anew
async def test_an_item_that_the_store_lost_is_not_said_to_be_acked(once: Any, store_url: str) -> None:
    queue = await queue_of(once)
    await result_of(queue.push("1", {"n": 1}))
    item = await result_of(queue.take(ttl=60))
    lose_everything(store_url)
    assert await result_of(item.ack()) is False
    await result_of(queue.push("2", {"n": 2}))
    item = await result_of(queue.take(ttl=60))
    lose_everything(store_url)
    assert await result_of(item.give_back()) is False
    await result_of(queue.push("3", {"n": 3}))
    item = await result_of(queue.take(ttl=60))
    assert await result_of(item.ack()) is True
    assert await result_of(item.ack()) is True, "a repeat is answered alike"


# -- where the reply of a release was lost as well


class _Forgetful:
    """Any store that performs the first release and never answers it; then, perhaps, it loses its data."""

    def __init__(self, store: Any, after: Callable[[], None]) -> None:
        self._store = store
        self._after: Callable[[], None] | None = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _happens(self, ops: Sequence[Op]) -> Callable[[], None] | None:
        """What happens now instead of an answer; None if they are answered."""
        if not any(type(op) is Release for op in ops):
            return None
        after, self._after = self._after, None
        return after


class ForgetfulStore(_Forgetful):
    def perform(self, ops: Sequence[Op]) -> Any:
        replies = self._store.perform(ops)
        if (after := self._happens(ops)) is None:
            return replies
        after()
        raise Unanswered("the reply was lost")


class AsyncForgetfulStore(_Forgetful):
    async def perform(self, ops: Sequence[Op]) -> Any:
        replies = await self._store.perform(ops)
        if (after := self._happens(ops)) is None:
            return replies
        await asyncio.to_thread(after)
        raise Unanswered("the reply was lost")


def forgetful(kind: str, url: str, after: Callable[[], None]) -> Any:
    store = (
        ForgetfulStore(open_store(url), after)
        if kind == "blocking"
        else AsyncForgetfulStore(open_async_store(url), after)
    )
    return KINDS[kind](store=store) if kind == "asyncio" else KINDS[kind](None, store=store)


async def test_a_release_whose_reply_was_lost_is_still_released(kind: str, store_url: str) -> None:
    once = forgetful(kind, store_url, lambda: None)
    lease = await once.lock("a", ttl=60)
    assert await lease.release() is Released.RELEASED
    await once.close()


async def test_many_releases_whose_replies_were_lost_are_still_released(kind: str, store_url: str) -> None:
    once = forgetful(kind, store_url, lambda: None)
    leases = await once.lock_all(["a", "b", "c"], ttl=60)
    assert await leases.release() == [Released.RELEASED] * 3
    await once.close()


@made_anew
async def test_data_that_is_lost_with_the_reply_of_a_release_is_not_released(kind: str, store_url: str) -> None:
    once = forgetful(kind, store_url, lambda: lose_everything(store_url))
    lease = await once.lock("a", ttl=60)
    assert await lease.release() is Released.LOST
    await once.close()


# -- real servers


async def test_a_server_that_restarts_without_persistence_has_lost_the_lock(open_client: Callable[..., Any]) -> None:
    with Valkey() as server:
        once = open_client(server.url)
        lease, kept = await once.lock("a", ttl=60), (await once.lock("b", ttl=60)).hand_over()
        server.restart()
        assert await lease.release() is Released.LOST
        assert await once.release(kept) is Released.LOST


@pytest.mark.parametrize("name", [name for name in STORES if name.startswith("postgres")])
async def test_a_postgresql_schema_that_is_made_anew_has_lost_the_lock(
    open_client: Callable[..., Any], request: pytest.FixtureRequest, name: str
) -> None:
    url = STORES[name](request)
    token = (await open_client(url).lock("a", ttl=60)).hand_over()
    with psycopg.connect(url.partition("?")[0], autocommit=True) as server:
        server.execute(f"DROP SCHEMA {parse(url).names['schema']} CASCADE".encode())
    once = open_client(url)
    await (await once.lock("a", ttl=60)).release()
    assert await once.release(token) is Released.LOST
