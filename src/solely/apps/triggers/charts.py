"""The charts of triggers."""

from __future__ import annotations

from ...kit import Chart, Line, total
from . import figures
from .work import figures as work

CHARTS = (
    Chart(
        "triggers",
        "Triggers per second",
        (
            Line("triggers.accepted", "accepted", total(figures.TRIGGERED)),
            Line("triggers.diverted", "diverted", total(figures.GATE, "divert")),
            Line("triggers.drained", "drained", total(figures.DRAINED)),
        ),
    ),
    Chart(
        "triggers-runs",
        "Attempts per second",
        (
            Line("triggers.completed", "completed", total(work.ATTEMPTS, "completed")),
            Line("triggers.retried", "retried", total(work.ATTEMPTS, "retried")),
            Line("triggers.failed", "failed", total(work.ATTEMPTS, "failed")),
            Line("triggers.lost", "lost", total(work.ATTEMPTS, "lost")),
        ),
    ),
)
