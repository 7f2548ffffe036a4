"""ASGI: a request that comes again with its Idempotency-Key is processed once, and answered alike every time.

Pure ASGI: for Starlette, FastAPI, Django, Litestar, Quart, … on any server.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import Mismatch, SolelyError, StoreError
from .idempotency import (
    TOO_LARGE,
    Answer,
    Guard,
    Headers,
    Let,
    ProblemKind,
    Record,
    Request,
    Rules,
    Step,
    Tape,
    Ticket,
    Unfinished,
)

if TYPE_CHECKING:
    from ..claims.handle import AsyncClaim
    from ..client import AsyncClient

__all__ = ["IdempotencyMiddleware", "Rules"]

SCOPE_KEY = "solely.claim"
_UNRECORDED = ("http.response.pathsend", "http.response.zerocopysend", "http.response.trailers")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("solely")


class IdempotencyMiddleware:
    """Processes a request with an Idempotency-Key once per principal, and answers every copy of it alike.

    What it cannot answer so, it refuses with a problem document; a store that is away is one reason (503), unless the
    client was made with `on_outage="proceed"`. The handler finds its claim in `scope["solely.claim"]`: its `fence`, its
    `attempt`, and `ensure()` to make certain that nobody else took over.
    """

    def __init__(self, app: App, *, once: AsyncClient, rules: Rules) -> None:
        self._app = app
        self._once = once
        self._guard = Guard(rules)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request = request_of(scope)
        admission = self._guard.door(request)
        if admission is None:
            await self._app(scope, receive, send)
        elif isinstance(admission, Answer):
            await _answer(send, admission)
        else:
            await self._guarded(admission, request, receive, send)

    async def _guarded(self, ticket: Ticket, request: Request, receive: Receive, send: Send) -> None:
        guard = self._guard
        body = await _read(receive, guard.rules.max_request)
        if body is None:
            return  # the client went away before it had said what it wanted
        if isinstance(body, ProblemKind):
            return await _answer(send, guard.refuse(body, request))
        request = replace(request, body=body)
        try:
            claim = await self._once.claim(**guard.terms(ticket, request))
        except (Mismatch, StoreError) as error:
            return await _answer(send, guard.failed(error, request))
        answer = guard.verdict(claim, request)
        if answer is not None:
            return await _answer(send, answer)
        await self._run(claim, request, receive, send)

    async def _run(self, claim: AsyncClaim, request: Request, receive: Receive, send: Send) -> None:
        tape = Tape(self._guard.rules)

        async def taped(message: Any) -> None:
            if message["type"] == "http.response.start":
                tape.open(message["status"], [(bytes(n), bytes(v)) for n, v in message.get("headers", ())])
            elif message["type"] == "http.response.body":
                more = message.get("more_body", False)
                step = tape.feed(bytes(message.get("body", b"")), last=not more)
                await self._perform(step, tape, more, claim, request, send)
            else:
                await send(message)

        scope = request.native
        scope[SCOPE_KEY] = claim
        if "extensions" in scope:  # what would pass by the tape is not offered to the handler
            offered = scope["extensions"] or {}
            scope["extensions"] = {name: value for name, value in offered.items() if name not in _UNRECORDED}
        try:
            await self._app(scope, _again(request.body, receive), taped)
        finally:
            await self._settle(tape.broken(self._guard.policy(request)), claim, request)

    async def _perform(
        self, step: Step, tape: Tape, more: bool, claim: AsyncClaim, request: Request, send: Send
    ) -> None:
        standing = await self._settle(step.settle, claim, request)
        if step.body is None:
            return
        if standing is not None and step.opening:
            return await _answer(send, standing)
        if step.opening:
            await _start(send, tape.status, tape.opening())
        await send({"type": "http.response.body", "body": step.body, "more_body": more})

    async def _settle(self, settle: Record | Let | None, claim: AsyncClaim, request: Request) -> Answer | None:
        """Publishes, or lets go. The answer that stands, if it is another's."""
        if settle is None:
            return None
        try:
            if isinstance(settle, Record):
                return self._guard.converged(await claim.publish(settle.fitted()), request)
            await claim.fail(Unfinished())
        except SolelyError as error:  # the work is done, and its response is true: it is sent all the same
            facts = {"key": claim.key, "error": str(error)}
            log.warning("idempotency_not_settled: the answer of %(key)r was not kept: %(error)s", facts, extra=facts)
            claim.hand_over()  # to nobody: it is not renewed any more, so that it does not stay in flight for ever
        return None


def request_of(scope: Scope) -> Request:
    """The request, still without its body."""
    root, path = scope.get("root_path", ""), scope.get("raw_path") or quote(scope["path"]).encode()
    if root and not scope["path"].startswith(root):  # a server that keeps the mount point out of the path
        path = quote(root).encode() + path
    query = scope.get("query_string", b"")
    target = path.partition(b"?")[0] + (b"?" + query if query else b"")
    headers = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
    return Request(scope["method"], target, headers, scope, root)


async def _read(receive: Receive, most: int) -> bytes | ProblemKind | None:
    """The whole body; a problem if it is too large; None if the client went away."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > most:
            return TOO_LARGE
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """The body that was read, then whatever else comes: the client may go away."""
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Any:
        return unread.pop() if unread else await receive()

    return again


async def _start(send: Send, status: int, headers: Headers) -> None:
    small = [(name.lower(), value) for name, value in headers]  # as ASGI wants them
    await send({"type": "http.response.start", "status": status, "headers": small})


async def _answer(send: Send, answer: Answer) -> None:
    await _start(send, answer.status, answer.headers)
    await send({"type": "http.response.body", "body": answer.body})
