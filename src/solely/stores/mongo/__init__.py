"""mongodb://, mongodb+srv:// — MongoDB 6.0 (tested): many hosts, and transactions on a replica set.

One document per key, and each op one findAndModify, or one statement of an update command, whose pipeline decides on
the server's clock. Read in this order: pipelines.py, plans.py, commands.py, batches.py, blocking.py, aio.py.
`?namespace=` names the collection (default `solely`); all other options of the URL are pymongo's.

What differs from the reference: fences are per key (they grow from key to key only with the clock); a limit is at most
1,000; items that different clients push within one ms are in no order; a Take first looks whether its owner has an item
and then takes one, so a late copy that comes between the two leases a second item, which comes back after its ttl.
"""

from __future__ import annotations

from ...credentials import Logins
from .. import Clock
from .aio import AsyncMongoStore
from .blocking import MongoStore
from .settings import parse


def open_blocking(url: str, *, clock: Clock | None, timeout: float, logins: Logins | None = None) -> MongoStore:
    """A blocking store; nothing is connected before the first op. An invalid URL raises InvalidInput."""
    return MongoStore(parse(url, logins), clock=clock, timeout=timeout)


def open_async(url: str, *, clock: Clock | None, timeout: float, logins: Logins | None = None) -> AsyncMongoStore:
    """An asyncio store; nothing is connected before the first op. An invalid URL raises InvalidInput."""
    return AsyncMongoStore(parse(url, logins), clock=clock, timeout=timeout)
