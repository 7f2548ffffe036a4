"""The metrics of the task-trigger API. Those of the claim have the names of its document, after `solely_`."""

from __future__ import annotations

from ...kit import LATENCY, Figure

TRIGGERED = Figure("solely_triggers_accepted", "Triggers that were answered with a run id, by where it was", ("where",))
TRIGGER_SECONDS = Figure("solely_triggers_seconds", "From a trigger to its answer", (), LATENCY)
MISMATCHES = Figure("solely_triggers_payload_mismatches", "Triggers whose key has a run with another payload")
WINS = Figure("solely_mollifier_idempotency_claim_wins", "Triggers that won the claim of their key")
WAITS = Figure("solely_mollifier_idempotency_claim_waits", "Triggers that got the run id of another from its claim")
TIMEOUTS = Figure("solely_mollifier_idempotency_claim_timeouts", "Triggers refused since the claim was not resolved")
FAILURES = Figure(
    "solely_mollifier_idempotency_claim_failures", "Steps of claims that the store did not perform", ("step",)
)
STALE = Figure("solely_mollifier_idempotency_claim_stale", "Claims dropped since their key was reset or had expired")
GATE = Figure("solely_mollifier_gate", "What the gate decided: pass, divert, shadow or unknown", ("decision",))
BUFFERED = Figure("solely_mollifier_buffered", "Runs in the buffer", kind="shared gauge")
BUFFER_FAILURES = Figure("solely_mollifier_buffer_failures", "Runs stored in SQL since the buffer failed", ("why",))
DUPLICATES = Figure("solely_mollifier_duplicates", "Runs of a key that has another run: they resolve to that one")
DRAINED = Figure("solely_mollifier_drained", "Buffered runs that were moved to SQL, by outcome", ("outcome",))

FIGURES = tuple(each for each in globals().values() if isinstance(each, Figure))
