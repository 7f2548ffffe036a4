"""Ops inside the caller's own transaction: they commit or roll back together with the caller's rows.

Our tables stand in the caller's file. Nothing is committed here and no setting of the connection is left changed. While
the transaction is open others who would write to the file wait for it, and those who only look see it as it was.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from typing import Any

from ...errors import InvalidInput, StoreError, StoreMisconfigured, StoreUnavailable
from ...kinds import check_ops
from ...ops import Op, Reply
from .clock import Readings
from .faults import explain, is_busy
from .fences import fences_for
from .rows import RowView
from .schema import base_of_boot, create, is_there
from .steps import STEPS

# Python 3.12 has a second way to say who begins a transaction; before that there was only isolation_level.
_LEGACY = getattr(sqlite3, "LEGACY_TRANSACTION_CONTROL", -1)


class SqliteTransaction(RowView):
    """One call on the caller's connection. All of its ops are performed, or none and the transaction is as it was.

    InvalidInput if the connection is not one to this file or is in no transaction; StoreUnavailable if others were
    writing: then the transaction is to be rolled back and run again.
    """

    def __init__(self, connection: sqlite3.Connection, path: str, shared: bool, readings: Readings) -> None:
        if not isinstance(connection, sqlite3.Connection):
            raise InvalidInput(f"within() on SQLite takes a sqlite3.Connection, not {type(connection).__name__}")
        super().__init__(readings, 0)
        self._connection, self._path, self._shared = connection, path, shared
        self.fixed = self.durable = True  # how long a commit waits for the disk is the caller's choice

    def perform(self, ops: Sequence[Op]) -> list[Reply]:
        """One reply per op."""
        check_ops(ops)
        connection = self._connection
        try:
            text_factory, connection.text_factory = connection.text_factory, str
            try:
                return self._with_cursor(ops)
            finally:
                connection.text_factory = text_factory
        except sqlite3.ProgrammingError as error:  # closed, or of another thread
            raise InvalidInput(f"the connection given to within() cannot be used: {error}") from error
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise self._fault(error) from error

    def _with_cursor(self, ops: Sequence[Op]) -> list[Reply]:
        cursor = self._connection.cursor()
        cursor.row_factory = None  # rows as tuples, whatever the caller likes them to be
        self.execute = self.change = cursor.execute
        try:
            self._be_of_this_file()
            return self._all_or_none(ops, self._must_begin())
        finally:
            cursor.close()

    def _be_of_this_file(self) -> None:
        main = next((file for _, name, file in self.execute("PRAGMA database_list").fetchall() if name == "main"), "")
        if not main or os.path.realpath(main) != os.path.realpath(self._path):
            raise InvalidInput(
                f"the connection given to within() is open on {main or 'a database in memory'}, but the store is "
                f"{self._path}: a mark commits with your rows only in the same file"
            )

    def _must_begin(self) -> bool:
        """True if a transaction is to be begun, which sqlite3 would do only at the first INSERT, UPDATE or DELETE."""
        connection: Any = self._connection
        if connection.in_transaction:
            return False
        if connection.isolation_level is None or getattr(connection, "autocommit", _LEGACY) != _LEGACY:
            raise InvalidInput(
                "the connection given to within() is in no transaction, and commits each statement by itself; "
                "begin one first: connection.execute('BEGIN IMMEDIATE')"
            )
        return True

    def _all_or_none(self, ops: Sequence[Op], begin: bool) -> list[Reply]:
        try:
            if begin:
                self.execute("BEGIN IMMEDIATE")
            self.execute("SAVEPOINT solely")
            self._be_at_home()
            replies = self.decide(ops, lambda ops: [STEPS[type(op)](self, op) for op in ops])
            self.execute("RELEASE solely")
            return replies
        except BaseException:
            if self._connection.in_transaction:  # some errors end it by themselves
                self.execute("ROLLBACK" if begin else "ROLLBACK TO solely")
                if not begin:
                    self.execute("RELEASE solely")
            raise

    def _be_at_home(self) -> None:
        """Our tables are made in this very transaction if they are not there: the store could not, beside it."""
        if not is_there(self.execute, self._path, self._shared):
            if not self._shared:
                raise StoreMisconfigured(f"{self._path} has no tables of Solely yet; add ?shared=true to the URL")
            create(self.execute, self.readings, shared=True)
        self.base = base_of_boot(self.execute, self.readings)
        self.fences = fences_for(self.readings, self.base)

    def _fault(self, error: Exception) -> StoreError:
        if is_busy(error):
            return StoreUnavailable(
                f"the SQLite store {self._path} is being written by others; roll back and run the transaction again "
                f"({error}; one that begins with BEGIN IMMEDIATE waits for its turn at its begin, and not later)"
            )
        return explain(self._path, error)
