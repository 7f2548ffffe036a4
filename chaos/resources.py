"""The shared resource of W2 and W3: sets that are read, changed and written back as a whole, in a SQLite file.

It is no part of the store: losing the store's data does not change it. `fenced` uses `solely.fencing.guard`: the read
registers the fence, so that no earlier holder can write afterwards.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from solely.fencing import create_fences, guard

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sets (name TEXT PRIMARY KEY, members TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS writes (number INTEGER PRIMARY KEY, name TEXT NOT NULL, fence INTEGER NOT NULL);
"""
BUSY = 60.0  # seconds to wait for the file: a process that is stopped inside a transaction continues after some seconds


class Sets:
    """Named sets of texts in one file; any number of processes."""

    def __init__(self, path: Path, *, fenced: bool) -> None:
        self._path = path
        self._fenced = fenced

    def create(self) -> None:
        with closing(self._open()) as file:
            file.execute("PRAGMA journal_mode=WAL")
            file.executescript(_SCHEMA)
            create_fences(file)

    def read(self, name: str, fence: int) -> list[str]:
        """The members; StaleFence, if fenced, for a holder that is no longer the last one."""
        with closing(self._open()) as file, file:
            self._guard(file, name, fence)
            return self._members(file, name)

    def write(self, name: str, members: list[str], fence: int) -> None:
        """Replaces the set; StaleFence as above, with no change."""
        with closing(self._open()) as file, file:
            self._guard(file, name, fence)
            file.execute("INSERT OR REPLACE INTO sets VALUES (?, ?)", (name, json.dumps(members)))
            file.execute("INSERT INTO writes (name, fence) VALUES (?, ?)", (name, fence))

    def contents(self) -> dict[str, set[str]]:
        """All sets at the end."""
        with closing(self._open()) as file:
            return {name: set(json.loads(kept)) for name, kept in file.execute("SELECT name, members FROM sets")}

    def accepted(self) -> list[tuple[str, int]]:
        """The name and the fence of every accepted write, in their order."""
        with closing(self._open()) as file:
            return list(file.execute("SELECT name, fence FROM writes ORDER BY number"))

    def _guard(self, file: sqlite3.Connection, name: str, fence: int) -> None:
        file.execute("BEGIN IMMEDIATE")
        if self._fenced:
            guard(file, name, fence)

    @staticmethod
    def _members(file: sqlite3.Connection, name: str) -> list[str]:
        found = file.execute("SELECT members FROM sets WHERE name = ?", (name,)).fetchone()
        return json.loads(found[0]) if found else []

    def _open(self) -> sqlite3.Connection:
        file = sqlite3.connect(self._path, timeout=BUSY, isolation_level=None)
        file.execute("PRAGMA synchronous=OFF")  # no fault of the battery ends the kernel
        return file
