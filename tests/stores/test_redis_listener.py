"""The listener of a Redis store: where it is subscribed, and when it leaves a server that hangs without a reset."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from solely.errors import StoreUnavailable
from solely.ops import Acquire, Release
from solely.stores import Store
from solely.stores import listener as loop
from solely.stores import redis as redis_store
from solely.stores.redis.listener import RedisSubscription
from solely.stores.redis.settings import ServerAddress
from solely.testing.harness import HintRecorder, fresh
from tests.client_modes import MODES
from tests.servers import Valkey, ValkeySentinel, until
from tests.store_modes import opening_stores, underlying

TIMEOUT = 2.0  # seconds for one try: as long as a request needs to leave a primary that hangs
PATIENCE = 60.0  # seconds until the Sentinels have agreed on another primary, on a busy machine
NEVER = 3_600.0


@pytest.fixture(params=MODES)
def open_store(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Store]]:
    with opening_stores(request.param, redis_store, timeout=TIMEOUT) as opener:
        yield opener


def listeners(server: Valkey, store: Store) -> int:
    """How many connections are subscribed at this server to the hints for this store."""
    inner = underlying(store)
    channel = inner._codec.wake_channel(inner.client)
    return int(server.ask("PUBSUB", "NUMSUB", channel)[1])


def insist(store: Store, op: Any) -> Any:
    """The answer to the op, once there is a primary to answer it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return store.perform([op])[0]
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise


def test_the_listener_follows_the_requests_to_the_new_primary(
    open_store: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old primary hangs: it ends no connection, so that only the requests can tell the listener."""
    monkeypatch.setattr(loop, "SILENCE", NEVER)
    with ValkeySentinel() as servers:
        store, other = open_store(servers.url), open_store(servers.url)
        heard = HintRecorder()
        store.listen(heard)
        insist(other, Acquire("lock/a", "other", 300))
        insist(store, Acquire("lock/a", "me", 300, "", store.client))
        until(lambda: listeners(servers.primary, store) == 1, "the subscription")
        servers.primary.pause()
        try:
            key = fresh("lock/moved")
            insist(other, Acquire(key, "other", 300))
            insist(store, Acquire(key, "me", 300, "", store.client))  # it is refused, and waits
            until(lambda: listeners(servers.replica, store) == 1, "the subscription at the new primary")
            other.perform([Release(key, "other")])
            assert heard.received(key)
        finally:
            servers.primary.resume()


def test_a_server_that_hangs_is_left_and_found_again(
    open_store: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SILENCE", 0.1)
    with Valkey() as server:
        store = open_store(server.url)
        insist(store, Acquire("lock/a", "me", 300, "", store.client))
        listener = underlying(store)._listener
        until(lambda: listener.ready, "the subscription")
        server.pause()
        until(lambda: not listener.ready, "the end of the subscription")
        server.resume()
        until(lambda: listener.ready, "the next subscription")
        assert listeners(server, store) == 1


class SilentConnection:
    """A connection on which nothing ever comes."""

    address = ServerAddress("localhost", 6379)

    def __init__(self) -> None:
        self.waits: list[float | str] = []

    def set_timeout(self, seconds: float) -> None:
        self.waits.append(seconds)

    def send(self, payload: bytes) -> None:
        self.waits.append("PING")

    def receive(self) -> Any:
        raise TimeoutError


def test_a_listener_waits_for_the_answer_to_its_probe_no_longer_than_the_stores_timeout() -> None:
    connection = SilentConnection()
    with pytest.raises(TimeoutError):
        RedisSubscription(connection, "channel", TIMEOUT).deliver(NEVER)  # type: ignore[arg-type]
    assert connection.waits == [NEVER, TIMEOUT, "PING"]
