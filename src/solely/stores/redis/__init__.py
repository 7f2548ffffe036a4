"""redis://, rediss://, unix://, redis+sentinel://, redis+cluster:// — Redis 7 or later, Valkey: many hosts, fast.

One script (perform.lua) performs a batch in one step on the server's clock. Read in this order: perform.lua and its
parts, codec.py, blocking.py, aio.py. What differs from the reference: a waiter whose client is no longer connected is
skipped at once (on one server; a cluster does not know).
"""

from __future__ import annotations

from ...credentials import Logins
from .. import Clock
from .aio import AsyncRedisStore
from .blocking import RedisStore
from .settings import parse


def open_blocking(url: str, *, clock: Clock | None, timeout: float, logins: Logins | None = None) -> RedisStore:
    """A blocking store; nothing is connected before the first op. An invalid URL raises InvalidInput."""
    return RedisStore(parse(url, logins), clock=clock, timeout=timeout)


def open_async(url: str, *, clock: Clock | None, timeout: float, logins: Logins | None = None) -> AsyncRedisStore:
    """An asyncio store; nothing is connected before the first op. An invalid URL raises InvalidInput."""
    return AsyncRedisStore(parse(url, logins), clock=clock, timeout=timeout)
