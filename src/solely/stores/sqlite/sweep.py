"""The sweep: deletes rows that change no answer any more, a few at a time. Never needed for a right answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...rules import REMEMBER
from .. import transitions as t
from .rows import decode
from .statements import SQL

EVERY = 256  # ops: with twice as many rows looked at, garbage cannot outgrow what is alive
ROWS = 2 * EVERY
HITS_AFTER = 3_600 * t.US  # a hit is kept an hour beyond its window, in case the next Hit has a longer one


class Sweep:
    """Walks through the keys, a stretch each time, and starts anew at the end."""

    def __init__(self) -> None:
        self._after = ""

    def run(self, execute: Callable[..., Any], now: t.Now) -> None:
        """Looks at the next stretch; takes the write lock only if there is something to forget."""
        end = execute(SQL["sweep_end"], (self._after, ROWS - 1)).fetchone()
        last = end[0] if end else None
        stretch = (self._after, last, now.lease, now.lease - t.us(REMEMBER), now.wall)
        if execute(SQL["sweep_look"], stretch).fetchone() is not None:
            execute("BEGIN IMMEDIATE")
            for key, *row in execute(SQL["sweep_look"], stretch).fetchall():
                if decode(tuple(row)).useless(now):
                    execute(SQL["delete"], (key,))
            execute("COMMIT")
        if execute(SQL["oldest_hit"]).fetchone()[0] <= now.wall - HITS_AFTER:
            execute(SQL["sweep_hits"], (now.wall - HITS_AFTER, ROWS))
        self._after = last or ""
