"""A checker of linearizability, for histories of real processes on real servers: an answer to "was there ever a moment
at which two held the lock", from what the clients saw.

recorder = Recorder()
with recorder.call("lock/a", "acquire", owner, ttl) as call:
    call.output = …
verdict = check_history(recorder.operations, LockModel())
assert verdict.ok, verdict
"""

from .checker import LinearizabilityVerdict, Model, check_history
from .history import UNANSWERED, Operation, Recorder, line_of, read_history
from .models import ClaimModel, LockModel, MarkModel, QueueModel, ReservationModel

__all__ = [
    "UNANSWERED",
    "ClaimModel",
    "LinearizabilityVerdict",
    "LockModel",
    "MarkModel",
    "Model",
    "Operation",
    "QueueModel",
    "Recorder",
    "ReservationModel",
    "check_history",
    "line_of",
    "read_history",
]
