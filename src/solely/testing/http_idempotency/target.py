"""The service under test: where it is, what it offers, and how it is spoken to. Standard library only."""

from __future__ import annotations

import http.client
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

PATIENCE = 20.0  # seconds for one answer: several times what a service should make a copy wait

Lines = Sequence[str | bytes]


class NotGiven(Exception):
    """The check needs something that the target does not offer; its text says what."""


class TargetResponse(NamedTuple):
    """What the service answered."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def done(self) -> bool:
        """True if this is the result of the work."""
        return 200 <= self.status < 300

    def __str__(self) -> str:
        return f"{self.status} {self.body[:80]!r}"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A service to be tested. Only `url` is needed; a check whose URL was not given is not run.

    Each URL takes a POST, and each execution of it answers 2xx with a body that no other execution has (a fresh id),
    which is how a second execution is seen.
    """

    url: str
    other_url: str = ""  # another operation: the same key must not be answered with the first one's response
    slow_url: str = ""  # takes about `slow` seconds
    failing_url: str = ""  # answers 5xx when a payload comes for the first time, then as `url`
    crashing_url: str = ""  # as `failing_url`, by an exception of the handler
    large_url: str = ""  # answers with more than the service keeps
    cookie_url: str = ""  # answers with a Set-Cookie
    slow: float = 0.6
    max_request: int = 0  # bytes of a request body beyond which the service answers 413
    body: bytes = b'{"item": "tea", "quantity": 1}'
    other_body: bytes = b'{"item": "tea", "quantity": 2}'
    headers: Mapping[str, str] = field(default_factory=dict)  # of every request; where authentication goes
    other_headers: Mapping[str, str] = field(default_factory=dict)  # authenticate another principal

    def given(self, name: str) -> Any:
        """What the target offers under that name; NotGiven if it does not."""
        value = getattr(self, name)
        if not value:
            raise NotGiven(f"no {name} was given")
        return value

    def ask(
        self,
        key: str | None = None,
        *,
        url: str = "",
        method: str = "POST",
        body: bytes | None = None,
        lines: Lines = (),
        headers: Mapping[str, str] | None = None,
    ) -> TargetResponse:
        """Sends one request on a connection of its own; `lines` are raw Idempotency-Key field lines."""
        place = urlsplit(urljoin(self.url, url))
        kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
        connection = kind(place.hostname or "", place.port, timeout=PATIENCE)
        payload = self.body if body is None else body
        try:
            connection.putrequest(
                method, (place.path or "/") + (f"?{place.query}" if place.query else ""), skip_accept_encoding=True
            )
            for name, value in (self.headers if headers is None else headers).items():
                connection.putheader(name, value)
            for line in lines or ([quoted(key)] if key is not None else []):
                connection.putheader("Idempotency-Key", line)
            if method != "GET":
                connection.putheader("Content-Type", "application/json")
                connection.putheader("Content-Length", str(len(payload)))
            connection.endheaders(payload if method != "GET" else None)
            response = connection.getresponse()
            return TargetResponse(response.status, response.headers, response.read())
        finally:
            connection.close()


def quoted(key: str) -> str:
    """The key as a Structured Field String."""
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def fresh() -> str:
    """A key that nobody used before."""
    return secrets.token_hex(16)
