"""The metrics of the application. Label values are bounded: forges, kinds of jobs, and fixed sets of reasons.

The share of duplicates is duplicates / (accepted + duplicates).
"""

from __future__ import annotations

from ...kit import HOLD, Figure

RECEIVED = Figure("solely_repos_webhook_received", "Webhooks that were received", ("forge", "event"))
ACCEPTED = Figure("solely_repos_accepted", "Jobs that were put into the queue", ("kind", "origin"))
DUPLICATES = Figure("solely_repos_duplicates", "Jobs that were known already, by reason", ("kind", "origin", "reason"))
POLLS = Figure("solely_repos_polls", "Polls of a project, by result", ("source", "result"))
LAG = Figure(
    "solely_repos_watermark_lag_seconds",
    "Seconds since the last poll of a source began, or since the worker started",
    ("source",),
    kind="shared gauge",
)
REPEATED = Figure("solely_repos_repeated", "Items of jobs that were done before, and were not performed", ("kind",))
REVIEWS = Figure("solely_repos_reviews", "Reviews that ended, by result", ("result",))
REVIEW_SECONDS = Figure("solely_repos_reviews_duration_seconds", "A review from clone to comment", (), HOLD)
CODING_SECONDS = Figure(
    "solely_repos_coding_tasks_duration_seconds", "A job that writes, with its wait for the lock", ("kind",), HOLD
)

FIGURES = tuple(each for each in globals().values() if isinstance(each, Figure))
