"""Quotas of one worker: requests, leases and waiting requests per client, and pages and lists that are read at the same
time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

from .problems import AWAY, CROWDED, LIMITED, TOO_MANY, Problem

AT_ONCE = 4  # readers per worker: enough to keep the store busy; each blocks the event loop for some milliseconds


class Slots:
    """Bounds how many pages and lists are read at the same time, so that leases are still renewed in time.

    Callers without a slot wait in the order in which they came. Raises Problem after `wait` seconds without a slot, or
    if the work takes more than `work` seconds.
    """

    def __init__(self, *, wait: float, work: float) -> None:
        self._wait, self._work = wait, work
        self._free = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def take(self) -> AsyncGenerator[None, None]:
        """Holds a slot for as long as the context lasts."""
        try:
            async with asyncio.timeout(self._wait):
                await self._free.acquire()
        except TimeoutError:
            raise Problem(CROWDED) from None
        working = asyncio.timeout(self._work)
        try:
            async with working:
                yield
        except TimeoutError:
            if not working.expired():
                raise
            raise Problem(AWAY, f"this could not be read within {self._work:g} s (store_timeout)") from None
        finally:
            self._free.release()


class WaitQuota:
    """Bounds how many requests of each client wait in this worker."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.now: Counter[str] = Counter()

    def enter(self, client: str) -> None:
        """Counts one more waiting request of this client; raises Problem if there are too many."""
        waiting = self.now[client]
        if waiting >= self._most:
            raise Problem(TOO_MANY, f"{self._most} requests of this client wait already (max_waiters)", again=1.0)
        self.now[client] = waiting + 1

    def leave(self, client: str) -> None:
        """Counts one waiting request less."""
        left = self.now[client] - 1
        if left:
            self.now[client] = left
        else:
            del self.now[client]


class RequestLimit:
    """Bounds how many requests of each client this worker accepts: `limit` in any `per` seconds. `setting` is the name
    under which the limit is configured."""

    def __init__(self, limit: int, per: float, setting: str = "request_limit") -> None:
        self._limit, self._per, self._setting = limit, per, setting
        self._requests: dict[str, deque[float]] = {}  # per client, of which there are as many as tokens

    def check(self, client: str) -> None:
        """Counts a request of this client; raises Problem (429), with the time to wait, if there are too many."""
        now = time.monotonic()
        requests = self._requests.setdefault(client, deque())
        while requests and requests[0] <= now - self._per:
            requests.popleft()
        if len(requests) >= self._limit:
            detail = f"{self._limit} requests of this token came within {self._per:g} s ({self._setting})"
            raise Problem(LIMITED, detail, again=requests[0] + self._per - now)
        requests.append(now)


class _Lease(NamedTuple):
    """When its key is free again at the latest, and how long the key stays closed after the lease expires."""

    ends: float
    closed: float


class Holds:
    """Bounds how many leases each client holds, as far as this worker granted them and has not seen them end.

    A key that stays closed after its lease counts until it is free. A lease that is released through another worker
    counts here until its ttl is over: this may refuse too early, and never counts too few.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._ends: dict[str, dict[str, _Lease]] = {}  # client → token → its lease
        self._requested: Counter[str] = Counter()  # client → leases that requests in flight ask for

    def check(self, client: str, more: int = 1) -> None:
        """Raises Problem if the client would hold too many leases with this many more."""
        room = self._most - self._requested[client] - more
        mine = self._ends.get(client, {})
        if len(mine) > room:
            now = time.monotonic()
            self._ends[client] = mine = {token: lease for token, lease in mine.items() if lease.ends > now}
        if len(mine) > room:
            text = f"this client holds {len(mine)} leases, and may hold {self._most} (max_holds)"
            raise Problem(TOO_MANY, text, again=1.0)

    @contextmanager
    def requesting(self, client: str, more: int) -> Iterator[None]:
        """Counts the leases that a request asks for, so that concurrent requests together stay within the bound."""
        self.check(client, more)
        self._requested[client] += more
        try:
            yield
        finally:
            self._requested[client] -= more
            if not self._requested[client]:
                del self._requested[client]

    def add(self, client: str, token: str, ttl: float, delay: float = 0.0) -> None:
        """Counts a lease that was granted or renewed for `ttl` seconds. If it expires, its key stays closed for `delay`
        seconds more, or for as long as was given before."""
        mine = self._ends.setdefault(client, {})
        closed = max(delay, mine[token].closed if token in mine else 0.0)
        mine[token] = _Lease(time.monotonic() + ttl + closed, closed)

    def close(self, client: str, token: str, delay: float) -> None:
        """Counts the released lease for `delay` seconds more, while its key stays closed."""
        self.remove(client, token)
        if delay > 0:
            self.add(client, token, delay)

    def remove(self, client: str, token: str) -> None:
        """No longer counts the lease: the client released it."""
        mine = self._ends.get(client)
        if mine is not None and mine.pop(token, None) is not None and not mine:
            del self._ends[client]

    def count(self) -> int:
        """The leases of all clients that this worker knows of."""
        now = time.monotonic()
        return sum(lease.ends > now for mine in self._ends.values() for lease in mine.values())
