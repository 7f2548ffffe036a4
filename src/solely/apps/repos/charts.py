"""The charts of repositories."""

from __future__ import annotations

from ...kit import Chart, Line, total
from . import figures

CHARTS = (
    Chart(
        "repos",
        "Jobs per second",
        (
            Line("repos.webhooks", "webhooks", total(figures.RECEIVED)),
            Line("repos.accepted", "accepted", total(figures.ACCEPTED)),
            Line("repos.duplicates", "duplicates", total(figures.DUPLICATES)),
            Line("repos.polls", "polls", total(figures.POLLS)),
        ),
    ),
)
