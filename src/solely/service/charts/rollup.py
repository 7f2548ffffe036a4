"""Rollup: every ten seconds each worker adds what its figures counted to sums per ten seconds, five minutes and half an
hour in the data database. They are bounded in time, and so in number."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec
import structlog

from ...data import Database, Queries, Row, Statements, begin_of, migrate, pending
from ...errors import SolelyError
from ..metrics import Metrics
from ..migrated import MIGRATED
from .lines import Chart, Line

log = structlog.get_logger("solely.charts")

EVERY = 10  # seconds between writes: the finest step that is kept
SWEEP = 600.0  # seconds between deletions
PAGE = 500  # rows that one statement deletes
STATEMENTS = Statements.of(__package__, "queries.sql")
UP = "up"  # a series that every worker raises with every write: where it is missing, the service did not run
EARLY = 0.3  # of a long step that must be over before it is drawn: what it has counted so far is then no accident
LATE = 2.0  # seconds after a short step until all workers have written it

Range = Literal["10m", "1h", "24h", "7d"]


class _Span(NamedTuple):
    """How far a range looks back, in which steps (both in seconds), and how long these are kept."""

    back: float
    step: int
    keep: float


RANGES: dict[str, _Span] = {
    "10m": _Span(600.0, EVERY, 7_200.0),
    "1h": _Span(3_600.0, EVERY, 7_200.0),
    "24h": _Span(86_400.0, 300, 2 * 86_400.0),
    "7d": _Span(7 * 86_400.0, 1_800, 8 * 86_400.0),
}
STEPS = {span.step: span.keep for span in RANGES.values()}


class ChartData(msgspec.Struct):
    """The points of a chart: `at` is the wall clock in seconds; each line has a value per moment, null where the
    service did not run, or nothing was observed."""

    at: list[float]
    lines: dict[str, list[float | None]]


class Rollup:
    """The kept lines of one service."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lines: dict[str, Line] = {}
        self._before: dict[str, float] = {}
        self._unwritten: dict[tuple[int, str, int], float] = defaultdict(float)
        self._gauges: dict[tuple[int, str, int], float] = {}
        self._data: Database | None = None
        self._queries: Queries

    def add(self, lines: Iterable[Line]) -> None:
        """Keeps these lines from now on."""
        self._lines.update({line.name: line for line in lines})

    def declared(self) -> list[Line]:
        """All lines that are kept."""
        return list(self._lines.values())

    async def run(self, data: Database) -> None:
        """Creates the tables, and writes and deletes until cancelled. Failures are logged and stop nothing else."""
        swept = -SWEEP
        self.sample()
        while True:
            await asyncio.sleep(EVERY - time.time() % EVERY)  # at the end of a step, in all workers
            try:
                if self._data is None and await pending(data, *MIGRATED) == []:  # the history has created the tables
                    await self.open(data)
                self.sample()
                await self.flush()
                if time.monotonic() > swept + SWEEP:
                    await self.sweep()
                    swept = time.monotonic()
            except SolelyError as error:
                log.warning("charts_not_written", error=str(error))

    async def open(self, data: Database) -> None:
        """Creates the tables, if they are not there yet."""
        await migrate(data, *MIGRATED)
        self._queries, self._data = STATEMENTS.on(data), data

    def sample(self) -> None:
        """Adds what this worker has counted since the last sample to the steps of this moment."""
        counts, now = self._metrics.own_counts(), time.time() - EVERY / 2
        for line in self._lines.values():
            for name, value in line.sums(counts).items():
                self._counted(name, value, now)
        self.gauge(UP, 1.0, now)

    def _counted(self, name: str, value: float, now: float) -> None:
        grown, self._before[name] = value - self._before.get(name, 0.0), value
        if grown > 0:
            for step in STEPS:
                self._unwritten[step, name, begin_of(now, step)] += grown

    def gauge(self, name: str, value: float, now: float | None = None) -> None:
        """Keeps the greatest value of a gauge per step, from the first value above 0 on."""
        for step in STEPS:
            key = step, name, begin_of(time.time() if now is None else now, step)
            self._gauges[key] = max(value, self._gauges.get(key, 0.0))

    async def flush(self) -> None:
        """Writes what was sampled. If that fails (DataError) it is kept, and written later."""
        if self._data is None:
            return
        sums, self._unwritten = self._unwritten, defaultdict(float)
        gauges, self._gauges = self._gauges, {}
        try:
            for statement, found in (("add", sums), ("raise", gauges)):
                if found:
                    text = STATEMENTS[statement].text(self._data.dialect)
                    await self._data.run_many(text, [_row(*key, value) for key, value in sorted(found.items())])
                    found.clear()
        except BaseException:
            self._restore(sums, gauges)
            raise

    def _restore(self, sums: dict[tuple[int, str, int], float], gauges: dict[tuple[int, str, int], float]) -> None:
        """Keeps what was not written; of a long outage only the coarse steps, which are few."""
        oldest = time.time() - 10 * EVERY
        for key, value in sums.items():
            if key[0] > EVERY or key[2] > oldest:
                self._unwritten[key] += value
        for key, value in gauges.items():
            if key[0] > EVERY or key[2] > oldest:
                self._gauges[key] = max(value, self._gauges.get(key, 0.0))

    async def is_first(self, what: str, step: int) -> bool:
        """True for exactly one worker: the first that asks for this step. False while the database is not there."""
        if self._data is None:
            return False
        return await self._queries.run("begin", span=EVERY, series=f"begun/{what}", at=begin_of(time.time(), step)) == 1

    async def sweep(self) -> None:
        """Deletes steps that are older than is kept."""
        for step, keep in STEPS.items():
            deleted = PAGE
            while deleted == PAGE:
                deleted = await self._queries.run("forget", span=step, before=int(time.time() - keep), page=PAGE)

    # -- reading

    async def chart(self, chart: Chart, over: str) -> ChartData:
        """The points of the chart; none if the database is not there. DataError if it cannot be read."""
        span = RANGES[over]
        names = [name for line in chart.lines for name in line.series]
        moments, found = await self._steps(names, span)
        lines: dict[str, list[float | None]] = {line.name: [] for line in chart.lines}
        now = time.time()
        for at in moments:
            seconds = min(now - at, span.step)
            for line in chart.lines:
                running = at in found[UP]
                counted = {name: found[name].get(at, 0.0) for name in line.series}
                lines[line.name].append(line.value(counted, seconds) if running else None)
        return ChartData([min(now, float(at + span.step)) for at in moments], lines)

    async def values(self, names: Sequence[str], over: str, points: int = 60) -> dict[str, list[float]]:
        """The latest so many values of each of these series, for sparklines: per second, or the values of a gauge."""
        span = RANGES[over]
        moments, found = await self._steps(names, span)
        size = max(1, int(span.back / span.step / points))  # some steps each: a gauge is not sampled in every step
        groups = [moments[start : start + size] for start in _starts(len(moments), size)]
        return {name: [max(found[name].get(at, 0.0) for at in group) for group in groups] for name in names}

    async def _steps(self, names: Sequence[str], span: _Span) -> tuple[list[int], dict[str, dict[int, float]]]:
        """The beginnings of all steps from the first that is known, and the sums of each series by step."""
        found: dict[str, dict[int, float]] = defaultdict(dict)
        if self._data is None:
            return [], found
        now = time.time()
        unwritten = EVERY + LATE if span.step == EVERY else EARLY * span.step
        since, last = begin_of(now - span.back, span.step), begin_of(now - unwritten, span.step)
        for row in await self._queries.rows("lines", span=span.step, names=json.dumps([*names, UP]), since=since):
            found[row["series"]][row["at"]] = row["value"]
        first = min((at for points in found.values() for at in points), default=last + 1)
        return list(range(max(since, first), last + 1, span.step)), found


def _row(span: int, series: str, at: int, value: float) -> Row:
    return {"span": span, "series": series, "at": at, "value": value}


def _starts(length: int, size: int) -> Iterable[int]:
    return range(length % size if length % size and length > size else 0, length, size)
