"""A request as the rules see it, whatever served it; and what of it makes two requests the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Request:
    """`native` is the ASGI scope or the WSGI environ; `body` is empty until the key was found to be good."""

    method: str
    target: bytes  # path and query, as they were asked for
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


def whole_body(request: Request) -> bytes:
    """The payload is every byte of the body."""
    return request.body


def digest(parts: Iterable[bytes], secret: bytes) -> str:
    """128 bits of hex that no two sequences of parts share, and that nobody can guess who has not the secret."""
    sponge = hashlib.blake2b(key=secret, digest_size=16)
    for part in parts:
        sponge.update(len(part).to_bytes(8, "big"))  # so that no part can pose as the end of another
        sponge.update(part)
    return sponge.hexdigest()


def fingerprint(request: Request, payload: bytes, secret: bytes) -> str:
    """The same for the same method, host, path, query and payload; else another."""
    host = b",".join(request.lines("host")).lower()
    return digest([request.method.encode("latin-1"), host, request.target, payload], secret)
