"""Who waits for a key through this service, now: each worker writes its own waiters for the others, twice a second."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import count, islice

from ...data import Database, Queries, Row, Statements, without_nul
from ...holder import ON_BEHALF, OnBehalf
from ...owner import fresh_owner

SHOWN_AFTER = 0.5  # seconds: most waits are shorter, and are never written
FRESH = 10.0  # seconds after which a waiter that was not written again is gone: its worker died, or is very late
MOST_KEYS = 1_000  # keys of one request: more than the API takes, so that numbers stay distinct
MOST = 500  # waiters that a worker writes, those that have waited longest


class WaitList:
    """The waiters of this worker."""

    def __init__(self) -> None:
        self._worker = fresh_owner()
        self._numbers = count(1)
        # number → since, stored keys, for whom; in the order of arrival. Formatted only if it is written
        self._waiters: dict[int, tuple[float, Sequence[str], OnBehalf | None]] = {}
        self._written = False

    def enter(self, keys: Sequence[str]) -> int:
        """The current caller waits for these stored keys, until `leave` is called with the number."""
        number = next(self._numbers)
        self._waiters[number] = time.time(), keys, ON_BEHALF.get()
        return number

    def leave(self, number: int) -> None:
        """The caller no longer waits."""
        del self._waiters[number]

    def _rows(self, now: float) -> Iterator[Row]:
        for number, (since, keys, who) in self._waiters.items():
            if now - since < SHOWN_AFTER:
                break  # those after it wait for an even shorter time
            for place, key in enumerate(keys):
                kind, _, name = key.partition("/")
                named = {"kind": kind, "name": name, "who": without_nul(str(who or "")), "since": since}
                yield {"worker": self._worker, "number": number * MOST_KEYS + place, "seen": now, **named}

    async def write(self, data: Database, statements: Statements) -> None:
        """Writes who waits now, and removes who no longer does."""
        now = time.time()
        rows = list(islice(self._rows(now), MOST))
        if rows:
            await data.run_many(statements["waits"].text(data.dialect), rows)
        if rows or self._written:
            gone = {"worker": self._worker, "seen": now, "stale": now - FRESH}
            await statements.on(data).run("no_longer_waits", **gone)
        self._written = bool(rows)


async def waiters_of(queries: Queries, kind: str, name: str, limit: int) -> list[Row]:
    """Who waits for the key through any worker, the longest first."""
    return await queries.rows("waiting", kind=kind, name=name, fresh=time.time() - FRESH, limit=limit)
