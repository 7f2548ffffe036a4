"""Figures (metrics): counters, histograms and gauges, cheap enough for every event and request; summed over all
workers.

Each worker counts in its own memory. Where there are several, each also saves its figures in a shared folder once a
second, so that any of them can report the sum. The counts of a worker that exited stay included; its gauges do not.
"""

from __future__ import annotations

import asyncio
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from operator import add
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ..errors import InvalidInput

log = structlog.get_logger("solely.figures")

# Seconds. From a tenth of a millisecond (the memory store) in steps of about 3 to half a minute (an unavailable store,
# a long wait); holds go on to an hour, which is a long batch job.
LATENCY = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
HOLD = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0)
GONE = 5.0  # seconds after which the gauges of a worker are ignored: it saves them every second while it runs

Labels = tuple[str, ...]


class Figure(NamedTuple):
    """A metric: its name, its meaning, the names of its labels, and, for a histogram, its bounds.

    A gauge is read when figures are reported, and summed over the workers. Each worker reads the same value of a shared
    gauge, such as the number of entries in the store, so that the maximum is reported.
    """

    name: str
    help: str
    labels: Labels = ()
    bounds: tuple[float, ...] = ()
    kind: Literal["", "gauge", "shared gauge"] = ""


class Counts(msgspec.Struct):
    """The counts of one worker. The list of a histogram has a count per bucket, one for the overflow, and the sum."""

    counters: dict[str, dict[Labels, float]] = {}
    histograms: dict[str, dict[Labels, list[float]]] = {}
    gauges: dict[str, dict[Labels, float]] = {}

    def add(self, other: Counts) -> None:
        """Adds the counters and histograms of another worker, but not its gauges."""
        for name, counted in other.counters.items():
            mine = self.counters.setdefault(name, {})
            for labels, value in counted.items():
                mine[labels] = mine.get(labels, 0.0) + value
        for name, observed in other.histograms.items():
            ours = self.histograms.setdefault(name, {})
            for labels, values in observed.items():
                ours[labels] = [a + b for a, b in zip(ours.get(labels, [0.0] * len(values)), values, strict=True)]


_counts = msgspec.msgpack.Decoder(Counts)
_encode = msgspec.msgpack.Encoder().encode


class FigureRegistry:
    """The figures of this worker, and of all workers that share `folder`."""

    def __init__(self, known: tuple[Figure, ...], folder: str = "") -> None:
        self._next: asyncio.Future[bytes] | None = None  # the rendering that has not begun
        self._rendering = asyncio.Lock()
        self._known: dict[str, Figure] = {}
        self._folder = Path(folder) if folder else None
        self._own = Counts({}, {}, {})
        self._counted, self._observed = self._own.counters, self._own.histograms
        self._reads: dict[str, dict[Labels, Callable[[], float]]] = {}
        self.add(known)

    def add(self, figures: Iterable[Figure]) -> None:
        """Registers figures; InvalidInput if one of them has the name of another."""
        for each in figures:
            if each.name in self._known:
                raise InvalidInput(f"there are two figures named {each.name}: give one of them another name")
            self._known[each.name] = each
            if each.kind:
                self._reads[each.name] = {}
            elif each.bounds:
                self._own.histograms[each.name] = {}
            else:  # without labels, it starts at 0, so that there is a rate from the first one on
                self._own.counters[each.name] = {} if each.labels else {(): 0.0}

    def count(self, figure: Figure, *labels: str) -> None:
        """Counts one more."""
        counted = self._counted[figure.name]
        counted[labels] = counted.get(labels, 0.0) + 1.0

    def count_many(self, figure: Figure, amount: int, *labels: str) -> None:
        """Counts `amount` more."""
        counted = self._counted[figure.name]
        counted[labels] = counted.get(labels, 0.0) + amount

    def observe(self, figure: Figure, seconds: float, *labels: str) -> None:
        """Adds an observation to a histogram."""
        name, bounds = figure.name, figure.bounds
        observed = self._observed[name].get(labels)
        if observed is None:
            observed = self._observed[name][labels] = [0.0] * (len(bounds) + 2)
        observed[bisect_left(bounds, seconds)] += 1.0
        observed[-1] += seconds

    def gauge(self, figure: Figure, read: Callable[[], float], *labels: str) -> None:
        """Has `read`, which must be quick, return the value of a gauge whenever figures are reported."""
        self._reads[figure.name][labels] = read

    def _read_gauges(self) -> None:
        for name, reads in self._reads.items():
            values = self._own.gauges[name] = {}
            for labels, read in reads.items():
                try:
                    values[labels] = float(read())
                except Exception:  # the other figures are still reported
                    log.exception("gauge_failed", figure=name)

    def save(self) -> None:
        """Saves the figures of this worker where the others find them."""
        self._read_gauges()
        if self._folder is not None:
            unfinished = self._folder / f"{os.getpid()}.new"
            unfinished.write_bytes(_encode(self._own))
            unfinished.replace(self._folder / f"{os.getpid()}.counts")  # atomically: a reader sees all of it or none

    def own_counts(self) -> Counts:
        """The counts of this worker alone, which go on changing."""
        return self._own

    def counts(self) -> Counts:
        """The sum over all workers, as a copy."""
        self.save()
        together = Counts({}, {}, {name: dict(values) for name, values in self._own.gauges.items()})
        together.add(self._own)
        if self._folder is not None:
            for file in self._folder.glob("*.counts"):
                if file.stem != str(os.getpid()):
                    theirs = _counts.decode(file.read_bytes())
                    together.add(theirs)
                    if time.time() - file.stat().st_mtime < GONE:
                        self._add_gauges(together, theirs)
        return together

    def _add_gauges(self, together: Counts, theirs: Counts) -> None:
        for name, values in theirs.gauges.items():
            join = max if self._known[name].kind == "shared gauge" else add
            ours = together.gauges.setdefault(name, {})
            for labels, value in values.items():
                ours[labels] = join(ours[labels], value) if labels in ours else value

    def text(self) -> bytes:
        """All figures of all workers, in Prometheus's text format."""
        return _rendered(tuple(self._known.values()), self.counts())

    async def shared_text(self) -> bytes:
        """As `text`, rendered off the event loop. Callers that come while one rendering runs share the next one, so
        that many readers cost no more than two."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._render())
        return await asyncio.shield(self._next)

    async def _render(self) -> bytes:
        async with self._rendering:
            self._next = None  # whoever comes from now on needs newer counts
            return await asyncio.to_thread(_rendered, tuple(self._known.values()), self.counts())


def _rendered(known: Iterable[Figure], counts: Counts) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Collector(known, counts))
    return generate_latest(registry)


class _Collector(Collector):
    """Counts as metrics of the Prometheus library."""

    def __init__(self, known: Iterable[Figure], counts: Counts) -> None:
        self._known = known
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        for each in self._known:
            yield self._gauge(each) if each.kind else self._histogram(each) if each.bounds else self._counter(each)

    def _gauge(self, figure: Figure) -> Metric:
        family = GaugeMetricFamily(figure.name, figure.help, labels=figure.labels)
        for labels, value in self._counts.gauges.get(figure.name, {}).items():
            family.add_metric(labels, value)
        return family

    def _counter(self, figure: Figure) -> Metric:
        family = CounterMetricFamily(figure.name, figure.help, labels=figure.labels)
        for labels, value in self._counts.counters.get(figure.name, {}).items():
            family.add_metric(labels, value)
        return family

    def _histogram(self, figure: Figure) -> Metric:
        family = HistogramMetricFamily(figure.name, figure.help, labels=figure.labels)
        for labels, values in self._counts.histograms.get(figure.name, {}).items():
            buckets, total = [], 0.0
            for bound, count in zip((*map(str, figure.bounds), "+Inf"), values, strict=False):
                total += count
                buckets.append((bound, total))
            family.add_metric(labels, buckets, sum_value=values[-1])
        return family
