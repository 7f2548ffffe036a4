"""Stores: who performs an op. `open_store(url)` is the only way to reach one.

A store performs ops and knows nothing of locks. It is small on purpose: perform, listen, scan, check, close, once
blocking and once asyncio. To add one: a folder or module here, a line in SCHEMES, a line in the tests' table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

from ..errors import StoreError, UnknownScheme, missing_extra
from ..model import Entry, Finding
from ..ops import Op, Reply
from ..urls import split_url

Tell = Callable[[str], None]  # is given the stored key that may be free, or finished, now; safe to call from any thread
Clock = Callable[[], float]  # seconds; the injected clock of tests


SCANS = 2  # scans at a time on an asyncio store: fewer than it has connections, so that they hold up no renewal


class StoreBase(Protocol):
    """What blocking and asyncio stores have in common."""

    client: str  # 128 random bits, as hex: this process's name in the queues of entries and its wake-up channel
    polls: bool  # True if other processes' releases are seen only by asking again
    max_limit: int  # the largest limit that a Hit may have here

    def listen(self, tell: Tell) -> None:
        """From now on `tell` is called with each key that is hinted to this client. Hints may be lost, not invented."""

    def forked(self) -> None:
        """Called in the child after a fork: takes a new client id and leaves the parent's connections alone."""


class Store(StoreBase, Protocol):
    """A store for threads. Every method may be called from any thread."""

    def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        """One reply per op, in order. Raises Unanswered if it may have happened, StoreUnavailable if it did not; and,
        before anything is performed, InvalidInput if an op is not meant for its key (`kinds.check_ops`)."""

    def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """Entries whose stored key begins with prefix and is greater than `after`, in key order, at most `limit`."""

    def check(self) -> list[Finding]:
        """Reachable? Clock? Settings that break a promise? Raises only StoreError."""

    def close(self) -> None:
        """Lets go of all connections; safe to call twice."""


class AsyncStore(StoreBase, Protocol):
    """A store for one event loop. What perform returns is complete even if nobody awaits it any more."""

    # A store may also have `portion`: so many ops are sent at once, without waiting for more of the same turn.

    def perform(self, ops: Sequence[Op]) -> Awaitable[list[Reply | StoreError]]:
        """As that of a Store; whatever it raises, it raises to who awaits it."""

    async def scan(self, prefix: str, after: str, limit: int) -> list[Entry]: ...

    async def check(self) -> list[Finding]: ...

    async def close(self) -> None: ...


# scheme → (module, extra that installs what it needs). Each module has open_blocking(url, **) and open_async(url, **).
SCHEMES: dict[str, tuple[str, str]] = {
    "memory": ("memory", ""),
    "sqlite": ("sqlite", ""),
    "redis": ("redis", "redis"),
    "rediss": ("redis", "redis"),
    "unix": ("redis", "redis"),
    "redis+sentinel": ("redis", "redis"),
    "redis+cluster": ("redis", "redis"),
    "postgresql": ("postgres", "postgres"),
    "postgres": ("postgres", "postgres"),
    "mongodb": ("mongo", "mongo"),
    "mongodb+srv": ("mongo", "mongo"),
    "http": ("http", "http"),
    "https": ("http", "http"),
}


def open_store(url: str, *, clock: Clock | None = None, timeout: float = 2.0) -> Store:
    """The blocking store that serves this URL; UnknownScheme or MissingExtra, with what to do, if there is none."""
    store: Store = _module(url).open_blocking(url, clock=clock, timeout=timeout)
    return store


def open_async_store(url: str, *, clock: Clock | None = None, timeout: float = 2.0) -> AsyncStore:
    """The asyncio store that serves this URL; UnknownScheme or MissingExtra, with what to do, if there is none."""
    store: AsyncStore = _module(url).open_async(url, clock=clock, timeout=timeout)
    return store


def _module(url: str) -> Any:
    scheme = split_url(str(url)).scheme
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        shown = f"{scheme}://…" if scheme else "a URL without a scheme"  # the rest may hold a password
        raise UnknownScheme(f"no store serves {shown}; the URL must begin with one of {known}")
    name, extra = SCHEMES[scheme]
    try:
        return import_module(f"{__name__}.{name}")
    except ImportError as error:
        if not extra:
            raise
        raise missing_extra(f"{scheme}://", error.name, extra) from error
