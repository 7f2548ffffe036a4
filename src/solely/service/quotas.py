"""Quotas of one worker: requests, leases and waiting requests per client, pages and lists that are read at the same
time, and requests of strangers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

from .problems import AWAY, BODIES_FULL, CROWDED, LIMITED, TOO_MANY, Problem

SMALL_BODY = 64 << 10  # bytes: more than the events of a forge usually have
MAX_BODIES = 64 << 20  # bytes of larger ones in each worker: two of the largest webhooks, in a pod with 512 MiB
STRANGERS = 4  # of their requests in one round of the event loop: a millisecond or two
PARSING = 0.002  # seconds in one round of the event loop for parsing what they send, and the last piece of that
READ_BYTES = 32 << 10  # read from a connection at once: a usual request in one piece, and 30 MiB of a thousand of them
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


class StrangerTurns:
    """Bounds how many requests of strangers begin in one round of the event loop, so that those who have authenticated
    wait for a few of them at most, however many there are. Addresses take turns: many requests from one of them do not
    delay a health probe from another.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[_Stranger]] = {}  # by address; the one whose turn it is comes first
        self._left = STRANGERS
        self._counting = False

    async def take(self, address: str, is_gone: Callable[[], bool]) -> None:
        """Waits for a turn of this address; none is needed for a stranger that has disconnected."""
        loop = asyncio.get_running_loop()
        if self._waiting or not self._left:
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.setdefault(address, deque()).append(_Stranger(turn, is_gone))
            await turn
            return
        self._left -= 1
        self._count_round(loop)

    def _count_round(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._counting:
            self._counting = True
            loop.call_soon(self._begin_round, loop)

    def _begin_round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._counting, self._left = False, STRANGERS
        while self._left and self._waiting:
            address = next(iter(self._waiting))
            waiting = self._waiting.pop(address)
            stranger = waiting.popleft()
            if waiting:
                self._waiting[address] = waiting  # behind all others
            if not stranger.turn.done():
                self._left -= not stranger.is_gone()
                stranger.turn.set_result(None)
        if self._left < STRANGERS:
            self._count_round(loop)


class ParseTurns:
    """Bounds how long what strangers send is parsed in one round of the event loop: tiny chunks, pipelined requests and
    many headers cost far more than their bytes. What has to wait is parsed in later rounds; addresses take turns."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(READ_BYTES))  # into which all connections of the service's loop are read
        self._waiting: dict[str, deque[Callable[[], None]]] = {}  # by address; the one whose turn it is comes first
        self._left = PARSING
        self._counting = False

    def take(self, address: str, parse: Callable[[], None]) -> bool:
        """Runs `parse` now, or in a later round; False if it has yet to run."""
        if self._waiting or self._left <= 0:
            self._waiting.setdefault(address, deque()).append(parse)
            return False
        self._run(parse)
        return True

    def _run(self, parse: Callable[[], None]) -> None:
        began = time.perf_counter()
        try:
            parse()
        finally:
            self._left -= time.perf_counter() - began
            if not self._counting:
                self._counting = True
                asyncio.get_running_loop().call_soon(self._begin_round)

    def _begin_round(self) -> None:
        self._counting, self._left = False, PARSING
        while self._left > 0 and self._waiting:
            address = next(iter(self._waiting))
            waiting = self._waiting.pop(address)
            parse = waiting.popleft()
            if waiting:
                self._waiting[address] = waiting  # behind all others
            self._run(parse)


class _Stranger(NamedTuple):
    """A request that waits for its turn."""

    turn: asyncio.Future[None]
    is_gone: Callable[[], bool]


class BodyQuota:
    """Bounds how many bytes of bodies this worker holds for senders that their bodies have yet to authenticate: the
    first `SMALL_BODY` of each are free, so that usual requests are read while others fill the rest."""

    def __init__(self) -> None:
        self.used = 0

    @contextmanager
    def counting(self) -> Iterator[Callable[[int], None]]:
        """A function to call with the size of each piece; it raises Problem if that is too much. All is given back at
        the end of the block."""
        read = taken = 0

        def count(size: int) -> None:
            nonlocal read, taken
            read += size
            more = max(0, read - SMALL_BODY) - taken
            if self.used + more > MAX_BODIES:
                raise Problem(BODIES_FULL)
            taken += more
            self.used += more

        try:
            yield count
        finally:
            self.used -= taken


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

    def wanted_to_resume(self, client: str, token: str) -> int:
        """How many leases more the client has once it resumed this token: none if it has that lease already."""
        return int(token not in self._ends.get(client, {}))

    def pass_on(self, token: str, client: str, successor: str, ttl: float) -> None:
        """Counts the lease that the client resumed for `ttl` seconds, as `successor`, and no longer for its former
        holder. Its key stays closed as long after it."""
        closed = 0.0
        for holder, leases in list(self._ends.items()):
            if token in leases:
                closed = leases[token].closed
                self.remove(holder, token)
        self.add(client, successor, ttl, closed)

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
