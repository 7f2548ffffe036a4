"""PostgreSQL: a connection of the pool for each statement or transaction.

The URL has the options of the store's URL: `namespace` is the schema of the tables, which is created with the first of
them. A statement without a response in time closes its connection, so that no later statement reads a late response.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import psycopg

from ..errors import DataError, DataUnavailable, InvalidInput
from ..stores.postgres.connection import shut
from ..stores.postgres.settings import PostgresSettings, parse
from .database import NESTED, BaseDatabase, Database, Row, Transaction, failed
from .dialect import for_psycopg, without_nul
from .pool import POOLER, Connection, DataPool

T = TypeVar("T")
Query = Callable[[Connection], Coroutine[Any, Any, T]]

MIGRATING = 60.0  # seconds for a migration, and to wait for another process's: a large table takes some
LOCK = 0x736F6C656C79  # "solely": the advisory lock of all migrations of a database
# Classes and codes of SQLSTATE that may work later: no connection, no login, no resources, an operator at work, a
# replica, a transaction that was idle or open for too long, a deadlock or another transaction in the way. All else is
# the statement's own fault.
_LATER = ("08", "28", "3D", "53", "57", "58", "40", "25006", "25P03", "25P04", "55P03")
# Prepared statements no longer match the tables, which a later version changed: a new connection is needed.
_STALE = ("0A000", "26000")


def open_postgres(url: str, timeout: float) -> PostgresDatabase:
    """The database of this URL; InvalidInput if the URL is invalid."""
    settings = parse(url)
    if settings.pgbouncer:
        raise InvalidInput(f"{settings}: {POOLER}")
    return PostgresDatabase(DataPool(settings, timeout), settings, timeout)


class PostgresDatabase(BaseDatabase):
    """For one event loop."""

    dialect = "postgresql"

    def __init__(self, pool: DataPool, settings: PostgresSettings, timeout: float) -> None:
        self._pool, self._settings, self._timeout = pool, settings, timeout
        self._owners: set[asyncio.Task[Any] | None] = set()  # tasks in a transaction

    async def rows(self, sql: str, **values: Any) -> list[Row]:
        return await self._perform(lambda connection: _rows(connection, sql, values), sql)

    async def run(self, sql: str, **values: Any) -> int:
        return await self._perform(lambda connection: _run(connection, sql, values), sql)

    async def run_many(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            await self._perform(lambda connection: _run_together(connection, sql, rows), sql)

    @asynccontextmanager
    async def transaction(self, *, timeout: float | None = None) -> AsyncIterator[Database]:
        self._check_owner()
        task = asyncio.current_task()
        async with self._pool.connection() as connection:
            inside = PostgresDataTransaction(connection, self._pool.where, timeout or self._timeout)
            self._owners.add(task)
            try:
                await inside.begin(longer=timeout is not None)
                yield inside
                await inside.end("COMMIT")
            except BaseException:
                if not connection.closed:
                    with suppress(DataError):  # the connection failed, and the server rolls back by itself
                        await inside.end("ROLLBACK")
                raise
            finally:
                inside.over = True
                self._owners.discard(task)

    @asynccontextmanager
    async def migrating(self) -> AsyncIterator[Database]:
        if not self._settings.migrates:
            raise failed(DataError, self._pool.where, "migrate=never forbids changing tables; run `solely migrate`")
        queries = self._settings.queries
        async with self.transaction(timeout=MIGRATING) as inside:
            await inside.rows("SELECT pg_advisory_xact_lock(:lock)", lock=LOCK)
            if not await inside.rows(queries["find_schema"].decode()):
                await inside.run(queries["create_schema"].decode())
            yield inside

    async def close(self) -> None:
        await self._pool.close()

    async def _perform(self, query: Query[T], sql: str) -> T:
        self._check_owner()
        async with self._pool.connection() as connection:
            return await perform(connection, query, sql, self._pool.where, self._timeout)

    def _check_owner(self) -> None:
        if self._owners and asyncio.current_task() in self._owners:
            raise InvalidInput(NESTED)


class PostgresDataTransaction(Transaction):
    """The database inside a transaction."""

    dialect = "postgresql"

    def __init__(self, connection: Connection, where: str, timeout: float) -> None:
        self._connection, self._where, self._timeout = connection, where, timeout

    async def begin(self, *, longer: bool) -> None:
        await self.end("BEGIN")
        if longer:
            await self.run(f"SET LOCAL statement_timeout = {self._timeout * 1000:.0f}")

    async def end(self, word: str) -> None:
        await self._perform(lambda connection: _run(connection, word, {}), word)

    async def rows(self, sql: str, **values: Any) -> list[Row]:
        return await self._perform(lambda connection: _rows(connection, sql, values), sql)

    async def run(self, sql: str, **values: Any) -> int:
        return await self._perform(lambda connection: _run(connection, sql, values), sql)

    async def run_many(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            await self._perform(lambda connection: _run_many(connection, sql, rows), sql)

    async def _perform(self, query: Query[T], sql: str) -> T:
        self.check_open()
        return await perform(self._connection, query, sql, self._where, self._timeout)


async def perform(connection: Connection, query: Query[T], sql: str, where: str, timeout: float) -> T:
    """The result of the query within `timeout` seconds; else DataError. A canceled caller leaves no unread response."""
    task = asyncio.ensure_future(query(connection))
    try:
        await asyncio.wait([task], timeout=timeout)
    finally:
        late = not task.done()
        if late:  # also if we are canceled: closing the connection ends the task
            shut(connection.pgconn)
            await asyncio.gather(task, return_exceptions=True)
            await connection.close()
    try:
        return task.result()
    except UnicodeError as error:  # half of a surrogate pair, in a text of ours
        raise failed(DataError, where, error, sql) from None
    except psycopg.Error as error:
        if error.sqlstate in _STALE:
            await connection.close()
        why = f"no answer within {timeout:g} s" if late else _reason(error)
        raise failed(DataUnavailable if late else _kind(error), where, why, sql) from None


def _is_cut_off(error: psycopg.Error) -> bool:
    """True if the connection was lost: the error then comes from libpq, not from the server."""
    return error.sqlstate is None and isinstance(error, psycopg.OperationalError)


def _kind(error: psycopg.Error) -> type[DataError]:
    if error.sqlstate is None:
        return DataUnavailable if _is_cut_off(error) else DataError
    return DataUnavailable if error.sqlstate.startswith(_LATER + _STALE) else DataError


def _reason(error: psycopg.Error) -> str:
    text = " ".join((error.diag.message_primary or str(error)).split())
    return f"cannot be reached: {text}" if _is_cut_off(error) else text


# -- with a connection


def _prepared(sql: str, rows: Sequence[Mapping[str, Any]]) -> tuple[bytes, list[dict[str, Any]]]:
    """The statement and its values, with True and False as 1 and 0, and texts without NUL, which PostgreSQL has not; an
    error if a value is missing."""
    text, names = for_psycopg(sql)
    values = []
    for row in rows:
        if missing := names - row.keys():
            raise psycopg.ProgrammingError(f"no value was given for :{min(missing)}")
        values.append({name: _bound(row[name]) for name in names})
    return text, values


def _bound(value: Any) -> Any:
    if isinstance(value, str):
        return without_nul(value)
    return int(value) if isinstance(value, bool) else value


async def _execute(connection: Connection, sql: str, values: Mapping[str, Any]) -> psycopg.AsyncCursor[Row]:
    text, (known,) = _prepared(sql, [values])
    return await connection.execute(text, known or None)


async def _rows(connection: Connection, sql: str, values: Mapping[str, Any]) -> list[Row]:
    cursor = await _execute(connection, sql, values)
    return await cursor.fetchall() if cursor.description else []


async def _run(connection: Connection, sql: str, values: Mapping[str, Any]) -> int:
    return max(0, (await _execute(connection, sql, values)).rowcount)


async def _run_many(connection: Connection, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
    text, values = _prepared(sql, rows)
    async with connection.cursor() as cursor:
        await cursor.executemany(text, values)


async def _run_together(connection: Connection, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
    async with connection.pipeline(), connection.transaction():  # BEGIN, all of them and COMMIT in one round trip
        await _run_many(connection, sql, rows)
