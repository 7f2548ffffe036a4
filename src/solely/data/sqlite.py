"""SQLite: one connection on a thread of its own, which performs statements in the order in which they were submitted.

Several processes share the file, in WAL mode. The timeout of a statement counts from its submission, so a statement
behind many slow ones fails in time.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from ..errors import DataError, DataUnavailable, InvalidInput
from ..folder import create_private
from ..stores.sqlite.connection import BUSY_SLICE
from ..stores.sqlite.faults import is_busy, primary_code
from .database import NESTED, BaseDatabase, Database, Row, Transaction, failed
from .place import MEMORY

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

MIGRATING = 60.0  # seconds for a migration, and to wait for another process's: a large table takes some
STEPS = 10_000  # of SQLite's virtual machine between two checks of the deadline: well under a millisecond
# What may work later, when the lock, the disk or the rights are back; all else is the statement's own fault.
_LATER = frozenset((
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT,
))  # fmt: skip


def open_sqlite(url: str, timeout: float) -> SqliteDatabase:
    """The database in the file of this URL; InvalidInput if the URL is invalid."""
    parts = urlsplit(url)
    path = unquote(parts.path[1:])
    if parts.netloc or parts.query or parts.fragment or not path or "\0" in path:
        raise InvalidInput(f"{url!r:.200} names no file; write sqlite:///relative/path or sqlite:////absolute/path")
    if path != MEMORY:
        path = os.path.abspath(path)
        if not os.path.isdir(os.path.dirname(path)) or os.path.isdir(path):
            raise InvalidInput(f"invalid database file {path}: its folder must exist, and it must be a file")
    return SqliteDatabase(path, timeout)


class SqliteDatabase(BaseDatabase):
    """For one event loop. A submitted statement is performed even if nobody awaits it any more."""

    dialect = "sqlite"

    def __init__(self, path: str, timeout: float) -> None:
        self.where = f"the database {path}"
        self._path, self._timeout = path, timeout
        self._thread = ThreadPoolExecutor(1, "solely-data")
        self._turn = asyncio.Lock()  # held by a transaction; other statements hold it only while they are submitted
        self._owner: asyncio.Task[Any] | None = None  # the task that has the transaction
        self._closed = False
        self._connection: sqlite3.Connection | None = None  # from here on: used by the thread only
        self._ends = 0.0

    async def rows(self, sql: str, **values: Any) -> list[Row]:
        return await self._perform(lambda connection: _rows(connection, sql, values), sql)

    async def run(self, sql: str, **values: Any) -> int:
        return await self._perform(lambda connection: _run(connection, sql, values), sql)

    async def run_many(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        await self._perform(lambda connection: _run_together(connection, sql, rows), sql)

    @asynccontextmanager
    async def transaction(self, *, timeout: float | None = None) -> AsyncIterator[Database]:
        seconds = timeout or self._timeout
        await self._acquire(seconds)
        try:
            self._owner = asyncio.current_task()
            inside = SqliteDataTransaction(self, seconds)
            try:
                await self.submit(_begin, "BEGIN", seconds)
                yield inside
                await self.submit(_commit, "COMMIT", seconds)
            except BaseException:
                self.submit(_roll_back, "ROLLBACK", seconds)  # performed before all later statements
                raise
            finally:
                inside.over = True
        finally:
            self._owner = None
            self._turn.release()

    @asynccontextmanager
    async def migrating(self) -> AsyncIterator[Database]:
        async with self.transaction(timeout=MIGRATING) as inside:  # SQLite has one writer at a time
            yield inside

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            ended = asyncio.wrap_future(self._thread.submit(self._disconnect))
            self._thread.shutdown(wait=False)
            await asyncio.wait([ended], timeout=self._timeout)

    async def _perform(self, work: Work[T], sql: str) -> T:
        await self._acquire(self._timeout)
        try:
            pending = self.submit(work, sql, self._timeout)
        finally:
            self._turn.release()
        return await pending

    async def _acquire(self, timeout: float) -> None:
        if not self._turn.locked():
            await self._turn.acquire()
            return
        if self._owner is asyncio.current_task():
            raise InvalidInput(NESTED)
        try:
            async with asyncio.timeout(timeout):
                await self._turn.acquire()
        except TimeoutError:
            raise failed(DataUnavailable, self.where, f"a transaction here took longer than {timeout:g} s") from None

    def submit(self, work: Work[T], sql: str, timeout: float) -> asyncio.Future[T]:
        """Submits work to the thread, which performs it after all earlier work."""
        if self._closed:
            raise failed(DataUnavailable, self.where, "it was closed")
        pending: Future[T] = self._thread.submit(self._work, work, sql, time.monotonic() + timeout)
        return asyncio.wrap_future(pending)

    # -- in the thread

    def _work(self, work: Work[T], sql: str, ends: float) -> T:
        self._ends = ends
        try:
            while True:
                try:
                    return work(self._connected())
                except sqlite3.OperationalError as error:  # busy: nothing was done, and SQLite has waited BUSY_SLICE
                    if not is_busy(error) or self._overdue():
                        raise
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise self._fault(error, sql) from None

    def _fault(self, error: Exception, sql: str) -> DataError:
        code = primary_code(error)
        if code == sqlite3.SQLITE_INTERRUPT:
            return failed(DataUnavailable, self.where, "it took too long", sql)
        if code in _LATER and code != sqlite3.SQLITE_BUSY and self._path != MEMORY:
            self._disconnect()  # the next statement opens it again
        return failed(DataUnavailable if code in _LATER else DataError, self.where, error, sql)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._path != MEMORY:
                create_private(self._path)
            self._connection = connection = sqlite3.connect(
                self._path, timeout=BUSY_SLICE, isolation_level=None, check_same_thread=False, cached_statements=256
            )  # isolation_level: we begin and commit
            try:
                connection.row_factory = _as_dict
                connection.set_progress_handler(self._overdue, STEPS)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")  # a power loss may undo commits, not corrupt
                connection.execute("PRAGMA foreign_keys = ON")  # as in PostgreSQL
            except BaseException:
                self._disconnect()
                raise
        return self._connection

    def _overdue(self) -> bool:
        return time.monotonic() > self._ends

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class SqliteDataTransaction(Transaction):
    """The database inside a transaction."""

    dialect = "sqlite"

    def __init__(self, database: SqliteDatabase, timeout: float) -> None:
        self._database, self._timeout = database, timeout

    async def rows(self, sql: str, **values: Any) -> list[Row]:
        return await self._perform(lambda connection: _rows(connection, sql, values), sql)

    async def run(self, sql: str, **values: Any) -> int:
        return await self._perform(lambda connection: _run(connection, sql, values), sql)

    async def run_many(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        await self._perform(lambda connection: _run_many(connection, sql, rows), sql)

    async def _perform(self, work: Work[T], sql: str) -> T:
        self.check_open()

        def inside(connection: sqlite3.Connection) -> T:
            if not connection.in_transaction:  # SQLite rolls back by itself when the disk is full, or on an interrupt
                raise failed(DataUnavailable, self._database.where, "the transaction was undone by an earlier error")
            return work(connection)

        return await self._database.submit(inside, sql, self._timeout)


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def _rows(connection: sqlite3.Connection, sql: str, values: Mapping[str, Any]) -> list[Row]:
    return connection.execute(sql, values).fetchall()


def _run(connection: sqlite3.Connection, sql: str, values: Mapping[str, Any]) -> int:
    cursor = connection.execute(sql, values)
    cursor.fetchall()  # a statement with RETURNING is performed only when its rows are read
    return max(0, cursor.rowcount)


def _run_many(connection: sqlite3.Connection, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
    connection.executemany(sql, rows)


def _run_together(connection: sqlite3.Connection, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
    _begin(connection)
    try:
        _run_many(connection, sql, rows)
        _commit(connection)
    except BaseException:
        _roll_back(connection)
        raise


def _begin(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")


def _commit(connection: sqlite3.Connection) -> None:
    connection.execute("COMMIT")


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
