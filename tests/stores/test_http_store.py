"""What is the http:// store's own: addresses and tokens, refusals, hints as a stream, and a network that fails."""

import asyncio
import http.server
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import solely
from solely.errors import (
    StoreDenied,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
    Unanswered,
)
from solely.ops import Acquire, Mark, Push, Read, Release
from solely.rules import MAX_KEPT
from solely.stores import open_async_store, open_store
from solely.stores.http.blocking import HttpStore
from solely.stores.http.settings import parse, portions, refusal
from solely.testing.harness import HintRecorder, fresh
from solely.testing.proxy import FaultProxy
from tests.conftest import STORES
from tests.http_service import HttpServices
from tests.service.serving import LINES, TOKENS, Running, running, until

SOON = 5.0  # seconds: an upper bound for what takes milliseconds


@pytest.fixture
def url(http_services: HttpServices) -> str:
    return http_services.url()


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    with running(tokens=LINES) as service:
        yield service


@pytest.fixture
def opened() -> Iterator[Callable[[str], HttpStore]]:
    stores: list[Any] = []

    def open_one(url: str) -> Any:
        stores.append(open_store(url, timeout=2.0))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


# -- addresses and tokens


@pytest.mark.parametrize(
    ("url", "address", "token"),
    [
        ("http://localhost", "http://localhost", ""),
        ("https://host:8443/", "https://host:8443", ""),
        ("https://:secret@host/under/a/path/", "https://host/under/a/path", "secret"),
        ("https://secret@host", "https://host", "secret"),
        ("https://name:se%2Fcret@host", "https://host", "se/cret"),
        ("http://[::1]:80", "http://[::1]:80", ""),
    ],
)
def test_addresses(url: str, address: str, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOLELY_TOKEN", raising=False)
    told = parse(url)
    assert (told.url, told.token) == (address, token)
    assert "secret" not in f"{told} {told!r} {open_store(url)!r}"


@pytest.mark.parametrize(
    "url", ["http://", "http:///path", "http://host?option=1", "http://host:99999", "http://:sécret\n@h"]
)
def test_addresses_that_cannot_be(url: str) -> None:
    with pytest.raises(solely.InvalidInput) as refused:
        open_store(url)
    assert "cret" not in str(refused.value)


def test_the_token_is_taken_from_the_environment(guarded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with solely.Client(guarded.address) as stranger, pytest.raises(StoreDenied):
        stranger.first(fresh("a"), ttl=10)
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["write"])
    with solely.Client(guarded.address) as once:
        assert once.first(fresh("a"), ttl=10)


async def test_what_a_scope_does_not_allow_is_denied(guarded: Running) -> None:
    reader, writer = (f"http://:{TOKENS[scope]}@127.0.0.1:{guarded.port}" for scope in ("read", "write"))
    with solely.Client(reader) as once:
        assert once.explain("a").why == ()
        with pytest.raises(StoreDenied, match="needs the scope write"):
            once.lock("a")
    async with solely.AsyncClient(writer) as once:
        key = fresh("a")
        assert await once.first(key, ttl=10)
        assert await once.forget(key)
        async with await once.claim(key) as claim:
            await claim.publish(1)
        with pytest.raises(StoreDenied, match="needs the scope admin"):
            await once.reset(key, expected=1)


# -- refusals


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (503, "stopping", StoreUnavailable),
        (503, "store-away", Unanswered),
        (503, "", Unanswered),
        (502, "", Unanswered),
        (504, "", Unanswered),
        (502, "store-failed", StoreFailed),
        (507, "store-full", StoreFull),
        (401, "no-token", StoreDenied),
        (421, "unknown-host", StoreDenied),
        (404, "", StoreMisconfigured),
        (400, "invalid", StoreFailed),
        (413, "", StoreFailed),
        (500, "broken", StoreFailed),
    ],
)
def test_what_refusals_mean(status: int, kind: str, error: type[StoreError]) -> None:
    assert type(refusal(status, kind, "text")) is error


def test_a_service_that_is_not_there_did_nothing(opened: Callable[[str], HttpStore]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(StoreUnavailable) as away:
        opened(f"http://127.0.0.1:{port}").perform([Read("lock/a")])
    assert not isinstance(away.value, Unanswered)


class Other(http.server.BaseHTTPRequestHandler):
    """Something that is no Solely service."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"hi")

    do_POST = do_GET

    def log_message(self, *what: object) -> None:
        """Nothing."""


def test_something_else_at_the_address_is_told(opened: Callable[[str], HttpStore]) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        store = opened(f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(StoreMisconfigured, match="no Solely service"):
            store.check()
        with pytest.raises(StoreFailed, match="something else than replies"):
            store.perform([Read("lock/a")])
        with pytest.raises(StoreFailed, match="something else than a page"):
            store.scan("", "", 10)
        server.shutdown()


def test_check_tells_what_the_service_says_of_itself(url: str, opened: Callable[[str], HttpStore]) -> None:
    findings = opened(url).check()
    assert [finding.level for finding in findings] == ["ok", "ok", "ok"]
    assert solely.__version__ in findings[0].text


# -- batches


def test_what_one_request_cannot_hold_goes_out_in_portions() -> None:
    marks = portions([Mark(f"mark/{n}", "o", 1) for n in range(300)], "me", "")
    assert [said.ops for said in marks] == [128, 128, 44]
    large = [push(n, 200_000) for n in range(3)]
    assert [said.ops for said in portions(large, "me", "")] == [1, 1, 1]
    assert all(len(said.body) < 1 << 20 for said in portions([push(0, MAX_KEPT)], "me", ""))
    assert portions([], "me", "") == []


def push(number: int, size: int) -> Any:
    return Push("queue", str(number), bytes(size))


def test_a_portion_that_fails_behind_one_that_did_not_is_unanswered(
    url: str, opened: Callable[[str], HttpStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, calls = opened(url), list[str]()
    send = store._send

    def fail_later(method: str, path: str, **what: Any) -> Any:
        calls.append(path)
        if len(calls) > 1:
            raise StoreUnavailable("not sent")
        return send(method, path, **what)

    monkeypatch.setattr(store, "_send", fail_later)
    with pytest.raises(Unanswered):
        store.perform([Mark(f"mark/{n}", "o", 1) for n in range(200)])


# -- hints


def test_a_release_elsewhere_wakes_who_waits_without_asking_again(url: str, opened: Callable[[str], HttpStore]) -> None:
    here, there = opened(url), opened(url)
    ear = HintRecorder()
    there.listen(ear)
    here.perform([Acquire("lock/a", "holder", 30)])
    assert there.perform([Acquire("lock/a", "waiter", 30, client=there.client)])[0].waiters == 1  # type: ignore[union-attr]
    here.perform([Release("lock/a", "holder")])
    assert ear.received("lock/a", within=SOON)


@pytest.mark.parametrize(
    "kind", [name for name in ("memory", "sqlite", "valkey", "postgres", "mongo") if name in STORES]
)
def test_hints_come_whatever_store_the_service_has(
    kind: str, request: pytest.FixtureRequest, opened: Callable[[str], HttpStore]
) -> None:
    with running(url=STORES[kind](request)) as service:
        here, there = opened(service.address), opened(service.address)
        ear = HintRecorder()
        there.listen(ear)
        here.perform([Acquire("lock/a", "holder", 30)])
        there.perform([Acquire("lock/a", "waiter", 30, client=there.client)])
        here.perform([Release("lock/a", "holder")])
        assert ear.received("lock/a", within=SOON)
        assert there.perform([Acquire("lock/a", "waiter", 30, client=there.client)])[0].owner == "waiter"  # type: ignore[union-attr]
        here.close()
        there.close()


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
async def test_who_waits_is_served_although_its_stream_is_cut(face: str, http_services: HttpServices) -> None:
    direct = http_services.url()
    port = int(direct.split(":")[2].split("/")[0])
    with FaultProxy("127.0.0.1", port) as proxy, solely.Client(direct) as holder:
        url = proxy.url(direct)
        lease = holder.lock("a", ttl=60)
        if face == "blocking":
            waiter = asyncio.create_task(asyncio.to_thread(_locked, url))
        else:
            waiter = asyncio.create_task(_alocked(url))
        await asyncio.sleep(0.5)
        proxy.reset()
        await asyncio.sleep(0.1)
        lease.release()
        assert await asyncio.wait_for(waiter, 100)


def _locked(url: str) -> bool:
    with solely.Client(url) as once, once.lock("a", wait=15):
        return True


async def _alocked(url: str) -> bool:
    async with solely.AsyncClient(url) as once, once.lock("a", wait=15):
        return True


def test_closing_ends_the_thread_that_hears_hints(url: str) -> None:
    store = open_store(url)
    store.perform([Acquire("lock/a", "a", 1, client=store.client)])
    threads = [each for each in threading.enumerate() if each.name == "solely-http-hints"]
    assert threads
    store.close()
    until(lambda: not any(each.is_alive() for each in threads))


async def test_closing_ends_the_task_that_hears_hints(url: str) -> None:
    before = len(asyncio.all_tasks())
    store = open_async_store(url)
    await store.perform([Acquire("lock/a", "a", 1, client=store.client)])
    assert len(asyncio.all_tasks()) > before
    await store.close()
    assert len(asyncio.all_tasks()) == before


def test_the_service_lets_go_of_a_listener_that_is_gone(guarded: Running) -> None:
    url = f"http://:{TOKENS['write']}@127.0.0.1:{guarded.port}"
    store = open_store(url)
    store.perform([Acquire(f"lock/{fresh('a')}", "a", 1, client=store.client)])
    assert guarded.service.waiters.now["writeer"] == 1
    store.close()
    until(lambda: guarded.service.waiters.now["writeer"] == 0)


# -- the whole library, through a service


def test_a_lease_outlives_a_service_that_is_restarted(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/kept.sqlite3"
    with running(url=store) as first, solely.Client(first.address) as once:
        token = once.lock("a", ttl=60).hand_over()
    with solely.Client(first.address, timeout=0.2) as once, pytest.raises(StoreUnavailable):
        once.explain("a")
    with running(url=store) as second, solely.Client(second.address) as once:
        assert once.try_lock("a") is None
        assert once.release(token) == "released"


def test_a_forked_child_has_connections_of_its_own(url: str) -> None:
    once = solely.Client(url)
    assert once.first("parent", ttl=60)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if once.first("child", ttl=60) and not once.first("parent", ttl=60) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not once.first("child", ttl=60)
    once.close()
