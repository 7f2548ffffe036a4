"""The running task-trigger API: its parts, how they are assembled, started and stopped. Handlers are built on this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from ... import AsyncClient, QueueWorker, StoreError
from ...kit import UNKNOWN, Application, Job, Principal, Problem, Scope
from .batch_table import BatchTable
from .buffer import Buffer, queue_name
from .changes import Runs
from .claim import KeyClaims
from .drainer import Drainer
from .figures import BUFFERED
from .gate import Gate, gate_name
from .lists import RunLists
from .model import RUN_ID, TaskRun, claims_of
from .pipeline import Pipeline
from .settings import TriggersSettings
from .table import RunTable
from .uploads import Uploads
from .work.arrivals import Arrivals
from .work.leases import RunLeases

_LOOK = 1.0  # seconds between two counts of the buffer, for the metrics and the page
_UPLOADS = 60.0  # seconds between deletions of old uploads, which are kept for some minutes
_RETENTION = 3600.0  # seconds between deletions of old runs, which are kept for weeks
_TABLE = "triggers_buffer"  # of a buffer in PostgreSQL, apart from a store in the same database


class TriggersRuntime(Application[TriggersSettings]):
    """The task-trigger API of one worker, without its routes."""

    table: RunTable
    lists: RunLists
    batches: BatchTable
    uploads: Uploads
    buffer: Buffer
    gate: Gate
    claims: KeyClaims
    drainer: Drainer
    runs: Runs
    pipeline: Pipeline
    arrivals: Arrivals
    leases: RunLeases
    buffered = 0  # runs in the buffer, as last counted
    _sql: AsyncClient | None = None  # of a buffer in SQL

    @property
    def environments(self) -> tuple[str, ...]:
        """All environments that the settings name."""
        return tuple(dict.fromkeys((self.settings.environment, *self.settings.environments.values())))

    def environment_of(self, principal: str) -> str:
        """The environment of the token with this name."""
        return self.settings.environments.get(principal, self.settings.environment)

    def environments_of(self, principal: Principal, named: str = "") -> tuple[str, ...]:
        """The environments whose runs this caller sees: its own, and all others if it is an admin. With `named`, that
        one alone; Problem if the caller does not see it."""
        own = self.environment_of(principal.name)
        seen = tuple(dict.fromkeys((own, *self.environments))) if principal.scope >= Scope.ADMIN else (own,)
        if named and named not in seen:
            raise Problem(UNKNOWN, f"this token sees no environment {named!r:.80}; it sees {', '.join(seen)}")
        return (named,) if named else seen

    def hidden_from(self, principal: Principal) -> Callable[[str], bool] | None:
        """Names of environments that this caller does not see, and those in which several share."""
        seen = self.environments_of(principal)
        return None if {*seen} >= {*self.environments} else partial(_is_hidden, seen)

    async def find(self, principal: Principal, id: str) -> TaskRun:
        """The run, in any environment that this caller sees; raises Problem if there is none."""
        for environment in self.environments_of(principal) if RUN_ID.fullmatch(id) else ():
            run = await self.runs.find(environment, id)
            if run is not None:
                return run
        raise Problem(UNKNOWN, f"there is no run {id!r:.80} in the environment of this token")

    async def start(self) -> None:
        """Assembles the parts."""
        settings, metrics = self.settings, self.service.metrics
        self.arrivals = Arrivals()
        first, most = settings.retry_first, settings.retry_most
        self.leases = RunLeases(self.service.data, metrics, first=first, most=most, on_due=self.arrivals.wake)
        self.table = RunTable(self.service.data, on_due=self.arrivals.wake)
        self.lists = RunLists(self.service.data)
        self.batches = BatchTable(self.table.queries)
        self.uploads = Uploads(self.table.queries, partial(self.service.sessions.sign, "upload"))
        client = self._buffer_client()
        self.buffer = Buffer(client, self.environments, on_store=client is self.once)
        self.gate, self.claims = Gate(self.once, settings, metrics), KeyClaims(self.once, settings, metrics)
        self.drainer = Drainer(self.buffer, self.table, self.gate, settings, metrics)
        self.runs = Runs(self.table, self.buffer, self.drainer)
        self.pipeline = Pipeline(self.table, self.buffer, self.drainer, self.claims, self.gate, metrics)
        metrics.gauge(BUFFERED, lambda: float(self.buffered))

    def workers(self) -> Sequence[QueueWorker]:
        """The drainer."""
        return (self.drainer.worker(),)

    def jobs(self) -> Sequence[Job]:
        """Counts the buffer, and deletes old runs and uploads."""
        retention = Job("retention", _RETENTION, self._delete_old)
        return (Job("buffer", _LOOK, self._count_buffered), retention, Job("uploads", _UPLOADS, self._delete_uploads))

    async def stop(self) -> None:
        """Closes the client of a buffer in SQL."""
        if self._sql is not None:
            await self._sql.close()

    def _buffer_client(self) -> AsyncClient:
        url = self.service.settings.database_url
        if self.settings.buffer == "store" or url.endswith(":memory:"):
            return self.once
        self._sql = AsyncClient(buffer_url(url), timeout=self.service.settings.store_timeout)
        return self._sql

    async def _delete_old(self) -> None:
        await self.table.forget(self.settings.retention)

    async def _delete_uploads(self) -> None:
        await self.uploads.forget()

    async def _count_buffered(self) -> None:
        try:
            self.buffered = await self.buffer.count()
        except StoreError:
            self.buffered = 0
            raise


def _is_hidden(seen: Sequence[str], name: str) -> bool:
    """True unless the name is that of the gate, the buffer or a claim of one of these environments."""
    name = name.partition("@")[0]  # what follows is an attempt
    if name in {each for one in seen for each in (gate_name(one), queue_name(one))}:
        return False
    return not any(name.startswith(claims_of(one)) for one in seen)


def buffer_url(data_url: str) -> str:
    """The store of a buffer in SQL: tables of its own in the same PostgreSQL, or a file beside that of SQLite."""
    parts = urlsplit(data_url)
    if parts.scheme != "sqlite":
        return f"{data_url}{'&' if parts.query else '?'}solely_table={_TABLE}"
    file = Path(unquote(parts.path[1:]))
    return f"sqlite:///{quote(str(file.with_name(f'{file.stem}-buffer{file.suffix}')))}"
