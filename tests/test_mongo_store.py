"""What is specific to the MongoDB store, and for now its wiring to the contract suite and the state machine."""

import os
import secrets
from collections.abc import Callable, Iterator

import pytest

from solely.stores import AsyncStore, Clock, Store
from solely.stores.mongo import open_async, open_blocking
from solely.testing.clock import ManualClock
from solely.testing.contract import AsyncStoreContract, StoreContract
from solely.testing.machine import run_machine
from tests.mongo_server import Mongod

KINDS = ["standalone", "replica_set"]


@pytest.fixture(scope="session")
def mongod() -> Iterator[Mongod]:
    with Mongod() as server:
        yield server


@pytest.fixture(scope="session")
def replica_set() -> Iterator[Mongod]:
    with Mongod(replica_set=True) as server:
        yield server


def fresh_url(server: str | Mongod) -> str:
    """A collection that no other test uses, in one database: each database more costs the server files and time."""
    url = server if isinstance(server, str) else server.url_of("solely")
    return f"{url}{'&' if '?' in url else '?'}solely_collection=t{secrets.token_hex(6)}"


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("SOLELY_TEST_MONGO_URL")
    if request.param == "standalone":
        return fresh_url(request.getfixturevalue("mongod"))
    return fresh_url(given or request.getfixturevalue("replica_set"))


class TestBlocking(StoreContract):
    @pytest.fixture
    def opener(self, url: str) -> Callable[[Clock], Store]:
        return lambda clock: open_blocking(url, clock=clock, timeout=5)


class TestAsyncio(AsyncStoreContract):
    @pytest.fixture
    def opener(self, url: str) -> Callable[[Clock], AsyncStore]:
        return lambda clock: open_async(url, clock=clock, timeout=5)


@pytest.mark.timeout(300)
def test_the_store_answers_as_the_model(url: str) -> None:
    clock = ManualClock()
    store = open_blocking(url, clock=clock, timeout=5)
    try:
        run_machine(store, clock)
    finally:
        store.close()
