"""What one would write without a lock library: the least that does the work, as fast as Python lets it."""

import asyncio
import os
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import hiredis

from tests.servers import Valkey

TTL = 30.0  # seconds: what every side of every comparison asks for
COMPARE_AND_DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class RawConnection(asyncio.Protocol):
    """One connection that any number of tasks share; what they send in one turn of the loop leaves in one write."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._asked: deque[asyncio.Future[Any]] = deque()
        self._unsent: list[bytes] = []
        self._release = ""

    @classmethod
    @asynccontextmanager
    async def open(cls, server: Valkey) -> AsyncIterator["RawConnection"]:
        transport, connection = await asyncio.get_running_loop().create_connection(cls, server.host, server.port)
        connection._release = await connection.ask("SCRIPT", "LOAD", COMPARE_AND_DELETE)
        yield connection
        transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._asked.popleft().set_result(reply)

    def ask(self, *command: str | int | bytes) -> asyncio.Future[Any]:
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent.append(hiredis.pack_command(cast(Any, command)))
        future = self._loop.create_future()
        self._asked.append(future)
        return future

    def _send(self) -> None:
        self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    async def pair(self, key: str) -> None:
        """Takes and lets go, with the bare commands."""
        owner = os.urandom(16).hex()
        assert await self.ask("SET", key, owner, "NX", "PX", int(TTL * 1000)) == b"OK"
        assert await self.ask("EVALSHA", self._release, 1, key, owner) == 1


class RawSqlite:
    """A table of locks and two statements, each a transaction of its own; log and syncing as in our store."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("CREATE TABLE locks (key TEXT PRIMARY KEY, owner TEXT, until REAL) WITHOUT ROWID")

    def pair(self, key: str) -> None:
        """Takes and lets go."""
        execute = self._connection.execute
        owner, now = os.urandom(16).hex(), time.time()
        taken = execute(
            "INSERT INTO locks VALUES (?1, ?2, ?3) ON CONFLICT (key) DO UPDATE"
            " SET owner = ?2, until = ?3 WHERE until <= ?4",
            (key, owner, now + TTL, now),
        )
        assert taken.rowcount == 1
        assert execute("DELETE FROM locks WHERE key = ? AND owner = ?", (key, owner)).rowcount == 1

    def close(self) -> None:
        self._connection.close()
