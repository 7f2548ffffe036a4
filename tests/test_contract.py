"""Every store keeps every promise of the contract, blocking and asyncio."""

from collections.abc import Callable

import pytest

from solely.stores import AsyncStore, Clock, Store, open_async_store, open_store
from solely.testing.contract import AsyncStoreContract, StoreContract


class TestBlocking(StoreContract):
    @pytest.fixture
    def opener(self, store_url: str) -> Callable[[Clock], Store]:
        return lambda clock: open_store(store_url, clock=clock)


class TestAsyncio(AsyncStoreContract):
    @pytest.fixture
    def opener(self, store_url: str) -> Callable[[Clock], AsyncStore]:
        return lambda clock: open_async_store(store_url, clock=clock)
