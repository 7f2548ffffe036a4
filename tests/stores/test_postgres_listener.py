"""The listener of a PostgreSQL store leaves a server that hangs without ending the connection."""

from collections.abc import Callable, Iterator

import pytest

from solely.ops import Acquire, Release
from solely.stores import Store
from solely.stores import listener as loop
from solely.stores import postgres as postgres_store
from solely.testing.harness import HintRecorder, fresh
from tests.client.wire import before, through
from tests.client_modes import MODES
from tests.conftest import in_schema
from tests.postgres_server import Postgres
from tests.servers import until
from tests.store_modes import opening_stores, underlying

TIMEOUT = 2.0  # seconds for one try


@pytest.fixture(params=MODES)
def open_store(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Store]]:
    with opening_stores(request.param, postgres_store, timeout=TIMEOUT) as opener:
        yield opener


def test_the_listener_leaves_a_server_that_hangs_and_hears_again_when_it_answers(
    postgres: Postgres, open_store: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SILENCE", 0.1)
    url = in_schema(postgres.url)
    with before(url) as proxy:
        store, beside = open_store(through(proxy, url)), open_store(url)
        heard = HintRecorder()
        store.listen(heard)
        store.perform([Acquire("lock/a", "me", 300, client=store.client)])
        listener = underlying(store)._listener
        until(lambda: listener.ready, "the listener")
        proxy.delay("to_client", None, n=1_000_000)
        until(lambda: not listener.ready, "the end of the connection")
        proxy.heal()
        until(lambda: listener.ready, "the next connection")
        key = fresh("lock/heard")
        beside.perform([Acquire(key, "other", 300)])
        store.perform([Acquire(key, "me", 300, client=store.client)])
        beside.perform([Release(key, "other")])
        assert heard.received(key)
