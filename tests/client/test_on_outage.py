"""on_outage="proceed": without its store a client goes on as if it were the first, and says so. A breaker: at once."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

import solely
from solely import Cache, Released, State, events
from solely.resilience import Breaker, Circuit
from solely.testing.clock import ManualClock
from solely.testing.proxy import FaultProxy
from tests.client.away import switched
from tests.client.modes import InThread, Observer
from tests.conftest import isolated
from tests.servers import Valkey


@pytest.fixture
def store(kind: str, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The store at hand, to be switched away; what is then undone takes all the time it is given: here, little."""
    for driver in ("blocking", "aio"):
        monkeypatch.setattr(f"solely.drivers.{driver}.COMPENSATE", 0.05)
    return switched(kind, store_url)


@pytest.fixture
def proceeding(open_client: Callable[..., Any], store: Any) -> Any:
    """A client that goes on without its store."""
    return store.opened(open_client, on_outage="proceed")


async def test_a_store_that_is_there_is_asked_as_ever(proceeding: Any, once: Any) -> None:
    assert await proceeding.first("a")
    assert not await once.first("a")
    async with proceeding.lock("a", ttl=30) as lease:
        assert not lease.unguarded
        assert lease.fence > 0
        assert await once.try_lock("a") is None
        assert await proceeding.try_lock("a") is None
    with pytest.raises(solely.Busy):
        async with once.lock("a", ttl=30):
            await proceeding.lock("a", wait=0)
    assert proceeding.failed_open == 0


async def test_every_caller_is_the_first_while_the_store_is_away(proceeding: Any, store: Any, once: Any) -> None:
    assert await once.first("a")
    store.away = True
    assert await proceeding.first("a") is True
    assert await proceeding.first("a") is True
    assert await proceeding.first_many(["a", "b", "c", "b"]) == [True, True, True, False]
    assert await proceeding.seen("a") is False
    assert proceeding.failed_open == 4
    store.away = False
    assert await proceeding.first("a") is False
    assert await proceeding.first("b") is True


async def test_a_lock_is_told_to_be_unguarded_and_lets_go_of_nothing(
    proceeding: Any, store: Any, observer: Observer
) -> None:
    store.away = True
    lease = await proceeding.lock("a", ttl=30, max_hold=0.01)
    tried = await proceeding.try_lock("a", ttl=30)
    assert not (
        proceeding.it if isinstance(proceeding, InThread) else proceeding
    )._context.keeper.holds  # none is renewed
    for one in (lease, tried):  # whatever asked the store now would fail
        assert one.unguarded
        assert (one.key, one.fence, one.lost) == ("a", 0, False)
        assert one.remaining() == float("inf")
        await one.renew()
        await one.ensure(10)
        assert await one.release() is Released.UNKNOWN
    assert observer.lock("a").state is State.FREE


async def test_a_guarded_body_runs_and_its_own_error_is_raised(proceeding: Any, store: Any) -> None:
    store.away = True
    async with proceeding.lock("a", ttl=30) as lease:
        assert lease.unguarded
    with pytest.raises(ZeroDivisionError):
        async with proceeding.lock("a", ttl=30):
            raise ZeroDivisionError


async def test_several_locks_are_unguarded_together(proceeding: Any, store: Any) -> None:
    store.away = True
    async with proceeding.lock_all(["b", "a", "b"], ttl=30) as leases:
        assert [(one.key, one.unguarded) for one in (leases[0], leases[1])] == [("b", True), ("a", True)]
    again = await proceeding.lock_all(["a", "b"], ttl=30)
    assert await again.release() == [Released.UNKNOWN] * 2


async def test_an_unguarded_lease_cannot_be_handed_over(proceeding: Any, store: Any) -> None:
    store.away = True
    lease = await proceeding.lock("a", ttl=30)
    with pytest.raises(solely.InvalidInput, match="unguarded"):
        lease.hand_over()
    with pytest.raises(solely.InvalidInput, match="unguarded"):
        _ = lease.token


async def test_what_cannot_proceed_is_still_unavailable(proceeding: Any, store: Any) -> None:
    lease = await proceeding.lock("a", ttl=30)
    store.away = True
    for call in (lambda: proceeding.forget("a"), lease.renew, lease.release):
        with pytest.raises(solely.StoreUnavailable):
            await call()
    assert proceeding.failed_open == 0


async def test_it_is_counted_logged_and_told(
    open_client: Callable[..., Any], store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[events.Event] = []
    once = store.opened(open_client, on_outage="proceed", hooks=[told.append])
    store.away = True
    await once.first("a")
    await once.first_many(["b"])
    await once.seen("c")
    await once.lock("d")
    await once.lock_all(["e"])
    failed_open = [(event.key, event.what) for event in told if isinstance(event, events.FailedOpen)]
    assert failed_open == [
        ("mark/a", "first"),
        ("mark/b", "first_many"),
        ("mark/c", "seen"),
        ("lock/d", "lock"),
        ("lock/e", "lock_all"),
    ]
    logged = [record for record in caplog.records if record.message.startswith("failed_open: ")]
    assert [record.count for record in logged] == [1, 2, 3, 4, 5]  # type: ignore[attr-defined]
    assert all(record.levelno == logging.WARNING for record in logged)
    assert once.failed_open == 5
    assert not [event for event in told if isinstance(event, events.Acquired)]


async def test_what_the_cache_knows_is_known_without_the_store(open_client: Callable[..., Any], store: Any) -> None:
    once = store.opened(open_client, on_outage="proceed", cache=Cache())
    assert await once.first("a")
    store.away = True
    assert await once.first("a") is False
    assert await once.seen("a") is True
    assert await once.first_many(["a", "b"]) == [False, True]


async def test_a_caller_that_is_cancelled_does_not_proceed() -> None:
    store = switched("asyncio", "memory://")
    store.away = True
    async with solely.AsyncClient(store=store, timeout=30, on_outage="proceed") as once:
        call = asyncio.ensure_future(once.first("a"))
        await asyncio.sleep(0.02)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert once.failed_open == 0


async def test_a_real_outage_is_gone_on_without_and_nothing_stays_held(
    open_client: Callable[..., Any], valkey: Valkey
) -> None:
    url = isolated(valkey.url)
    with FaultProxy(valkey.host, valkey.port) as proxy:
        once = open_client(proxy.url(url), timeout=2.0, on_outage="proceed")
        await once.seen("warm")
        proxy.drop_replies(n=1_000, answering=lambda request: b"lock/a" in request or b"mark/a" in request)
        assert (await once.lock("a", ttl=30)).unguarded
        assert await once.first("a") is True
        beside = Observer(url)
        async with asyncio.timeout(100):  # the undoing goes on for a moment when the caller has left
            while {beside.lock("a").state, beside.mark("a").state} != {State.FREE}:
                await asyncio.sleep(0.02)
        beside.close()
        proxy.heal()
        await once.close()


def test_on_outage_is_named_rightly_or_refused() -> None:
    for client in (solely.Client, solely.AsyncClient):
        with pytest.raises(solely.InvalidInput, match="on_outage must be"):
            client("memory://", on_outage="ignore")  # type: ignore[arg-type]


# -- with a breaker before the store


@pytest.fixture
def local() -> ManualClock:
    return ManualClock()


@pytest.fixture
def breaker(local: ManualClock) -> Breaker:
    return Breaker("store", threshold=2, cooldown=30, successes=1, clock=local)


async def test_a_store_that_keeps_being_away_is_not_asked(
    open_client: Callable[..., Any], store: Any, breaker: Breaker, local: ManualClock
) -> None:
    once = store.opened(open_client, breaker=breaker)
    store.away = True
    for _ in range(2):
        with pytest.raises(solely.StoreUnavailable, match="no answer"):
            await once.first("a")
    assert breaker.state() is Circuit.OPEN
    asked = len(store.asked)
    for name, of in {"first": "a", "seen": "a", "lock": "a", "lock_all": ["a"]}.items():
        with pytest.raises(solely.StoreUnavailable, match="no request was sent") as refused:
            await getattr(once, name)(of)
        assert refused.value.left == pytest.approx(30)
    assert len(store.asked) == asked
    local.advance(30)
    store.away = False
    assert await once.first("a") is True
    assert breaker.state() is Circuit.CLOSED


async def test_with_proceed_it_goes_on_at_once(open_client: Callable[..., Any], store: Any, breaker: Breaker) -> None:
    once = store.opened(open_client, breaker=breaker, on_outage="proceed")
    store.away = True
    assert [await once.first("a") for _ in range(2)] == [True, True]
    asked = len(store.asked)
    assert await once.first("a") is True
    assert (await once.lock("a")).unguarded
    assert len(store.asked) == asked
    assert once.failed_open == 4


async def test_refusals_are_answers_and_a_waiting_trial_holds_nobody_up(
    open_client: Callable[..., Any], store: Any, once: Any, breaker: Breaker, local: ManualClock
) -> None:
    guarded = store.opened(open_client, breaker=breaker)
    async with once.lock("a", ttl=30):
        for _ in range(3):
            assert await guarded.try_lock("a") is None
        assert breaker.state() is Circuit.CLOSED
        store.away = True
        for _ in range(2):
            with pytest.raises(solely.StoreUnavailable):
                await guarded.seen("b")
        store.away = False
        local.advance(30)
        trial = asyncio.ensure_future(_take(guarded))
        async with asyncio.timeout(100):
            while breaker.state() is not Circuit.CLOSED:
                await asyncio.sleep(0.005)
        assert not trial.done()
        assert await guarded.seen("b") is False
    await (await trial).release()


async def _take(client: Any) -> Any:
    return await client.lock("a", ttl=30, wait=10)
