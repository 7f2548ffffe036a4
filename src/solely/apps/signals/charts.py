"""The charts of signals."""

from __future__ import annotations

from ...kit import Chart, Line, total
from . import figures

CHARTS = (
    Chart(
        "signals",
        "Signals per second",
        (
            Line("signals.generated", "generated", total(figures.GENERATED)),
            Line("signals.deduplicated", "deduplicated", total(figures.DEDUPLICATED)),
            Line("signals.contended", "groups contended", total(figures.LOCK_CONTENTION)),
            Line("signals.dead", "dead letters", total(figures.DEAD_LETTERED)),
        ),
    ),
    Chart(
        "signals-latency",
        "One group, ms",
        (Line("signals.p50", "p50", figures.SECONDS), Line("signals.p99", "p99", figures.SECONDS, 0.99)),
        " ms",
    ),
)
