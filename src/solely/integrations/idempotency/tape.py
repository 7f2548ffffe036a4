"""The tape: copies a response as it passes, and says when it is settled and as what. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from .problems import FAILED, refusal
from .request import Headers
from .response import Record, safe
from .rules import Rules


class Unfinished(Exception):
    """The handler failed, or answered with a status that frees its key."""


class Let(Enum):
    """What to do with the key if there is nothing to keep."""

    GO = "go"  # fail the claim, as Unfinished: a retry runs again, and is told which attempt it is


class Step(NamedTuple):
    """What to do now: first settle, if there is anything to settle; then send on."""

    settle: Record | Let | None
    opening: bool  # send status and headers first
    body: bytes | None  # None: nothing yet


HOLD = Step(None, opening=False, body=None)


class Tape:
    """One response on its way. It is settled before its last byte is sent, so that who has all of it can rely on it.

    A response of declared length, or in one piece, is held back until it is settled; one that comes in pieces is sent
    on as it comes. One that outgrows `max_response` is settled as a tombstone at that moment.
    """

    def __init__(self, rules: Rules, clock: Callable[[], float] = time.time) -> None:
        self._rules = rules
        self._clock = clock
        self._pieces: list[bytes] = []
        self._unsent: list[bytes] = []
        self._size = 0
        self.status = 0  # until the handler said one
        self.headers: Headers = ()
        self.phrase = ""
        self.sent = False
        self.settled = False

    def open(self, status: int, headers: Headers, phrase: str = "") -> None:
        """The handler said its status and headers."""
        self.status, self.headers, self.phrase = status, headers, phrase

    def feed(self, piece: bytes, *, last: bool) -> Step:
        """The handler said the next piece of the body."""
        if not self.status:
            raise RuntimeError("the application sent a body before it said its status")
        self._unsent.append(piece)
        settle = self._settle(piece, last)
        if settle is None and not last and not self.sent and self._short():
            return HOLD
        opening, self.sent = not self.sent, True
        body = b"".join(self._unsent)
        self._unsent.clear()
        return Step(settle, opening, body)

    def broken(self, policy: str) -> Record | Let | None:
        """What to settle when the handler failed, was cancelled or ended without an end; None if it is settled."""
        if self.settled:
            return None
        self.settled = True
        if self.sent and not self._rules.releases(self.status):
            return self._record(None)  # the client has read that it was done
        if self._rules.releases(500):
            return Let.GO
        failure = refusal(FAILED, policy)
        return Record(failure.status, safe(failure.headers), failure.body, self._expires())

    def opening(self) -> Headers:
        """The headers of the first response: the handler's, and until when it is kept."""
        return self.headers if self._rules.releases(self.status) else [*self.headers, self._record(None).expiry()]

    def _settle(self, piece: bytes, last: bool) -> Record | Let | None:
        if self.settled:
            return None
        if self._rules.releases(self.status):
            self.settled = last
            return Let.GO if last else None
        self._pieces.append(piece)
        self._size += len(piece)
        self.settled = last or self._size > self._rules.max_response
        if not self.settled:
            return None
        body = b"".join(self._pieces) if self._size <= self._rules.max_response else None
        self._pieces.clear()
        return self._record(body)

    def _short(self) -> bool:
        for name, value in self.headers:
            if name.lower() == b"content-length":
                return value.isdigit() and int(value) <= self._rules.max_response
        return False

    def _record(self, body: bytes | None) -> Record:
        return Record(self.status, safe(self.headers, self._rules.unsafe_headers), body, self._expires())

    def _expires(self) -> int:
        return int(self._clock() + self._rules.keeping)
