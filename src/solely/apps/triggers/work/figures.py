"""The metrics of work. Label values are bounded: a fixed set of outcomes."""

from __future__ import annotations

from ....kit import HOLD, Figure

ATTEMPTS = Figure(
    "solely_triggers_attempts",
    "Attempts at runs by outcome: completed, retried, failed (for good), released, waiting (for a child), lost",
    ("outcome",),
)
QUEUE_SECONDS = Figure("solely_triggers_queue_seconds", "From a trigger to the first attempt", (), HOLD)
RUN_SECONDS = Figure("solely_triggers_run_seconds", "From the first attempt to the end of a run", (), HOLD)

FIGURES = (ATTEMPTS, QUEUE_SECONDS, RUN_SECONDS)
