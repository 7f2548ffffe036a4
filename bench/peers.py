"""What one would write without a lock library: the minimum that works, as fast as Python allows."""

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
import psycopg
import psycopg_pool

from tests.postgres_server import Postgres
from tests.servers import Valkey

from .workers import TTL

COMPARE_AND_DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class RawConnection(asyncio.Protocol):
    """One connection that all tasks share; what they send in one iteration of the loop goes out in one write."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._in_flight: deque[asyncio.Future[Any]] = deque()
        self._unsent: list[bytes] = []
        self._release = ""

    @classmethod
    @asynccontextmanager
    async def open(cls, server: Valkey) -> AsyncIterator["RawConnection"]:
        transport, connection = await asyncio.get_running_loop().create_connection(cls, server.host, server.port)
        connection._release = await connection.send("SCRIPT", "LOAD", COMPARE_AND_DELETE)
        yield connection
        transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._in_flight.popleft().set_result(reply)

    def send(self, *command: str | int | bytes) -> asyncio.Future[Any]:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(hiredis.pack_command(cast(Any, command)))
        future = self._loop.create_future()
        self._in_flight.append(future)
        return future

    def _flush(self) -> None:
        self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    async def pair(self, key: str) -> None:
        """Acquires and releases with the bare commands."""
        owner = os.urandom(16).hex()
        assert await self.send("SET", key, owner, "NX", "PX", int(TTL * 1000)) == b"OK"
        assert await self.send("EVALSHA", self._release, 1, key, owner) == 1


class RawSqlite:
    """A table of locks and two statements, each in its own transaction; journal and sync mode as in our store."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("CREATE TABLE locks (key TEXT PRIMARY KEY, owner TEXT, until REAL) WITHOUT ROWID")

    def pair(self, key: str) -> None:
        """Acquires and releases."""
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


# -- PostgreSQL

TABLE = "CREATE TABLE IF NOT EXISTS raw_locks (key text PRIMARY KEY, owner text NOT NULL, until timestamptz NOT NULL)"
TAKE = (
    "INSERT INTO raw_locks VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s)) ON CONFLICT (key) DO UPDATE"
    " SET owner = EXCLUDED.owner, until = EXCLUDED.until WHERE raw_locks.until <= clock_timestamp()"
)
RELEASE_WITHOUT_SYNC = (  # does not wait for the disk, like a release of ours that is alone in its batch
    "WITH light AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))"
    " DELETE FROM raw_locks USING light WHERE key = %s AND owner = %s"
)
RELEASE = "DELETE FROM raw_locks WHERE key = %s AND owner = %s"
MARK_MANY = (
    "INSERT INTO raw_locks SELECT key, %s, clock_timestamp() + make_interval(secs => %s) FROM unnest(%s::text[]) key"
    " ON CONFLICT (key) DO UPDATE SET owner = EXCLUDED.owner, until = EXCLUDED.until"
    " WHERE raw_locks.until <= clock_timestamp() RETURNING key"
)


class RawRows:
    """A row per lock, one connection, each statement prepared and in its own transaction."""

    def __init__(self, server: Postgres) -> None:
        self._connection = psycopg.connect(server.conninfo(), autocommit=True)
        self._connection.execute(TABLE)
        self._cursor = self._connection.cursor()

    def pair(self, key: str) -> None:
        """Acquires and releases."""
        owner = os.urandom(16).hex()
        assert self._cursor.execute(TAKE, (key, owner, TTL), prepare=True).rowcount == 1
        assert self._cursor.execute(RELEASE_WITHOUT_SYNC, (key, owner), prepare=True).rowcount == 1

    def mark_many(self, keys: list[str], ttl: float) -> list[bool]:
        """Returns for each key whether it is new, by one statement."""
        self._cursor.execute(MARK_MANY, (os.urandom(16).hex(), ttl, keys), prepare=True)
        new = {key for (key,) in self._cursor}
        return [key in new for key in keys]

    def close(self) -> None:
        self._connection.close()


def raw_pool(server: Postgres, connections: int) -> "psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection[Any]]":
    """Returns a pool, which `async with` opens."""
    server.ask(TABLE)
    return psycopg_pool.AsyncConnectionPool(
        server.conninfo(), min_size=connections, max_size=connections, kwargs={"autocommit": True}, open=False
    )


async def pooled_pair(pool: "psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection[Any]]", key: str) -> None:
    """Acquires and releases; takes a connection from the pool per statement, not while the lock is held."""
    owner = os.urandom(16).hex()
    async with pool.connection() as connection:
        assert (await connection.execute(TAKE, (key, owner, TTL), prepare=True)).rowcount == 1
    async with pool.connection() as connection:
        assert (await connection.execute(RELEASE, (key, owner), prepare=True)).rowcount == 1
