"""Logouts: sessions that were ended before their time. They are marks in the store, so that every worker and every host
that shares it knows them, until the session would have been over anyway."""

from __future__ import annotations

import asyncio
import hashlib

from ..client import AsyncClient
from ..errors import StoreError
from ..names import reserved
from .reserved import SERVICE
from .security import SESSION

PREFIX = reserved(SERVICE, "logout/")  # no token can forget what is marked there
LOOK = 1.0  # seconds between looks of a stream: whoever logs out waits no longer than that for its end


class Logouts:
    """Which sessions were ended. The mark has a digest of the cookie: nobody who reads the store can use that."""

    def __init__(self, once: AsyncClient) -> None:
        self._once = once

    async def add(self, cookie: str) -> None:
        """From now on this session is over, everywhere; StoreError if the store does not know that for sure."""
        await self._once.mark(_key(cookie), ttl=SESSION)

    async def has(self, cookie: str) -> bool:
        """True if this session was ended; StoreError if that cannot be told."""
        return await self._once.seen(_key(cookie))

    async def until(self, cookie: str) -> None:
        """Returns when this session was ended. An outage of the store ends none that was believed before."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                if await self.has(cookie):
                    return
            except StoreError:
                continue


def _key(cookie: str) -> str:
    return PREFIX + hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest()
