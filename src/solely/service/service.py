"""Service: what every handler uses: the client and its store, tokens and sessions, metrics, events, quotas."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import structlog

from ..apps import has, module_of
from ..client import AsyncClient, restricted
from ..data import Database, migrate, open_database
from ..dead_letters.flow import queue_of
from ..dead_letters.handle import AsyncDeadLetters
from ..drivers.retrying import ONE_TRY
from ..errors import InvalidInput, SolelyError, StoreError
from ..events import Event, Hook, combine
from ..functions import coroutine_function
from ..names import owner_of_name, owner_of_queue
from ..ops import Op, Reply
from ..queues.worker import QueueWorker
from ..rules import duration_text, number_text
from ..stores import AsyncStore, capabilities, open_async_store, open_logins
from ..urls import split_url
from .announce import Announcements
from .attention import IN_THE_LOG, Attention
from .audit import AuditLog
from .connections import Connections
from .dashboard.state import DashboardState
from .feed import Feed
from .figures import Figure
from .history.journal import EventHistory
from .metrics import Metrics, timed
from .quotas import BodyQuota, Holds, ParseTurns, Slots, StrangerTurns, WaitQuota
from .readiness import Readiness, data_level, store_level
from .reserved_names import SERVICE, clearing, general, only
from .schedules import AppSchedules
from .security import Hosts, Principal, Tokens
from .sessions import Logouts, Sessions
from .settings import Settings
from .token_file import TokenFileWatch
from .visibility import Hides, check_read, visible
from .workers import AppWorkers

if TYPE_CHECKING:
    from .telemetry import Telemetry

log = structlog.get_logger("solely.service")

# Seconds, beside stop_timeout, for an application to stop, or the store to close: some tries at an unavailable store.
CLOSING = 15.0
JITTER = 0.2  # of the time between two runs of a job, so that workers which start together do not stay in step
# The label is not `job`: Prometheus gives that name to what it scrapes.
FAILURES = Figure("solely_job_failures", "Runs of applications' jobs that failed", ("app", "what"))


class EncodedDocument(NamedTuple):
    """A document as it is sent: as JSON and compressed, with its entity tag."""

    plain: bytes
    compressed: bytes
    tag: str


class Job(NamedTuple):
    """Work that each worker repeats about every `every` seconds; a failure is logged, and the job runs again."""

    name: str
    every: float
    work: Callable[[], Awaitable[object]]


class Mounted(Protocol):
    """What the service needs of an application that it runs; see `application.Application`."""

    once: AsyncClient

    @property
    def about(self) -> str: ...
    def jobs(self) -> Sequence[Job]: ...
    def upkeep(self) -> Sequence[Job]: ...
    def workers(self) -> Sequence[QueueWorker]: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def close(self) -> None: ...
    async def demo(self) -> None: ...
    def hidden_from(self, principal: Principal) -> Hides | None: ...
    async def attention(self) -> Sequence[Attention]: ...


class Service:
    """One worker's share of the service. Open it on the event loop that serves; close it when that ends.

    `shared` is a folder that all workers use, if there are several.
    """

    once: AsyncClient  # for the general API: cannot write reserved names
    clearing: AsyncClient  # for admin actions, which are audited: may also clear what applications store
    own: AsyncClient  # for what the service itself stores
    store: AsyncStore  # unrestricted: handlers check what they perform for callers
    data: Database  # of applications and of the history; opened only if one of them needs it

    def __init__(self, settings: Settings, *, shared: str = "") -> None:
        self.settings = settings
        self.tokens = Tokens(settings.token_lines())
        self.sessions = Sessions((settings.session_secret or secrets.token_hex(32)).encode(), self.tokens)
        self.hosts = Hosts([settings.host, *settings.allowed_hosts])
        self.metrics = Metrics(shared)
        self.announce = Announcements(self.metrics)
        self.connections = Connections(settings, self.metrics)
        self.feed = Feed()
        self.readiness = Readiness()
        self.history = EventHistory(self.metrics, keep=settings.history, most=settings.history_events)
        self.hooks: list[Hook] = [self.metrics, self.feed]  # called with every event
        if settings.history:
            self.hooks.append(self.history.recorder)
        self.telemetry: Telemetry | None = None
        self.waiters = WaitQuota(settings.max_waiters)
        self.holds = Holds(settings.max_holds)
        self.bodies = BodyQuota()
        self.strangers, self.parsing = StrangerTurns(), ParseTurns()
        self.slots = Slots(wait=settings.store_timeout, work=settings.store_timeout)
        self.stopping = asyncio.Event()
        self.apps: dict[str, Mounted] = {}  # mounted ones, by name
        self.openapi: dict[bool, dict[str, Any]] = {}  # the document, by whether tokens are required
        self.encoded_openapi: dict[bool, EncodedDocument] = {}
        self.dashboard = DashboardState(self.metrics)
        self.workers = AppWorkers(self.metrics, self.readiness, self.dashboard, settings.stop_timeout)
        self.failing: dict[tuple[str, str], str] = {}  # application and job → why its last run failed
        self.schedules = AppSchedules(settings.stop_timeout, self.failing)
        self.background: list[Callable[[Service], Coroutine[Any, Any, None]]] = [  # tasks that start with the service
            lambda service: service.dashboard.history.keep_sampling(),
            lambda service: TokenFileWatch(service.settings, service.tokens, service.connections).run(),
        ]
        self._hidden: dict[Principal, Hides | None] = {}  # as many as tokens that were ever valid
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: list[Callable[[], Coroutine[Any, Any, None]]] = []  # what is open, in the order of opening

    async def open(self) -> None:
        """Opens the store and starts the applications; if one fails, closes everything and raises its error."""
        try:
            self._open_store()
            await self._start_apps()
        except BaseException:
            await self.close()
            raise
        for task in self.background:
            self.run(task(self))

    def _open_store(self) -> None:
        settings = self.settings
        if settings.telemetry:
            from .telemetry import Telemetry  # an extra

            self.telemetry = Telemetry()
            self.hooks.append(self.telemetry)
        self._store_url = _shareable(settings.store_url)
        self._logins = open_logins(self._store_url, settings.credentials)
        if self._logins is not None:
            self._closing.append(partial(asyncio.to_thread, self._logins.close))
        self.store = visible(timed(self.another_store(), self.metrics))
        self._client = AsyncClient(store=self.store, timeout=settings.store_timeout, hooks=self.hooks)
        self.once, self.clearing = restricted(self._client, general), restricted(self._client, clearing)
        self.own = restricted(self._client, only(SERVICE))
        self._closing.append(self._client.close)
        self.audit = AuditLog(self.store)
        self.logouts = Logouts(self.own)
        self.readiness.checks["store"] = partial(store_level, self.once, self.store)

    async def _start_apps(self) -> None:
        keeping = [name for name in self.apps if has(name, "migrations")]
        if keeping or self.settings.history:
            self.data = open_database(self.settings.database_url, timeout=self.settings.store_timeout)
            self._closing.append(self.data.close)
        if keeping:  # the history alone does not decide whether the service is ready
            self.readiness.checks["data"] = partial(data_level, self.data)
        for name in keeping:
            await migrate(self.data, name, module_of(name))
        if self.settings.history:
            await self._start_history()
        for name, app in self.apps.items():
            app.once = restricted(self._client, only(name))
            self._closing.append(app.close)
            try:
                await app.start()
            except Exception as error:
                raise SolelyError(f"the application {name} did not start: {error}") from error
            self._closing.append(app.stop)
        for name, app in self.apps.items():
            for job in (*app.jobs(), *app.upkeep()):
                coroutine_function(f"the job {job.name!r} of {name}", job.work)
                self.run(self._repeat(name, job))
            self.workers.start(name, app.workers())
        self._closing += [self.schedules.finish, self.workers.finish]

    async def _start_history(self) -> None:
        """Opens the history and the charts; a database that does not work stops nothing but them."""
        rollup = self.dashboard.rollup
        if await self.history.try_to_open(self.data):
            await rollup.open(self.data)
        self._closing += [self.history.flush, rollup.flush]
        self.background.append(lambda service: service.history.run(service.data))
        self.background.append(lambda service: rollup.run(service.data))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the work in the background, at most until the service closes; a failure is logged."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_log_failure)

    async def _repeat(self, app: str, job: Job) -> None:
        """Runs the job at its interval until cancelled. A failure is logged, counted and reported, and the job runs
        again."""
        await asyncio.sleep(job.every * random.random())
        while True:
            try:
                await job.work()
                self.failing.pop((app, job.name), None)
            except Exception as error:  # a job goes on, whatever happens
                self.metrics.count(FAILURES, app, job.name)
                expected = isinstance(error, SolelyError)  # such as an unavailable store: the message is enough
                log.warning("job_failed", app=app, job=job.name, error=str(error), exc_info=not expected)
                self.failing[app, job.name] = str(error) if expected else IN_THE_LOG
            await asyncio.sleep(job.every * random.uniform(1 - JITTER, 1 + JITTER))

    async def perform(self, *ops: Op) -> list[Reply]:
        """The store's replies; raises the first error among them, and NameReserved for what the current caller must
        not see."""
        for op in ops:
            check_read(op)
        replies = await self.store.perform(ops)
        for reply in replies:
            if isinstance(reply, StoreError):
                raise reply
        return cast("list[Reply]", replies)

    def emit(self, event: Event) -> None:
        """Reports an event of the service itself to all hooks."""
        hook = combine(self.hooks)
        if hook is not None:
            hook(event)

    def hidden_from(self, principal: Principal) -> Hides | None:
        """What the applications hide from this caller; None if nothing. The same for each of its requests."""
        if principal not in self._hidden:
            apps = {name: hides for name, app in self.apps.items() if (hides := app.hidden_from(principal))}
            self._hidden[principal] = partial(_hides, apps) if apps else None
        return self._hidden[principal]

    def letters(self, group: str) -> AsyncDeadLetters:
        """The dead letters of the group, to be replayed here; those of an application through its own client."""
        app = self.apps.get(owner_of_queue(queue_of(group)))
        return (self.once if app is None else app.once).dead_letters(group)

    def another_store(self) -> AsyncStore:
        """One more handle on the same store, with a client name of its own, under which waiters are notified."""
        timeout = self.settings.store_timeout * ONE_TRY
        return open_async_store(self._store_url, timeout=timeout, credentials=self._logins)

    def stop(self) -> None:
        """Stops granting: waiting requests and streams end, and workers take nothing more."""
        self.stopping.set()
        self.workers.stop()
        self.schedules.stop()
        self.feed.close()

    async def close(self) -> None:
        """Stops the applications and closes the store. Leases that were granted stay with whoever has their tokens."""
        self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._closing:
            close = self._closing.pop()
            try:
                async with asyncio.timeout(CLOSING + self.settings.stop_timeout):
                    await close()
            except Exception:  # the rest must still be closed
                log.exception("not_closed", what=getattr(close, "__qualname__", str(close)))

    def ttl(self, wanted: float) -> float:
        """The ttl of a lease; raises InvalidInput if it is over max_ttl."""
        return _within("ttl", wanted, self.settings.max_ttl)

    def wait(self, wanted: float) -> float:
        """The wait of a request; raises InvalidInput if it is over max_wait."""
        return _within("wait", wanted, self.settings.max_wait)


def _shareable(url: str) -> str:
    """The URL of a store that several handles can open: a memory store needs a name for that."""
    parts = split_url(url)
    nameless = not capabilities(url).shared and not parts.netloc
    return f"{parts.scheme}://{secrets.token_hex(8)}?{parts.query}" if nameless else url


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("task_failed", task=task.get_name(), exc_info=error)


def _within(name: str, wanted: float, most: float) -> float:
    if wanted > most:
        bound = f"the {duration_text(most)} that this service allows (max_{name})"
        raise InvalidInput(f"{name}={number_text(wanted)} is over {bound}")
    return wanted


def _hides(apps: Mapping[str, Hides], name: str) -> bool:
    """True if the application that owns the name hides it."""
    hides = apps.get(owner_of_name(name))
    return hides is not None and hides(name)
