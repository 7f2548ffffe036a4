"""SQL: refuses the transaction of a stale holder before it can commit. PostgreSQL (psycopg) and SQLite (sqlite3).

`guard` stores the highest fence of each resource in the table `solely_fences` of the caller's database, within the
caller's transaction, and so protects every statement of it. `condition` protects one statement by a column of the
caller's own table.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput
from .order import stale, valid_fence, valid_resource

if TYPE_CHECKING:
    import psycopg

_, *_PARTS = re.split(r"^-- name: (\w+)$", (files(__package__) / "fences.sql").read_text("utf-8"), flags=re.MULTILINE)
_BARE = (re.sub(r"^--.*\n", "", body, flags=re.MULTILINE).strip() for body in _PARTS[1::2])
_SQL = dict(zip(_PARTS[::2], _BARE, strict=True))


def condition(fence: str, column: str = "fence") -> str:
    """The WHERE condition under which a row may be written; `fence` is the placeholder, as `:fence` or `%(fence)s`.

    The same statement must set the column to the fence. A row that was never written under a fence passes.
    """
    return f"({column} IS NULL OR {column} <= {fence})"


def create_fences(connection: sqlite3.Connection | psycopg.Connection[Any]) -> None:
    """Creates the table `solely_fences` unless it exists. Any number of processes can do so at once."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute(_SQL["create"])
        return
    with connection.transaction():
        connection.execute(_SQL["create_alone"])
        connection.execute(_SQL["create"])


async def create_fences_async(connection: psycopg.AsyncConnection[Any]) -> None:
    """As `create_fences`, awaited."""
    async with connection.transaction():
        await connection.execute(_SQL["create_alone"])
        await connection.execute(_SQL["create"])


def guard(connection: sqlite3.Connection | psycopg.Connection[Any], resource: str, fence: int) -> None:
    """From here to the end of this transaction no later holder's transaction on the resource can commit before it.

    StaleFence if a later one already did: do not catch it, so that the transaction rolls back. Call it first in the
    transaction, before anything is read. An error of the driver's own (a serialization failure above READ COMMITTED,
    a lock timeout) passes through, and nothing may be committed then.
    """
    if isinstance(connection, sqlite3.Connection):
        _guard_sqlite(connection, valid_resource(resource), valid_fence(fence))
    else:
        _guard_postgres(connection, valid_resource(resource), valid_fence(fence))


async def guard_async(connection: psycopg.AsyncConnection[Any], resource: str, fence: int) -> None:
    """As `guard`, awaited."""
    import psycopg

    values = (valid_resource(resource), valid_fence(fence))
    _refuse_autocommit(connection)
    async with psycopg.AsyncRawCursor(connection, row_factory=psycopg.rows.tuple_row) as cursor:
        await cursor.execute(_SQL["advance"], values)
        if await cursor.fetchone() is None:
            await cursor.execute(_SQL["stored"], values[:1])
            raise stale(resource, fence, _fence(await cursor.fetchone()))


def _guard_postgres(connection: psycopg.Connection[Any], resource: str, fence: int) -> None:
    import psycopg

    _refuse_autocommit(connection)
    with psycopg.RawCursor(connection, row_factory=psycopg.rows.tuple_row) as cursor:
        if cursor.execute(_SQL["advance"], (resource, fence)).fetchone() is None:
            raise stale(resource, fence, _fence(cursor.execute(_SQL["stored"], (resource,)).fetchone()))


def _guard_sqlite(connection: sqlite3.Connection, resource: str, fence: int) -> None:
    by_itself = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
    if by_itself and not connection.in_transaction:
        raise InvalidInput(
            "this connection is in autocommit: BEGIN IMMEDIATE first, so that there is a transaction to guard"
        )
    with closing(connection.cursor()) as cursor:
        cursor.row_factory = None
        if not cursor.execute(_SQL["advance"], {"1": resource, "2": fence}).fetchall():
            raise stale(resource, fence, _fence(cursor.execute(_SQL["stored"], {"1": resource}).fetchone()))


def _refuse_autocommit(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    from psycopg.pq import TransactionStatus

    if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        raise InvalidInput("this connection is in autocommit: call guard within `connection.transaction()`")


def _fence(row: Any) -> int:
    return int(row[0])
