"""Copies a response while it is sent, and decides when and as what it is stored. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from .problems import FAILED, refusal
from .request import Headers
from .response import StoredResponse, safe
from .rules import Rules


class Unfinished(Exception):
    """The handler failed, or responded with a status that frees its key."""


class KeyAction(Enum):
    """What to do with the key if there is nothing to store."""

    RELEASE = "release"  # fail the claim, as Unfinished: a retry runs again, and its claim counts the attempt


Settlement = StoredResponse | KeyAction | None  # None: nothing to settle yet, or no longer


class Step(NamedTuple):
    """What to do next: first settle, if there is anything to settle; then send."""

    settle: Settlement
    opening: bool  # send status and headers first
    body: bytes | None  # None: nothing yet


HOLD = Step(None, opening=False, body=None)


class ResponseRecorder:
    """Records one response. It is settled before its last byte is sent, so a client that has all of it can rely on it.

    A response with Content-Length, or in one piece, is held back until it is settled; a streamed one is passed on as it
    arrives. One that exceeds `max_response` is settled as a tombstone at that moment.
    """

    def __init__(self, rules: Rules, clock: Callable[[], float] = time.time) -> None:
        self._rules = rules
        self._clock = clock
        self._pieces: list[bytes] = []
        self._unsent: list[bytes] = []
        self._size = 0
        self.status = 0  # until the handler sends one
        self.headers: Headers = ()
        self.phrase = ""
        self.sent = False
        self.settled = False

    def open(self, status: int, headers: Headers, phrase: str = "") -> None:
        """Takes the handler's status and headers."""
        self.status, self.headers, self.phrase = status, headers, phrase

    def feed(self, piece: bytes, *, last: bool) -> Step:
        """Takes the next piece of the body."""
        if not self.status:
            raise RuntimeError("the application sent a body before its status")
        self._unsent.append(piece)
        settle = self._settle(piece, last)
        if settle is None and not last and not self.sent and self._short():
            return HOLD
        opening, self.sent = not self.sent, True
        body = b"".join(self._unsent)
        self._unsent.clear()
        return Step(settle, opening, body)

    def broken(self, policy: str) -> Settlement:
        """What to settle when the handler failed, was canceled or sent no end; None if it is settled."""
        if self.settled:
            return None
        self.settled = True
        if self.sent and not self._rules.releases(self.status):
            return self._record(None)  # the client has received a status that says it was done
        if self._rules.releases(500):
            return KeyAction.RELEASE
        failure = refusal(FAILED, policy)
        return StoredResponse(failure.status, safe(failure.headers), failure.body, self._expires())

    def opening(self) -> Headers:
        """The headers of the first response: the handler's, and until when it is kept."""
        return self.headers if self._rules.releases(self.status) else [*self.headers, self._record(None).expiry()]

    def _settle(self, piece: bytes, last: bool) -> Settlement:
        if self.settled:
            return None
        if self._rules.releases(self.status):
            self.settled = last
            return KeyAction.RELEASE if last else None
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

    def _record(self, body: bytes | None) -> StoredResponse:
        return StoredResponse(self.status, safe(self.headers, self._rules.unsafe_headers), body, self._expires())

    def _expires(self) -> int:
        return int(self._clock() + self._rules.keep_seconds)
