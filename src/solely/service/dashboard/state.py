"""What the dashboard of one worker keeps between requests, and what applications register with it."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from ...errors import SolelyError
from ..charts.lines import Chart
from ..charts.rollup import ChartData, Rollup
from ..metrics import Metrics
from ..visibility import seen_by
from .history import MetricsHistory

T = TypeVar("T")

REUSE = 10.0  # a view is reused for this many times as long as it took to load: all viewers cost a tenth of the store
MOST_VIEWS = 200  # views that are cached: some viewers on some pages
MOST_HOLDS = 20_000  # holds whose duration is remembered
HALF = 0.5  # seconds: holders report their start in whole seconds, so that an age is half a second too long on average
LIVE_GAP = 2.0  # seconds between two loads of a list that is watched live, at most
SHORTEST = "10m"  # the range in which the last seconds matter
CHART_FRESH = {SHORTEST: 1.0, "1h": 5.0, "24h": 30.0, "7d": 60.0}  # seconds that the points of a chart are shared
JITTER = 0.25  # seconds by which the end of a hold may differ between two loads: a larger step is a renewal


class AppPage(NamedTuple):
    """A page of an application, as the navigation shows it."""

    title: str
    path: str
    about: str = ""


class DashboardState:
    """Cached views, metrics of the last minutes, the pages of applications, and the functions that replay letters."""

    def __init__(self, metrics: Metrics) -> None:
        self.rollup = Rollup(metrics)  # the lines of charts, up to a week
        self.history = MetricsHistory(metrics, self.rollup.declared)
        self.views = ViewCache()
        self.durations = HoldDurations()
        self.pages: list[AppPage] = []  # of applications, in the order of the navigation
        self.replays: dict[str, Callable[[Any], Any]] = {}  # group of dead letters → function that runs a payload again

    async def chart(self, chart: Chart, over: str) -> ChartData:
        """The points of the chart. The last ten minutes have what this worker sampled every two seconds, after what is
        kept; without the data database, that is all there is."""
        loaded = self.views.share(("chart", chart.name, over), CHART_FRESH[over], lambda: self._chart(chart, over))
        return await loaded

    async def _chart(self, chart: Chart, over: str) -> ChartData:
        recent = self.history.chart(chart) if over == SHORTEST else ChartData([], {})
        try:
            kept = await self.rollup.chart(chart, over)
        except SolelyError:  # the history reports it
            return recent
        if not recent.at:
            return kept
        older = bisect_left(kept.at, recent.at[0])
        lines = {name: kept.lines[name][:older] + points for name, points in recent.lines.items()}
        return ChartData(kept.at[:older] + recent.at, lines)

    async def sparklines(self, names: Sequence[str]) -> dict[str, list[float]]:
        """The last hour of each of these series, for a line in a table; empty where nothing is kept."""
        try:
            return await self.rollup.values(names, "1h")
        except SolelyError:
            return {name: [] for name in names}


class ViewCache:
    """Shares recently loaded views, so that many viewers cost the store as much as one."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[asyncio.Task[Any], list[float]]] = {}

    async def share(self, what: Hashable, fresh: float, load: Callable[[], Awaitable[T]]) -> T:
        """The result of `load`, at most `fresh` seconds old, or REUSE times as old as it takes to load.

        Callers who see the same share it."""
        what = (what, seen_by())
        task, times = self._known.get(what, (None, []))
        if task is None or (task.done() and time.monotonic() > times[1] + max(fresh, REUSE * (times[1] - times[0]))):
            times = [time.monotonic()]
            task = asyncio.ensure_future(self._timed(load, times))
            self._known.pop(what, None)
            self._known[what] = task, times
            if len(self._known) > MOST_VIEWS:
                del self._known[next(iter(self._known))]
        return cast(T, await asyncio.shield(task))

    def clear(self) -> None:
        """Drops all views, so that whoever changed something sees the change."""
        self._known.clear()

    async def _timed(self, load: Callable[[], Awaitable[T]], times: list[float]) -> T:
        try:
            return await load()
        finally:
            times.append(time.monotonic())


class _Hold(NamedTuple):
    """A hold as it was last seen: the most time that it had left, when it would end, and whether it was renewed."""

    most: float
    ends: float
    renewed: bool


class HoldDurations:
    """Estimates the full duration of holds: a store reports what is left, not of how much."""

    def __init__(self) -> None:
        self._holds: dict[tuple[str, int], _Hold] = {}
        self._loaded: dict[Hashable, float] = {}

    def watched(self, what: Hashable) -> bool:
        """True if this list was loaded a moment ago, too: new holds in it have just begun."""
        now = time.monotonic()
        before = self._loaded.pop(what, -LIVE_GAP)
        self._loaded[what] = now
        if len(self._loaded) > MOST_VIEWS:
            del self._loaded[next(iter(self._loaded))]
        return now < before + LIVE_GAP

    def full(self, key: str, fence: int, left: float, age: float | None) -> float:
        """The full duration, at least `left`. A new hold that is younger than what it has left counts as never renewed:
        its ttl is its age plus what is left."""
        ends, known = time.monotonic() + left, self._holds.pop((key, fence), None)
        if known is None:
            young = age is not None and age < left
            known = _Hold(left + max(0.0, (age or 0.0) - HALF) if young else left, ends, False)
        elif ends > known.ends + JITTER:
            known = _Hold(max(left, known.most if known.renewed else 0.0), ends, True)
        self._holds[key, fence] = known
        if len(self._holds) > MOST_HOLDS:
            del self._holds[next(iter(self._holds))]
        return max(left, known.most)
