"""EventHistory: writes what the recorder buffered, deletes what is too old or too much, and reads it again."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import structlog

from ...data import Database, Journal, Queries, Row, Statements, migrate, position_after
from ...errors import SolelyError
from ...events import Event
from ..metrics import HISTORY_DROPPED, Metrics
from ..migrated import MIGRATED
from ..visibility import is_hidden
from .recorder import SAMPLE, USUAL, WRONG, HistoryRecorder
from .records import HistoryEvent, KeyWaiter
from .waiting import WaitList, waiters_of

log = structlog.get_logger("solely.history")

FLUSH = 0.5  # seconds between writes: what a killed worker may lose, and how late its events are seen by others
SWEEP = 60.0  # seconds between deletions: the bound is exceeded by what comes in between
RETRY = 60.0  # seconds between tries to create the tables: a try may delay statements of applications
SHARES = {"forget_notable": (WRONG, 0.25), "forget_usual": (USUAL, 0.5), "forget_samples": (SAMPLE, 0.25)}
WAITERS = 100  # that are listed of one key

STATEMENTS = Statements.of(__package__, "queries.sql")


class EventHistory:
    """The history of one service, shared by its workers through the data database. `keep` is in seconds: 0 keeps
    nothing; `most` bounds the events of all workers."""

    EVERY = FLUSH

    def __init__(self, metrics: Metrics, *, keep: float, most: int) -> None:
        self.keep, self.most = keep, most
        self.recorder = HistoryRecorder()
        self.waiters = WaitList()
        self.problem = "" if keep else "it is turned off (history = 0)"  # why nothing is kept; empty if it is
        self._data: Database | None = None
        self._journal: Journal
        self._queries: Queries
        self._metrics = metrics

    async def run(self, data: Database) -> None:
        """Creates the tables, and writes and deletes until cancelled. A database that is unreachable, or that this user
        may not change, stops nothing but the history."""
        swept = 0.0
        while True:
            await asyncio.sleep(FLUSH)
            if self._data is None and not await self.try_to_open(data):
                await asyncio.sleep(RETRY)
                continue
            try:
                await self.flush()
                if time.monotonic() > swept + SWEEP:
                    await self.sweep()
                    swept = time.monotonic()
            except SolelyError as error:
                self.problem = f"the data database is unavailable: {error}"
                log.warning("history_not_written", error=str(error))
                await asyncio.sleep(FLUSH)

    def note(self, key: str, event: str, fence: int = 0, **facts: Any) -> None:
        """Records that this happened to the stored key, on behalf of the current caller."""
        if self.keep:
            self.recorder.note(key, event, fence, **facts)

    def emit(self, event: Event) -> None:
        """Records an event that no hook sees."""
        if self.keep:
            self.recorder(event)

    async def try_to_open(self, data: Database) -> bool:
        """True if the tables are there; else the reason is logged, and what was buffered is dropped."""
        try:
            await self.open(data)
        except SolelyError as error:
            self.problem = f"its tables could not be created: {error}"
            log.warning("history_not_kept", error=str(error))
            self._recorded()
        return self._data is not None

    async def open(self, data: Database) -> None:
        """Creates the tables, if they are not there yet."""
        await migrate(data, *MIGRATED)
        self._queries = STATEMENTS.on(data)
        order = ("kind", "name", "at", "id")
        self._journal = Journal(data, STATEMENTS["record"], order=order, on_drop=self._count_dropped)
        self._data, self.problem = data, ""

    async def flush(self) -> None:
        """Writes what was buffered. If that fails (DataError), it is kept for the next call, up to a bound."""
        if self._data is None:
            return
        for row in self._recorded():
            self._journal.add(row)
        await self._journal.flush()
        await self.waiters.write(self._data, STATEMENTS)
        self.problem = ""

    async def sweep(self) -> None:
        """Deletes events that are older than `keep`, and the oldest beyond `most`."""
        await self._journal.sweep(STATEMENTS["forget"], self.keep)
        for delete, (grade, share) in SHARES.items():
            oldest = await self._queries.row("oldest_kept", grade=grade, most=int(self.most * share))
            if oldest is not None:
                await self._journal.sweep(STATEMENTS[delete], time.time() - oldest["at"])

    def _recorded(self) -> list[Row]:
        """The rows of what the recorder buffered; counts what it dropped."""
        dropped, self.recorder.dropped = self.recorder.dropped, 0
        self._count_dropped(dropped)
        return self.recorder.rows()

    def _count_dropped(self, events: int = 1) -> None:
        self._metrics.count_many(HISTORY_DROPPED, events)

    def dropped(self) -> int:
        """How many events were not kept for lack of room, by all workers since they started."""
        return int(self._metrics.counts().counters.get(HISTORY_DROPPED.name, {}).get((), 0))

    # -- reading

    async def events(self, kind: str = "", key: str = "", after: str = "", limit: int = 100) -> list[HistoryEvent]:
        """Events, newest first, after this position (`position`): of the key, of the kind, or of all. DataError if they
        cannot be read; InvalidInput if `after` is invalid."""
        at, id = position_after(after)
        if self._data is None:
            return []
        await self._flush_own()
        named = {name: value for name, value in (("kind", kind), ("name", key)) if value}
        statement = {0: "of_all", 2: "of_key"}.get(len(named), "of_kind" if kind else "of_name")
        found = list[HistoryEvent]()
        while True:
            rows = await self._queries.rows(statement, at=at, id=id, limit=limit, **named)
            found += [_event(row) for row in rows if not is_hidden(f"{row['kind']}/{row['name']}")]
            if len(rows) < limit or len(found) >= limit:
                return found[:limit]
            at, id = rows[-1]["at"], rows[-1]["id"]

    async def waiting(self, kind: str, key: str) -> list[KeyWaiter]:
        """Who waits for the key through this service, the longest first. DataError if that cannot be read."""
        if self._data is None or is_hidden(f"{kind}/{key}"):
            return []
        await self._flush_own()
        return [KeyWaiter(**row) for row in await waiters_of(self._queries, kind, key, WAITERS)]

    async def _flush_own(self) -> None:
        """Writes what this worker has, so that a reader sees it; a failure is reported by the next regular write."""
        try:
            await self.flush()
        except SolelyError as error:
            log.debug("history_not_written", error=str(error))


def _event(row: Row) -> HistoryEvent:
    try:
        facts = msgspec.json.decode(row["facts"], type=dict[str, Any])
    except msgspec.MsgspecError:
        facts = {}
    plain = {name: row[name] for name in ("id", "at", "kind", "event", "who", "fence", "times", "last")}
    return HistoryEvent(key=row["name"], facts=facts, **plain)
