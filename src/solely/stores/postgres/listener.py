"""How a PostgreSQL store subscribes to its hints: LISTEN on the channel of its client, on a connection of its own."""

from __future__ import annotations

import asyncio

from .. import OnHint
from ..listener import NoHints
from .aio_connection import AsyncPostgresConnection
from .connection import ConnectionLost, PostgresConnection

FAILURES = (ConnectionLost,)
PROBE = b"SELECT 1"


def listen_to(client: str) -> bytes:
    """The statement after which this client gets its hints."""
    return f'LISTEN "solely_{client}"'.encode()


class PostgresSubscription:
    """For a thread."""

    server = None

    def __init__(self, connection: PostgresConnection, client: str) -> None:
        self.connection = connection
        self._client = client

    def subscribe(self, on_hint: OnHint) -> None:
        if self.connection.settings.pgbouncer:
            raise NoHints
        self._on_hint = on_hint
        self.connection.execute(listen_to(self._client))

    def deliver(self, silence: float) -> None:
        keys = self.connection.notifications(silence)
        if keys is None:
            self.connection.execute(PROBE)
        for key in keys or ():
            self._on_hint(key)

    def interrupt(self) -> None:
        self.connection.shut()

    def close(self) -> None:
        self.connection.close()

    def abandon(self) -> None:
        self.connection.abandon()


class AsyncPostgresSubscription:
    """For a task."""

    server = None

    def __init__(self, connection: AsyncPostgresConnection, client: str) -> None:
        self.connection = connection
        self._client = client

    async def subscribe(self, on_hint: OnHint) -> None:
        if self.connection.settings.pgbouncer:
            raise NoHints
        self.connection.on_hint = on_hint
        await self.connection.execute(listen_to(self._client))

    async def deliver(self, silence: float) -> None:
        await asyncio.wait([self.connection.lost], timeout=silence)
        await self.connection.execute(PROBE)  # raises if the connection has ended, and ends it if there is no answer

    def interrupt(self) -> None:
        self.connection.abort("the listener connects again")

    async def close(self) -> None:
        self.connection.abort("the listener was closed")
