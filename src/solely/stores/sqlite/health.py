"""check() of the SQLite store: path, version, journal, disk, file system and clock, as findings that say what to do."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from typing import Any

from ...logs import get_logger
from ...model import Finding
from ..transitions import US
from .clock import Readings
from .fences import RESERVE
from .statements import SQL

log = get_logger()

LOW_DISK = 64 * 1024 * 1024  # bytes: a WAL at its usual size many times over, so there is time to act
AHEAD = RESERVE + 60 * US  # µs: what is reserved, and a minute, which no honest clock is set back by

# WAL needs memory that all processes share, which a file system that spans hosts cannot give.
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.glusterfs"}

SqliteVersion = tuple[int, ...]


def has_wal_reset_bug(version: SqliteVersion) -> bool:
    """True for SQLite 3.7.0 to 3.51.2, but for the corrected 3.44.6 and 3.50.7 and what followed on their branches.

    In these a checkpoint that meets another process's write at the wrong instant can lose committed pages
    (sqlite.org/wal.html, "The WAL-Reset Bug"). Rare, but not for a store to be silent about.
    """
    if not (3, 7, 0) <= version < (3, 51, 3):
        return False
    return not ((3, 44, 6) <= version < (3, 45) or (3, 50, 7) <= version < (3, 51))


_logged: set[SqliteVersion] = set()


def log_wal_reset_bug(version: SqliteVersion = sqlite3.sqlite_version_info) -> None:
    """One warning per process and version that has the bug."""
    if has_wal_reset_bug(version) and version not in _logged:
        _logged.add(version)
        figures = {"version": ".".join(map(str, version)), "fixed_in": "3.51.3"}
        log.warning(
            "sqlite_wal_reset_bug: SQLite %(version)s can, rarely, lose commits of several writers; "
            "fixed in %(fixed_in)s, 3.50.7 and 3.44.6",
            figures,
            extra=figures,
        )


def log_replaced(path: str) -> None:
    """Says that this process goes on with another file than before."""
    log.warning(
        "sqlite_file_replaced: %(path)s was removed or replaced while it was in use; what the old file held is lost",
        {"path": path},
        extra={"path": path},
    )


def findings(path: str, replaced: bool, execute: Callable[..., Any], readings: Readings) -> list[Finding]:
    """One finding per subject."""
    (mode,) = execute("PRAGMA journal_mode").fetchone()
    return [
        _path(path, replaced),
        Finding("ok" if mode == "wal" else "error", "journal", f"journal mode {mode}"),
        _version(),
        _disk(shutil.disk_usage(os.path.dirname(path)).free),
        _file_system(path),
        _fence(execute, readings),
    ]


def _path(path: str, replaced: bool) -> Finding:
    if replaced:
        text = f"{path} was removed or replaced while it was open, and what it held is lost; stop all processes first"
        return Finding("error", "path", text)
    return Finding("ok", "path", path)


def _version() -> Finding:
    if has_wal_reset_bug(sqlite3.sqlite_version_info):
        text = f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug (rare corruption); use 3.51.3 or later"
        return Finding("warning", "version", text)
    return Finding("ok", "version", f"SQLite {sqlite3.sqlite_version}")


def _disk(free: int) -> Finding:
    text = f"{free // 1024 // 1024} MiB free"
    return Finding("ok", "disk", text) if free >= LOW_DISK else Finding("warning", "disk", f"only {text}; make room")


def _file_system(path: str) -> Finding:
    kind = file_system(path)
    if kind in _REMOTE:
        return Finding("error", "file system", f"{kind} cannot share memory; put the file on a local disk")
    return Finding("ok", "file system", kind or "unknown")


def file_system(path: str, mounts: str = "/proc/self/mounts") -> str:
    """The kind of file system that holds this path; "" where that is unknown."""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as lines:
            fields = [line.split() for line in lines]
    except OSError:
        return ""
    real = os.path.join(os.path.realpath(path), "")
    best = max((f for f in fields if real.startswith(os.path.join(f[1], ""))), key=lambda f: len(f[1]), default=None)
    return best[2] if best else ""


def _fence(execute: Callable[..., Any], readings: Readings) -> Finding:
    ahead = execute(SQL["meta"]).fetchone()[2] - readings.wall()
    if ahead > AHEAD:
        text = (
            f"fences are {ahead // US} s ahead of the clock, which was set back: if the file were lost, they would fall"
        )
        return Finding("warning", "fence", text)
    return Finding("ok", "fence", "not ahead of the clock")
