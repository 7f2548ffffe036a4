"""Requests that come with an Idempotency-Key are done once, by the library's own middleware.

Only on routes that say so: an answer that is replayed must still be true, which a lease's time left would not be.
"""

from __future__ import annotations

from ..client import AsyncClient
from ..integrations.asgi import SCOPE_KEY, App, IdempotencyMiddleware
from ..integrations.idempotency import Rules
from ..names import reserved
from .answers import Receive, Scope, Send
from .problems import POLICY_PATH
from .reserved import SERVICE
from .settings import Settings

PRINCIPAL = "solely.principal"  # where the name of who asks is left in the scope
KEEP = 3600.0  # seconds: longer than anybody repeats a request whose answer was lost
WAIT = 10.0  # seconds that a copy waits for the first: longer than a store that is away is asked


class Keyed:
    """Answers every copy of a request alike."""

    def __init__(self, app: App, once: AsyncClient, settings: Settings) -> None:
        rules = Rules(
            scope=lambda request: request.native[PRINCIPAL],
            methods=("POST",),
            required=False,
            wait=WAIT,
            keep=KEEP,
            max_request=settings.max_body,
            releases=lambda status: status >= 400,  # a refusal did nothing
            policy_url=POLICY_PATH,
            realm=reserved(SERVICE, "answers"),  # so that nobody forges what another is answered
        )
        self._guarded = IdempotencyMiddleware(app, once=once, rules=rules)

    async def answer(self, scope: Scope, receive: Receive, send: Send, principal: str) -> int:
        """Has the app answer, or answers as it did before; the status."""
        statuses = [499]  # as nginx counts callers that hung up

        async def noted(message: Scope) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        scope[PRINCIPAL] = principal
        await self._guarded(scope, receive, noted)
        return statuses[-1]


def is_keyed(scope: Scope) -> bool:
    """True if the request has a key, and was not let through to the app by the middleware already."""
    return SCOPE_KEY not in scope and any(name == b"idempotency-key" for name, _ in scope["headers"])
