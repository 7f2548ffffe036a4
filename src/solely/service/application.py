"""The interface between the service and an application. Everything but its name, settings and routes is optional.

The package of an application has its class in `app.py`, and may have `acts.py` (the acts that people perform: `solely
<name>` has their commands), `cli.py` (whose `command` is `solely <name>` instead), `migrations/NNN_name.sql` (its
tables, migrated before it starts), `queries.sql` (its statements) and `templates/` (loaded as `name:file.html`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, get_args

import msgspec

from ..acts import Act
from ..apps import module_of
from ..client import AsyncClient
from ..data import Journal, Queries, SqlStatement, Statements
from ..data.journal import MOST
from ..functions import coroutine_function
from ..names import reserved
from ..outgoing import Caller, CallFailed, NotCalled, OutgoingSettings
from ..queues.handle import AsyncQueue
from ..queues.item import AsyncItem
from ..queues.performing import Perform, PermanentFailure, Postpone, Retry, begun_work
from ..queues.worker import FAILED, QueueWorker
from ..resilience import Backoff
from ..rules import Seconds
from ..schedules.handle import AsyncJob, AsyncSchedule
from ..schedules.methods import OnMisfire
from .announce import Announcement
from .attention import Attention
from .charts.lines import Chart
from .dashboard.state import AppPage
from .figures import Figure
from .routes import Route
from .security import Principal
from .service import Job, Service
from .tracing import Tracing

__all__ = ["Acts", "AppPage", "Application", "Figure", "Job", "Route", "Service"]

S = TypeVar("S", bound=msgspec.Struct)
Acts = Mapping[Act, Callable[[Any], Awaitable[Any]]]  # each with the handler that performs it

_FLUSH = 0.5  # seconds between writes of the journals: what a killed worker may lose
_RETENTION = 3_600.0  # seconds between deletions of old rows, which are kept for days

JOURNAL_DROPPED = Figure("solely_journal_dropped", "Rows that an application's full journal did not keep", ("app",))


class Application(Generic[S]):
    """What `solely serve` mounts. Each worker has one instance, created before its service opens."""

    name: ClassVar[str]  # as in APPS: also its section of the settings, its noun, and the prefix of its templates
    title: ClassVar[str]  # for people
    about: ClassVar[str] = ""  # in one sentence
    Settings: ClassVar[type[msgspec.Struct]]  # of Application[Settings]: all have defaults; ValueError if invalid
    figures: ClassVar[tuple[Figure, ...]] = ()  # its metrics, for count, observe and gauge of service.metrics
    charts: ClassVar[tuple[Chart, ...]] = ()  # their lines are kept for a week; a Page that names them shows them
    pages: ClassVar[tuple[AppPage, ...]] = ()  # shown in the navigation of the dashboard
    secrets: ClassVar[tuple[str, ...]] = ()  # fields of Settings whose values are never shown
    once: AsyncClient  # its own client, from `start` on: it writes only names that `own` returned, and nobody else does

    def __init_subclass__(cls) -> None:
        """Finds the type of the settings, if this class names it."""
        super().__init_subclass__()
        for base in cls.__dict__.get("__orig_bases__", ()):
            given = next(iter(get_args(base)), None)
            if isinstance(given, type) and issubclass(given, msgspec.Struct):
                cls.Settings = given

    def __init__(self, service: Service, settings: S) -> None:
        self.service = service  # not open yet
        self.settings = settings
        self._callers: list[Caller] = []
        self._journals: list[_KeptJournal] = []

    @classmethod
    def own(cls, name: str) -> str:
        """The name (of a key, a queue, …) in the application's own namespace of the store."""
        return reserved(cls.name, name)

    def routes(self) -> Sequence[Route]:
        """Its endpoints, whose handlers are its methods."""
        return ()

    def acts(self) -> Acts:
        """Its acts, each with the handler that performs it. `act_routes`, in `routes`, serves those that need more."""
        return {}

    def jobs(self) -> Sequence[Job]:
        """Its background work that is repeated."""
        return ()

    def workers(self) -> Sequence[QueueWorker]:
        """Its queue workers, usually made by `worker`; called after `start`. The service runs them, counts what they
        do, offers to replay their dead letters, and has them finish before `stop`."""
        return ()

    async def attention(self) -> Sequence[Attention]:
        """What needs the attention of people now, for the overview, `/v1/attention` and `solely doctor`. It is asked
        every few seconds; an error that it raises is reported as one."""
        return ()

    def hidden_from(self, principal: Principal) -> Callable[[str], bool] | None:
        """What tells which of its names (as `own` returns them) this caller must not see in the lists, pages, events
        and the history of the service; None if the caller sees all of them, as by default."""
        return None

    async def start(self) -> None:
        """Called once before the first request: `once` is open, and service.data if there are migrations."""

    async def stop(self) -> None:
        """Called once after the last request, job and item, if it was started: all that it uses is still open."""

    async def announce(
        self,
        name: str,
        *,
        fingerprint: str,
        severity: str = "warning",
        summary: str = "",
        labels: Mapping[str, str] | None = None,
        status: Literal["firing", "resolved"] = "firing",
    ) -> None:
        """Raises or resolves an alert of this application, see `announce.Announcement`. Never raises: a failed delivery
        is logged. The application's name is the source and the beginning of the fingerprint, so that two applications
        never announce the same alert."""
        mine = f"{self.name}/{fingerprint}"
        await self.service.announce(Announcement(name, severity, self.name, mine, summary, dict(labels or {}), status))

    def queue(self, name: str) -> AsyncQueue:
        """The queue of this name in the application's own namespace, from `start` on."""
        return self.once.queue(self.own(name))

    def worker(
        self,
        queue: str,
        perform: Perform,
        *,
        ttl: Seconds = 30.0,
        at_once: int = 16,
        max_attempts: int = 5,
        backoff: Backoff = FAILED,
    ) -> QueueWorker:
        """A worker of `queue(…)`, for `workers`; see `QueueWorker`. Its dead letters have the queue's name.

        If `perform` raises CallFailed, the item is retried when the receiver asked for it, or is parked at once if the
        failure is permanent. A call that was not made counts as no attempt.
        """
        letters = self.once.dead_letters(self.own(queue))
        options: Any = {"ttl": ttl, "at_once": at_once, "max_attempts": max_attempts, "backoff": backoff}
        settling = _settling_calls(coroutine_function("perform", perform))
        return QueueWorker(self.queue(queue), settling, dead_letters=letters, **options)

    def every(
        self,
        name: str,
        when: str | Seconds,
        job: AsyncJob,
        *,
        tz: str = "UTC",
        jitter: Seconds = 0.0,
        misfire: OnMisfire = "skip",
        ttl: Seconds = 30.0,
        max_hold: Seconds | None = None,
    ) -> AsyncSchedule:
        """Runs the job at each tick, once over all workers and hosts, from `start` on; see `AsyncClient.every`.

        The name is in the application's own namespace. Returns the schedule: its `stop` ends it in this worker.
        """
        options: Any = {"tz": tz, "jitter": jitter, "misfire": misfire, "ttl": ttl, "max_hold": max_hold}
        schedule = self.once.every(self.own(name), when, **options)(job)
        self.service.schedules.start(self.name, schedule)
        return schedule

    def caller(self, name: str, settings: OutgoingSettings | None = None) -> Caller:
        """Calls another system, from `start` on, through a breaker of this name; closed after `stop`."""
        caller = Caller(name, settings, once=self.once, breaker=self.own(name))
        self._callers.append(caller)
        return caller

    @cached_property
    def queries(self) -> Queries:
        """The statements of the package's `queries.sql`, to be run on service.data, from `start` on."""
        return self._statements.on(self.service.data)

    @cached_property
    def _statements(self) -> Statements:
        return Statements.of(module_of(self.name), "queries.sql")

    def journal(
        self,
        record: SqlStatement | str,
        *,
        order: Sequence[str],
        forget: SqlStatement | str = "",
        keep: float = 0.0,
        most: int = MOST,
    ) -> Journal:
        """A journal in service.data, from `start` on, written about twice a second and after `stop`; see
        `data.Journal`. What it drops is counted in the metrics.

        `record` is a statement, or the name of one in `queries.sql`. `forget` deletes, every hour, rows that are older
        than `keep` seconds: at most `:page` of those from before `:before`.
        """
        written = Journal(
            self.service.data, self._statement(record), order=order, most=most, on_drop=self.count_dropped
        )
        self._journals.append(_KeptJournal(written, self._statement(forget) if forget else None, keep))
        return written

    def _statement(self, given: SqlStatement | str) -> SqlStatement:
        return self._statements[given] if isinstance(given, str) else given

    def count_dropped(self) -> None:
        """Counts a row that a journal of this application dropped."""
        self.service.metrics.count(JOURNAL_DROPPED, self.name)

    @cached_property
    def tracing(self) -> Tracing:
        """Creates spans of this application, from `start` on; none without telemetry."""
        return Tracing.on(f"solely.{self.name}") if self.service.telemetry is not None else Tracing()

    async def demo(self) -> None:
        """Generates sample traffic until it is cancelled."""

    # -- for the service

    def upkeep(self) -> list[Job]:
        """The jobs of its journals."""
        kept = [each for each in self._journals if each.forget is not None]
        jobs = [Job("journal", _FLUSH, self._flush)] if self._journals else []
        return [*jobs, Job("retention", _RETENTION, lambda: _sweep(kept))] if kept else jobs

    async def close(self) -> None:
        """Writes the journals and closes the callers, after `stop`."""
        try:
            await self._flush()
        finally:
            for caller in self._callers:
                await caller.close()

    async def _flush(self) -> None:
        for each in self._journals:
            await each.journal.flush()


class _KeptJournal(NamedTuple):
    """A journal, and the statement that deletes rows older than `keep` seconds."""

    journal: Journal
    forget: SqlStatement | None
    keep: float


async def _sweep(journals: Sequence[_KeptJournal]) -> None:
    for each in journals:
        if each.forget is not None:
            await each.journal.sweep(each.forget, each.keep)


def _settling_calls(perform: Perform) -> Perform:
    """The work, whose failed calls say what becomes of the item."""

    async def settling(item: AsyncItem) -> object:
        try:
            return await begun_work(perform, item)
        except NotCalled as failure:
            raise Postpone(str(failure), after=failure.retry_after) from failure
        except CallFailed as failure:
            if failure.permanent:
                raise PermanentFailure(str(failure)) from failure
            raise Retry(str(failure), after=failure.retry_after) from failure

    return settling
