"""postgresql:// — PostgreSQL 15 or later: many hosts, durable, and marks within the caller's own transaction.

One function per op, and one for a batch, decides and writes on the server's clock under advisory locks that end with
their transaction; leases are rows, so poolers are safe. Read in this order: migrations/, codec.py, batch.py,
connection.py, blocking.py, aio.py. Everything is committed as the server's synchronous_commit says, leases too; but a
plain release does not wait for the disk: after a crash the key may be held until its ttl.
"""

from __future__ import annotations

from ...credential_sources import logins_of
from ...credentials import Credentials, Logins
from .. import Clock
from .aio import AsyncPostgresStore
from .blocking import PostgresStore
from .schema import migrate as _migrate
from .settings import parse
from .within import PostgresTransaction

__all__ = ["PostgresTransaction", "migrate", "open_async", "open_blocking"]


def open_blocking(url: str, *, clock: Clock | None, timeout: float, logins: Logins | None = None) -> PostgresStore:
    """A blocking store; nothing is connected before the first op. An invalid URL raises InvalidInput."""
    return PostgresStore(parse(url, logins), clock=clock, timeout=timeout)


def open_async(url: str, *, clock: Clock | None, timeout: float, logins: Logins | None = None) -> AsyncPostgresStore:
    """An asyncio store; nothing is connected before the first op. An invalid URL raises InvalidInput."""
    return AsyncPostgresStore(parse(url, logins), clock=clock, timeout=timeout)


def migrate(url: str, credentials: Credentials | None = None) -> int:
    """Brings the schema that the URL names up to date and returns its version; raises StoreError if that fails."""
    if not credentials:
        return _migrate(parse(url))
    logins = logins_of(credentials, "postgres")
    try:
        return _migrate(parse(url, logins))
    finally:
        if logins is not credentials:
            logins.close()
