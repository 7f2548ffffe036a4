"""Sessions of the dashboard: signed cookies, and the logouts that end them early."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import time

from ..client import AsyncClient
from ..errors import StoreError
from ..names import reserved
from .reserved_names import SERVICE
from .security import Principal, Tokens, same

SESSION = 12 * 3600.0  # seconds: a working day, so that a forgotten browser is logged out by the next morning
PREFIX = reserved(SERVICE, "logout/")  # callers cannot remove marks below it
LOGOUT_CHECK = 1.0  # seconds between checks of an open stream: it ends at most this long after its session


class Sessions:
    """Signed cookies. A session ends after SESSION, with the token that opened it, or by a logout (see Logouts)."""

    COOKIE = "solely_session"

    def __init__(self, secret: bytes, tokens: Tokens) -> None:
        self._secret = secret
        self._tokens = tokens

    def open(self, principal: Principal) -> str:
        """The cookie of a new session."""
        facts = f"{principal.name}\n{principal.digest.hex()}\n{int(time.time() + SESSION)}\n{secrets.token_hex(8)}"
        text = base64.urlsafe_b64encode(facts.encode()).decode()
        return f"{text}.{self.sign('session', text)}"

    def whose(self, cookie: str) -> Principal | None:
        """Whose session it is; None if the cookie is forged or expired, or its token is no longer valid."""
        text, _, signature = cookie.partition(".")
        if not same(signature, self.sign("session", text)):
            return None
        name, digest, ends, _ = base64.urlsafe_b64decode(text).decode().split("\n")
        return self._tokens.still(name, bytes.fromhex(digest)) if time.time() < int(ends) else None

    def csrf(self, cookie: str) -> str:
        """The token that every write of this session must send, and no other site can know."""
        return self.sign("csrf", cookie)

    def sign(self, use: str, text: str) -> str:
        """The signature of the text, which is valid for this use alone."""
        return hmac.digest(self._secret, f"{use}\n{text}".encode("utf-8", "surrogatepass"), "sha256").hex()


class Logouts:
    """Sessions that were ended by a logout. They are marks in the store, so that all workers and hosts know them until
    the session would have expired. A mark holds only a digest of the cookie, which is useless to readers of the store.
    """

    def __init__(self, once: AsyncClient) -> None:
        self._once = once

    async def add(self, cookie: str) -> None:
        """Ends the session everywhere; raises StoreError if the store may not have recorded that."""
        await self._once.mark(_key(cookie), ttl=SESSION)

    async def has(self, cookie: str) -> bool:
        """True if the session was ended; raises StoreError if the store does not answer."""
        return await self._once.seen(_key(cookie))

    async def until(self, cookie: str) -> None:
        """Returns when the session was ended. An outage of the store does not end it."""
        while True:
            await asyncio.sleep(LOGOUT_CHECK)
            try:
                if await self.has(cookie):
                    return
            except StoreError:
                continue


def _key(cookie: str) -> str:
    return PREFIX + hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest()
