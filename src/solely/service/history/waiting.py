"""Who waits for a key through this service, now: each worker writes its own waiters for the others, twice a second."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from typing import NamedTuple

from ...data import Database, Queries, Row, Statements, without_nul
from ...holder import ON_BEHALF
from ...owner import fresh_owner

SHOWN_AFTER = 0.5  # seconds: most waits are shorter, and are never written
FRESH = 10.0  # seconds after which a waiter that was not written again is gone: its worker died, or is very late
MOST = 500  # waiters that a worker writes, those that have waited longest


class _Waiter(NamedTuple):
    number: int
    key: str
    who: str
    since: float

    def row(self, worker: str, now: float) -> Row:
        kind, _, name = self.key.partition("/")
        who = without_nul(self.who)
        named = {"kind": kind, "name": name, "who": who, "since": self.since}
        return {"worker": worker, "number": self.number, "seen": now, **named}


class WaitList:
    """The waiters of this worker."""

    def __init__(self) -> None:
        self._worker = fresh_owner()
        self._numbers = count(1)
        self._waiters: dict[int, _Waiter] = {}  # in the order of arrival
        self._written = False

    @contextmanager
    def waiting(self, keys: Iterable[str]) -> Iterator[None]:
        """The current caller waits for these stored keys inside the block."""
        since, who = time.time(), str(ON_BEHALF.get() or "")
        mine = [_Waiter(next(self._numbers), key, who, since) for key in keys]
        self._waiters.update({each.number: each for each in mine})
        try:
            yield
        finally:
            for each in mine:
                del self._waiters[each.number]

    async def write(self, data: Database, statements: Statements) -> None:
        """Writes who waits now, and removes who no longer does."""
        now = time.time()
        long = (each for each in self._waiters.values() if now - each.since >= SHOWN_AFTER)
        rows = [each.row(self._worker, now) for each in islice(long, MOST)]
        if rows:
            await data.run_many(statements["waits"].text(data.dialect), rows)
        if rows or self._written:
            gone = {"worker": self._worker, "seen": now, "stale": now - FRESH}
            await statements.on(data).run("no_longer_waits", **gone)
        self._written = bool(rows)


async def waiters_of(queries: Queries, kind: str, name: str, limit: int) -> list[Row]:
    """Who waits for the key through any worker, the longest first."""
    return await queries.rows("waiting", kind=kind, name=name, fresh=time.time() - FRESH, limit=limit)
