"""Clients with a clock that stands still, on every store, blocking and in asyncio."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import solely
from solely.testing.clock import ManualClock
from tests.claims.modes import KINDS, Peek
from tests.client.conftest import kind, shared_url  # noqa: F401
from tests.conftest import PATIENT


@pytest.fixture
async def open_client(kind: str) -> AsyncIterator[Callable[..., Any]]:  # noqa: F811
    """Opens a client of the kind at hand: `open_client(url, **options)`."""
    opened: list[Any] = []

    def open_one(url: str, **options: Any) -> Any:
        opened.append(KINDS[kind](url, **options))
        return opened[-1]

    yield open_one
    for client in opened:
        with suppress(solely.StoreError):
            await client.close()


@pytest.fixture
def once(open_client: Callable[..., Any], store_url: str, clock: ManualClock) -> Any:
    """A client of the kind and store at hand."""
    return open_client(store_url, clock=clock, timeout=PATIENT)


@pytest.fixture
def other(open_client: Callable[..., Any], store_url: str, clock: ManualClock) -> Any:
    """A second client of the same store, as another process would have."""
    return open_client(store_url, clock=clock, timeout=PATIENT)


@pytest.fixture
def peek(store_url: str, clock: ManualClock) -> Iterator[Peek]:
    """Reads the store at hand directly, on the same clock."""
    with Peek(store_url, clock) as peeking:
        yield peeking
