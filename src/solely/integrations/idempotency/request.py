"""A request, independent of ASGI and WSGI, and its fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """`native` is the ASGI scope or the WSGI environ; `body` is empty until the key was checked."""

    method: str
    target: bytes  # path and query, as they were sent
    headers: Headers
    native: Any
    root: str = ""  # where the application is mounted
    body: bytes = b""

    def lines(self, name: str) -> list[bytes]:
        """The values of all field lines of that name."""
        wanted = name.lower().encode("ascii")
        return [value for given, value in self.headers if given.lower() == wanted]

    def header(self, name: str) -> str | None:
        """The field's value; None if it was not sent."""
        lines = self.lines(name)
        return b", ".join(lines).decode("latin-1") if lines else None


def whole_body(request: HttpRequest) -> bytes:
    """The payload is every byte of the body."""
    return request.body


def digest(parts: Iterable[bytes], secret: bytes) -> str:
    """128 bits in hex, different for different sequences of parts, and not predictable without the secret."""
    sponge = hashlib.blake2b(key=secret, digest_size=16)
    for part in parts:
        sponge.update(len(part).to_bytes(8, "big"))  # so that moving bytes between parts changes the digest
        sponge.update(part)
    return sponge.hexdigest()


def fingerprint(request: HttpRequest, payload: bytes, secret: bytes) -> str:
    """Equal for equal method, host, path, query and payload; otherwise different."""
    host = b",".join(request.lines("host")).lower()
    return digest([request.method.encode("latin-1"), host, request.target, payload], secret)
