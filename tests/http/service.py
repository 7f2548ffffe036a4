"""A small order service, as ASGI and as WSGI: what the middleware is put before in the tests."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from solely.integrations import asgi, wsgi
from solely.testing.http_idempotency import Target

SLOW = 0.3  # seconds: long enough for a copy to come in between, short enough for many tests
LARGE = 300 * 1024  # bytes: more than any store keeps of one value
PIECE = 64 * 1024
OWNERS = {"Bearer one": "ann", "Bearer two": "bob"}  # who may come in, by Authorization
HEADERS = {"Authorization": "Bearer one"}
OTHER_HEADERS = {"Authorization": "Bearer two"}
MAX_REQUEST = 4096  # bytes: little, so that the refusal is soon sent


def target(address: str) -> Target:
    """The service at that address, with everything that a check of the conformance suite can ask for."""
    return Target(
        url=f"{address}/orders",
        other_url=f"{address}/refunds",
        slow_url=f"{address}/slow",
        failing_url=f"{address}/failing",
        crashing_url=f"{address}/crashing",
        large_url=f"{address}/large",
        cookie_url=f"{address}/login",
        slow=SLOW,
        max_request=MAX_REQUEST,
        headers=HEADERS,
        other_headers=OTHER_HEADERS,
    )


def principal(request: Any) -> str | None:
    """Who sent the request."""
    return OWNERS.get(request.header("authorization") or "")


class Said(NamedTuple):
    """What a handler answers, in pieces."""

    status: int
    headers: list[tuple[str, str]]
    pieces: list[bytes]
    pause: float = 0.0


class Service:
    """Counts what it does. Every execution has an id of its own."""

    def __init__(self) -> None:
        self.runs: list[str] = []  # the path of every execution
        self._failed: set[bytes] = set()
        self.claims: list[Any] = []

    def handle(self, path: str, body: bytes) -> Said:
        """One execution."""
        self.runs.append(path)
        if path in ("/failing", "/crashing") and body not in self._failed:
            self._failed.add(body)
            if path == "/crashing":
                raise RuntimeError("the handler failed, as it should")
            return Said(500, [("Content-Type", "text/plain")], [f"failed {secrets.token_hex(4)}".encode()])
        order = secrets.token_hex(8)
        text = json.dumps({"order": order, "you_sent": body.decode()}).encode()
        headers = [
            ("Content-Type", "application/json"),
            ("Location", f"{path}/{order}"),
            ("Date", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ]
        if path == "/login":
            headers.append(("Set-Cookie", f"session={order}"))
        if path == "/large":
            return Said(200, headers, [text, *[b"x" * PIECE] * (LARGE // PIECE)])
        if path == "/pieces":
            return Said(200, headers, [text[:10], text[10:]])
        if path == "/empty":
            return Said(204, [], [])
        return Said(201, [*headers, ("Content-Length", str(len(text)))], [text], SLOW if path == "/slow" else 0.0)

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        """The service as an ASGI application."""
        self.claims.append(scope.get(asgi.SCOPE_KEY))
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        said = self.handle(scope["path"], body)
        await asyncio.sleep(said.pause)
        headers = [(name.lower().encode(), value.encode()) for name, value in said.headers]
        await send({"type": "http.response.start", "status": said.status, "headers": headers})
        for piece in said.pieces[:-1]:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"".join(said.pieces[-1:])})

    def wsgi(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        """The service as a WSGI application."""
        self.claims.append(environ.get(wsgi.ENVIRON_KEY))
        said = self.handle(environ["PATH_INFO"], environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        time.sleep(said.pause)
        start_response(f"{said.status} As Said", said.headers)
        return said.pieces if len(said.pieces) == 1 else iter(said.pieces)
