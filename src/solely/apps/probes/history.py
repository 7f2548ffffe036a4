"""States and uptime: each result changes the state of its target in one statement, by its fence: an older result never
replaces the state of a newer one. Results are written behind, several times a second, so that no probe waits for the
database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from ...kit import DAY, HOUR, Answer, Database, Row, Statements, begin_of, from_row, without_nul
from .model import DOWN, NOT_PERMITTED, ProbeResult, ProbeTarget, State

STATEMENTS = Statements.of("solely.apps.probes", "queries.sql")
MOST = 20_000  # results that are kept while the database is unreachable: some minutes of many targets
MAX_ERROR = 500  # characters of an error: what a page shows
_PAGE = 200  # rows that one statement deletes: few enough that it blocks nobody
_LATE = 10.0  # seconds after which another worker makes up for an announcement: the one that owed it has died
_MADE_UP = 100  # announcements that are made up for at a time
SPANS = {"24h": (HOUR, DAY), "30d": (HOUR, 30 * DAY), "1y": (DAY, 366 * DAY)}  # seconds of the sums, and of all


ANNOUNCING = "ANNOUNCING"  # somebody notifies people, or has died before it was recorded


class Turn(msgspec.Struct):
    """A target's state after a result, and the state that people were last notified of, "" if they never were."""

    target: str
    state: State
    before: State
    announced: str
    error: str

    @property
    def is_news(self) -> bool:
        """True if people have to be notified: it went down, or is no longer down and they may think that it is."""
        return self.announced != DOWN if self.state == DOWN else self.announced in (DOWN, ANNOUNCING)


class TargetState(Answer):
    """The state of a target by its latest result."""

    target: str
    state: State
    since: float
    at: float
    passed: bool
    error: str
    status: int | None
    seconds: float
    certificate_expires: float | None
    announced: str


class Beat(Answer):
    """A result in the history; `due` is the moment for which it was scheduled, null if somebody asked for it."""

    target: str
    fence: int
    at: float
    due: float | None
    passed: bool
    error: str
    status: int | None
    seconds: float
    phases: dict[str, float]


class Uptime(Answer):
    """The share of successful probes, and their seconds on average; null if there was none."""

    share: float | None = None
    seconds: float | None = None


class Hourly(Answer):
    """The probes of an hour or day."""

    begins: int
    up: int
    down: int
    seconds: float
    slowest: float


class _Pending(NamedTuple):
    result: ProbeResult
    target: ProbeTarget


class ProbeHistory:
    """Records results and answers questions about them. `on_late` is called for each result that was written after a
    newer one of its target, `on_drop` for each that did not fit into the buffer."""

    def __init__(
        self, data: Database, *, on_late: Callable[[], object] = int, on_drop: Callable[[], object] = int
    ) -> None:
        self._data, self._queries = data, STATEMENTS.on(data)
        self._on_late, self._on_drop = on_late, on_drop
        self._pending: list[_Pending] = []
        self._writing = asyncio.Lock()

    def add(self, target: ProbeTarget, result: ProbeResult) -> None:
        """Adds a result, to be written by `flush`; one that was skipped is no sample, but one that the guard refused
        is a state. Never waits and never fails."""
        if result.skipped not in ("", NOT_PERMITTED):
            return
        if len(self._pending) >= MOST:
            self._on_drop()
        else:
            self._pending.append(_Pending(result, target))

    async def flush(self) -> list[Turn]:
        """Writes what was added, and returns the targets whose state people have to be notified of. If the database
        fails (DataError), the results are kept for the next call."""
        news: list[Turn] = []
        async with self._writing:
            while self._pending:
                batch, rest = _one_of_each(self._pending)
                turns = await self._settle(batch)
                self._pending = rest + self._pending[len(batch) + len(rest) :]
                news += [turn for turn in turns if turn.is_news]
        return news

    async def _settle(self, batch: list[_Pending]) -> list[Turn]:
        """Writes one result per target, all or nothing. One that is older than the latest of its target, which another
        replica has written first, is recorded and changes no state."""
        rows = {row["target"]: row for row in sorted(map(_row, batch), key=lambda row: str(row["target"]))}
        given = msgspec.json.encode(list(rows.values())).decode()
        dialect = self._data.dialect
        async with self._data.transaction() as inside:
            turns = [from_row(Turn, row) for row in await inside.rows(STATEMENTS.text("settle", dialect), given=given)]
            samples = msgspec.json.encode([row for row in rows.values() if not row["refused"]]).decode()
            new = {row["target"] for row in await inside.rows(STATEMENTS.text("record", dialect), given=samples)}
            if new:
                kept = [row for name, row in rows.items() if name in new]
                await inside.run_many(STATEMENTS.text("add_sums", dialect), [*_sums(kept)])
        for _ in rows.keys() - {turn.target for turn in turns}:
            self._on_late()
        return turns

    async def unannounced(self) -> list[Turn]:
        """The targets whose state people should have been notified of by now, and were not."""
        rows = await self._queries.rows("unannounced", before=time.time() - _LATE, limit=_MADE_UP)
        return [from_row(Turn, row) for row in rows]

    async def announcing(self, turn: Turn) -> None:
        """People are about to be notified of this state. A worker that dies now leaves that to the next result."""
        await self._queries.run("announced", target=turn.target, state=ANNOUNCING)

    async def announced(self, turn: Turn) -> None:
        """People were notified of this state, which may have changed since: the next result then is news."""
        await self._queries.run("announced", target=turn.target, state=turn.state)

    async def restart(self, target: str) -> None:
        """The target is pending again, as after a pause."""
        await self._queries.run("restart", target=target, at=time.time())

    async def forget(self, target: str) -> None:
        """The target has no state any more. Its results are deleted when they are too old."""
        await self._queries.run("forget_state", target=target)

    async def sweep(self, results: float, hours: float, days: float) -> None:
        """Deletes results and sums that are older than these numbers of seconds."""
        now = time.time()
        await self._delete("forget_results", before=now - results)
        await self._delete("forget_sums", span=HOUR, before=now - hours)
        await self._delete("forget_sums", span=DAY, before=now - days)

    async def _delete(self, statement: str, **values: Any) -> None:
        while await self._queries.run(statement, page=_PAGE, **values) == _PAGE:
            pass

    # -- queries

    async def states(self) -> dict[str, TargetState]:
        """The states of all targets that were ever probed, by name."""
        rows = await self._queries.rows("states")
        return {row["target"]: from_row(TargetState, row) for row in rows}

    async def results(self, target: str, *, before: int = 1 << 62, limit: int = 100) -> list[Beat]:
        """Results of a target, the newest first; with smaller fences than `before`."""
        rows = await self._queries.rows("results", target=target, fence=before, limit=limit)
        return [from_row(Beat, row) for row in rows]

    async def bars(self, limit: int, targets: Sequence[str]) -> dict[str, list[Beat]]:
        """The latest results of each of these targets, the oldest first."""
        found: dict[str, list[Beat]] = {}
        names = msgspec.json.encode(targets).decode()
        for row in await self._queries.rows("bars", names=names, since=time.time() - DAY, limit=limit):
            found.setdefault(row["target"], []).append(from_row(Beat, row))
        return found

    async def uptimes(self, span: str) -> dict[str, Uptime]:
        """The uptime of each target in the last 24h, 30d or 1y."""
        size, length = SPANS[span]
        rows = await self._queries.rows("sums", span=size, since=begin_of(time.time() - length, size))
        return {row["target"]: _uptime(row) for row in rows}

    async def hourly(self, target: str, span: str) -> list[Hourly]:
        """The sums of a target in the last 24h, 30d or 1y, the oldest first."""
        size, length = SPANS[span]
        since = begin_of(time.time() - length, size)
        rows = await self._queries.rows("sums_of", target=target, span=size, since=since)
        return [from_row(Hourly, row) for row in rows]


def _one_of_each(pending: list[_Pending]) -> tuple[list[_Pending], list[_Pending]]:
    """The oldest result of each target, and the others."""
    first: dict[str, _Pending] = {}
    others = [each for each in pending if first.setdefault(each.target.name, each) is not each]
    return list(first.values()), others


def _row(pending: _Pending) -> Row:
    result, target = pending
    return {
        "target": target.name,
        "fence": result.fence,
        "at": result.at,
        "due": result.due,
        "passed": int(result.passed),
        "refused": int(result.skipped == NOT_PERMITTED),
        "error": without_nul(result.error)[:MAX_ERROR],
        "status": result.status,
        "seconds": result.seconds,
        "certificate_expires": result.certificate_expires,
        "failure_threshold": target.failure_threshold,
        "success_threshold": target.success_threshold,
        "phases": msgspec.json.encode(result.phases).decode(),
    }


def _sums(rows: Iterable[Row]) -> Iterable[Row]:
    """What each result adds to its hour and to its day."""
    for row in rows:
        for span in (HOUR, DAY):
            up, seconds = row["passed"], row["seconds"]
            place = {"target": row["target"], "span": span, "begins": begin_of(row["at"], span)}
            yield {**place, "up": up, "down": 1 - up, "seconds": seconds * up, "slowest": seconds}


def _uptime(row: Row) -> Uptime:
    up, down = int(row["up"]), int(row["down"])
    return Uptime(
        share=up / (up + down) if up + down else None,
        seconds=float(row["seconds"]) / up if up else None,
    )
