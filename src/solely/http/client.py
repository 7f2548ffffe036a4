"""The HTTP client: one attribute per noun of the API."""

from __future__ import annotations

from .connection import ServiceConnection
from .nouns import (
    HttpClaims,
    HttpDeadLetters,
    HttpEntries,
    HttpHistory,
    HttpLimits,
    HttpLocks,
    HttpMarks,
    HttpQueues,
    HttpReservations,
    HttpSchedules,
    HttpWatermarks,
)


class Client(ServiceConnection):
    """A client of one service, for threads; close it, or use it in `with`. Without a token, SOLELY_TOKEN is sent.

    `timeout` bounds the time for a response, beyond the `wait` of the request. Raises StoreUnavailable after it.
    """

    def __init__(self, url: str, *, token: str = "", timeout: float = 10.0) -> None:
        super().__init__(url, token=token, timeout=timeout)
        self.locks = HttpLocks(self)
        self.marks = HttpMarks(self)
        self.claims = HttpClaims(self)
        self.reservations = HttpReservations(self)
        self.limits = HttpLimits(self)
        self.watermarks = HttpWatermarks(self)
        self.queues = HttpQueues(self)
        self.schedules = HttpSchedules(self)
        self.dead_letters = HttpDeadLetters(self)
        self.entries = HttpEntries(self)
        self.history = HttpHistory(self)
