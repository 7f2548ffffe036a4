"""Asyncio: a thread of its own for ops, and one for lists, which so never hold up a renewal."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Sequence

from ...errors import InvalidInput, StoreUnavailable
from ...kinds import check_ops
from ...model import Entry, Finding
from ...ops import MAX_BATCH, MAX_LIMIT, Op, Reply
from .. import OnHint
from .clock import Readings
from .session import Session
from .shared_file import shared_file_of
from .within import SqliteTransaction
from .worker import Future, Worker


class AsyncSqliteStore:
    """For one event loop at a time. What was handed to perform() is performed, whoever still awaits it."""

    polls = True
    max_limit = MAX_LIMIT
    portion = MAX_BATCH

    def __init__(self, path: str, readings: Readings, timeout: float, *, shared: bool = False) -> None:
        self.client = os.urandom(16).hex()
        self._path, self._shared, self._readings, self._timeout = path, shared, readings, timeout
        self._shared_file = shared_file_of(path)
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        # Each is started, with its session, by the first call that needs it, and not in forked(): the locks of the
        # shared file may be held there.
        self._ops: Worker | None = None
        self._lists: Worker | None = None

    def listen(self, on_hint: OnHint) -> None:
        self._shared_file.listeners[self.client] = on_hint

    def perform(self, ops: Sequence[Op]) -> Future:
        worker = self._for_ops()
        try:
            check_ops(ops)
        except InvalidInput as error:  # before it goes along with the batches of others
            refused: Future = asyncio.get_running_loop().create_future()
            refused.set_exception(error)
            return refused
        return worker.perform(ops)

    async def perform_within(self, connection: sqlite3.Connection, ops: Sequence[Op]) -> list[Reply]:
        """Performs the ops in the connection's transaction; in this thread, like every statement of that connection."""
        return SqliteTransaction(connection, self._path, self._shared, self._readings).perform(ops)

    async def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        if self._lists is None:
            self._lists = self._start("solely-sqlite-lists")
        session = self._lists.session
        found: list[Entry] = await self._lists.call(lambda: session.scan(prefix, after, limit))
        return found

    async def check(self) -> list[Finding]:
        """Waits in the line of the ops: what holds those up is to be seen here."""
        worker = self._for_ops()
        found: list[Finding] = await worker.call(worker.session.check)
        return found

    def _for_ops(self) -> Worker:
        if self._ops is None:
            self._ops = self._start("solely-sqlite")
        return self._ops

    def _start(self, name: str) -> Worker:
        if self._closed:
            raise StoreUnavailable(f"the SQLite store {self._path} was closed")
        session = Session(self._path, self._shared, self._shared_file, self._readings, self._timeout)
        return Worker(session, self._timeout, name)

    def forked(self) -> None:
        """The threads stayed with the parent; the child starts its own, under a name of its own."""
        on_hint = self._shared_file.listeners.pop(self.client, None)
        self.client = os.urandom(16).hex()
        if on_hint is not None:
            self.listen(on_hint)
        self._reset()

    async def close(self) -> None:
        """What was handed in is performed first; waits for that at most the timeout and a little."""
        self._closed = True
        self._shared_file.listeners.pop(self.client, None)
        workers = [worker for worker in (self._ops, self._lists) if worker is not None]
        self._ops = self._lists = None
        await asyncio.gather(*(worker.close() for worker in workers))
