"""A stand-in for Microsoft Entra ID: issues tokens whose form is that of real ones, each the password of a server."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from redis.auth.token import SimpleToken

from tests.servers import Valkey

USER = "app"
KEY = "a key for signatures that nobody checks"
BACKGROUND = ("asyncio_", "ThreadPoolExecutor-", "server-starter")  # threads of the test and of its event loop


class EntraIdentity:
    """In place of azure-identity's DefaultAzureCredential, for the server of the test; no network is used."""

    def __init__(self, server: Valkey, life: float = 3_600.0) -> None:
        self._server, self.life = server, life
        self.asked: list[str] = []
        self.made: list[dict[str, Any]] = []  # with which arguments it was made
        self.closed = 0

    def __call__(self, **arguments: Any) -> EntraIdentity:
        self.made.append(arguments)
        return self

    def get_token(self, *scopes: str, tenant_id: str | None = None) -> SimpleNamespace:
        self.asked += scopes
        expires = time.time() + self.life
        claims = {"oid": USER, "exp": expires, "iat": time.time(), "number": len(self.asked)}
        token = jwt.encode(claims, KEY)
        self._server.ask("ACL", "SETUSER", USER, f">{token}")
        return SimpleNamespace(token=token, expires_on=int(expires))

    def close(self) -> None:
        self.closed += 1


class EntraTokens:
    """In place of redis-entraid's identity provider: its tokens live for three seconds, and are refreshed sooner."""

    def __init__(self, server: Valkey) -> None:
        self._server = server
        self.issued = 0
        self.renewed = threading.Event()

    def request_token(self, force_refresh: bool = False) -> SimpleToken:
        if force_refresh or not self.issued:
            self.issued += 1
            self._server.ask("ACL", "SETUSER", USER, f">token-{self.issued}")
        now = time.time() * 1000
        if self.issued >= 3:
            self.renewed.set()
        return SimpleToken(f"token-{self.issued}", now + 3_000, now, {"oid": USER})


def threads() -> set[threading.Thread]:
    """Those that run now, without the ones of the test's event loop."""
    return {each for each in threading.enumerate() if not each.name.startswith(BACKGROUND)}


@pytest.fixture
def no_thread_is_left() -> Any:
    """Fails if a thread that the test started still runs when it has closed its clients."""
    before = threads()
    yield
    left = threads() - before
    assert not left, left
