"""Blocking: works in the caller's thread, on a connection that no other thread uses meanwhile."""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Sequence
from time import monotonic

from ...errors import StoreError, StoreUnavailable
from ...kinds import check_ops
from ...logs import get_logger
from ...model import Entry, Finding
from ...ops import MAX_LIMIT, Op, Reply
from .. import OnHint
from .clock import Readings
from .session import CLOSE_PATIENCE, Session
from .shared_file import shared_file_of
from .transactions import WaitingOps
from .within import SqliteTransaction

log = get_logger()


class SqliteStore:
    """As many connections as threads are at work at one time; idle ones are used again, by any thread."""

    polls = True
    max_limit = MAX_LIMIT

    def __init__(self, path: str, readings: Readings, timeout: float, *, shared: bool = False) -> None:
        self.client = os.urandom(16).hex()
        self._path, self._shared, self._readings, self._timeout = path, shared, readings, timeout
        self._shared_file = shared_file_of(path)
        self._idle: deque[Session] = deque()
        self._sessions: list[Session] = []
        self._waiting: list[WaitingOps] = []
        self._closed = False

    def listen(self, on_hint: OnHint) -> None:
        self._shared_file.listeners[self.client] = on_hint

    def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        check_ops(ops)
        try:
            session = self._idle.pop() if not self._closed else self._session()
        except IndexError:
            session = self._session()
        try:
            return session.perform(ops)
        finally:
            self._idle.append(session)

    def perform_within(self, connection: sqlite3.Connection, ops: Sequence[Op]) -> list[Reply]:
        """Performs the ops in the connection's transaction, with which they commit or roll back."""
        return SqliteTransaction(connection, self._path, self._shared, self._readings).perform(ops)

    def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        session = self._session()
        try:
            return session.scan(prefix, after, limit)
        finally:
            self._idle.append(session)

    def check(self) -> list[Finding]:
        session = self._session()
        try:
            return session.check()
        finally:
            self._idle.append(session)

    def _session(self) -> Session:
        if self._closed:
            raise StoreUnavailable(f"the SQLite store {self._path} was closed")
        try:
            return self._idle.pop()
        except IndexError:
            session = Session(self._path, self._shared, self._shared_file, self._readings, self._timeout, self._waiting)
            self._sessions.append(session)
            return session

    def forked(self) -> None:
        """The connections were closed before the fork: the child opens its own, under a name of its own."""
        on_hint = self._shared_file.listeners.pop(self.client, None)
        self.client = os.urandom(16).hex()
        if on_hint is not None:
            self.listen(on_hint)
        self._idle, self._sessions, self._waiting = deque(), [], []

    def close(self) -> None:
        """Waits for the transactions under way, at most the timeout and a little; one that lasts longer, as one does
        that was interrupted by the signal handler that closes, keeps its connection, which is logged."""
        self._closed = True
        self._shared_file.listeners.pop(self.client, None)
        ends = monotonic() + self._timeout + CLOSE_PATIENCE
        for session in self._sessions:
            if session.lock.acquire(timeout=max(0.0, ends - monotonic())):
                try:
                    session.disconnect()
                finally:
                    session.lock.release()
            else:
                log.warning(
                    "sqlite_not_closed: a call of %(path)s is still under way, and its connection stays open; "
                    "a signal handler that interrupted it should not close the client",
                    {"path": self._path},
                    extra={"path": self._path},
                )
