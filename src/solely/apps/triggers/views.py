"""What lists and pages show of runs, of the gate and of the buffer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from ...kit import DAY, Answer, Body, PageSize, Statements, total
from . import figures
from .buffer import queue_name
from .lists import ListFilter
from .model import ENDED, State, TaskRun, stored_key_of
from .runtime import TriggersRuntime
from .work import figures as work_figures
from .work.timeline import AttemptRow, TimelineEvent, attempts_of, timeline_of

MOST = 10_000  # runs that are counted: more are shown as "10000+"
EVENTS = 500  # events of a timeline on its page: a hundred attempts have at most 300
_SAME = ("key_expires_at", "lease_until", "parent_id", "replay_of", "waits_for")
_STATEMENTS = Statements.of(__package__, "overview.sql")

Text = Annotated[str, msgspec.Meta(max_length=2048, pattern=r"^[^\u0000]*\Z", description="all if empty")]
Place = Annotated[str, msgspec.Meta(max_length=200, description="the `next` of the page before")]
Moment = Annotated[float, msgspec.Meta(ge=0.0, le=1e11, description="seconds since 1970")]


class RunFilters(Body):
    """Runs that match all filters, the newest first."""

    environment: Text = ""
    task: Text = ""
    state: Literal[""] | State = ""
    tag: Text = ""
    key: Text = ""
    since: Moment = 0.0
    after: Place = ""
    limit: PageSize = 50


class GateFilter(Body):
    """The environment; all that the caller sees if empty."""

    environment: Text = ""


class RunRow(Answer):
    """A run of a list. `key` is its idempotency key, `replay_of` the run that it repeats."""

    id: str
    environment: str
    task: str
    state: State
    attempts: int
    max_attempts: int
    created_at: float
    available_at: float
    started_at: float | None
    finished_at: float | None
    worker: str
    key: str | None
    tags: list[str]
    error: str | None
    buffered: bool


class ListedTriggerRuns(Answer):
    """Runs, the newest first. If `next` is not null there may be more: the query takes it as `after`."""

    runs: list[RunRow]
    next: str | None


class GateState(Answer):
    """The gate and the buffer of an environment, and counts of its runs, each up to 10,000. `tripped`: this worker
    diverts triggers to the buffer now. `parents` are runs that wait for a child, `abandoned` those of `executing` whose
    worker has stopped renewing, `failed` those of the last 24 hours."""

    environment: str
    gate: str
    tripped: bool
    trip_threshold: int
    trip_window: float
    trip_hold: float
    buffer: str
    buffered: int
    queue: str
    waiting: int
    parents: int
    executing: int
    abandoned: int
    failed: int


class GateStates(Answer):
    """The environments that the caller sees."""

    gates: list[GateState]


class TriggerCounts(Answer):
    """Counts of the last five minutes of this service."""

    accepted: int
    diverted: int
    won: int
    waited: int
    timed_out: int
    drained: int
    completed: int
    retried: int
    lost: int


class TriggersOverview(Answer):
    """The data of the overview: of the environments that the caller sees, or of the one that the filter names."""

    environments: list[str]
    gates: list[GateState]
    figures: TriggerCounts
    runs: list[RunRow]
    next: str | None


class RunDetails(Answer):
    """A run, with its payload and output as JSON, what happened to it, and its attempts."""

    run: RunRow
    environment: str
    key_expires_at: float | None
    lease_until: float | None
    parent_id: str | None
    replay_of: str | None
    waits_for: str | None
    metadata: dict[str, Any]
    payload: Any
    output: Any
    has_output: bool
    ended: bool
    timeline: list[TimelineEvent]
    attempts: list[AttemptRow]


def row_of(run: TaskRun, *, buffered: bool = False) -> RunRow:
    """The run as lists show it."""
    same = {name: getattr(run, name) for name in RunRow.__struct_fields__ if name not in ("key", "buffered")}
    return RunRow(key=run.idempotency_key, buffered=buffered, **same)


class RunViews:
    """Reads what is shown."""

    def __init__(self, app: TriggersRuntime) -> None:
        self._app = app

    async def listed(self, environments: Sequence[str], query: RunFilters) -> ListedTriggerRuns:
        """A page of runs."""
        asked = {"states": query.state, "tasks": query.task, "tags": query.tag}
        filters: dict[str, Any] = {name: [value] if value else [] for name, value in asked.items()}
        only = ListFilter(key=stored_key_of(query.key), since=query.since, **filters)
        found = await self._app.lists.page(environments, only, query.limit, after=query.after)
        return ListedTriggerRuns(runs=[row_of(run) for run in found.runs], next=found.next)

    async def gate_state(self, environment: str) -> GateState:
        """The gate and the buffer now, and how many runs there are."""
        app, settings = self._app, self._app.settings
        queries, at = _STATEMENTS.on(app.service.data), time.time()
        counts = await queries.row("counts", environment=environment, since=at - DAY, now=at, most=MOST) or {}
        return GateState(
            environment=environment,
            gate=settings.gate,
            tripped=app.gate.tripped(environment),
            trip_threshold=settings.trip_threshold,
            trip_window=settings.trip_window,
            trip_hold=settings.trip_hold,
            buffer=settings.buffer,
            buffered=await app.buffer.queues[environment].count(),
            queue=queue_name(environment),
            waiting=min(MOST, counts["queued"] + counts["delayed"]),
            parents=counts["parents"],
            executing=counts["executing"],
            abandoned=counts["abandoned"],
            failed=counts["failed"],
        )

    def counts(self) -> TriggerCounts:
        """What this service has counted lately, in all environments."""
        count = self._app.service.dashboard.history.count
        attempts = {name: count(total(work_figures.ATTEMPTS, name)) for name in ("completed", "retried", "lost")}
        return TriggerCounts(
            accepted=count(total(figures.TRIGGERED)),
            diverted=count(total(figures.GATE, "divert")),
            won=count(total(figures.WINS)),
            waited=count(total(figures.WAITS)),
            timed_out=count(total(figures.TIMEOUTS)),
            drained=count(total(figures.DRAINED)),
            **attempts,
        )

    async def details(self, run: TaskRun) -> RunDetails:
        """One run."""
        app = self._app
        stored = run.buffered_at is None or await app.table.find(run.environment, run.id) is not None
        events = await app.table.queries.rows("events_of", run_id=run.id, limit=EVENTS)
        return RunDetails(
            run=row_of(run, buffered=not stored),
            environment=run.environment,
            metadata=run.metadata,
            payload=msgspec.json.decode(run.payload),
            output=None if run.output is None else msgspec.json.decode(run.output),
            has_output=run.output is not None,
            ended=run.state in ENDED,
            timeline=timeline_of(run, events),
            attempts=attempts_of(run, events),
            **{name: getattr(run, name) for name in _SAME},
        )
