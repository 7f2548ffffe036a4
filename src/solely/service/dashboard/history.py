"""Metrics of the last minutes, so that pages show rates, quantiles and charts without Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise

from .. import metrics
from ..charts.lines import Chart, Line, Sum, added, quantile, total
from ..charts.rollup import ChartData
from ..figures import Counts, Figure
from ..metrics import Metrics

STEP = 2.0  # seconds between samples: the chart moves while somebody watches
KEPT = 300  # samples: ten minutes, enough to look back when something has just gone wrong
RECENT = 60.0  # seconds over which rates are averaged: smooth, and still current
WINDOW = 300.0  # seconds over which quantiles and rare events are counted: enough of them to be meaningful

GRANTED = added(
    total(metrics.ACQUIRED), total(metrics.CLAIMED), total(metrics.RESERVED), total(metrics.MARKED),
    total(metrics.LIMITED, "true"),
)  # fmt: skip
SPARED = added(total(metrics.SUPPRESSED), total(metrics.REPLAYED))
REFUSED = added(total(metrics.CONTENDED), total(metrics.TIMED_OUT), total(metrics.LIMITED, "false"))
LOST = total(metrics.LOST)
FAILED_OPEN = total(metrics.FAILED_OPEN)
DEAD = total(metrics.DEAD_LETTERED)


class MetricsHistory:
    """Samples the counts of all workers every STEP seconds, and those of `lines` for charts."""

    def __init__(self, metrics: Metrics, lines: Callable[[], Iterable[Line]] = tuple) -> None:
        self._metrics, self._lines = metrics, lines
        self._samples: deque[tuple[float, Counts]] = deque(maxlen=KEPT)
        self._sums: deque[tuple[float, dict[str, float]]] = deque(maxlen=KEPT)

    async def keep_sampling(self) -> None:
        """Takes samples until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(STEP)

    def sample(self) -> None:
        """Takes a sample."""
        now, counts = time.time(), self._metrics.counts()
        self._samples.append((now, counts))
        self._sums.append((now, {name: value for line in self._lines() for name, value in line.sums(counts).items()}))

    def rate(self, what: Sum, over: float = RECENT) -> float:
        """The recent rate per second."""
        (began, before), (ended, after) = self._span(over)
        return max(0.0, what(after) - what(before)) / (ended - began) if ended > began else 0.0

    def count(self, what: Sum, over: float = WINDOW) -> int:
        """The recent count."""
        (_, before), (_, after) = self._span(over)
        return max(0, round(what(after) - what(before)))

    def quantile(self, figure: Figure, q: float, over: float = WINDOW) -> float | None:
        """The recent quantile in seconds; None if there was no observation."""
        (_, before), (_, after) = self._span(over)
        return quantile(figure, _difference(figure, before, after), q)

    def chart(self, chart: Chart) -> ChartData:
        """The points of the chart since this worker started, at most the last ten minutes."""
        data = ChartData([], {line.name: [] for line in chart.lines})
        for (began, before), (ended, after) in pairwise(self._sums):
            data.at.append(round(ended, 1))
            for line in chart.lines:
                grown = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in line.series}
                data.lines[line.name].append(line.value(grown, ended - began))
        return data

    def _span(self, over: float) -> tuple[tuple[float, Counts], tuple[float, Counts]]:
        """The sample of so many seconds ago, or the oldest, and the current counts."""
        now = time.time()
        last = (now, self._metrics.counts())
        return next((each for each in self._samples if each[0] >= now - over), last), last


def _difference(figure: Figure, before: Counts, after: Counts) -> list[float]:
    """The increase of each bucket, over all labels."""
    buckets = [0.0] * (len(figure.bounds) + 1)
    for counts, sign in ((before, -1.0), (after, 1.0)):
        for values in counts.histograms.get(figure.name, {}).values():
            for index in range(len(buckets)):
                buckets[index] += sign * values[index]
    return buckets
