"""ASGI middleware: a request that is repeated with its Idempotency-Key is processed once, with one response for all.

Pure ASGI: for Starlette, FastAPI, Django, Litestar, Quart, … on any server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import InvalidInput, Mismatch, SolelyError, StoreError
from ..functions import asgi_application
from ..logs import get_logger
from .idempotency import (
    TOO_LARGE,
    Headers,
    HttpRequest,
    HttpResponse,
    KeyChecker,
    ProblemKind,
    RequestKey,
    ResponseRecorder,
    Rules,
    Settlement,
    Step,
    StoredResponse,
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

log = get_logger()


class IdempotencyMiddleware:
    """Processes a request with an Idempotency-Key once per principal, and gives every copy of it the same response.

    Otherwise it refuses with a problem document, for instance if the store is unreachable (503), unless the
    client was made with `on_outage="proceed"`. The handler finds its claim in `scope["solely.claim"]`: its `fence`, its
    `attempt`, and `ensure()` to make sure that nobody else took over.
    """

    def __init__(self, app: App, *, once: AsyncClient, rules: Rules) -> None:
        from ..client import AsyncClient  # here, as it takes long to import

        if not isinstance(once, AsyncClient):
            raise InvalidInput(f"once must be an AsyncClient, not {once!r:.80}")
        self._app = asgi_application("app", app)
        self._once = once
        self._checker = KeyChecker(rules)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request = request_of(scope)
        admitted = self._checker.admit(request)
        if admitted is None:
            await self._app(scope, receive, send)
        elif isinstance(admitted, HttpResponse):
            await _respond(send, admitted)
        else:
            await self._guarded(admitted, request, receive, send)

    async def _guarded(self, key: RequestKey, request: HttpRequest, receive: Receive, send: Send) -> None:
        checker = self._checker
        body = await _read(receive, checker.rules.max_request)
        if body is None:
            return  # the client disconnected before it sent the whole request
        if isinstance(body, ProblemKind):
            return await _respond(send, checker.refuse(body, request))
        request = replace(request, body=body)
        try:
            claim = await self._once.claim(**checker.claim_arguments(key, request))
        except (Mismatch, StoreError) as error:
            return await _respond(send, checker.refuse_claim(error, request))
        response = checker.existing_response(claim, request)
        if response is not None:
            return await _respond(send, response)
        await self._run(claim, request, receive, send)

    async def _run(self, claim: AsyncClaim, request: HttpRequest, receive: Receive, send: Send) -> None:
        recorder = ResponseRecorder(self._checker.rules)

        async def recorded(message: Any) -> None:
            if message["type"] == "http.response.start":
                recorder.open(message["status"], [(bytes(n), bytes(v)) for n, v in message.get("headers", ())])
            elif message["type"] == "http.response.body":
                more = message.get("more_body", False)
                step = recorder.feed(bytes(message.get("body", b"")), last=not more)
                await self._perform(step, recorder, more, claim, request, send)
            else:
                await send(message)

        scope = request.native
        scope[SCOPE_KEY] = claim
        if "extensions" in scope:  # the handler is not offered extensions that bypass the recorder
            offered = scope["extensions"] or {}
            scope["extensions"] = {name: value for name, value in offered.items() if name not in _UNRECORDED}
        try:
            await self._app(scope, _again(request.body, receive), recorded)
        finally:
            await self._settle(recorder.broken(self._checker.policy(request)), claim, request)

    async def _perform(
        self, step: Step, recorder: ResponseRecorder, more: bool, claim: AsyncClaim, request: HttpRequest, send: Send
    ) -> None:
        other = await self._settle(step.settle, claim, request)
        if step.body is None:
            return
        if other is not None and step.opening:
            return await _respond(send, other)
        if step.opening:
            await _start(send, recorder.status, recorder.opening())
        await send({"type": "http.response.body", "body": step.body, "more_body": more})

    async def _settle(self, settle: Settlement, claim: AsyncClaim, request: HttpRequest) -> HttpResponse | None:
        """Publishes the response, or releases the key. Returns the published response if it is another's."""
        if settle is None:
            return None
        try:
            if isinstance(settle, StoredResponse):
                return self._checker.superseding_response(await claim.publish(settle.packed_to_fit()), request)
            await claim.fail(Unfinished())
        except SolelyError as error:  # the work is done, so its response is sent all the same
            facts = {"key": claim.key, "error": str(error)}
            log.warning("idempotency_not_settled: the response of %(key)r was not kept: %(error)s", facts, extra=facts)
            claim.hand_over()  # stops the renewal, so that the claim expires
        return None


def request_of(scope: Scope) -> HttpRequest:
    """The request, without its body."""
    root, path = scope.get("root_path", ""), scope.get("raw_path") or quote(scope["path"]).encode()
    if root and not scope["path"].startswith(root):  # a server that keeps the mount point out of the path
        path = quote(root).encode() + path
    query = scope.get("query_string", b"")
    target = path.partition(b"?")[0] + (b"?" + query if query else b"")
    headers = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
    return HttpRequest(scope["method"], target, headers, scope, root)


async def _read(receive: Receive, most: int) -> bytes | ProblemKind | None:
    """The whole body; a problem if it is too large; None if the client disconnected."""
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
    """The body that was read, then all further messages, such as a disconnect."""
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Any:
        return unread.pop() if unread else await receive()

    return again


async def _start(send: Send, status: int, headers: Headers) -> None:
    small = [(name.lower(), value) for name, value in headers]  # as ASGI wants them
    await send({"type": "http.response.start", "status": status, "headers": small})


async def _respond(send: Send, response: HttpResponse) -> None:
    await _start(send, response.status, response.headers)
    await send({"type": "http.response.body", "body": response.body})
