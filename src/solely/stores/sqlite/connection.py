"""Opening the file: a connection in WAL mode on a file of ours, whose leases are of this boot; else a StoreError."""

from __future__ import annotations

import os
import sqlite3
import time

from solely.errors import StoreMisconfigured

from .clock import Readings
from .faults import is_busy
from .statements import SCHEMA, SQL

APPLICATION = 0x534F4C59  # "SOLY" in the file's header: no other program's database is ever taken for a store
VERSION = 1
# Seconds that SQLite waits for a lock: it asks after 0, 1, 3, 8 and 18 ms, then ever less often, and who asks seldom
# starves; so we begin anew after each slice, until the timeout is over.
BUSY_SLICE = 0.020
# Bytes of a page, where the file is ours to make: a commit writes and checks whole pages, and an entry is short.
PAGE_SIZE = 2_048
# Pages in the write-ahead log before they go into the file: 16 MB, since a checkpoint after every 500 leases would
# take a third of the time when keys are many and each lies on a page of its own.
CHECKPOINT_AFTER = 8_000
_RETRY = 0.005  # seconds between tries to switch to WAL, which SQLite's own busy handler does not cover: a few writes


def connect(path: str, readings: Readings, timeout: float) -> tuple[sqlite3.Connection, int]:
    """An open connection, and the base of this boot's fences. Raises StoreMisconfigured or sqlite3.Error."""
    if os.path.isdir(path):
        raise StoreMisconfigured(f"the SQLite store {path} is a folder; give the path of a file")
    if not os.path.isdir(os.path.dirname(path)):
        raise StoreMisconfigured(f"the SQLite store {path} cannot be made: its folder does not exist; create it")
    connection = sqlite3.connect(
        path, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=64
    )  # isolation_level: we begin and commit; check_same_thread: a session is used by one thread at a time, not by one
    try:
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_AFTER}")
        _prepare(connection, path, timeout)
        base = _this_boot(connection, readings)
        connection.execute(f"PRAGMA busy_timeout = {BUSY_SLICE * 1_000:.0f}")
        return connection, base
    except BaseException:
        connection.close()
        raise


def _prepare(connection: sqlite3.Connection, path: str, timeout: float) -> None:
    if _is_ours(connection, path):
        _use_wal(connection, path, timeout)
        return
    _use_wal(connection, path, timeout)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _is_ours(connection, path):
            for statement in SCHEMA.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _is_ours(connection: sqlite3.Connection, path: str) -> bool:
    """True if the schema is there, False if the file is empty; else StoreMisconfigured."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if (application, version) == (APPLICATION, VERSION):
        return True
    if application == APPLICATION:
        raise StoreMisconfigured(f"the SQLite store {path} has schema {version}, not {VERSION}; upgrade Solely")
    if application or connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise StoreMisconfigured(f"{path} is a database of another program; give the path of a new file")
    return False


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


def _this_boot(connection: sqlite3.Connection, readings: Readings) -> int:
    """Voids what another boot left, once; answers the base of the fences."""
    known = connection.execute(SQL["meta"]).fetchone()
    if known is not None and known[0] == readings.boot_id:
        return int(known[1])
    connection.execute("BEGIN IMMEDIATE")
    try:
        known = connection.execute(SQL["meta"]).fetchone()
        if known is None or known[0] != readings.boot_id:
            since_boot, wall = (readings.tick or readings.wall)(), readings.wall()
            above = max(wall, known[2] + 1 if known else 0)
            if known is None:
                connection.execute(SQL["first_boot"], (readings.boot_id, above - since_boot, 0, 0))
            else:
                _void(connection)
                connection.execute(SQL["next_boot"], (readings.boot_id, above - since_boot, 0))
        base = int(connection.execute(SQL["meta"]).fetchone()[1])
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return base


def _void(connection: sqlite3.Connection) -> None:
    """Leases do not outlive a boot; marks, results, watermarks and items do."""
    (last,) = connection.execute(SQL["last_item"]).fetchone()
    if last is not None:
        connection.execute(SQL["void_items"], (last,))
    for name in ("void_free", "void_held", "void_done"):
        connection.execute(SQL[name])
