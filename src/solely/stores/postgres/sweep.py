"""When to forget what no longer matters: a stretch of rows now and then. Never needed for a right answer."""

from __future__ import annotations

EVERY = 256  # ops: one short statement more per so many costs each of them about a µs
ROWS = 2 * EVERY  # so that the sweep goes round faster than ops can add rows, and garbage stays below what is alive


class SweepCursor:
    """Goes through the keys, a stretch each time, and starts anew at the end."""

    def __init__(self) -> None:
        self._ops = 0
        self.after = ""

    def due(self, ops: int) -> bool:
        """Counts these ops; True once in EVERY."""
        self._ops += ops
        if self._ops < EVERY:
            return False
        self._ops = 0
        return True
