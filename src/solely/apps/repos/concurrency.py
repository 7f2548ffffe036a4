"""Locks and deduplication behind two protocols, and what serves them within one process.

`redis_state` has what serves several, and the factories. The jobs of this application use claims, which also know
whether the work was done; these are for code that was written for the protocols.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, Protocol, TypeVar, runtime_checkable

from ... import AsyncClient, InvalidInput
from ...kit import get_logger

log = get_logger("solely.repos")

K = TypeVar("K", bound=Hashable)

TTL = 300  # seconds of a lock: a clone takes that long, and a holder that died blocks others for no longer
WAIT = 600.0  # seconds that `acquire` waits at most: after two ttls, a holder is at work and not dead
SEEN = 3600  # seconds for which a key is seen
MAX_LOCKS = 1_024  # repositories that one process works on
MAX_SEEN = 10_000  # jobs of some days
_MOST_HELD = 1_000_000  # locks at once: no bound that anybody meets, and memory that a process has


@runtime_checkable
class DistributedLock(Protocol):
    """A lock per key, for one holder at a time."""

    def acquire(self, key: str, ttl_seconds: int = TTL) -> AbstractAsyncContextManager[None]:
        """Holds the key within the block, renewed at half its ttl."""

    async def aclose(self) -> None:
        """Closes what it opened."""


@runtime_checkable
class DeduplicationStore(Protocol):
    """Remembers keys."""

    async def is_seen(self, key: str) -> bool:
        """True if the key was marked and has not expired."""

    async def mark_seen(self, key: str, ttl_seconds: int = SEEN) -> None:
        """Marks the key for that long."""

    async def aclose(self) -> None:
        """Closes what it opened."""


class MemoryLock:
    """A lock per key within this process. Waits at most `wait` seconds, then raises Busy. If the lease is lost, which
    needs an event loop that stood still for the ttl, the block is cancelled and LeaseLost is raised.

    At most `max_size` keys are known; those in use never count as too many.
    """

    def __init__(self, max_size: int = MAX_LOCKS, *, wait: float = WAIT) -> None:
        self._once = AsyncClient(f"memory://?max_size={_MOST_HELD}")
        self._max_size, self._wait = _checked_size(max_size), wait
        self._used: Counter[str] = Counter()  # keys that are held or waited for, and by how many
        self._unused: OrderedDict[str, None] = OrderedDict()  # the others, the least recently used first
        self._evicted = 0

    @asynccontextmanager
    async def acquire(self, key: str, ttl_seconds: int = TTL) -> AsyncIterator[None]:
        """As DistributedLock."""
        self._used[key] += 1
        self._unused.pop(key, None)
        try:
            async with self._once.lock(lock_name(key), ttl=ttl_seconds, wait=self._wait):
                yield
        finally:
            self._leave(key)

    def _leave(self, key: str) -> None:
        self._used[key] -= 1
        if not self._used[key]:
            del self._used[key]
            self._unused[key] = None
        while self._unused and len(self) > self._max_size:
            self._unused.popitem(last=False)
            self._evicted += 1
            if self._evicted & (self._evicted - 1) == 0:  # the 1st, 2nd, 4th, …: seen early, and no flood of lines
                facts = {"count": self._evicted, "max_size": self._max_size, "current_size": len(self)}
                text = "repo_lock_eviction: %(count)d keys were dropped; %(current_size)d of %(max_size)d are left"
                log.warning(text, facts, extra=facts)

    def __len__(self) -> int:
        return len(self._used) + len(self._unused)

    async def aclose(self) -> None:
        """As DistributedLock."""
        await self._once.close()


class RecentKeys(Generic[K]):
    """Keys, each until it expires. If there are more than `max_size`, the older half is dropped, and `event` logged."""

    def __init__(self, event: str, max_size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._event, self._max_size, self._clock = event, _checked_size(max_size), clock
        self._ends: OrderedDict[K, float] = OrderedDict()  # when each expires, the one that was added first is first

    def __contains__(self, key: K) -> bool:
        return self._ends.get(key, -math.inf) > self._clock()

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, key: K, ttl: float = math.inf) -> bool:
        """Adds the key for at least `ttl` seconds; False if it was there."""
        known = key in self
        ends = self._clock() + ttl
        self._ends[key] = max(ends, self._ends[key]) if known else ends
        self._ends.move_to_end(key)
        if len(self._ends) > self._max_size:
            self._evict()
        return not known

    def _evict(self) -> None:
        count = len(self._ends) - max(1, self._max_size // 2)
        for _ in range(count):
            self._ends.popitem(last=False)
        facts = {"count": count, "max_size": self._max_size, "current_size": len(self._ends)}
        text = f"{self._event}: the oldest %(count)d keys were dropped; %(current_size)d of %(max_size)d are left"
        log.warning(text, facts, extra=facts)


class MemoryDedup:
    """Remembers keys within this process, as DeduplicationStore, each for its ttl."""

    def __init__(self, max_size: int = MAX_SEEN, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = RecentKeys[str]("dedup_store_eviction", max_size, clock)

    async def is_seen(self, key: str) -> bool:
        """As DeduplicationStore."""
        return dedup_name(key) in self._keys

    async def mark_seen(self, key: str, ttl_seconds: int = SEEN) -> None:
        """As DeduplicationStore."""
        self._keys.add(dedup_name(key), ttl_seconds)

    async def first(self, key: str, ttl_seconds: int = SEEN) -> bool:
        """Marks the key in the same step; True for the one caller that was first."""
        return self._keys.add(dedup_name(key), ttl_seconds)

    def __len__(self) -> int:
        return len(self._keys)

    async def aclose(self) -> None:
        """As DeduplicationStore."""


class ReviewedMRTracker:
    """Remembers reviewed commits within this process. The application itself uses marks, which pods share."""

    def __init__(self, max_size: int = MAX_SEEN) -> None:
        self._keys = RecentKeys[tuple[int, int, str]]("reviewed_mr_eviction", max_size)

    def is_reviewed(self, project_id: int, mr_iid: int, head_sha: str) -> bool:
        """True if this commit was marked."""
        return (project_id, mr_iid, head_sha) in self._keys

    def mark(self, project_id: int, mr_iid: int, head_sha: str) -> None:
        """Marks this commit as reviewed."""
        self._keys.add((project_id, mr_iid, head_sha))


class ProcessedIssueTracker:
    """Remembers issues within this process. The application itself uses marks, which pods share."""

    def __init__(self, max_size: int = MAX_SEEN) -> None:
        self._keys = RecentKeys[str]("processed_issue_eviction", max_size)

    def is_processed(self, issue_key: str) -> bool:
        """True if this issue was marked."""
        return issue_key in self._keys

    def mark(self, issue_key: str) -> None:
        """Marks this issue as processed."""
        self._keys.add(issue_key)


def lock_name(key: str) -> str:
    """The name of the lock of this key."""
    return f"lock:{key}"


def dedup_name(key: str) -> str:
    """The name of the mark of this key."""
    return f"dedup:{key}"


def _checked_size(max_size: int) -> int:
    if max_size < 1:
        raise InvalidInput(f"max_size={max_size} must be 1 or more")
    return max_size
