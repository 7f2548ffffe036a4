"""A server of a few lines, for tests that need nothing but bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress

ENDS_WITHIN = 30.0  # seconds for a handler, after its peer is gone

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def closed(writers: Iterable[asyncio.StreamWriter]) -> None:
    """Ends these connections at once, and returns when they are closed, however busy the machine is."""
    ended = list(writers)
    for each in ended:
        each.transport.abort()
    async with asyncio.timeout(ENDS_WITHIN):
        await asyncio.gather(*(each.wait_closed() for each in ended), return_exceptions=True)


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[int]:
    """The port at which this handler serves until the block ends; then every connection is handled and closed."""
    handled: list[asyncio.Task[None]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError):  # the peer is gone
                await handler(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handled.append(asyncio.create_task(handle(reader, writer)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
    async with asyncio.timeout(ENDS_WITHIN):
        await asyncio.gather(*handled)
