"""Opening the file: a connection in WAL mode on a file of ours, whose leases are of this boot; else a StoreError."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import StoreMisconfigured
from ...folder import create_private
from .clock import Readings
from .faults import is_busy
from .schema import base_of_boot, create, is_there, known_base

# Seconds that SQLite waits for a lock: it tries after 0, 1, 3, 8 and 18 ms, then ever less often, and who tries seldom
# starves; so we begin anew after each slice, until the timeout is over.
BUSY_SLICE = 0.020
# Bytes of a page, where the file is ours to make: a commit writes and checks whole pages, and an entry is short.
PAGE_SIZE = 2_048
# Pages in the write-ahead log before they go into the file. Many, since a checkpoint after every 500 leases would take
# a third of the time when each key lies on a page of its own; fewer while the file has few pages, since the log's index
# looks at every earlier copy of a page for each new one.
_LONGEST_LOG, _SHORTEST_LOG = 8_000, 1_000
_COPIES = 100  # of each page, in a log whose file is small
_RETRY = 0.005  # seconds between tries to switch to WAL, which SQLite's own busy handler does not cover: a few writes


def connect(path: str, shared: bool, readings: Readings, timeout: float) -> tuple[sqlite3.Connection, int]:
    """An open connection, and the base of this boot's fences. Raises StoreMisconfigured or sqlite3.Error."""
    if os.path.isdir(path):
        raise StoreMisconfigured(f"the SQLite store {path} is a folder; give the path of a file")
    if not os.path.isdir(os.path.dirname(path)):
        raise StoreMisconfigured(f"the SQLite store {path} cannot be created: its folder does not exist; create it")
    create_private(path)
    connection = sqlite3.connect(
        path, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=64
    )  # isolation_level: we begin and commit; check_same_thread: a session is used by one thread at a time, not by one
    try:
        if not shared:
            connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        base = _prepare(connection, path, shared, readings, timeout)
        fit_log(connection.execute)
        return connection, base
    except BaseException:
        connection.close()
        raise


def file_at(path: str) -> tuple[int, int] | None:
    """Which file is at the path now; None if there is none, or that is unknown. An open file is never mistaken.

    The file is not opened for this: to close it again would drop the locks that SQLite has on it.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def fit_log(execute: Callable[..., Any]) -> None:
    """Lets the write-ahead log grow as long as suits the size of the file."""
    (pages,) = execute("PRAGMA page_count").fetchone()
    execute(f"PRAGMA wal_autocheckpoint = {min(max(_COPIES * pages, _SHORTEST_LOG), _LONGEST_LOG)}")


def _prepare(connection: sqlite3.Connection, path: str, shared: bool, readings: Readings, timeout: float) -> int:
    with _transaction(connection, "BEGIN"):
        is_there(connection.execute, path, shared)  # or it is a file of others: then nothing of it is changed
    _use_wal(connection, path, timeout)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_SLICE * 1_000:.0f}")
    end = time.monotonic() + timeout
    while True:
        try:
            return _base(connection, path, shared, readings)
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > end:
                raise


def _base(connection: sqlite3.Connection, path: str, shared: bool, readings: Readings) -> int:
    execute = connection.execute
    with _transaction(connection, "BEGIN"):  # in one look: another process may be making the tables at this moment
        there = is_there(execute, path, shared)
    if not there:
        with _transaction(connection):
            if not is_there(execute, path, shared):
                create(execute, readings, shared)
    base = known_base(execute, readings)
    if base is None:
        with _transaction(connection):
            base = base_of_boot(execute, readings)
    return base


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    try:
        connection.execute(begin)
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _use_wal(connection: sqlite3.Connection, path: str, timeout: float) -> None:
    end = time.monotonic() + timeout
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > end:
                raise
            time.sleep(_RETRY)
    if mode != "wal":
        raise StoreMisconfigured(f"the SQLite store {path} cannot use WAL (it stays in {mode} mode): use a local disk")
