"""A store that is down, hangs, or loses a reply halfway is told as such within the timeout: never as a yes or a no."""

import asyncio
import gc
import re
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

import solely.drivers.aio
import solely.drivers.blocking
from solely import AsyncClient, Client, State
from solely.testing.proxy import FaultProxy
from tests.client.concurrently import Server, concurrently
from tests.client.modes import Observer
from tests.client.refusing import AsyncRefusingStore, RefusingStore
from tests.client.wire import about, before, through
from tests.lateness import Lateness
from tests.servers import Valkey

TIMEOUT = 2.0  # seconds: tries of 0.7 s, which a busy machine needs to recover
UNDOING = 0.6  # seconds instead of 2: most tests here wait until what cannot be undone is given up
BOUND = TIMEOUT + UNDOING + 2.5  # seconds: the timeout, the bounded undoing, and room; with the lateness of the machine


@pytest.fixture(autouse=True)
def _short_undoing(monkeypatch: pytest.MonkeyPatch) -> None:
    for driver in (solely.drivers.aio, solely.drivers.blocking):
        monkeypatch.setattr(driver, "COMPENSATE", UNDOING)


@pytest.fixture
def patient_undoing(_short_undoing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test in which the undoing succeeds: each try needs a new connection, which takes long on a busy machine."""
    for driver in (solely.drivers.aio, solely.drivers.blocking):
        monkeypatch.setattr(driver, "COMPENSATE", 10 * UNDOING)


def _refusing(proxy: FaultProxy) -> None:
    proxy.refuse()
    proxy.reset()


FAULTS: dict[str, Callable[[FaultProxy], Any]] = {
    "down": _refusing,
    "half-open": lambda proxy: proxy.half_open(),
    "requests dropped": lambda proxy: proxy.drop_requests(n=1_000),
    "replies dropped": lambda proxy: proxy.drop_replies(n=1_000),
    "reset on request": lambda proxy: proxy.reset_on("to_server", n=1_000),
    "reset on reply": lambda proxy: proxy.reset_on("to_client", n=1_000),
}
_names = count()
CALLS: dict[str, Callable[[Any], Any]] = {
    "lock": lambda once: once.lock("a", ttl=30, wait=20),
    "try_lock": lambda once: once.try_lock("a", ttl=30),
    "lock_all": lambda once: once.lock_all(["a", "b"], ttl=30, wait=20),
    "first": lambda once: once.first("a"),
    "first_many": lambda once: once.first_many(["a", "b"]),
    "seen": lambda once: once.seen("a"),
    "forget": lambda once: once.forget("a"),
}


async def test_every_call_says_unavailable_within_its_bound_and_recovers(
    direct_url: str, open_client: Callable[..., Any], lateness: Lateness
) -> None:
    await asyncio.gather(*(_fails_and_recovers(direct_url, open_client, fault, lateness) for fault in FAULTS))


async def _fails_and_recovers(direct_url: str, open_client: Callable[..., Any], fault: str, lateness: Lateness) -> None:
    with before(direct_url) as proxy:
        once = open_client(through(proxy, direct_url), timeout=TIMEOUT)
        async with asyncio.timeout(100):
            while (await _timed(lambda client: client.seen("warm"), once))[0] is not False:  # others are busy as well
                pass
        FAULTS[fault](proxy)
        outcomes = await asyncio.gather(*(_timed(call, once) for call in CALLS.values()))
        for (error, took), name in zip(outcomes, CALLS, strict=True):
            assert isinstance(error, solely.StoreUnavailable), f"{fault}, {name}: {error!r}"
            assert "happen" in str(error)
            assert took < BOUND + lateness.seconds, f"{fault}, {name}: {took:.1f} s"
        proxy.heal()
        async with asyncio.timeout(100):
            while (await _timed(lambda client: client.seen("never marked"), once))[0] is not False:
                await asyncio.sleep(0.02)
            while not await _has_recovered(once, f"{fault} {next(_names)}"):
                await asyncio.sleep(0.02)
        await once.close()


async def _has_recovered(once: Any, name: str) -> bool:
    """True if it works again; False if this machine is too busy for so short a timeout."""
    try:
        async with once.lock_all([f"c {name}", f"d {name}"], ttl=30):
            assert await once.first(f"c {name}")
    except solely.StoreUnavailable:
        return False
    return True


async def _timed(call: Callable[[Any], Any], once: Any) -> tuple[Any, float]:
    start = time.monotonic()
    try:
        return await call(once), time.monotonic() - start
    except solely.SolelyError as error:
        return error, time.monotonic() - start


@concurrently()
async def test_one_unanswered_try_among_refused_ones_is_told_as_unknown(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any]
) -> None:
    once = open_client(proxied_url, timeout=4 * TIMEOUT)  # a try that is cut off while it connects is unknown, too
    await once.seen("warm")
    proxy.drop_replies(answering=about("mark/a"), then="reset")
    proxy.refuse()
    with pytest.raises(solely.StoreUnavailable, match="may or may not have happened"):
        await once.first("a")
    with pytest.raises(solely.StoreUnavailable, match="it did not happen"):
        await once.first("b")
    proxy.heal()


@concurrently()
async def test_what_an_outage_left_unknown_is_free_soon_after(
    proxied_url: str,
    proxy: FaultProxy,
    open_client: Callable[..., Any],
    beside: Observer,
    patient_undoing: None,
) -> None:
    """Replies are lost for longer than the timeout, but requests arrive: the undoing does as well."""
    once = open_client(proxied_url, timeout=TIMEOUT)
    await once.seen("warm")
    proxy.drop_replies(n=1_000, answering=lambda request: b"lock/a" in request or b"mark/a" in request)
    with pytest.raises(solely.StoreUnavailable):
        await once.lock("a", ttl=30, wait=5)
    with pytest.raises(solely.StoreUnavailable):
        await once.first("a")
    async with asyncio.timeout(100):  # the undoing goes on for a moment when the caller has left
        while {beside.lock("a").state, beside.mark("a").state} != {State.FREE}:
            await asyncio.sleep(0.02)
    proxy.heal()


@concurrently()
async def test_after_a_cut_reply_every_answer_is_the_right_one(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any]
) -> None:
    once = open_client(proxied_url, timeout=2.0)
    assert await once.first("marked")
    rounds = 5 if proxied_url.startswith("redis") else 1  # pymongo looks for its server only twice a second
    for n, after_bytes in enumerate((0, 1, 2, 5, 9, 13, 17, 40) * rounds):
        fault = proxy.cut_reply(after_bytes, answering=about(f"mark/k{n}"))
        assert await once.first(f"k{n}") is True
        assert fault.hits == 1
        answers = await asyncio.gather(
            once.seen("marked"), once.seen("absent"), once.first(f"k{n}"), once.first(f"new{n}"), once.seen(f"k{n}")
        )
        assert list(answers) == [True, False, False, True, True]


async def test_a_reset_in_the_middle_of_many_calls_mixes_no_answers(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any]
) -> None:
    once = open_client(proxied_url, timeout=2.0)
    marked, absent = [f"yes{n}" for n in range(20)], [f"no{n}" for n in range(20)]
    assert all(await once.first_many(marked))
    for _ in range(5):
        calls = asyncio.gather(*(once.seen(key) for pair in zip(marked, absent, strict=True) for key in pair))
        await asyncio.sleep(0)
        proxy.reset()
        assert await calls == [True, False] * 20


async def test_a_paused_server_is_unavailable_and_then_goes_on(
    server: Server, direct_url: str, open_client: Callable[..., Any], lateness: Lateness
) -> None:
    once = open_client(direct_url, timeout=TIMEOUT)
    lease = await once.lock("a", ttl=30)
    server.pause()
    try:
        error, took = await _timed(CALLS["first"], once)
    finally:
        server.resume()
    assert isinstance(error, solely.StoreUnavailable)
    assert took < BOUND + lateness.seconds
    assert await once.try_lock("a") is None
    assert str(await lease.release()) == "released"


@concurrently()
async def test_the_first_try_counts_as_well(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any]
) -> None:
    once = open_client(proxied_url, timeout=3.0)
    await once.seen("a")
    proxy.half_open()
    error, _ = await _timed(CALLS["seen"], once)
    assert re.search("in [1-3] tries over", str(error)), error  # of 1.2 s each


@concurrently()
async def test_a_server_that_was_never_there_is_unavailable_with_its_address(
    nowhere_url: str, open_client: Callable[..., Any], lateness: Lateness
) -> None:
    once = open_client(nowhere_url, timeout=TIMEOUT)
    error, took = await _timed(CALLS["lock"], once)
    assert isinstance(error, solely.StoreUnavailable)
    assert str(urlsplit(nowhere_url).port) in str(error)
    assert took < BOUND + lateness.seconds


@concurrently()
async def test_what_was_never_sent_is_not_undone(
    nowhere_url: str, open_client: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    once = open_client(nowhere_url, timeout=0.1)
    for call in (*CALLS.values(), lambda once: once.claim_many(["a", "b"])):
        error, _ = await _timed(call, once)
        assert "it did not happen" in str(error)
    assert not [record for record in caplog.records if record.message.startswith("undo_failed")]


@pytest.mark.parametrize("many", [2, 10])
async def test_a_batch_that_was_refused_in_part_may_have_happened(many: int) -> None:
    class HalfAway(RefusingStore):
        def perform(self, ops: Any) -> Any:
            return [solely.StoreUnavailable("that node is down"), *[True for _ in ops[1:]]]

    class AsyncHalfAway(AsyncRefusingStore):
        async def perform(self, ops: Any) -> Any:
            return HalfAway().perform(ops)

    keys = [str(n) for n in range(many)]
    with Client(store=HalfAway(), timeout=0.1) as once, pytest.raises(solely.StoreUnavailable, match="may or may not"):
        once.first_many(keys)
    async with AsyncClient(store=AsyncHalfAway(), timeout=0.1) as later:
        with pytest.raises(solely.StoreUnavailable, match="may or may not"):
            await later.first_many(keys)


@concurrently()
async def test_a_client_closed_while_it_connects_leaves_no_socket_behind(
    silent_url: str, open_client: Callable[..., Any], lateness: Lateness
) -> None:
    once = open_client(silent_url, timeout=2.0)
    call = asyncio.ensure_future(_timed(CALLS["lock"], once))
    await asyncio.sleep(0.1)
    await once.close()
    error, took = await call
    assert isinstance(error, solely.StoreUnavailable | solely.ClientClosed)
    assert took < BOUND + lateness.seconds
    gc.collect()  # a socket that nobody closed is told by its end, which fails this test, or the next


@concurrently()
async def test_closing_while_the_store_hangs_is_bounded(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any]
) -> None:
    once = open_client(proxied_url, timeout=TIMEOUT)
    await once.lock("a", ttl=30)
    proxy.half_open()
    start = time.monotonic()
    await once.close()
    assert time.monotonic() - start < 10
    proxy.heal()


# -- a full server


@pytest.fixture
def full_server() -> Iterator[Valkey]:
    with Valkey(maxmemory="4mb", maxmemory_policy="noeviction") as server:
        yield server


def _fill(server: Valkey) -> None:
    with server.client() as filler:
        for size in (100_000, 10_000, 1_000, 100):
            try:
                for n in range(1_000):
                    filler.set(f"filling-{size}-{n}", b"x" * size)
            except redis.OutOfMemoryError:
                continue
        used = filler.info("memory")["used_memory"]
        filler.config_set("maxmemory", used - 500_000)  # so that it stays full when a connection's buffers are freed


async def test_a_full_server_refuses_new_acquires_clearly_and_still_releases(
    open_client: Callable[..., Any], full_server: Valkey
) -> None:
    once = open_client(full_server.url, timeout=2.0)
    lease = await once.lock("held", ttl=30)
    several = await once.lock_all(["x", "y"], ttl=30)
    _fill(full_server)
    for call in CALLS.values():
        if call is CALLS["seen"] or call is CALLS["forget"]:
            continue
        with pytest.raises(solely.StoreFull):
            await call(once)
    assert await once.seen("a") is False
    assert str(await lease.release()) == "released"
    assert [str(outcome) for outcome in await several.release()] == ["released", "released"]


def test_both_clients_name_the_same_errors(nowhere_url: str) -> None:
    with Client(nowhere_url, timeout=0.05) as once, pytest.raises(solely.StoreUnavailable) as blocking:
        once.seen("a")

    async def asynchronous() -> solely.StoreUnavailable:
        async with AsyncClient(nowhere_url, timeout=0.05) as once:
            with pytest.raises(solely.StoreUnavailable) as error:
                await once.seen("a")
            return error.value

    assert asyncio.run(asynchronous()).key == blocking.value.key == "mark/a"
