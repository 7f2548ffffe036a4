"""http://, https:// — a Solely service performs the ops, on whatever store it has: for laptops, and behind firewalls.

`https://host/` or, behind a proxy, `https://host/some/path`; the token stands in the URL (`https://:token@host/`) or in
SOLELY_TOKEN. Read in this order: codec.py, settings.py, blocking.py, aio.py. Time is the service's: its store's clock
decides. (An injected clock is sent along, and only the services of tests use it.) Hints come as a stream of
server-sent events while somebody waits; where that is cut, waiters look again every second.
"""

from __future__ import annotations

from .. import Clock
from .aio import AsyncHttpStore
from .blocking import HttpStore
from .settings import parse


def open_blocking(url: str, *, clock: Clock | None, timeout: float) -> HttpStore:
    """A blocking store; nothing is connected before the first op. An invalid URL raises InvalidInput."""
    return HttpStore(parse(url, clock), timeout)


def open_async(url: str, *, clock: Clock | None, timeout: float) -> AsyncHttpStore:
    """An asyncio store; nothing is connected before the first op. An invalid URL raises InvalidInput."""
    return AsyncHttpStore(parse(url, clock), timeout)
