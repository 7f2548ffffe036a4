"""The charts of the alert receiver."""

from __future__ import annotations

from ...kit import Chart, Line, total
from . import figures

CHARTS = (
    Chart(
        "alerts",
        "Alerts per second",
        (
            Line("alerts.received", "received", total(figures.RECEIVED)),
            Line("alerts.notified", "notified", total(figures.PUBLISHED)),
            Line("alerts.suppressed", "suppressed", total(figures.SUPPRESSED)),
            Line("alerts.failed", "failed publishes", total(figures.PUBLISHER_FAILURES)),
        ),
    ),
    Chart(
        "alerts-publish",
        "One publish, ms",
        (
            Line("alerts.publish.p50", "p50", figures.PUBLISH_SECONDS),
            Line("alerts.publish.p99", "p99", figures.PUBLISH_SECONDS, 0.99),
        ),
        " ms",
    ),
)


def of_publisher(name: str) -> Line:
    """The publishes of one publisher, failed ones included."""
    return Line(f"alerts.publisher/{name}", name, total(figures.PUBLISH_SECONDS, name))
