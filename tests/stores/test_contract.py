"""Every store of the table keeps every promise, blocking and asyncio."""

from collections.abc import Callable

import pytest

from solely.stores import AsyncStore, Clock, Store, open_async_store, open_store
from solely.testing.contract import AsyncStoreContract, StoreContract
from tests.conftest import PATIENT, STORES

# A schema or a collection for each test would take longer than the test. Keys are fresh, so all can share one.
SHARED: dict[str, str] = {}


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of a store: of PostgreSQL and MongoDB one for all tests of a worker, else a fresh one."""
    name = str(request.param)
    if not name.startswith(("postgres", "mongo")):
        return STORES[name](request)
    if name not in SHARED:
        SHARED[name] = STORES[name](request)
    return SHARED[name]


class TestBlocking(StoreContract):
    @pytest.fixture
    def opener(self, store_url: str) -> Callable[[Clock], Store]:
        return lambda clock: open_store(store_url, clock=clock, timeout=PATIENT)


class TestAsyncio(AsyncStoreContract):
    @pytest.fixture
    def opener(self, store_url: str) -> Callable[[Clock], AsyncStore]:
        return lambda clock: open_async_store(store_url, clock=clock, timeout=PATIENT)
