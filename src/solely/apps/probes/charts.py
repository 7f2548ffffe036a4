"""The charts of the prober."""

from __future__ import annotations

from ...kit import Chart, Line, total
from . import figures

CHARTS = (
    Chart(
        "probes",
        "Probes per second",
        (
            Line("probes.passed", "passed", total(figures.PROBED, "passed")),
            Line("probes.failed", "failed", total(figures.PROBED, "failed")),
        ),
    ),
    Chart(
        "probes-latency",
        "One probe, ms",
        (
            Line("probes.p50", "p50", figures.PROBE_SECONDS),
            Line("probes.p99", "p99", figures.PROBE_SECONDS, 0.99),
        ),
        " ms",
    ),
)
