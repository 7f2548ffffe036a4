"""Service: what every handler stands on: the client, its store, who may do what, what is counted, told and kept."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from ..apps import has, module_of
from ..client import AsyncClient, restricted
from ..data import Database, migrate, open_database
from ..dead_letters.flow import queue_of
from ..dead_letters.handle import AsyncDeadLetters
from ..drivers.trying import ONE_TRY
from ..errors import InvalidInput, SolelyError
from ..events import Hook
from ..names import owner_of_queue
from ..stores import AsyncStore, open_async_store
from ..urls import split_url
from .audit import Audit
from .connections import Connections
from .dashboard.desk import Desk
from .feed import Feed
from .health import Readiness, data_level, store_level
from .jobs import keep_doing
from .logouts import Logouts
from .metrics import Metrics, timed
from .problems import TOO_MANY, Problem
from .reserved import SERVICE, clearing, general, only
from .rotation import keep_reading
from .routes import Route
from .security import Hosts, Sessions, Tokens
from .settings import Settings
from .slots import Slots

if TYPE_CHECKING:
    from ..apps.app import Application
    from .telemetry import Telemetry

log = structlog.get_logger("solely.service")

CLOSING = 15.0  # seconds for an application to stop, or the store to close: some tries at a store that is away


class Service:
    """One worker's share of the service. Open it on the event loop that serves; close it when that ends.

    `shared` is a folder that it has in common with the other workers, if there are any.
    """

    once: AsyncClient  # of the general API: writes no reserved name
    clearing: AsyncClient  # for admins, whose reason is audited: may also clear what applications keep
    own: AsyncClient  # for what the service itself keeps
    store: AsyncStore  # refuses nothing: who asks it for others checks first
    data: Database  # of applications; opened only if one that is mounted has migrations

    def __init__(self, settings: Settings, *, shared: str = "") -> None:
        self.settings = settings
        self.tokens = Tokens(settings.token_lines())
        self.sessions = Sessions((settings.session_secret or secrets.token_hex(32)).encode(), self.tokens)
        self.hosts = Hosts([settings.host, *settings.allowed_hosts])
        self.metrics = Metrics(shared)
        self.connections = Connections(settings, self.metrics)
        self.feed = Feed()
        self.readiness = Readiness()
        self.hooks: list[Hook] = [self.metrics, self.feed]  # told every event
        self.telemetry: Telemetry | None = None
        self.waiters = Waiters(settings.max_waiters)
        self.holds = Holds(settings.max_holds)
        self.slots = Slots(wait=settings.store_timeout, work=settings.store_timeout)
        self.stopping = asyncio.Event()
        self.apps: dict[str, Application[Any]] = {}  # those that are mounted, by name
        self.routes: tuple[Route, ...] = ()  # all that are mounted
        self.openapi: dict[str, Any] = {}  # their document, once it was asked for
        self.desk = Desk(self.metrics)  # what the dashboard shows and can do
        self.companions: list[Callable[[Service], Coroutine[Any, Any, None]]] = [  # run beside the service, as tasks
            lambda service: service.desk.history.keep(),
            keep_reading,
        ]
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: list[Callable[[], Coroutine[Any, Any, None]]] = []  # of what is open, in the order of opening

    async def open(self) -> None:
        """Opens the store, and starts the applications; what keeps them from it is raised here, and nothing is open."""
        try:
            self._open_store()
            await self._start_apps()
        except BaseException:
            await self.close()
            raise
        for companion in self.companions:
            self.run(companion(self))

    def _open_store(self) -> None:
        settings = self.settings
        if settings.telemetry:
            from .telemetry import Telemetry  # an extra

            self.telemetry = Telemetry()
            self.hooks.append(self.telemetry)
        self._store_url = _shareable(settings.store_url)
        self.store = timed(self.another_store(), self.metrics)
        self._client = AsyncClient(store=self.store, timeout=settings.store_timeout, hooks=self.hooks)
        self.once, self.clearing = restricted(self._client, general), restricted(self._client, clearing)
        self.own = restricted(self._client, only(SERVICE))
        self._closing.append(self._client.close)
        self.audit = Audit(self.store)
        self.logouts = Logouts(self.own)
        self.readiness.checks["store"] = partial(store_level, self.once, self.store)

    async def _start_apps(self) -> None:
        keeping = [name for name in self.apps if has(name, "migrations")]
        if keeping:
            self.data = open_database(self.settings.database_url, timeout=self.settings.store_timeout)
            self._closing.append(self.data.close)
            self.readiness.checks["data"] = partial(data_level, self.data)
        for name in keeping:
            await migrate(self.data, name, module_of(name))
        for name, app in self.apps.items():
            app.once = restricted(self._client, only(name))
            try:
                await app.start()
            except Exception as error:
                raise SolelyError(f"the application {name} did not start: {error}") from error
            self._closing.append(app.stop)
        for app in self.apps.values():
            for job in app.jobs():
                self.run(keep_doing(self, app, job))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs it beside the service, at most until that closes; should it fail, the log says so."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_ended)

    def letters(self, group: str) -> AsyncDeadLetters:
        """The dead letters of the group, for who has them run again here: those of an application by its own client."""
        app = self.apps.get(owner_of_queue(queue_of(group)))
        return (self.once if app is None else app.once).dead_letters(group)

    def another_store(self) -> AsyncStore:
        """One more handle on the same store, with a name of its own under which it is hinted what it waits for."""
        return open_async_store(self._store_url, timeout=self.settings.store_timeout * ONE_TRY)

    def stop(self) -> None:
        """Grants nothing more; those who wait or follow are told so."""
        self.stopping.set()
        self.feed.close()

    async def close(self) -> None:
        """Stops the applications and lets go of the store. Leases that were handed out stay with who has the tokens."""
        self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._closing:
            close = self._closing.pop()
            try:
                async with asyncio.timeout(CLOSING):
                    await close()
            except Exception:  # what else is open is closed all the same
                log.exception("not_closed", what=getattr(close, "__qualname__", str(close)))

    def ttl(self, wanted: float) -> float:
        """The lease's ttl if it is within the cap; else InvalidInput."""
        return _within("ttl", wanted, self.settings.max_ttl)

    def wait(self, wanted: float) -> float:
        """The wait if it is within the cap; else InvalidInput."""
        return _within("wait", wanted, self.settings.max_wait)


def _shareable(url: str) -> str:
    """The URL of a store of which one can have more than one handle: memory needs a name for that."""
    parts = split_url(url)
    nameless = parts.scheme == "memory" and not parts.netloc
    return f"memory://{secrets.token_hex(8)}?{parts.query}" if nameless else url


def _ended(companion: asyncio.Task[None]) -> None:
    if not companion.cancelled() and (error := companion.exception()) is not None:
        log.error("companion_failed", companion=companion.get_name(), exc_info=error)


def _within(name: str, wanted: float, most: float) -> float:
    if wanted > most:
        raise InvalidInput(f"{name}={wanted:g} is over the {most:g} seconds that this service allows (max_{name})")
    return wanted


class Waiters:
    """How many requests of each client wait in this worker, which is bounded."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.now: Counter[str] = Counter()

    def full(self, client: str) -> bool:
        """True if this client may not wait more."""
        return self.now[client] >= self._most

    def enter(self, client: str) -> None:
        """One more request of this client waits; a Problem if there are too many."""
        if self.full(client):
            raise Problem(TOO_MANY, f"{self._most} requests of this client wait already (max_waiters)", again=1.0)
        self.now[client] += 1

    def leave(self, client: str) -> None:
        """It waits no more."""
        self.now[client] -= 1
        if not self.now[client]:
            del self.now[client]


class _Lease(NamedTuple):
    """When its key is open again at the latest, and for how long that is closed after the lease expired."""

    ends: float
    closed: float


class Holds:
    """How many leases of each client this worker handed out and has not seen end, which is bounded.

    A key that stays closed after its lease counts until it opens. A lease that is let go of by way of another worker
    counts here until its ttl is over: so this may refuse too early, and never counts too few.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._ends: dict[str, dict[str, _Lease]] = {}  # client → token → its lease
        self._asked: Counter[str] = Counter()  # client → leases that it asks for right now

    def check(self, client: str, more: int = 1) -> None:
        """A Problem if so many more would be too many."""
        room = self._most - self._asked[client] - more
        mine = self._ends.get(client, {})
        if len(mine) > room:
            now = time.monotonic()
            self._ends[client] = mine = {token: lease for token, lease in mine.items() if lease.ends > now}
        if len(mine) > room:
            text = f"this client holds {len(mine)} leases, and may hold {self._most} (max_holds)"
            raise Problem(TOO_MANY, text, again=1.0)

    @contextmanager
    def asking(self, client: str, more: int) -> Iterator[None]:
        """While so many more are asked for, they count: requests side by side are not granted more than one alone."""
        self.check(client, more)
        self._asked[client] += more
        try:
            yield
        finally:
            self._asked[client] -= more
            if not self._asked[client]:
                del self._asked[client]

    def add(self, client: str, token: str, ttl: float, delay: float = 0.0) -> None:
        """The client has this lease, at most for so long; also after it was renewed. If it expires, its key stays
        closed for `delay` more, as was said when it was taken."""
        mine = self._ends.setdefault(client, {})
        closed = max(delay, mine[token].closed if token in mine else 0.0)
        mine[token] = _Lease(time.monotonic() + ttl + closed, closed)

    def close(self, client: str, token: str, delay: float) -> None:
        """The client let go of it, and its key stays closed for `delay`."""
        self.remove(client, token)
        if delay > 0:
            self.add(client, token, delay)

    def remove(self, client: str, token: str) -> None:
        """The client let go of it."""
        mine = self._ends.get(client)
        if mine is not None and mine.pop(token, None) is not None and not mine:
            del self._ends[client]

    def count(self) -> int:
        """Leases of all clients, as far as known here."""
        now = time.monotonic()
        return sum(lease.ends > now for mine in self._ends.values() for lease in mine.values())
