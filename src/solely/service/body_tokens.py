"""A token of the service in the body of a request, for senders that cannot set a header."""

from __future__ import annotations

from typing import Any

import msgspec

from .routes import Call, Webhook
from .security import LOCAL, Principal, Scope


class BodyToken:
    """The field of a JSON body that has a token with at least this scope."""

    def __init__(self, field: str, scope: Scope) -> None:
        self._field, self._scope = field, scope
        form = msgspec.defstruct("BodyToken", [(field, str, "")])
        self._read = msgspec.json.Decoder(form).decode
        self.auth = Webhook(self._may, f"a {field} in the body that is a token with the scope {scope.name.lower()}")

    def sender(self, call: Call[Any, Any]) -> Principal | None:
        """The principal whose token it is; None if unknown. Without tokens, every local caller may send."""
        tokens = call.service.tokens
        if not tokens:
            return LOCAL
        try:
            return tokens.whose(getattr(self._read(call.raw), self._field).encode())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def _may(self, call: Call[Any, Any]) -> bool:
        principal = self.sender(call)
        return principal is not None and principal.scope >= self._scope
