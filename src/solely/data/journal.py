"""Journal: rows that are written behind, so that the work which they record never waits for the database and never
fails because of it. A killed process loses at most what it has added since the last flush.

The tables and statements are the application's. A flush whose response was lost is repeated, so the statement merges
(`ON CONFLICT … DO UPDATE`) instead of inserting twice; sums may then count a little too much.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from .database import Database, Row
from .statements import SqlStatement

HOUR, DAY = 3_600, 86_400  # seconds: the usual spans of sums
MOST = 2_000  # rows that are buffered while the database is unreachable: bounded, as each may have some KiB
PAGE = 200  # rows that one statement deletes: few enough that it blocks nobody
_AT = "at"  # column that `add` adds
_TIMES, _LAST = "times", "last"  # columns that `count` adds: how often the key was counted, and when it last was


class _Buffered(NamedTuple):
    """A row, and the sums that belong to it; a row of `add` has none."""

    row: Row
    sums: dict[str, float]

    def add(self, sums: dict[str, float], last: float) -> None:
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0) + value
        self.row[_LAST] = last


class Journal:
    """Buffers rows until `flush` writes them with one statement. The buffer holds at most `most` rows; `dropped` counts
    what did not fit, and `on_drop` is called for each, e.g. to count it in the metrics.

    `order` names the columns that the table is unique by. Rows are written in this order, so that two processes never
    deadlock on each other's rows; rows that are equal in it are written in the order in which they were added.
    """

    def __init__(
        self,
        data: Database,
        record: SqlStatement,
        *,
        order: Sequence[str],
        most: int = MOST,
        on_drop: Callable[[], object] = lambda: None,
    ) -> None:
        self._data, self._record, self._most, self._on_drop = data, record, most, on_drop
        self._order: Callable[[Row], Any] = itemgetter(*order)
        self._rows: dict[Hashable, _Buffered] = {}
        self._writing = asyncio.Lock()
        self.dropped = 0

    def add(self, row: Row) -> None:
        """Adds a row, with the current time (seconds of UTC) as `at` unless it has one. Never waits and never fails: a
        row that does not fit is dropped and counted."""
        self._put(object(), _Buffered({_AT: time.time(), **row}, {}))

    def count(self, key: Hashable, row: Callable[[], Row], **sums: float) -> None:
        """Counts a key: one row with the columns of `row` (called for the first only), `times`, `last` (seconds of UTC)
        and the sum of each of `sums`. Never waits and never fails.

        For sums per hour or day, put `begin_of(now, HOUR)` into the key and the row.
        """
        sums[_TIMES] = 1
        known = self._rows.get(key)
        if known is not None:
            known.add(sums, time.time())
        elif len(self._rows) < self._most:
            self._rows[key] = _Buffered({**row(), _LAST: time.time()}, sums)
        else:
            self._drop(1)

    async def flush(self) -> None:
        """Writes the buffer, all of it or nothing. If that fails (DataError), the rows are kept for the next call."""
        async with self._writing:
            rows, self._rows = self._rows, {}
            try:
                await self._write([each.row | each.sums for each in rows.values()])
            except BaseException:
                later, self._rows = self._rows, rows
                for key, row in later.items():
                    self._put(key, row)
                raise

    async def sweep(self, delete: SqlStatement, older_than: float) -> int:
        """Deletes rows that are older than this many seconds, and returns their number. The statement deletes at most
        `:page` rows from before `:before`; it is repeated until nothing is left to delete."""
        before, deleted, page = time.time() - older_than, 0, PAGE
        while page == PAGE:
            page = await self._data.run(delete.text(self._data.dialect), before=before, page=PAGE)
            deleted += page
        return deleted

    async def _write(self, rows: list[Row]) -> None:
        if rows:
            rows.sort(key=self._order)
            await self._data.run_many(self._record.text(self._data.dialect), rows)

    def _put(self, key: Hashable, given: _Buffered) -> None:
        known = self._rows.get(key)
        if known is not None:
            known.add(given.sums, given.row[_LAST])
        elif len(self._rows) < self._most:
            self._rows[key] = given
        else:
            self._drop(int(given.sums.get(_TIMES, 1)))

    def _drop(self, rows: int) -> None:
        self.dropped += rows
        for _ in range(rows):
            self._on_drop()


def begin_of(moment: float, span: int) -> int:
    """The beginning of the hour (HOUR) or day (DAY, of UTC) of this moment."""
    return int(moment // span) * span
