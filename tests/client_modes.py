"""Both clients, closed when the test ends, and one way to take their answers: a test is written once and runs twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any

from solely import AsyncClient, Client
from tests.client.refusing import AsyncRefusingStore, RefusingStore

MODES: dict[str, type[Any]] = {"blocking": Client, "asyncio": AsyncClient}


async def result_of(answer: Any) -> Any:
    """What the call answers: at once, or when awaited."""
    return await answer if isawaitable(answer) else answer


@asynccontextmanager
async def opened_clients(mode: str) -> AsyncIterator[Callable[..., Any]]:
    """Opens clients: `open_client(url, **options)`."""
    opened: list[Any] = []

    def open_client(url: str | None = None, **options: Any) -> Any:
        opened.append(MODES[mode](url, **options))
        return opened[-1]

    yield open_client
    for client in opened:
        await result_of(client.close())


def refusing_client(mode: str) -> Any:
    """A client whose store may not be called."""
    return Client(store=RefusingStore()) if mode == "blocking" else AsyncClient(store=AsyncRefusingStore())
