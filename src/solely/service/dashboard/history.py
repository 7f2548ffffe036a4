"""History: the figures of the last minutes, so that a page can show rates, quantiles and lines without Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise

from .. import metrics
from ..figures import Counts, Figure
from ..metrics import Metrics
from ..routes import Answer

STEP = 2.0  # seconds between samples: a line that moves while somebody watches
KEPT = 300  # samples: ten minutes, as long as one looks back when something has just gone wrong
RECENT = 60.0  # seconds over which a rate is told: smooth, and still of now
WINDOW = 300.0  # seconds over which quantiles and counts of rare things are told: enough of them to mean something

Sum = Callable[[Counts], float]


def total(figure: Figure, *labels: str) -> Sum:
    """How many there were, of all labels or of those that contain these."""

    def add(counts: Counts) -> float:
        counted = counts.counters.get(figure.name, {})
        return sum(value for known, value in counted.items() if all(label in known for label in labels))

    return add


def together(*sums: Sum) -> Sum:
    """All of them."""
    return lambda counts: sum(each(counts) for each in sums)


GRANTED = together(
    total(metrics.ACQUIRED), total(metrics.CLAIMED), total(metrics.RESERVED), total(metrics.MARKED),
    total(metrics.LIMITED, "true"),
)  # fmt: skip
SPARED = together(total(metrics.SUPPRESSED), total(metrics.REPLAYED))
REFUSED = together(total(metrics.CONTENDED), total(metrics.TIMED_OUT), total(metrics.LIMITED, "false"))
LOST = total(metrics.LOST)
FAILED_OPEN = total(metrics.FAILED_OPEN)
DEAD = total(metrics.DEAD_LETTERED)


class Series(Answer):
    """Lines: `at` is the wall clock; counts are per second; round trips are milliseconds, null where there was none."""

    at: list[float]
    granted: list[float]
    spared: list[float]
    refused: list[float]
    op_p50: list[float | None]
    op_p99: list[float | None]


class History:
    """Keeps a copy of all workers' counts every STEP seconds."""

    def __init__(self, figures: Metrics) -> None:
        self._figures = figures
        self._samples: deque[tuple[float, Counts]] = deque(maxlen=KEPT)

    async def keep(self) -> None:
        """Takes samples, again and again."""
        while True:
            self.take()
            await asyncio.sleep(STEP)

    def take(self) -> None:
        """Takes a sample."""
        self._samples.append((time.time(), self._figures.counts()))

    def rate(self, what: Sum, over: float = RECENT) -> float:
        """How many per second, lately."""
        (began, before), (ended, after) = self._span(over)
        return max(0.0, what(after) - what(before)) / (ended - began) if ended > began else 0.0

    def count(self, what: Sum, over: float = WINDOW) -> int:
        """How many, lately."""
        (_, before), (_, after) = self._span(over)
        return max(0, round(what(after) - what(before)))

    def quantile(self, figure: Figure, q: float, over: float = WINDOW) -> float | None:
        """The seconds that this share of them stayed under, lately; None if there was none."""
        (_, before), (_, after) = self._span(over)
        return quantile(figure, _difference(figure, before, after), q)

    def series(self) -> Series:
        """The lines of all that is kept."""
        told = Series(at=[], granted=[], spared=[], refused=[], op_p50=[], op_p99=[])
        for (began, before), (ended, after) in pairwise(self._samples):
            told.at.append(round(ended, 1))
            for line, what in ((told.granted, GRANTED), (told.spared, SPARED), (told.refused, REFUSED)):
                line.append(round(max(0.0, what(after) - what(before)) / (ended - began), 2))
            buckets = _difference(metrics.OP_SECONDS, before, after)
            for points, q in ((told.op_p50, 0.5), (told.op_p99, 0.99)):
                seconds = quantile(metrics.OP_SECONDS, buckets, q)
                points.append(None if seconds is None else round(seconds * 1e3, 3))
        return told

    def _span(self, over: float) -> tuple[tuple[float, Counts], tuple[float, Counts]]:
        """What is counted now, and what was counted so many seconds ago, or as long ago as is known."""
        now = time.time()
        last = (now, self._figures.counts())
        return next((each for each in self._samples if each[0] >= now - over), last), last


def _difference(figure: Figure, before: Counts, after: Counts) -> list[float]:
    """What came into each bucket in between, of all labels together."""
    buckets = [0.0] * (len(figure.bounds) + 1)
    for counts, sign in ((before, -1.0), (after, 1.0)):
        for values in counts.histograms.get(figure.name, {}).values():
            for index in range(len(buckets)):
                buckets[index] += sign * values[index]
    return buckets


def quantile(figure: Figure, buckets: list[float], q: float) -> float | None:
    """As Prometheus estimates it: evenly spread within a bucket; what is over all bounds counts as the last of them."""
    wanted, seen, low = q * sum(buckets), 0.0, 0.0
    if wanted <= 0:
        return None
    for bound, count in zip(figure.bounds, buckets, strict=False):
        if seen + count >= wanted:
            return low + (bound - low) * (wanted - seen) / count
        seen, low = seen + count, bound
    return figure.bounds[-1]
