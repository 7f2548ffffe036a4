"""Responses: what is sent, and what of it is stored to be replayed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from email.utils import formatdate

from ...rules import MAX_VALUE_BYTES
from .request import Headers

REPLAYED = (b"Idempotent-Replayed", b"true")
MAX_RECORD = MAX_VALUE_BYTES - 64  # room for what a claim stores beside the value
_FORM = 1  # the format's version; an unknown one is treated as not kept

# Never replayed: what belongs to one connection or one moment, and what would give one client's session to another.
UNSAFE = frozenset(
    {
        "age",
        "authentication-info",
        "connection",
        "content-length",  # computed from the body
        "date",
        "idempotency-expires",
        "idempotent-replayed",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-connection",
        "server",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
        "www-authenticate",
    }
)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response."""

    status: int
    headers: Headers
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response as it is stored. Without a body it is a tombstone: the work was done, and its response is lost."""

    status: int
    headers: Headers
    body: bytes | None
    expires: int  # seconds since the epoch

    def packed(self) -> bytes:
        """The record as bytes: a line of JSON, then the body as it was."""
        headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in self.headers]
        facts = [_FORM, self.status, headers, self.expires, self.body is not None]
        return json.dumps(facts, separators=(",", ":")).encode() + b"\n" + (self.body or b"")

    def packed_to_fit(self) -> bytes:
        """The record as bytes that a store takes; if it is too large, a tombstone instead."""
        packed = self.packed()
        if len(packed) <= MAX_RECORD:
            return packed
        packed = self.tombstone().packed()
        return packed if len(packed) <= MAX_RECORD else replace(self, headers=(), body=None).packed()

    def tombstone(self) -> StoredResponse:
        """The same without its body; `Location` still says what came of it."""
        return replace(self, body=None)

    def expiry(self) -> tuple[bytes, bytes]:
        """The header that says until when this answer is kept."""
        return b"Idempotency-Expires", formatdate(self.expires, usegmt=True).encode()

    def location(self) -> Headers:
        """Where to look for what was made, if the response said so."""
        return [(name, value) for name, value in self.headers if name.lower() == b"location"]

    def replay(self) -> HttpResponse:
        """The response again: same status, same bytes, and the headers that are safe to repeat."""
        body = self.body or b""
        length = [] if self.status < 200 or self.status in (204, 304) else [(b"Content-Length", b"%d" % len(body))]
        return HttpResponse(self.status, [*self.headers, *length, REPLAYED, self.expiry()], body)


def unpacked(packed: object) -> StoredResponse | None:
    """The record; None if it cannot be read."""
    if not isinstance(packed, bytes):
        return None
    line, _, body = packed.partition(b"\n")
    try:
        form, status, headers, expires, whole = json.loads(line)
        if form != _FORM or not 100 <= int(status) < 600:
            return None
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        return StoredResponse(int(status), pairs, body if whole else None, int(expires))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def safe(headers: Headers, dropped: Iterable[str] = ()) -> Headers:
    """The headers without those that may not be replayed, nor those that `Connection` names."""
    unsafe = UNSAFE | {name.lower() for name in dropped}
    for name, value in headers:
        if name.lower() == b"connection":
            unsafe |= {option.strip().lower() for option in value.decode("latin-1").split(",")}
    return [(name, value) for name, value in headers if name.decode("latin-1").lower() not in unsafe]
