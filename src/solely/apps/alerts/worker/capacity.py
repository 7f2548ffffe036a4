"""Capacity: how much one token may ask, and how many reservations one worker has under way. Beyond it the sender is
told to come again; nothing that is under way is given up for it."""

from __future__ import annotations

import time
from collections import deque

from .... import Limited
from ....service.problems import LIMITED, TOO_MANY, Problem

_SOON = 1.0  # seconds: a reservation that is under way now has most often ended by then


class Capacity:
    """What this worker has under way. `active` counts reservations that are asked for or held."""

    def __init__(self, request_limit: int, request_per: float, max_active: int) -> None:
        self._limit = request_limit
        self._per = request_per
        self._most = max_active
        self._asked: dict[str, deque[float]] = {}  # per principal, of which there are as many as tokens
        self.active = 0

    def check(self, principal: str) -> None:
        """Counts a request of this principal; a Problem if it, or this worker, has too much under way."""
        if self.active >= self._most:
            raise Problem(TOO_MANY, self._full(), again=_SOON)
        now = time.monotonic()
        asked = self._asked.setdefault(principal, deque())
        while asked and asked[0] <= now - self._per:
            asked.popleft()
        if len(asked) >= self._limit:
            detail = f"{self._limit} requests of this token came within {self._per:g} s (request_limit)"
            raise Problem(LIMITED, detail, again=asked[0] + self._per - now)
        asked.append(now)

    def enter(self) -> None:
        """One reservation more; Limited if there are too many."""
        if self.active >= self._most:
            raise Limited(self._full(), left=_SOON)
        self.active += 1

    def take_over(self) -> None:
        """One more that is there already and must go on, however many there are."""
        self.active += 1

    def leave(self) -> None:
        """One less."""
        self.active -= 1

    def _full(self) -> str:
        return f"{self._most} alerts are being published by this worker (max_active)"
