"""Ops inside the caller's own transaction: they commit or roll back together with the caller's rows.

Nothing is committed, rolled back or switched here. A busy key is waited for, in the order of the locks, so that two
callers who perform their ops in one call each cannot deadlock. Until the caller commits, others see the key as it was
before, and whoever decides on it waits or is answered StoreUnavailable; strangers are not held up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ...errors import InvalidInput, StoreError, StoreFailed, StoreUnavailable
from ...kinds import check_ops
from ...ops import Op, QueueOp, Reply
from .. import Clock
from . import codec
from .batch import parts, statement
from .connect import leads_to
from .faults import MustRepeat, Stale, ended, fault
from .schema import Connector, SchemaCheck
from .settings import PostgresSettings, parse
from .statements import NEWEST

_MANY = "mark_many"
# Columns of `server_state`: which life of which database this is, and the name of the table of migrations, if any.
_LIFE, _MIGRATIONS = 2, 3

RUN_AGAIN = "roll the transaction back and run all of it again"

Look = Callable[[], None]
BoundStatement = tuple[str, codec.Values, Sequence[Op]]  # a statement, its values, and the ops that its row answers


class PostgresTransaction:
    """Performs ops on connections of psycopg that the caller gives, blocking or asyncio.

    A StoreError if the server answers so: the caller's transaction is then broken, as after any error, and is to be
    rolled back; MustRepeat (a StoreUnavailable) if it met another one and is worth repeating as a whole. InvalidInput
    if the connection is in no transaction, does not speak UTF-8, or leads to another database than the store's.
    """

    def __init__(
        self,
        url: str | PostgresSettings,
        *,
        clock: Clock | None = None,
        patience: float = 2.0,
        connector: Connector | None = None,
    ) -> None:
        self._settings = url if isinstance(url, PostgresSettings) else parse(url)
        self._clock = clock
        self._patience = patience
        self._connector = connector or Connector(self._settings)
        self._looking: SchemaCheck | None = None
        self._met: WeakSet[Any] = WeakSet()  # connections to a server whose schema is known to be up to date
        self._guarded: tuple[str, dict[str, bytes]] = ("", {})  # a life of the server, and the statements for it alone

    def perform(self, connection: psycopg.Connection[Any], ops: Sequence[Op]) -> list[Reply]:
        """One reply per op, in order."""
        _check(connection, psycopg.Connection)
        check_ops(ops)
        replies: list[Reply] = []
        try:
            with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
                if connection not in self._met:
                    meeting = self._meet(connection)
                    step = next(meeting)
                    while step is not None:
                        step = meeting.send(step() if callable(step) else cursor.execute(step).fetchone())
                queries = self._first()
                for name, values, answered in self._calls(ops):
                    cursor.execute(queries[name], values)
                    queries = self._settings.queries
                    replies += _replies(name, answered, cursor.fetchone())
        except psycopg.Error as error:
            raise self._fault(connection, error) from error
        return replies

    async def perform_async(self, connection: psycopg.AsyncConnection[Any], ops: Sequence[Op]) -> list[Reply]:
        """As `perform`, awaited."""
        _check(connection, psycopg.AsyncConnection)
        check_ops(ops)
        replies: list[Reply] = []
        try:
            async with psycopg.AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
                if connection not in self._met:
                    meeting = self._meet(connection)
                    step = next(meeting)
                    while step is not None:
                        if callable(step):
                            step = meeting.send(await asyncio.to_thread(step))
                        else:
                            step = meeting.send(await (await cursor.execute(step)).fetchone())
                queries = self._first()
                for name, values, answered in self._calls(ops):
                    await cursor.execute(queries[name], values)
                    queries = self._settings.queries
                    replies += _replies(name, answered, await cursor.fetchone())
        except psycopg.Error as error:
            raise self._fault(connection, error) from error
        return replies

    def _meet(self, connection: Any) -> Generator[bytes | Look | None, codec.ReplyRow | None, None]:
        """Makes sure that the connection leads to the store's database, and that the schema there is up to date.

        Yields statements for the caller's connection, and is sent their rows; None at the end. A look on a connection
        of our own is only yielded if nothing else is known: behind a pooler the caller's transaction holds one of a
        few places, and the look would wait for another one, which a caller may hold who waits as we do.
        """
        queries, is_here = self._settings.queries, leads_to(self._settings.conninfo, connection.info)
        if not self._connector.life and not (is_here and (yield queries["find_migrations"]) is not None):
            yield self._look  # before that: the caller's connection would remember that there is no schema
        state = yield queries["server_state"]
        if state is not None and not self._knows(state):
            migrated = (yield queries["migrated"]) if is_here and state[_MIGRATIONS] else None
            if migrated is not None and int(migrated[0]) >= NEWEST:
                self._connector.life = state[_LIFE]
            else:
                yield self._look
        if not self._knows(state):
            if is_here or (state and not state[_MIGRATIONS] and (yield queries["find_migrations"]) is not None):
                raise MustRepeat(f"the schema of {self._settings} was made after this transaction began; {RUN_AGAIN}")
            raise InvalidInput(
                f"the connection given to within() leads to another database than the store, {self._settings}: a mark "
                "commits with your rows only in the same database"
            )
        self._met.add(connection)
        yield None

    def _knows(self, state: codec.ReplyRow | None) -> bool:
        return state is not None and state[_LIFE] == self._connector.life

    def _look(self) -> None:
        """Brings the schema up to date and learns which database is the store's, on a connection of our own.

        MustRepeat if that takes too long; it goes on meanwhile, so that it is done when the caller, who rolls back and
        so gives up a place of the pooler, has run the transaction again a few times.
        """
        looking = self._looking
        if looking is None or not looking.is_alive():  # after a fork the parent's is not
            looking = self._looking = SchemaCheck(self._connector)
            looking.start()
        looking.join(self._patience)
        if looking.is_alive():
            raise MustRepeat(
                f"{self._settings} was not reached within {self._patience:g} s on a connection of our own, which the "
                f"first use of a schema needs; a pooler may have no place for it until others end: {RUN_AGAIN}"
            )
        if looking.error is not None:
            raise looking.error

    def _first(self) -> dict[str, bytes]:
        """What a call begins with: a pooler may have led the connection to another server since it was met."""
        life = self._connector.life
        if self._guarded[0] != life:
            self._guarded = life, self._settings.queries_in(life)
        return self._guarded[1]

    def _calls(self, ops: Sequence[Op]) -> Iterator[BoundStatement]:
        """All locks first, in order; then marks together, and other ops one by one."""
        clock = None if self._clock is None else round(self._clock() * 1_000_000)
        patience = max(1, int(self._patience * 1000))
        if len(ops) > 1:
            keys = sorted({op.key for op in ops if not isinstance(op, QueueOp)}, key=self._settings.lock_id)
            if keys:
                yield "lock_all", (keys, patience), ()
        for part in parts(ops):
            name, values = statement(part, clock)
            if name == _MANY:
                yield name, values, part
            else:
                for op in part:
                    yield *codec.lone(op, clock, patience), (op,)

    def _fault(self, connection: Any, error: psycopg.Error) -> StoreError:
        if error.sqlstate is None:
            return StoreUnavailable(f"{self._settings} did not answer: {error}")
        text = error.diag.message_primary or str(error)
        if (error.diag.severity_nonlocalized or "ERROR") != "ERROR":  # FATAL, or PANIC
            return ended(error.sqlstate, text)
        meaning = fault(error.sqlstate, text)
        if isinstance(meaning, Stale):  # the next transaction on it is looked at as if it were new
            self._met.discard(connection)
        return meaning


def _check(connection: Any, kind: type[Any]) -> None:
    """InvalidInput unless it is a connection of this kind, for any text, in a transaction or about to begin one."""
    if not isinstance(connection, kind):
        raise InvalidInput(
            f"within() on PostgreSQL takes psycopg's Connection (of a Client) or AsyncConnection (of an AsyncClient): "
            f"here a {kind.__name__}, not {type(connection).__name__}"
        )
    if connection.closed:
        raise InvalidInput("the connection given to within() is closed")
    if connection.info.encoding != "utf-8":
        raise InvalidInput(
            f"the connection given to within() speaks {connection.info.encoding}, which has not every character of a "
            "key; connect with client_encoding=utf8, or SET client_encoding TO utf8"
        )
    status = connection.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise InvalidInput("the transaction of the connection given to within() has failed; roll it back first")
    if status == TransactionStatus.IDLE and connection.autocommit:
        raise InvalidInput(
            "the connection given to within() is in no transaction, and commits each statement by itself; begin one "
            "first: with connection.transaction()"
        )


def _replies(name: str, ops: Sequence[Op], row: codec.ReplyRow | None) -> list[Reply]:
    if row is None:
        raise StoreFailed("the server answered without a row")
    if name == _MANY:
        if len(row[0]) != len(ops):
            raise StoreFailed(f"the server answered {len(row[0])} of {len(ops)} marks")
        return [digit == "1" for digit in row[0]]
    return [codec.reply(op, codec.widened(op, row)) for op in ops]
