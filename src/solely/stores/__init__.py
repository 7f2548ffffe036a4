"""Stores: who performs an op. `open_store(url)` is the only way to reach one.

A store performs ops and knows nothing of locks. It is small on purpose: perform, listen, scan, check, close, once
blocking and once asyncio. To add one: a folder or module here, a line in SCHEMES, a line in the tests' table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from ..credentials import Credentials, Logins
from ..errors import InvalidInput, StoreError, StoreUnavailable, UnknownScheme, missing_extra
from ..model import Entry, Finding
from ..ops import Op, Reply
from ..urls import split_url

# Called with the stored key that may be free, or finished, now; safe to call from any thread.
OnHint = Callable[[str], None]
Answers = list[Reply | StoreError]  # one per op, in order
Clock = Callable[[], float]  # seconds; the injected clock of tests

SCANS = 2  # scans at a time on an asyncio store: fewer than it has connections, so that they delay no renewal


class NotPrimary(StoreUnavailable):
    """The connection leads to a server that may not write: it must be dropped, and the primary found anew."""


class StoreBase(Protocol):
    """What blocking and asyncio stores have in common."""

    client: str  # 128 random bits, as hex: this process's name in the queues of entries and its wake-up channel
    max_limit: int  # the largest limit that a Hit may have here

    @property
    def polls(self) -> bool:
        """True if other processes' releases are seen only by polling."""

    @property
    def perform_within(self) -> Callable[[Any, Sequence[Op]], Any] | None:
        """Performs ops in the transaction of a connection or session that the caller gives, with which they commit or
        roll back; None if this store cannot."""

    def listen(self, on_hint: OnHint) -> None:
        """From now on `on_hint` gets each key that is hinted to this client. Hints may be lost, never invented."""

    def forked(self) -> None:
        """Called in the child after a fork: takes a new client id and leaves the parent's connections alone."""


class Store(StoreBase, Protocol):
    """A store for threads. Every method may be called from any thread."""

    def perform(self, ops: Sequence[Op]) -> Answers:
        """One reply per op, in order. Raises Unanswered if it may have happened, StoreUnavailable if it did not; and,
        before anything is performed, InvalidInput if an op is not meant for its key (`kinds.check_ops`)."""

    def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """Entries whose stored key begins with prefix and is greater than `after`, in key order, at most `limit`."""

    def check(self) -> list[Finding]:
        """Reachable? Clock? Settings that break a promise? Raises only StoreError."""

    def close(self) -> None:
        """Closes all connections; safe to call twice."""


class AsyncStore(StoreBase, Protocol):
    """A store for one event loop. What perform returns is complete even if nobody awaits it any more."""

    portion: int  # so many ops are sent at once, without waiting for more of the same turn of the loop

    def perform(self, ops: Sequence[Op]) -> Awaitable[Answers]:
        """As that of a Store; whatever it raises, it raises to who awaits it."""

    async def scan(self, prefix: str, after: str, limit: int) -> list[Entry]: ...

    async def check(self) -> list[Finding]: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the stores of a URL scheme can do, and need: all that may be known of one before it is opened."""

    module: str = ""  # of this folder; it has open_blocking(url, **) and open_async(url, **)
    extra: str = ""  # of solely, which installs what it needs
    packages: tuple[str, ...] = ()  # whose versions matter
    shared: bool = True  # all processes that are given the URL see the same entries
    embedded_file: bool = False  # the URL names a file on this host
    sql_dialect: str = ""  # in which applications can keep tables in a database of this scheme
    logs_in: bool = False  # takes `credentials`: logins that change
    has_schema: bool = False  # somebody may have to migrate it
    audits: bool = False  # keeps the audit log itself


_REDIS = Capabilities("redis", "redis", ("redis", "hiredis"), logs_in=True)
_POSTGRES = Capabilities("postgres", "postgres", ("psycopg",), sql_dialect="postgres", has_schema=True, logs_in=True)
_MONGO = Capabilities("mongo", "mongo", ("pymongo",), logs_in=True)
_HTTP = Capabilities("http", "http", ("httpx2",), audits=True)

SCHEMES: dict[str, Capabilities] = {
    "memory": Capabilities("memory", shared=False),
    "sqlite": Capabilities("sqlite", embedded_file=True, sql_dialect="sqlite"),
    "redis": _REDIS,
    "rediss": _REDIS,
    "unix": _REDIS,
    "redis+sentinel": _REDIS,
    "redis+cluster": _REDIS,
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "mongodb": _MONGO,
    "mongodb+srv": _MONGO,
    "http": _HTTP,
    "https": _HTTP,
}
_UNKNOWN = Capabilities()


def capabilities(url: str) -> Capabilities:
    """What a store of this URL can do; of an unknown scheme nothing, since only opening it raises UnknownScheme."""
    return SCHEMES.get(split_url(str(url)).scheme, _UNKNOWN)


def open_store(
    url: str, *, clock: Clock | None = None, timeout: float = 2.0, credentials: Credentials | None = None
) -> Store:
    """The blocking store that serves this URL; UnknownScheme or MissingExtra, with what to do, if there is none."""
    store: Store = _module(url).open_blocking(url, clock=clock, timeout=timeout, **_login(url, credentials))
    return store


def open_async_store(
    url: str, *, clock: Clock | None = None, timeout: float = 2.0, credentials: Credentials | None = None
) -> AsyncStore:
    """The asyncio store that serves this URL; UnknownScheme or MissingExtra, with what to do, if there is none."""
    store: AsyncStore = _module(url).open_async(url, clock=clock, timeout=timeout, **_login(url, credentials))
    return store


def _login(url: str, credentials: Credentials | None) -> dict[str, Logins]:
    """The logins as an argument, since only some stores take it."""
    logins = open_logins(url, credentials)
    return {} if logins is None else {"logins": logins}


def open_logins(url: str, credentials: Credentials | None) -> Logins | None:
    """The logins of a provider, for all stores that are opened with this URL; None if none is given.

    Raises InvalidInput if such a store takes none, or the URL has a password as well.
    """
    if not credentials:
        return None
    found, parts = capabilities(url), split_url(str(url))
    if not found.logs_in:
        raise InvalidInput(f"{parts.scheme}:// does not take credentials; Redis, PostgreSQL and MongoDB do")
    if ":" in parts.netloc.rpartition("@")[0]:
        raise InvalidInput("the URL has a password, and credentials are given, too; give one of them")
    from ..credential_sources import logins_of  # here, as few programs have logins that change

    return logins_of(credentials, found.module)


def _module(url: str) -> Any:
    found, scheme = capabilities(url), split_url(str(url)).scheme
    if not found.module:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        shown = f"{scheme}://…" if scheme else "a URL without a scheme"  # the rest may hold a password
        raise UnknownScheme(f"no store serves {shown}; the URL must begin with one of {known}")
    try:
        return import_module(f"{__name__}.{found.module}")
    except ImportError as error:
        if not found.extra:
            raise
        raise missing_extra(f"{scheme}://", error.name, found.extra) from error
