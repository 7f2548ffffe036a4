"""A listener that is killed comes back, on every store that listens and in both modes, and waiters are woken again.

Each test waits for the hint itself, not for the lock: a waiter that only polled would have no hint to show.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import pytest

from solely.ops import Acquire, Release
from solely.stores import Store
from solely.stores import listener as loop
from solely.testing.harness import HintRecorder, fresh
from tests.client_modes import MODES
from tests.conftest import in_collection, in_schema, isolated
from tests.servers import until
from tests.store_modes import opening_stores, underlying

TIMEOUT = 10.0  # seconds for one try: a busy test machine is no outage
NEVER = 3_600.0
TTL = 300.0


class Server:
    """A server that is asked by its own means to end the connection on which a store listens."""

    def __init__(self, name: str, request: pytest.FixtureRequest) -> None:
        self._end: Callable[[Any], Any]
        if name == "redis":
            valkey = request.getfixturevalue("valkey")
            self.url = isolated(valkey.url)
            self._end = lambda store: valkey.ask("CLIENT", "KILL", "TYPE", "pubsub")
        elif name == "postgres":
            postgres = request.getfixturevalue("postgres")
            self.url = in_schema(postgres.url)
            self._end = lambda store: postgres.ask(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE %s", f"LISTEN%{store.client}%"
            )
        else:
            replica_set = request.getfixturevalue("replica_set")
            self.url = in_collection(replica_set.url_of("solely"))
            self._end = lambda store: replica_set.ask("killAllSessions", [])

    def end_listening(self, store: Any) -> None:
        """Returns when the store has noticed that the server ended the connection, or the cursor."""
        before = _current(store)
        self._end(store)
        until(lambda: _current(store) not in (before, None), "the next connection")


def _current(store: Any) -> Any:
    """What the store listens on now: pymongo goes on by itself with another cursor, where the server allows that."""
    subscription = store._listener._subscription
    if subscription is None or not store._listener.ready:
        return None
    stream = getattr(subscription, "_stream", None)
    return subscription if stream is None else stream._cursor


@pytest.fixture(params=["redis", "postgres", "mongo"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(scheme: str, request: pytest.FixtureRequest) -> Server:
    return Server(scheme, request)


@pytest.fixture(params=MODES)
def open_store(scheme: str, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Store]]:
    with ExitStack() as stack:
        module = import_module(f"solely.stores.{scheme}")
        yield stack.enter_context(opening_stores(request.param, module, timeout=TIMEOUT))


class Waiting:
    """A store that waits for keys which another one holds."""

    def __init__(self, open_store: Callable[[str], Store], url: str) -> None:
        self.store, self._holder = open_store(url), open_store(url)
        self.hints = HintRecorder()
        self.store.listen(self.hints)
        self.inner = underlying(self.store)

    def wait_for(self, key: str) -> None:
        """Returns when the store is in the queue for the key and listens."""
        self._holder.perform([Acquire(key, "holder", TTL)])
        for _ in range(2):  # the first starts the listener, the second finds it at work, on MongoDB too
            self.store.perform([Acquire(key, "waiter", TTL, client=self.store.client)])
        until(lambda: bool(self.inner._listener.ready), "the listener")

    def is_woken_by_the_release_of(self, key: str) -> bool:
        self._holder.perform([Release(key, "holder")])
        return self.hints.received(key)


def test_a_listener_whose_connection_the_server_ends_connects_again_and_a_waiter_is_woken(
    server: Server, open_store: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SILENCE", NEVER)  # no probe: only the end of the connection shows it
    waiting, key = Waiting(open_store, server.url), fresh("lock/ended")
    waiting.wait_for(key)
    server.end_listening(waiting.inner)
    assert waiting.is_woken_by_the_release_of(key)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_listener_that_died_of_an_unexpected_error_is_started_by_the_next_waiter_which_is_woken(
    server: Server, open_store: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(silence: float) -> None:
        raise ArithmeticError("a bug")

    monkeypatch.setattr(loop, "SILENCE", 0.1)
    waiting = Waiting(open_store, server.url)
    waiting.wait_for(fresh("lock/before"))
    listener = waiting.inner._listener
    monkeypatch.setattr(listener._subscription, "deliver", fail)
    until(lambda: not listener.running, "the death of the listener")
    assert not listener.ready
    key = fresh("lock/after")
    waiting.wait_for(key)
    assert listener.running
    assert waiting.is_woken_by_the_release_of(key)
