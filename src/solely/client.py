"""Client and AsyncClient: the public API, with the same names; the one blocks, the other is awaited."""

from __future__ import annotations

import contextvars
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from .breakers.methods import AsyncBreakers, Breakers
from .cache import Cache
from .claims.flights import Flights
from .claims.methods import AsyncClaims, Claims
from .credentials import Credentials, Logins
from .dead_letters.methods import AsyncDeadLetterGroups, DeadLetterGroups
from .drivers.blocking import BlockingDriver
from .drivers.permitted import Check, permitted
from .drivers.retrying import ONE_TRY
from .errors import InvalidInput
from .events import Hook, combine
from .explanations.methods import AsyncExplaining, Explaining
from .flow import Flow
from .folder import data_folder
from .leases.context import Context
from .leases.keeper import Keeper, keep_renewing, keep_watching
from .limits.methods import AsyncLimits, Limits
from .locks.methods import AsyncLocks, Locks
from .marks.methods import AsyncMarks, Marks
from .model import Finding
from .queues.methods import AsyncQueues, Queues
from .reservations.methods import AsyncReservations, Reservations
from .resilience.breaker import Breaker
from .rules import COMPENSATE, Seconds, seconds
from .schedules.methods import AsyncSchedules, Schedules
from .stores import AsyncStore, Clock, Store, open_async_store, open_logins, open_store
from .transactions.methods import AsyncTransactions, Transactions
from .watermarks.methods import AsyncWatermarks, Watermarks

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
S = TypeVar("S")
OnOutage = Literal["raise", "proceed"]
_KEEPERS: dict[str, Callable[[Keeper], Flow[None]]] = {"renewing": keep_renewing, "watching": keep_watching}

_clients: weakref.WeakSet[Client | AsyncClient] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def default_url() -> str:
    """SOLELY_URL, or else a SQLite file in the user's data folder, which is created if it does not exist."""
    url = os.environ.get("SOLELY_URL")
    if url:
        return url
    return f"sqlite:///{data_folder() / 'solely.db'}"


def _opened(
    opens: Callable[..., S], url: str | None, credentials: Credentials | None, **options: Any
) -> tuple[S, Logins | None]:
    """The store that is given, or else as SOLELY_URL and SOLELY_CREDENTIALS name it; and the logins that were made for
    it, which its client closes."""
    if url is None:
        url, credentials = default_url(), credentials or os.environ.get("SOLELY_CREDENTIALS")
    logins = open_logins(url, credentials)
    own = None if logins is credentials else logins
    try:
        return opens(url, credentials=logins, **options), own
    except BaseException:
        if own is not None:
            own.close()
        raise


def _timeout(timeout: Seconds) -> float:
    return seconds("timeout", timeout, least=0.01, most=3600.0)


def _proceeds(on_outage: OnOutage) -> bool:
    if on_outage not in ("raise", "proceed"):
        raise InvalidInput(f"on_outage must be 'raise' or 'proceed', not {on_outage!r}")
    return on_outage == "proceed"


def _cache(cache: Cache | bool) -> Cache | None:
    return cache if isinstance(cache, Cache) else Cache() if cache else None


class Client(
    Locks,
    Marks,
    Claims,
    Reservations,
    Limits,
    Watermarks,
    Queues,
    DeadLetterGroups,
    Schedules,
    Breakers,
    Explaining,
    Transactions,
):
    """Makes work happen once, from threads. Usable from any number of threads; close it, or use it in `with`.

    A call that gets no answer from the store raises StoreUnavailable after `timeout`, retries and undo included.
    `cache` remembers finished marks and claims locally; `hooks` receive every event. With `on_outage="proceed"`, calls
    proceed without an unreachable store, as if the caller were the first; each is counted in `failed_open`, logged and
    reported to the hooks. Queues and schedules never proceed: work would be lost, or done by all. With a `breaker`,
    calls raise StoreUnavailable at once, for a while, after the store was unreachable several times. `credentials`
    provides logins that change, for Redis, PostgreSQL and MongoDB.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout: Seconds = 5.0,
        cache: Cache | bool = False,
        hooks: Iterable[Hook] = (),
        on_outage: OnOutage = "raise",
        breaker: Breaker | None = None,
        credentials: Credentials | None = None,
        clock: Clock | None = None,
        store: Store | None = None,
    ) -> None:
        limit, hook, proceed = _timeout(timeout), combine(hooks), _proceeds(on_outage)
        self._logins: Logins | None = None
        if store is not None:
            self._store = store
        else:
            self._store, self._logins = _opened(open_store, url, credentials, clock=clock, timeout=limit * ONE_TRY)
        self._driver = BlockingDriver(self._store, timeout=limit, hook=hook)
        self._context = Context(
            self._store,
            wake=self._wake,
            hook=hook,
            cache=_cache(cache),
            start_keeping=self._start_keeping,
            proceed=proceed,
            breaker=breaker,
        )
        self._flights = Flights(self._context)
        self._run = self._driver.run
        self._starting = threading.Lock()
        self._keeping: set[str] = set()  # names of the keeper threads that run
        _clients.add(self)

    @property
    def failed_open(self) -> int:
        """How many calls of this client proceeded without the store."""
        return self._context.failed_open

    def check(self) -> list[Finding]:
        """Checks the store: reachability, clock, settings that break a guarantee."""
        return self._store.check()

    def close(self) -> None:
        """Releases all leases and closes all connections; safe to call twice."""
        if not self._driver.closed:
            self._context.keeper.close()
            self._driver.close(self._context.closing())
            self._context.callbacks.close(COMPENSATE)
            self._store.close()
            if self._logins is not None:
                self._logins.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close()

    def _wake(self, key: str) -> None:
        self._driver.waiters.wake(key)

    def _start_keeping(self) -> None:
        with self._starting:  # several threads may call this at once
            for name in _KEEPERS.keys() - self._keeping:
                self._keeping.add(name)
                threading.Thread(target=self._keep, args=(name,), name=f"solely-{name}", daemon=True).start()

    def _keep(self, name: str) -> None:
        keeper = self._context.keeper
        try:
            self._run(_KEEPERS[name](keeper))
        finally:
            if not keeper.closed:
                self._keeping.discard(name)
                self._context.keeper_ended()

    def _forked(self) -> None:
        self._starting = threading.Lock()
        self._keeping = set()
        self._driver.forked()
        self._context.forked()
        self._flights.forked()


class AsyncClient(
    AsyncLocks,
    AsyncMarks,
    AsyncClaims,
    AsyncReservations,
    AsyncLimits,
    AsyncWatermarks,
    AsyncQueues,
    AsyncDeadLetterGroups,
    AsyncSchedules,
    AsyncBreakers,
    AsyncExplaining,
    AsyncTransactions,
):
    """Makes work happen once, from asyncio. Belongs to one event loop; close it, or use it in `async with`.

    A call that gets no answer from the store raises StoreUnavailable after `timeout`, retries and undo included.
    `cache` remembers finished marks and claims locally; `hooks` receive every event. With `on_outage="proceed"`, calls
    proceed without an unreachable store, as if the caller were the first; each is counted in `failed_open`, logged and
    reported to the hooks. Queues and schedules never proceed: work would be lost, or done by all. With a `breaker`,
    calls raise StoreUnavailable at once, for a while, after the store was unreachable several times. `credentials`
    provides logins that change, for Redis, PostgreSQL and MongoDB.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout: Seconds = 5.0,
        cache: Cache | bool = False,
        hooks: Iterable[Hook] = (),
        on_outage: OnOutage = "raise",
        breaker: Breaker | None = None,
        credentials: Credentials | None = None,
        clock: Clock | None = None,
        store: AsyncStore | None = None,
    ) -> None:
        from .drivers.aio import AsyncDriver  # here, as threads do not need asyncio, which takes long to import

        limit, hook, proceed = _timeout(timeout), combine(hooks), _proceeds(on_outage)
        self._logins: Logins | None = None
        if store is not None:
            self._store = store
        else:
            self._store, self._logins = _opened(
                open_async_store, url, credentials, clock=clock, timeout=limit * ONE_TRY
            )
        self._driver = AsyncDriver(self._store, timeout=limit, hook=hook)
        self._context = Context(
            self._store,
            wake=self._wake,
            hook=hook,
            cache=_cache(cache),
            start_keeping=self._start_keeping,
            caller=self._driver.current_task,
            proceed=proceed,
            breaker=breaker,
        )
        self._flights = Flights(self._context)
        self._run = self._driver.run
        self._keepers: dict[str, asyncio.Task[None]] = {}
        _clients.add(self)

    @property
    def failed_open(self) -> int:
        """How many calls of this client proceeded without the store."""
        return self._context.failed_open

    async def check(self) -> list[Finding]:
        """Checks the store: reachability, clock, settings that break a guarantee."""
        return await self._store.check()

    async def close(self) -> None:
        """Releases all leases and closes all connections; safe to call twice."""
        import asyncio

        from .drivers.aio import finished

        if not self._driver.closed:
            await finished(asyncio.ensure_future(self._close()))

    async def _close(self) -> None:
        import asyncio

        self._context.keeper.close()
        await self._driver.close(self._context.closing())
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.gather(*self._keepers.values(), return_exceptions=True)
        await self._store.close()
        if self._logins is not None:
            await asyncio.to_thread(self._logins.close)  # may wait for a request to the provider

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        await self.close()

    def _wake(self, key: str) -> None:
        self._driver.on_hint(key)

    def _start_keeping(self) -> None:
        import asyncio

        for name, loop in _KEEPERS.items():
            keeper = self._keepers.get(name)
            if keeper is None or keeper.done():
                work = self._run(loop(self._context.keeper))  # for all callers: not in the context of this one
                self._keepers[name] = keeper = asyncio.get_running_loop().create_task(
                    work, context=contextvars.Context()
                )
                keeper.add_done_callback(self._keeper_ended)

    def _keeper_ended(self, keeper: asyncio.Task[None]) -> None:
        if not self._context.keeper.closed:
            self._context.keeper_ended()

    def _forked(self) -> None:
        self._keepers = {}  # of the parent's loop
        self._driver.forked()
        self._context.forked()
        self._flights.forked()


def restricted(client: AsyncClient, check: Check) -> AsyncClient:
    """A view of the client, with the same leases and connections, that calls `check` for each op before it is sent.

    If `check` raises, the call raises that error and sends nothing. Closing the view closes the client.
    """
    run, view = client._run, copy(client)

    def checked(flow: Flow[T]) -> Coroutine[Any, Any, T]:
        return run(permitted(flow, check))

    view._run = checked
    return view
