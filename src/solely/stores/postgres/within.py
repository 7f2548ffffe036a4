"""Ops inside the caller's own transaction: they commit or roll back together with the caller's rows.

Nothing is committed, rolled back or switched here. A busy key is waited for, in the order of the locks, so that two
callers who perform their ops in one call each cannot deadlock. Until the caller commits, others see the key as it was
before, and whoever decides on it waits or is answered StoreUnavailable; strangers are not held up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from ...errors import StoreError, StoreFailed, StoreUnavailable
from ...ops import Ack, Op, Push, Reply, Return, Take
from .. import Clock
from . import codec
from .faults import fault
from .settings import Settings, parse

_QUEUE_OPS = (Push, Take, Ack, Return)


class Within:
    """Performs ops on connections of psycopg that the caller gives, blocking or asyncio.

    A StoreError if the server answers so: the caller's transaction is then broken, as after any error, and is to be
    rolled back; MustRepeat (a StoreUnavailable) if it met another one and is worth repeating as a whole.
    """

    def __init__(self, url: str | Settings, *, clock: Clock | None = None, patience: float = 2.0) -> None:
        self._settings = url if isinstance(url, Settings) else parse(url)
        self._clock = clock
        self._patience = max(1, int(patience * 1000))

    def perform(self, connection: psycopg.Connection[Any], ops: Sequence[Op]) -> list[Reply]:
        """One reply per op, in order; the schema must be there."""
        replies: list[Reply] = []
        try:
            with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
                for name, values, op in self._calls(ops):
                    cursor.execute(self._settings.queries[name], values)
                    if op is not None:
                        replies.append(_reply(op, cursor.fetchone()))
        except psycopg.Error as error:
            raise self._fault(error) from error
        return replies

    async def perform_async(self, connection: psycopg.AsyncConnection[Any], ops: Sequence[Op]) -> list[Reply]:
        """As `perform`, awaited."""
        replies: list[Reply] = []
        try:
            async with psycopg.AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
                for name, values, op in self._calls(ops):
                    await cursor.execute(self._settings.queries[name], values)
                    if op is not None:
                        replies.append(_reply(op, await cursor.fetchone()))
        except psycopg.Error as error:
            raise self._fault(error) from error
        return replies

    def _calls(self, ops: Sequence[Op]) -> list[tuple[str, codec.Values, Op | None]]:
        clock = None if self._clock is None else round(self._clock() * 1_000_000)
        calls: list[tuple[str, codec.Values, Op | None]] = []
        if len(ops) > 1:
            keys = sorted({op.key for op in ops if not isinstance(op, _QUEUE_OPS)}, key=self._settings.lock_id)
            calls.append(("lock_all", (keys, self._patience), None))
        for op in ops:
            name, values = codec.lone(op, clock, self._patience)
            calls.append((name, values, op))
        return calls

    def _fault(self, error: psycopg.Error) -> StoreError:
        if error.sqlstate is None:
            return StoreUnavailable(f"{self._settings} did not answer: {error}")
        return fault(error.sqlstate, error.diag.message_primary or str(error))


def _reply(op: Op, row: codec.Row | None) -> Reply:
    if row is None:
        raise StoreFailed("the server answered without a row")
    return codec.reply(op, codec.widened(op, row))
