"""What SQLite's errors mean to a caller: each becomes a StoreError that names the cause and what to do."""

from __future__ import annotations

import sqlite3

from ...errors import StoreDenied, StoreError, StoreFailed, StoreFull, StoreMisconfigured, StoreUnavailable, Unanswered

_PRIMARY = 0xFF  # an extended result code carries its primary code in the low byte

_CAUSES: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (StoreUnavailable, "is locked by others for longer than the timeout; nothing was done"),
    sqlite3.SQLITE_LOCKED: (StoreUnavailable, "is locked by another connection; nothing was done"),
    sqlite3.SQLITE_INTERRUPT: (StoreUnavailable, "was interrupted; nothing was done"),
    sqlite3.SQLITE_FULL: (StoreFull, "cannot grow: the disk is full; make room"),
    sqlite3.SQLITE_READONLY: (StoreDenied, "is read-only; make the file and its folder writable for this user"),
    sqlite3.SQLITE_CANTOPEN: (StoreMisconfigured, "cannot be opened; its folder must exist and be writable"),
    sqlite3.SQLITE_PERM: (StoreDenied, "may not be accessed by this user"),
    sqlite3.SQLITE_AUTH: (StoreDenied, "may not be accessed by this user"),
    sqlite3.SQLITE_NOTADB: (StoreMisconfigured, "is not an SQLite database; give the path of a new file"),
    sqlite3.SQLITE_CORRUPT: (StoreFailed, "is corrupt; move it away, or repair it with sqlite3's .recover"),
    sqlite3.SQLITE_IOERR: (StoreFailed, "cannot be read or written: the disk reports an error"),
    sqlite3.SQLITE_TOOBIG: (StoreFailed, "cannot hold a key or value of this size"),
    sqlite3.SQLITE_NOMEM: (StoreFailed, "could not be used: out of memory"),
}


def primary_code(error: BaseException) -> int:
    """SQLite's primary result code; SQLITE_ERROR where the error has none."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & _PRIMARY


def is_busy(error: BaseException) -> bool:
    """True if others hold the lock, so that nothing was done and it can be tried again."""
    return primary_code(error) == sqlite3.SQLITE_BUSY


def doubt(path: str, error: sqlite3.Error) -> None:
    """Raises Unanswered if this error leaves a commit unknown: after a disk error the next recovery may find it."""
    if primary_code(error) == sqlite3.SQLITE_IOERR:
        text = f"the SQLite store {path} may or may not have stored the change: disk error ({error})"
        raise Unanswered(text) from error


def explain(path: str, error: BaseException) -> StoreError:
    """The StoreError for this error."""
    kind, text = _CAUSES.get(primary_code(error), (StoreFailed, "failed"))
    return kind(f"the SQLite store {path} {text} ({error})")
