"""Bytes that nothing of ours wrote, put into a store as somebody with direct access to it can."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

from solely.model import item_key
from solely.ops import Push
from solely.queues.flow import body_of
from solely.stores.memory import Memory

HOUR = 3_600 * 10**6  # µs: longer than any test
_DONE, _FREE = 2, 0  # as rows.py counts states


def write_raw(path: Path, key: str, value: bytes, info: str = "") -> None:
    """Puts an entry with this stored key and these bytes into a SQLite store, past all checks: a queue item that waits
    if the key is one, else an entry that is done. Tests write such bytes only here."""
    now = int(time.time() * 1e6)
    item = key.startswith("item/")
    queue, available = (unquote(key.split("/", 2)[1]), 0) if item else (None, None)
    row = (key, _FREE if item else _DONE, now, 0 if item else now + HOUR, info, queue, available, value)
    with closing(sqlite3.connect(path, timeout=20)) as base, base:
        base.execute(
            "INSERT OR REPLACE INTO solely_entries (key, state, fence, until, info, queue, available, value) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )


def push_raw(memory: Memory, queue: str, id: str, value: bytes) -> None:
    """Puts an item with these bytes into a queue of a store in memory, past all checks: first a good one, as it is
    pushed by us, and then these in its place."""
    memory.perform([Push(queue, id, b"0" * 32 + body_of(1))])
    memory._records[item_key(queue, id)].value = value
