"""Requests with an Idempotency-Key are performed once, by the library's own middleware.

Only on routes that declare it: a response that is replayed must still be true, which a lease's time left would not be.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..client import AsyncClient
from ..integrations.asgi import SCOPE_KEY, App, IdempotencyMiddleware
from ..integrations.idempotency import Rules
from ..names import reserved
from .problems import POLICY_PATH
from .reserved_names import SERVICE
from .responses import Receive, Scope, Send
from .routes import Route
from .settings import Settings

PRINCIPAL = "solely.principal"  # where the ASGI scope holds the caller's name
KEEP = 3600.0  # seconds: longer than anybody repeats a request whose response was lost
WAIT = 10.0  # seconds that a copy waits for the first request: longer than an unavailable store is retried


class IdempotentRequests:
    """Sends the same response to every copy of a request."""

    def __init__(self, app: App, once: AsyncClient, settings: Settings, keyed: Iterable[Route]) -> None:
        most = settings.max_body
        rules = Rules(
            scope=lambda request: request.native[PRINCIPAL],
            methods=("POST",),
            required=False,
            wait=WAIT,
            keep=KEEP,
            bare_keys=settings.bare_keys,
            max_request=max((route.body_cap(most) for route in keyed), default=most),
            releases=lambda status: status >= 400,  # a refused request changed nothing
            policy_url=POLICY_PATH,
            realm=reserved(SERVICE, "answers"),  # callers cannot write below it, and so cannot forge responses
        )
        self._guarded = IdempotencyMiddleware(app, once=once, rules=rules)

    async def handle(self, scope: Scope, receive: Receive, send: Send, principal: str) -> int:
        """Has the app handle the request, or replays its first response; returns the status."""
        statuses = [499]  # nginx's status for callers that disconnected

        async def send_and_note(message: Scope) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        scope[PRINCIPAL] = principal
        await self._guarded(scope, receive, send_and_note)
        return statuses[-1]


def has_key(scope: Scope) -> bool:
    """True if the request has a key that the middleware has not handled yet."""
    return SCOPE_KEY not in scope and any(name == b"idempotency-key" for name, _ in scope["headers"])
