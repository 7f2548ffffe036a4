"""Metrics of the last minutes, so that pages show rates, quantiles and charts without Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise

import msgspec

from .. import metrics
from ..figures import Counts, Figure
from ..metrics import Metrics

STEP = 2.0  # seconds between samples: the chart moves while somebody watches
KEPT = 300  # samples: ten minutes, enough to look back when something has just gone wrong
RECENT = 60.0  # seconds over which rates are averaged: smooth, and still current
WINDOW = 300.0  # seconds over which quantiles and rare events are counted: enough of them to be meaningful

Sum = Callable[[Counts], float]


def total(figure: Figure, *labels: str) -> Sum:
    """The total of a counter, over all labels or those that contain these."""

    def add(counts: Counts) -> float:
        counted = counts.counters.get(figure.name, {})
        return sum(value for known, value in counted.items() if all(label in known for label in labels))

    return add


def added(*sums: Sum) -> Sum:
    """The sum of sums."""
    return lambda counts: sum(each(counts) for each in sums)


GRANTED = added(
    total(metrics.ACQUIRED), total(metrics.CLAIMED), total(metrics.RESERVED), total(metrics.MARKED),
    total(metrics.LIMITED, "true"),
)  # fmt: skip
SPARED = added(total(metrics.SUPPRESSED), total(metrics.REPLAYED))
REFUSED = added(total(metrics.CONTENDED), total(metrics.TIMED_OUT), total(metrics.LIMITED, "false"))
LOST = total(metrics.LOST)
FAILED_OPEN = total(metrics.FAILED_OPEN)
DEAD = total(metrics.DEAD_LETTERED)


class Series(msgspec.Struct, kw_only=True):
    """Chart data: `at` is the wall clock; counts are per second; round trips are in milliseconds, null if there was
    none."""

    at: list[float]
    granted: list[float]
    spared: list[float]
    refused: list[float]
    op_p50: list[float | None]
    op_p99: list[float | None]


class MetricsHistory:
    """Samples the counts of all workers every STEP seconds."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._samples: deque[tuple[float, Counts]] = deque(maxlen=KEPT)

    async def keep_sampling(self) -> None:
        """Takes samples until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(STEP)

    def sample(self) -> None:
        """Takes a sample."""
        self._samples.append((time.time(), self._metrics.counts()))

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

    def series(self) -> Series:
        """The chart data of all samples."""
        series = Series(at=[], granted=[], spared=[], refused=[], op_p50=[], op_p99=[])
        for (began, before), (ended, after) in pairwise(self._samples):
            series.at.append(round(ended, 1))
            for line, what in ((series.granted, GRANTED), (series.spared, SPARED), (series.refused, REFUSED)):
                line.append(round(max(0.0, what(after) - what(before)) / (ended - began), 2))
            buckets = _difference(metrics.OP_SECONDS, before, after)
            for points, q in ((series.op_p50, 0.5), (series.op_p99, 0.99)):
                seconds = quantile(metrics.OP_SECONDS, buckets, q)
                points.append(None if seconds is None else round(seconds * 1e3, 3))
        return series

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


def quantile(figure: Figure, buckets: list[float], q: float) -> float | None:
    """The estimate of Prometheus: values spread evenly within a bucket; what is over all bounds counts as the last."""
    wanted, seen, low = q * sum(buckets), 0.0, 0.0
    if wanted <= 0:
        return None
    for bound, count in zip(figure.bounds, buckets, strict=False):
        if seen + count >= wanted:
            return low + (bound - low) * (wanted - seen) / count
        seen, low = seen + count, bound
    return figure.bounds[-1]
