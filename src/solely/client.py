"""Client and AsyncClient: the public face. The same names; the one blocks, the other is awaited."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Generator, Iterable
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar

from .cache import Cache
from .core import Core, keys_of
from .drivers.aio import AsyncDriver, finished
from .drivers.blocking import BlockingDriver
from .drivers.trying import ONE_TRY
from .errors import Busy, InvalidInput
from .events import Hook, combine
from .flows.hold import Hold
from .flows.renewal import keep_renewing, keep_watching
from .lease import AsyncLease, AsyncLeaseSet, Lease, LeaseSet
from .model import Finding
from .rules import Seconds, seconds, stored_key, ttl_seconds
from .stores import AsyncStore, Clock, Store, open_async_store, open_store
from .within import DAY, AsyncWithin, Within

log = logging.getLogger("solely")

T = TypeVar("T", bound=AsyncLease | AsyncLeaseSet)
OnLost = Literal["flag", "cancel"] | Callable[[], None]

_clients: weakref.WeakSet[Client | AsyncClient] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def default_url() -> str:
    """SOLELY_URL, or an embedded SQLite file in the user's data folder, which is made if need be."""
    url = os.environ.get("SOLELY_URL")
    if url:
        return url
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "solely"
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / 'solely.db'}"


def _timeout(timeout: Seconds) -> float:
    return seconds("timeout", timeout, least=0.01, most=3600.0)


def _cache(cache: Cache | bool) -> Cache | None:
    return cache if isinstance(cache, Cache) else Cache() if cache else None


def _most(max_hold: Seconds) -> float:
    return seconds("max_hold", max_hold, least=0.001, most=math.inf)


def _tell(on_lost: Callable[[], None], hold: Hold) -> None:
    try:
        on_lost()
    except Exception:
        log.exception("on_lost_failed", extra={"key": hold.key})


def _told(on_lost: Any, *, cancels: bool) -> Callable[[Hold], None] | None:
    if callable(on_lost):
        return lambda hold: _tell(on_lost, hold)
    if on_lost == "flag" or (on_lost == "cancel" and cancels):
        return None
    hint = "; a thread cannot be cancelled: look at lease.lost, or give a function" if on_lost == "cancel" else ""
    raise InvalidInput(f"on_lost must be {'cancel, ' if cancels else ''}flag or a function, not {on_lost!r}{hint}")


class Client:
    """Makes work happen once, from threads. Usable from any number of threads; close it, or use it in `with`.

    `timeout` is how long an unanswered store is asked again before StoreUnavailable; `cache` remembers finished marks
    locally; `hooks` are told every event.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout: Seconds = 5.0,
        cache: Cache | bool = False,
        hooks: Iterable[Hook] = (),
        clock: Clock | None = None,
        store: Store | None = None,
    ) -> None:
        patience = _timeout(timeout)
        self._store = store or open_store(url or default_url(), clock=clock, timeout=patience * ONE_TRY)
        hook = combine(hooks)
        self._driver = BlockingDriver(self._store, timeout=patience, hook=hook)
        self._core = Core(
            self._store, ring=self._ring, hook=hook, cache=_cache(cache), start_keeping=self._start_keeping
        )
        self._run = self._driver.run
        _clients.add(self)

    # -- lock

    def lock(
        self,
        key: str,
        *,
        ttl: Seconds = 30.0,
        wait: Seconds = 10.0,
        purpose: str = "",
        delay: Seconds = 0.0,
        renew: bool = True,
        max_hold: Seconds | None = None,
        on_lost: OnLost = "flag",
    ) -> Lease:
        """A lease of the key, taken in the order of arrival within `wait`; raises Busy, which says who has it.

        It is renewed at half its ttl until released, at most for `max_hold`. Should it expire, the key stays closed
        for `delay` seconds more.
        """
        stored = stored_key("lock", key)
        terms = self._core.terms(ttl, wait, delay)
        return self._run(self._core.taking(stored, terms, self._leased(renew, max_hold, on_lost), purpose))

    def try_lock(
        self,
        key: str,
        *,
        ttl: Seconds = 30.0,
        purpose: str = "",
        delay: Seconds = 0.0,
        renew: bool = True,
        max_hold: Seconds | None = None,
        on_lost: OnLost = "flag",
    ) -> Lease | None:
        """A lease of the key, or None if somebody has it; does not wait."""
        stored = stored_key("lock", key)
        terms = self._core.terms(ttl, 0.0, delay)
        leased = self._leased(renew, max_hold, on_lost)
        try:
            return self._run(self._core.taking(stored, terms, leased, purpose))
        except Busy:
            return None

    def lock_all(
        self,
        keys: Iterable[str],
        *,
        ttl: Seconds = 30.0,
        wait: Seconds = 10.0,
        purpose: str = "",
        delay: Seconds = 0.0,
        renew: bool = True,
        max_hold: Seconds | None = None,
        on_lost: OnLost = "flag",
    ) -> LeaseSet:
        """Leases of all keys or of none; callers whose sets overlap do not deadlock."""
        stored = keys_of("lock", keys)
        terms = self._core.terms(ttl, wait, delay)
        leased = self._leased(renew, max_hold, on_lost)
        return LeaseSet(self._run(self._core.taking_all(stored, terms, leased, purpose)))

    def resume(
        self, token: str, *, renew: bool = True, max_hold: Seconds | None = None, on_lost: OnLost = "flag"
    ) -> Lease:
        """Goes on with a lease that another process took and handed over; raises Busy if it is no longer held."""
        return self._run(self._core.resuming(token, self._leased(renew, max_hold, on_lost)))

    def _leased(self, renew: bool, max_hold: Seconds | None, on_lost: OnLost) -> Callable[[Hold], Lease]:
        told = None if on_lost == "flag" else _told(on_lost, cancels=False)
        most = math.inf if max_hold is None else _most(max_hold)

        def leased(hold: Hold) -> Lease:
            if told is not None:
                hold.on_lost = told
            hold.keep(renew, most)
            return self._core.kept(Lease(hold, self._core, self._run))

        return leased

    # -- dedup

    def first(self, key: str, *, ttl: Seconds = DAY) -> bool:
        """True for exactly one caller per `ttl`, across all processes: the one that should do the work."""
        stored = stored_key("mark", key)
        if self._core.known(stored):
            return False
        return self._run(self._core.first(stored, ttl_seconds(ttl)))

    def first_many(self, keys: Iterable[str], *, ttl: Seconds = DAY) -> list[bool]:
        """`first` for many keys in few round trips; one answer per key, in order."""
        return self._run(self._core.first_many(keys_of("mark", keys), ttl_seconds(ttl)))

    def seen(self, key: str) -> bool:
        """True if the key is marked; marks nothing."""
        stored = stored_key("mark", key)
        return self._core.known(stored) or self._run(self._core.seen(stored))

    def mark(self, key: str, *, ttl: Seconds = DAY) -> None:
        """Marks the key as seen, whoever was first: for work that is recorded after it was done."""
        self.first(key, ttl=ttl)

    def forget(self, key: str) -> bool:
        """Removes the mark, so that the next caller is first again; False if there was none."""
        return self._run(self._core.forget(stored_key("mark", key)))

    def within(self, connection: Any) -> Within:
        """`first`, `first_many`, `seen`, `mark` and `forget` inside the transaction of your own connection.

        What they mark commits or rolls back with your rows. `connection`: psycopg's Connection, sqlite3's Connection or
        pymongo's ClientSession, to the database of this client's store; InvalidInput if the store has no transactions.
        """
        return Within(self._store, connection)

    # -- the client itself

    def check(self) -> list[Finding]:
        """What is right and wrong with the store: reachability, clock, settings that break a promise."""
        return self._store.check()

    def close(self) -> None:
        """Lets go of all leases and connections; safe to call twice."""
        if not self._driver.closed:
            self._core.book.close()
            self._driver.close(self._core.closing())
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close()

    def _ring(self, line: str) -> None:
        self._driver.lines.tell(line)

    def _start_keeping(self) -> None:
        for loop in (keep_renewing, keep_watching):
            name = f"solely-{loop.__name__.removeprefix('keep_')}"
            threading.Thread(target=self._run, args=(loop(self._core.book),), name=name, daemon=True).start()

    def _forked(self) -> None:
        self._driver.forked()
        self._core.forked()


class Pending(Generic[T]):
    """A lease being taken: `await` it, or use it in `async with`."""

    def __init__(self, take: Callable[[], Awaitable[T]]) -> None:
        self._take = take

    def __await__(self) -> Generator[Any, None, T]:
        return self._take().__await__()

    async def __aenter__(self) -> T:
        lease = self._lease = await self._take()
        lease.guard()
        return lease

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> Awaitable[None]:
        return self._lease.__aexit__(kind, error, trace)


class AsyncClient:
    """Makes work happen once, from asyncio. Belongs to one event loop; close it, or use it in `async with`.

    `timeout` is how long an unanswered store is asked again before StoreUnavailable; `cache` remembers finished marks
    locally; `hooks` are told every event.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout: Seconds = 5.0,
        cache: Cache | bool = False,
        hooks: Iterable[Hook] = (),
        clock: Clock | None = None,
        store: AsyncStore | None = None,
    ) -> None:
        patience = _timeout(timeout)
        self._store = store or open_async_store(url or default_url(), clock=clock, timeout=patience * ONE_TRY)
        hook = combine(hooks)
        self._driver = AsyncDriver(self._store, timeout=patience, hook=hook)
        self._core = Core(
            self._store, ring=self._ring, hook=hook, cache=_cache(cache), start_keeping=self._start_keeping
        )
        self._run = self._driver.run
        self._keepers: list[asyncio.Task[None]] = []
        _clients.add(self)

    # -- lock

    def lock(
        self,
        key: str,
        *,
        ttl: Seconds = 30.0,
        wait: Seconds = 10.0,
        purpose: str = "",
        delay: Seconds = 0.0,
        renew: bool = True,
        max_hold: Seconds | None = None,
        on_lost: OnLost = "cancel",
    ) -> Pending[AsyncLease]:
        """A lease of the key, taken in the order of arrival within `wait`; raises Busy, which says who has it.

        Use it in `async with`, or await it. It is renewed at half its ttl until released, at most for `max_hold`.
        Should it expire, the key stays closed for `delay` seconds more.
        """
        stored = stored_key("lock", key)
        terms = self._core.terms(ttl, wait, delay)
        leased = self._leased(renew, max_hold, on_lost)
        return Pending(lambda: self._run(self._core.taking(stored, terms, leased, purpose)))

    async def try_lock(
        self,
        key: str,
        *,
        ttl: Seconds = 30.0,
        purpose: str = "",
        delay: Seconds = 0.0,
        renew: bool = True,
        max_hold: Seconds | None = None,
        on_lost: OnLost = "cancel",
    ) -> AsyncLease | None:
        """A lease of the key, or None if somebody has it; does not wait."""
        stored = stored_key("lock", key)
        terms = self._core.terms(ttl, 0.0, delay)
        leased = self._leased(renew, max_hold, on_lost)
        try:
            return await self._run(self._core.taking(stored, terms, leased, purpose))
        except Busy:
            return None

    def lock_all(
        self,
        keys: Iterable[str],
        *,
        ttl: Seconds = 30.0,
        wait: Seconds = 10.0,
        purpose: str = "",
        delay: Seconds = 0.0,
        renew: bool = True,
        max_hold: Seconds | None = None,
        on_lost: OnLost = "cancel",
    ) -> Pending[AsyncLeaseSet]:
        """Leases of all keys or of none; callers whose sets overlap do not deadlock."""
        stored = keys_of("lock", keys)
        terms = self._core.terms(ttl, wait, delay)
        leased = self._leased(renew, max_hold, on_lost)

        async def take() -> AsyncLeaseSet:
            return AsyncLeaseSet(await self._run(self._core.taking_all(stored, terms, leased, purpose)))

        return Pending(take)

    async def resume(
        self, token: str, *, renew: bool = True, max_hold: Seconds | None = None, on_lost: OnLost = "cancel"
    ) -> AsyncLease:
        """Goes on with a lease that another process took and handed over; raises Busy if it is no longer held."""
        return await self._run(self._core.resuming(token, self._leased(renew, max_hold, on_lost)))

    def _leased(self, renew: bool, max_hold: Seconds | None, on_lost: OnLost) -> Callable[[Hold], AsyncLease]:
        told = _told(on_lost, cancels=True)
        most = math.inf if max_hold is None else _most(max_hold)

        def leased(hold: Hold) -> AsyncLease:
            if told is not None:
                hold.on_lost = told
            hold.keep(renew, most)
            return self._core.kept(AsyncLease(hold, self._core, self._run, cancel=on_lost == "cancel"))

        return leased

    # -- dedup

    async def first(self, key: str, *, ttl: Seconds = DAY) -> bool:
        """True for exactly one caller per `ttl`, across all processes: the one that should do the work."""
        stored = stored_key("mark", key)
        if self._core.known(stored):
            return False
        return await self._run(self._core.first(stored, ttl_seconds(ttl)))

    async def first_many(self, keys: Iterable[str], *, ttl: Seconds = DAY) -> list[bool]:
        """`first` for many keys in few round trips; one answer per key, in order."""
        return await self._run(self._core.first_many(keys_of("mark", keys), ttl_seconds(ttl)))

    async def seen(self, key: str) -> bool:
        """True if the key is marked; marks nothing."""
        stored = stored_key("mark", key)
        return self._core.known(stored) or await self._run(self._core.seen(stored))

    async def mark(self, key: str, *, ttl: Seconds = DAY) -> None:
        """Marks the key as seen, whoever was first: for work that is recorded after it was done."""
        await self.first(key, ttl=ttl)

    async def forget(self, key: str) -> bool:
        """Removes the mark, so that the next caller is first again; False if there was none."""
        return await self._run(self._core.forget(stored_key("mark", key)))

    def within(self, connection: Any) -> AsyncWithin:
        """`first`, `first_many`, `seen`, `mark` and `forget`, awaited, inside the transaction of your own connection.

        What they mark commits or rolls back with your rows. `connection`: psycopg's AsyncConnection, pymongo's
        AsyncClientSession or sqlite3's Connection, to the database of this client's store; InvalidInput if the store
        has no transactions.
        """
        return AsyncWithin(self._store, connection)

    # -- the client itself

    async def check(self) -> list[Finding]:
        """What is right and wrong with the store: reachability, clock, settings that break a promise."""
        return await self._store.check()

    async def close(self) -> None:
        """Lets go of all leases and connections; safe to call twice."""
        if not self._driver.closed:
            await finished(asyncio.ensure_future(self._close()))

    async def _close(self) -> None:
        self._core.book.close()
        await self._driver.close(self._core.closing())
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        await self.close()

    def _ring(self, line: str) -> None:
        self._driver.tell(line)

    def _start_keeping(self) -> None:
        for loop in (keep_renewing, keep_watching):
            self._keepers.append(asyncio.ensure_future(self._run(loop(self._core.book))))

    def _forked(self) -> None:
        self._keepers = []  # of the parent's loop
        self._driver.forked()
        self._core.forked()
