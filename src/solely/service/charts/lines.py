"""What a chart shows: lines that are computed from the figures of a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..figures import Counts, Figure

Sum = Callable[[Counts], float]


def total(figure: Figure, *labels: str) -> Sum:
    """The total of a counter, or the number of observations of a histogram; over all labels or those that contain
    these."""
    wanted = set(labels)

    def add(counts: Counts) -> float:
        if figure.bounds:
            observed = counts.histograms.get(figure.name, {})
            return sum(sum(values[:-1]) for known, values in observed.items() if wanted <= set(known))
        counted = counts.counters.get(figure.name, {})
        return sum(value for known, value in counted.items() if wanted <= set(known))

    return add


def added(*sums: Sum) -> Sum:
    """The sum of sums."""
    return lambda counts: sum(each(counts) for each in sums)


class Line(NamedTuple):
    """A line of a chart: a rate per second of what `of` counts; or, if `of` is a histogram, its quantile `q` in
    milliseconds. `name` is unique in the service, such as `alerts.notified`."""

    name: str
    label: str
    of: Sum | Figure
    q: float = 0.5

    def sums(self, counts: Counts) -> Mapping[str, float]:
        """The counts that are kept for this line, by the name of their series."""
        if not isinstance(self.of, Figure):
            return {self.name: self.of(counts)}
        buckets = [0.0] * (len(self.of.bounds) + 1)
        for values in counts.histograms.get(self.of.name, {}).values():
            for index in range(len(buckets)):
                buckets[index] += values[index]
        return {f"{self.of.name}/{index}": value for index, value in enumerate(buckets)}

    @property
    def series(self) -> list[str]:
        """The names of the series that are kept for this line."""
        if not isinstance(self.of, Figure):
            return [self.name]
        return [f"{self.of.name}/{index}" for index in range(len(self.of.bounds) + 1)]

    def value(self, counted: Mapping[str, float], seconds: float) -> float | None:
        """The point of the line: `counted` has the increase of each of its series in so many seconds."""
        if not isinstance(self.of, Figure):
            return round(max(0.0, counted.get(self.name, 0.0)) / seconds, 3)
        found = quantile(self.of, [counted.get(name, 0.0) for name in self.series], self.q)
        return None if found is None else round(found * 1e3, 3)


class Chart(NamedTuple):
    """A chart of up to four lines. `unit` follows each value: `/s` or ` ms`."""

    name: str
    title: str
    lines: tuple[Line, ...]
    unit: str = "/s"


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
