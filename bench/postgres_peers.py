"""What one would write for PostgreSQL without a lock library: a table, two statements, psycopg as its manual says."""

import os
from typing import Any

import psycopg
import psycopg_pool

from tests.postgres_server import Postgres

from .peers import TTL

TABLE = "CREATE TABLE IF NOT EXISTS raw_locks (key text PRIMARY KEY, owner text NOT NULL, until timestamptz NOT NULL)"
TAKE = (
    "INSERT INTO raw_locks VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s)) ON CONFLICT (key) DO UPDATE"
    " SET owner = EXCLUDED.owner, until = EXCLUDED.until WHERE raw_locks.until <= clock_timestamp()"
)
LET_GO_LIGHTLY = (  # does not wait for the disk, as a lone release of ours does not
    "WITH light AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))"
    " DELETE FROM raw_locks USING light WHERE key = %s AND owner = %s"
)
LET_GO = "DELETE FROM raw_locks WHERE key = %s AND owner = %s"
MARK_MANY = (
    "INSERT INTO raw_locks SELECT key, %s, clock_timestamp() + make_interval(secs => %s) FROM unnest(%s::text[]) key"
    " ON CONFLICT (key) DO UPDATE SET owner = EXCLUDED.owner, until = EXCLUDED.until"
    " WHERE raw_locks.until <= clock_timestamp() RETURNING key"
)


class RawRows:
    """A row per lock, one connection, each statement prepared and a transaction of its own."""

    def __init__(self, server: Postgres) -> None:
        self._connection = psycopg.connect(server.conninfo(), autocommit=True)
        self._connection.execute(TABLE)
        self._cursor = self._connection.cursor()

    def pair(self, key: str) -> None:
        """Takes and lets go."""
        owner = os.urandom(16).hex()
        assert self._cursor.execute(TAKE, (key, owner, TTL), prepare=True).rowcount == 1
        assert self._cursor.execute(LET_GO_LIGHTLY, (key, owner), prepare=True).rowcount == 1

    def mark_many(self, keys: list[str], ttl: float) -> list[bool]:
        """Which of the keys are new, in one statement."""
        self._cursor.execute(MARK_MANY, (os.urandom(16).hex(), ttl, keys), prepare=True)
        new = {key for (key,) in self._cursor}
        return [key in new for key in keys]

    def close(self) -> None:
        self._connection.close()


def raw_pool(server: Postgres, connections: int) -> "psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection[Any]]":
    """A pool that is opened by entering it."""
    server.ask(TABLE)
    return psycopg_pool.AsyncConnectionPool(
        server.conninfo(), min_size=connections, max_size=connections, kwargs={"autocommit": True}, open=False
    )


async def pooled_pair(pool: "psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection[Any]]", key: str) -> None:
    """Takes and lets go; a connection is borrowed for a statement, not while the lock is held."""
    owner = os.urandom(16).hex()
    async with pool.connection() as connection:
        assert (await connection.execute(TAKE, (key, owner, TTL), prepare=True)).rowcount == 1
    async with pool.connection() as connection:
        assert (await connection.execute(LET_GO, (key, owner), prepare=True)).rowcount == 1
