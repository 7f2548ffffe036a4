"""The PostgreSQL store: the contract and the machine on each version that it claims, and what is special about it."""

import os
import secrets
from collections.abc import Callable, Iterator

import pytest

from solely.stores import AsyncStore, Clock, Store
from solely.stores.postgres import open_async, open_blocking
from solely.testing.clock import ManualClock
from solely.testing.contract import AsyncStoreContract, StoreContract
from solely.testing.machine import run_machine
from tests.postgres_server import DEBIAN_POSTGRES, PYPI_POSTGRES, Postgres

SERVERS = {"18": PYPI_POSTGRES, "15": DEBIAN_POSTGRES}


def within_schema(url: str) -> str:
    """The same server, in a schema that no other test uses."""
    return f"{url}{'&' if '?' in url else '?'}solely_schema=t{secrets.token_hex(6)}"


@pytest.fixture(scope="module", params=[name for name, folder in SERVERS.items() if folder is not None])
def server(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    with Postgres(folder=SERVERS[request.param]) as running:
        yield running


@pytest.fixture(scope="module")
def shared_url(server: Postgres) -> str:
    """One schema for all tests that use fresh keys."""
    return within_schema(os.environ.get("SOLELY_TEST_POSTGRES_URL") or server.url)


class TestBlocking(StoreContract):
    @pytest.fixture
    def opener(self, shared_url: str) -> Callable[[Clock], Store]:
        return lambda clock: open_blocking(shared_url, clock=clock, timeout=2.0)


class TestAsyncio(AsyncStoreContract):
    @pytest.fixture
    def opener(self, shared_url: str) -> Callable[[Clock], AsyncStore]:
        return lambda clock: open_async(shared_url, clock=clock, timeout=2.0)


@pytest.mark.timeout(180)  # 6,000 steps on two stores, on a machine that may be busy
def test_the_store_answers_as_the_model(shared_url: str) -> None:
    clock = ManualClock()
    store = open_blocking(shared_url, clock=clock, timeout=2.0)
    try:
        run_machine(store, clock)
    finally:
        store.close()
