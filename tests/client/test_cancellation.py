"""Cancellation at any await leaves nothing held, loses no turn, and leaves lines and connections as they were."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

import solely
from solely import AsyncClient, State
from solely.marks import calls as marking
from tests.client.concurrently import Server, concurrently
from tests.client.modes import Observer
from tests.client.stepping import WAYS, cancelled_at
from tests.mongo_server import Mongod
from tests.postgres_server import Postgres
from tests.servers import until

KEEPERS = 2  # the lines in which the renewal and the watching loop of a client stand
SPARE = 4  # connections that a pool may have more than before, for calls that go on without their cancelled callers
MOST_AWAITS = 60  # no public coroutine has nearly as many: a test that gets there runs in circles

Work = Callable[[], Awaitable[Any]]
Prepare = Callable[[str], Awaitable[Work]]


@pytest.fixture
def kind() -> str:
    return "asyncio"


async def at_every_await(way: str, prepare: Prepare, check: Callable[[str, Any], None]) -> None:
    """Cancels at await 1, 2, 3 … until the work needs no more of them; checks after each."""
    for k in range(1, MOST_AWAITS):
        key = f"key-{k}"
        work = await prepare(key)
        reached, outcome = await cancelled_at(k, way, work)
        check(key, outcome)
        if not reached:
            assert not isinstance(outcome, BaseException)
            assert k > 1 or way == "late"
            return
    raise AssertionError("it never ended")


def plain(call: Callable[[str], Awaitable[Any]]) -> Prepare:
    """Work that needs no preparation."""

    async def prepare(key: str) -> Work:
        return lambda: call(key)

    return prepare


def is_cancelled(outcome: Any) -> bool:
    return isinstance(outcome, asyncio.CancelledError)


@pytest.mark.parametrize("way", WAYS)
async def test_lock_and_try_lock(once: Any, observer: Observer, way: str) -> None:
    def check(key: str, outcome: Any) -> None:
        assert (observer.lock(key).state is State.FREE) == is_cancelled(outcome)
        assert observer.lock(key).waiters == 0

    await at_every_await(way, plain(lambda key: once.lock(key, ttl=30)), check)
    await at_every_await(way, plain(lambda key: once.try_lock(f"{key}-try", ttl=30)), lambda k, o: check(f"{k}-try", o))
    assert len(once._driver.waiters) <= KEEPERS


@pytest.mark.parametrize("way", WAYS)
async def test_a_waiter(once: Any, other: Any, observer: Observer, way: str) -> None:
    async def prepare(key: str) -> Work:
        fences[key] = (await other.lock(key, ttl=30)).fence
        return lambda: once.lock(key, ttl=30, wait=0.05)

    def check(key: str, outcome: Any) -> None:
        assert isinstance(outcome, asyncio.CancelledError | solely.Busy)
        assert observer.lock(key).fence == fences[key]
        assert observer.lock(key).waiters == 0

    fences: dict[str, int] = {}
    for k in range(1, MOST_AWAITS):
        reached, outcome = await cancelled_at(k, way, await prepare(f"key-{k}"))
        check(f"key-{k}", outcome)
        if not reached:
            break
    assert len(once._driver.waiters) == 0


@pytest.mark.parametrize("way", WAYS)
@concurrently("asyncio")
async def test_a_waiter_that_is_about_to_be_served_passes_the_turn_on(
    once: Any, other: Any, observer: Observer, way: str
) -> None:
    """The key is released while the cancelled one waits; whoever waits behind it gets it promptly."""

    async def lock_and_release(client: Any, key: str) -> None:
        await (await client.lock(key, ttl=30, wait=5)).release()

    for k in range(1, 12):
        key = f"key-{k}"
        lease = await other.lock(key, ttl=30)
        first = asyncio.ensure_future(cancelled_at(k, way, partial(lock_and_release, once, key)))
        await asyncio.sleep(0.01)
        behind = [asyncio.ensure_future(lock_and_release(client, key)) for client in (once, other)]
        await asyncio.sleep(0.01)
        await lease.release()
        await asyncio.wait_for(asyncio.gather(first, *behind), 100)
        assert observer.lock(key).waiters == 0
    assert len(once._driver.waiters) == len(other._driver.waiters) == KEEPERS


@pytest.mark.parametrize("way", WAYS)
async def test_lock_all(once: Any, other: Any, observer: Observer, way: str) -> None:
    def check(key: str, outcome: Any) -> None:
        held = {observer.lock(f"{key}-{n}").state for n in range(3)}
        assert held == {State.FREE} if is_cancelled(outcome) else held == {State.HELD}

    await at_every_await(way, plain(lambda key: once.lock_all([f"{key}-{n}" for n in range(3)], ttl=30)), check)

    releases: list[asyncio.Future[None]] = []

    async def contended(key: str) -> Work:
        in_the_way = await other.lock(f"{key}-b", ttl=30)
        releases.append(asyncio.ensure_future(_released_soon(in_the_way)))
        return lambda: once.lock_all([f"{key}-a", f"{key}-b", f"{key}-c"], ttl=30, wait=10)

    def check_contended(key: str, outcome: Any) -> None:
        mine = [observer.lock(f"{key}-{n}").state for n in "ac"]
        assert mine == [State.FREE if is_cancelled(outcome) else State.HELD] * 2
        assert [observer.lock(f"{key}-{n}").waiters for n in "abc"] == [0, 0, 0]

    await at_every_await(way, contended, check_contended)
    await asyncio.gather(*releases)
    assert len(once._driver.waiters) == KEEPERS


async def _released_soon(lease: Any) -> None:
    """When whoever is to wait for it has come to wait, usually."""
    await asyncio.sleep(0.05)
    await lease.release()


@pytest.mark.parametrize("way", WAYS)
async def test_renew_ensure_and_release(once: Any, observer: Observer, way: str) -> None:
    leases: dict[str, Any] = {}

    def prepared(call: Callable[[Any], Awaitable[Any]]) -> Prepare:
        async def prepare(key: str) -> Work:
            leases[key] = await once.lock(key, ttl=30, renew=False)
            return lambda: call(leases[key])

        return prepare

    def still_held(key: str, outcome: Any) -> None:
        assert observer.lock(key).fence == leases[key].fence
        assert not leases[key].lost

    async def ensure(lease: Any) -> None:
        lease._hold.deadline -= 20
        await lease.ensure(25)

    for call in (lambda lease: lease.renew(ttl=20), ensure):
        await at_every_await(way, prepared(call), still_held)
        for lease in leases.values():
            assert await lease.release() is solely.Released.RELEASED
        leases.clear()

    await at_every_await(way, prepared(lambda lease: lease.release()), lambda key, _: _assert_free(observer, key))
    for lease in leases.values():
        assert await lease.release() is solely.Released.RELEASED


def _assert_free(observer: Observer, key: str) -> None:
    assert observer.lock(key).state is State.FREE


@pytest.mark.parametrize("way", WAYS)
async def test_a_guarded_body(once: Any, observer: Observer, way: str) -> None:
    async def body(key: str) -> None:
        async with once.lock(key, ttl=30):
            await asyncio.sleep(0)
            async with once.lock_all([f"{key}-a", f"{key}-b"], ttl=30):
                await asyncio.sleep(0.001)

    def check(key: str, outcome: Any) -> None:
        assert outcome is None or is_cancelled(outcome)
        assert {observer.lock(f"{key}{end}").state for end in ("", "-a", "-b")} == {State.FREE}

    await at_every_await(way, plain(body), check)
    assert len(once._driver.waiters) == KEEPERS


@pytest.mark.parametrize("way", WAYS)
async def test_resume(once: Any, other: Any, observer: Observer, way: str) -> None:
    tokens: dict[str, str] = {}
    fences: dict[str, int] = {}

    async def prepare(key: str) -> Work:
        lease = await other.lock(key, ttl=30)
        tokens[key], fences[key] = lease.hand_over(), lease.fence
        return lambda: once.resume(tokens[key])

    def check(key: str, outcome: Any) -> None:
        entry = observer.lock(key)
        if not is_cancelled(outcome):
            assert entry.fence == outcome.fence > fences[key]
            del tokens[key]
        elif entry.state is State.HELD:  # it was not resumed yet: the token still stands for it
            assert entry.fence == fences[key]

    await at_every_await(way, prepare, check)
    for key, token in tokens.items():
        if observer.lock(key).state is State.HELD:
            await (await once.resume(token)).release()
        _assert_free(observer, key)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cache", [False, True])
async def test_first_mark_and_first_many(
    open_client: Callable[..., Any], store_url: str, other: Any, observer: Observer, way: str, cache: bool
) -> None:
    once = open_client(store_url, cache=cache)

    def check(key: str, outcome: Any) -> None:
        marked = observer.mark(key).state is State.DONE
        assert marked == (not is_cancelled(outcome))
        assert not marking.known(once._context, f"mark/{key}") or marked

    await at_every_await(way, plain(lambda key: once.first(key)), check)
    await at_every_await(way, plain(lambda key: once.mark(f"{key}-mark")), lambda k, o: check(f"{k}-mark", o))

    def check_many(key: str, outcome: Any) -> None:
        for n in range(5):
            check(f"{key}-{n}", outcome)

    await at_every_await(way, plain(lambda key: once.first_many([f"{key}-{n}" for n in range(5)])), check_many)

    async def partly_seen(key: str) -> Work:
        await other.mark(f"{key}-seen")
        return lambda: once.first_many([f"{key}-seen", f"{key}-x", f"{key}-y"])

    def check_partly(key: str, outcome: Any) -> None:
        assert observer.mark(f"{key}-seen").state is State.DONE
        check(f"{key}-x", outcome)
        check(f"{key}-y", outcome)

    await at_every_await(way, partly_seen, check_partly)


@pytest.mark.parametrize("way", WAYS)
async def test_seen_and_forget(once: Any, other: Any, observer: Observer, way: str) -> None:
    async def prepare_seen(key: str) -> Work:
        await other.mark(key)
        return lambda: once.seen(key)

    async def prepare_forget(key: str) -> Work:
        await other.mark(f"{key}-forget")
        return lambda: once.forget(f"{key}-forget")

    def still_seen(key: str, outcome: Any) -> None:
        assert outcome is True or is_cancelled(outcome)
        assert observer.mark(key).state is State.DONE

    await at_every_await(way, prepare_seen, still_seen)
    await at_every_await(way, prepare_forget, lambda key, outcome: None)
    assert await once.first("fresh")


@pytest.mark.parametrize("way", WAYS)
async def test_close(store_url: str, observer: Observer, way: str) -> None:
    clients: list[AsyncClient] = []

    async def prepare(key: str) -> Work:
        clients.append(AsyncClient(store_url))
        await clients[-1].lock(key, ttl=30)
        return clients[-1].close

    await at_every_await(way, prepare, lambda key, _: _assert_free(observer, key))
    for client in clients:
        await client.close()
        with pytest.raises(solely.ClientClosed):
            await client.first("a")


# -- connections


@pytest.mark.parametrize("way", WAYS)
async def test_cancelled_calls_leave_as_many_connections_as_before_and_no_strangers_reply(
    server: Server, direct_url: str, way: str
) -> None:
    async with AsyncClient(direct_url) as once:
        await (await once.lock("warm", ttl=30)).release()
        most = _connections(server) + (SPARE if isinstance(server, Mongod | Postgres) else 0)
        for k in range(1, 30):
            reached, outcome = await cancelled_at(k, way, partial(_lock_and_release, once, f"key-{k}"))
            assert is_cancelled(outcome) or not reached or way in ("late", "in flight")
            assert await once.first(f"mark-{k}") is True
            assert await once.seen(f"mark-{k}") is True
            assert await once.seen(f"no-mark-{k}") is False
        until(lambda: _connections(server) <= most, "connections as before")


@pytest.mark.parametrize("way", WAYS)
async def test_a_cancelled_close_leaves_no_connection(server: Server, direct_url: str, way: str) -> None:
    before = _connections(server)
    for k in range(1, 30):
        client = AsyncClient(direct_url)
        await client.lock("a", ttl=30, wait=5)
        reached, _ = await cancelled_at(k, way, client.close)
        await client.close()
        if not reached:
            break
    while (left := _connections(server)) > before and k < 200:
        await asyncio.sleep(0.02)
        k += 1
    assert left <= before


async def _lock_and_release(client: Any, key: str) -> None:
    await (await client.lock(key, ttl=30)).release()


def _connections(server: Server) -> int:
    """How many clients the server has; of MongoDB, which its tests ask on several connections, how many of ours."""
    if isinstance(server, Mongod):
        with server.mongo() as client:
            all_of_them = {"$currentOp": {"allUsers": True, "idleConnections": True}}
            return len(list(client.admin.aggregate([all_of_them, {"$match": {"appName": "solely"}}])))
    if isinstance(server, Postgres):
        rows = server.ask("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
        return int(rows[0][0])
    return int(server.ask("INFO", "clients")["connected_clients"])


# -- many at once


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_thousand_random_cancels_among_waiters_holders_and_releasers(direct_url: str, seed: int) -> None:
    """Two thousand on each server: nothing stays held or queued, nobody hangs, no turn is lost."""
    chance = random.Random(seed)
    clients = [AsyncClient(direct_url, timeout=60) for _ in range(3)]
    keys = ["a", "b", "c"]
    inside: dict[str, int] = dict.fromkeys(keys, 0)
    turns = 0
    enough = False

    async def hold(client: AsyncClient, key: str) -> None:
        nonlocal turns
        async with client.lock(key, ttl=20, wait=150):
            inside[key] += 1
            try:
                assert inside[key] == 1
                turns += 1
                await asyncio.sleep(chance.choice((0, 0, 0.001)))
            finally:
                inside[key] -= 1

    async def hold_all(client: AsyncClient) -> None:
        async with client.lock_all(chance.sample(keys, 2), ttl=20, wait=150):
            await asyncio.sleep(0)

    async def worker(client: AsyncClient) -> None:
        me = asyncio.current_task()
        assert me is not None
        while not enough:
            try:
                await (hold(client, chance.choice(keys)) if chance.random() < 0.8 else hold_all(client))
            except asyncio.CancelledError:
                me.uncancel()
        await hold(client, chance.choice(keys))

    workers = [asyncio.ensure_future(worker(client)) for client in clients for _ in range(8)]
    cancels = 0
    async with asyncio.timeout(170):
        while cancels < 1_000:
            await asyncio.sleep(chance.choice((0, 0, 0.0005, 0.002)))
            cancels += chance.choice(workers).cancel()
            for ended in (each for each in workers if each.done()):
                ended.result()  # says why
                raise AssertionError("a worker ended before its time")
        enough = True
        await asyncio.gather(*workers)
    assert turns >= len(workers) * (3 if direct_url.startswith("redis") else 1)  # the slower ones have fewer meanwhile
    observer = Observer(direct_url)
    for key in keys:
        entry = observer.lock(key)
        assert (entry.state, entry.waiters) in {(State.FREE, 0), (State.CLOSED, 0)}
    observer.close()
    for client in clients:
        assert len(client._driver.waiters) == KEEPERS
        await client.close()
