"""Clients of both kinds on every store of the table, on a clock that the test moves."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from solely.testing.clock import ManualClock
from tests.client.conftest import start_worker
from tests.client.modes import Observer, in_thread
from tests.client_modes import result_of
from tests.conftest import PATIENT

__all__ = ["start_worker"]

Together = Callable[[Sequence[Callable[[], Any]]], Awaitable[list[Any]]]
Guarded = Callable[..., Awaitable[Any]]


@pytest.fixture
def once(open_client: Callable[..., Any], store_url: str, clock: ManualClock) -> Any:
    """A client of the mode and store at hand."""
    return open_client(store_url, clock=clock, timeout=PATIENT)


@pytest.fixture
def other(open_client: Callable[..., Any], store_url: str, clock: ManualClock) -> Any:
    """A second client of the same store, as another process would have."""
    return open_client(store_url, clock=clock, timeout=PATIENT)


@pytest.fixture
def observer(store_url: str, clock: ManualClock) -> Iterator[Observer]:
    """Reads the store at hand directly."""
    watching = Observer(store_url, clock=clock)
    yield watching
    watching.close()


@pytest.fixture
def together(mode: str) -> Together:
    """The answers to calls that are made at the same time: on threads, or as tasks."""

    async def all_at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
        asked = [in_thread(call) for call in calls] if mode == "blocking" else [call() for call in calls]
        async with asyncio.timeout(100):
            return await asyncio.gather(*asked)

    return all_at_once


@pytest.fixture
def guarded(mode: str) -> Guarded:
    """Runs `body` inside `with reservation`, or inside `async with reservation`."""

    async def run(reservation: Any, body: Callable[[], Any]) -> None:
        if mode == "blocking":
            with reservation:
                await result_of(body())
        else:
            async with reservation:
                await result_of(body())

    return run
