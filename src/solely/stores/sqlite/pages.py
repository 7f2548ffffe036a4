"""scan(): entries in key order, a page at a time, by a range of the primary key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model import Entry, State
from .. import transitions as t
from .rows import decode
from .statements import SQL

ROWS = 256  # read at a time: most are shown, so a page of the usual size is one query


def page(execute: Callable[..., Any], now: t.Now, prefix: str, after: str, limit: int) -> list[Entry]:
    """Entries that are not free, whose key begins with prefix and is greater than `after`; at most `limit`."""
    found: list[Entry] = []
    while len(found) < limit:
        rows = execute(SQL["page"], (prefix, after, ROWS)).fetchall()
        for key, *row in rows:
            if not key.startswith(prefix) or len(found) == limit:
                return found
            entry = t.view(key, decode(tuple(row)), now, value=True)
            if entry.state is not State.FREE or entry.fence:
                found.append(entry)
        if not rows:
            break
        after = rows[-1][0]
    return found
