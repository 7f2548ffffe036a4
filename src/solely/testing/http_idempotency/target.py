"""The service under test: its URLs, and how requests are sent to it. Standard library only."""

from __future__ import annotations

import http.client
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

TIMEOUT = 20.0  # seconds for one response: several times as long as a service should make a copy wait

Lines = Sequence[str | bytes]


class NotGiven(Exception):
    """The check needs a URL or setting that the target does not have; the text says which."""


class TargetResponse(NamedTuple):
    """A response of the service."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def done(self) -> bool:
        """True if the service processed the request."""
        return 200 <= self.status < 300

    def __str__(self) -> str:
        return f"{self.status} {self.body[:80]!r}"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A service to test. Only `url` is required; checks that need another URL are not run without it.

    Each URL accepts a POST, and each execution responds 2xx with a unique body (such as a new id), which shows whether
    a request was executed twice.
    """

    url: str
    other_url: str = ""  # another operation: the same key must not get the first response
    slow_url: str = ""  # takes about `slow` seconds
    failing_url: str = ""  # responds 5xx to the first request of a payload, then like `url`
    crashing_url: str = ""  # like `failing_url`, by an exception in the handler
    large_url: str = ""  # responds with more than the service stores
    cookie_url: str = ""  # responds with a Set-Cookie
    slow: float = 0.6
    max_request: int = 0  # bytes: the service responds 413 to a larger request body
    body: bytes = b'{"item": "tea", "quantity": 1}'
    other_body: bytes = b'{"item": "tea", "quantity": 2}'
    headers: Mapping[str, str] = field(default_factory=dict)  # added to every request, for authentication
    other_headers: Mapping[str, str] = field(default_factory=dict)  # authenticate as another principal

    def given(self, name: str) -> Any:
        """Returns the field of that name; raises NotGiven if it is empty."""
        value = getattr(self, name)
        if not value:
            raise NotGiven(f"no {name} was given")
        return value

    def send(
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
        address = urlsplit(urljoin(self.url, url))
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        connection = kind(address.hostname or "", address.port, timeout=TIMEOUT)
        payload = self.body if body is None else body
        try:
            connection.putrequest(
                method,
                (address.path or "/") + (f"?{address.query}" if address.query else ""),
                skip_accept_encoding=True,
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
    """Returns the key as a Structured Field String."""
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def fresh() -> str:
    """Returns a new random key."""
    return secrets.token_hex(16)
