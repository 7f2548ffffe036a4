"""Lists and acts over HTTP: jobs, what was not queued and why, watermarks; forgetting and repeating a job."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any

import msgspec

from ...kit import (
    READ,
    UNKNOWN,
    Affected,
    Answer,
    Body,
    Call,
    PageSize,
    Position,
    Problem,
    Route,
    Rows,
    act_routes,
    from_row,
    list_route,
    position_after,
)
from . import acts
from .jobs.records import JobDetails, JobRecord
from .model import JOBS
from .runtime import ReposRuntime

Text = Annotated[str, msgspec.Meta(max_length=600)]


class JobsQuery(Body):
    """Jobs in this state, of this kind and project (all, if empty), the newest first."""

    state: Text = ""
    kind: Text = ""
    project: Text = ""
    after: Text = ""
    limit: PageSize = 50


class DuplicatesQuery(Body):
    """What was received and not queued, the newest first."""

    after: Text = ""
    limit: PageSize = 50


class WatermarksQuery(Body):
    """All sources."""


class JobQuery(Body):
    """The id of a run."""

    id: Text


class JobKey(Body):
    """The key of a job."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=600)]


class RewoundSource(Body):
    """A source, and the time from which on it is polled again."""

    source: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    to: Annotated[datetime, msgspec.Meta(tz=True)]


class DuplicateRow(Answer):
    """What was received and not queued: `outcome` is why, `times` how often, from `first` to `last`."""

    key: str
    origin: str
    outcome: str
    forge: str
    kind: str
    project: str
    title: str
    first: float
    last: float
    times: int


class PolledUntil(Answer):
    """How far a source was polled: everything before `watermark` (null before the first poll) was handed over."""

    source: str
    watermark: float | None
    lag: float | None
    every: float


def jobs_finder(app: ReposRuntime) -> Callable[[JobsQuery], Awaitable[Rows[JobRecord]]]:
    """Finds a page of jobs."""

    async def find(query: JobsQuery) -> Rows[JobRecord]:
        place = position_after(query.after)
        found = await app.work.records.recent(query.state, query.kind, query.project, place, query.limit)
        last = str(Position(found[-1].since, found[-1].id)) if len(found) == query.limit else None
        return Rows(found, last)

    return find


def duplicates_finder(app: ReposRuntime) -> Callable[[DuplicatesQuery], Awaitable[Rows[DuplicateRow]]]:
    """Finds a page of what was not queued."""

    async def find(query: DuplicatesQuery) -> Rows[DuplicateRow]:
        place = position_after(query.after)
        rows = await app.queries.rows("duplicates", last=place.at, key=place.id, limit=query.limit)
        found = [from_row(DuplicateRow, row) for row in rows]
        return Rows(found, str(Position(found[-1].last, found[-1].key)) if len(found) == query.limit else None)

    return find


def watermarks_finder(app: ReposRuntime) -> Callable[[WatermarksQuery], Awaitable[list[PolledUntil]]]:
    """Finds how far all sources were polled."""

    async def find(query: WatermarksQuery) -> list[PolledUntil]:
        found = []
        for source in app.pollers.sources:
            stands = await app.pollers.watermark(source).read()
            at = stands.timestamp() if isinstance(stands, datetime) else None
            lag = None if at is None else max(0.0, time.time() - at)
            found.append(PolledUntil(source=source.name, watermark=at, lag=lag, every=source.every))
        return found

    return find


async def job_of(app: ReposRuntime, id: str) -> JobDetails:
    """The run of this id; raises Problem if there is none."""
    found = await app.work.records.find(id)
    if found is None:
        raise Problem(UNKNOWN, f"no job {id!r:.120} is recorded")
    return found


class JobActs:
    """The handlers of the acts."""

    def __init__(self, app: ReposRuntime) -> None:
        self._app = app

    async def forget(self, call: Call[JobKey, None]) -> bool:
        """False if there was nothing to forget."""
        key = call.body.key
        if await self._in_queue(key) or not await self._app.intake.forget(key):
            return False
        await self._app.work.results.begin_again(key)
        return True

    async def repeat(self, call: Call[JobKey, None]) -> bool:
        """False if the job is unknown, or waits or runs."""
        key, app = call.body.key, self._app
        last = await app.work.records.latest(key)
        if last is None or await self._in_queue(key):
            return False
        await app.intake.forget(key)
        await app.work.results.begin_again(key)
        again = msgspec.structs.replace(last.job, received_by="manual")
        return await app.queue(JOBS).push(key, msgspec.to_builtins(again))

    async def rewind(self, call: Call[RewoundSource, None]) -> bool:
        """False if there is no such source, or its watermark is not beyond that time."""
        wanted = call.body
        return await self._app.pollers.rewind(wanted.source, wanted.to, call.reason)

    async def affected(self, call: Call[Any, Any], wanted: JobKey) -> Affected | None:
        """The job as it is recorded."""
        last = await self._app.work.records.latest(wanted.key) if wanted.key else None
        if last is None:
            return Affected(f"the job {wanted.key}" if wanted.key else "a job")  # what is asked for is still unset
        facts = {"Project": last.project, "Subject": last.subject, "State": last.state, "Title": last.title}
        return Affected(f"the job {last.key}", facts)

    async def _in_queue(self, key: str) -> bool:
        return await self._app.queue(JOBS).read(key) is not None


def routes(app: ReposRuntime) -> list[Route]:
    """The routes of lists and acts."""
    handlers = JobActs(app)

    async def job(call: Call[None, JobQuery]) -> JobDetails:
        return await job_of(app, call.query.id)

    return [
        list_route(acts.JOBS, jobs_finder(app)),
        list_route(acts.DUPLICATES, duplicates_finder(app)),
        list_route(acts.WATERMARKS, watermarks_finder(app)),
        Route(
            "GET",
            "/api/repos/job",
            READ,
            job,
            "Read a run of a job, with the output of its command",
            refusals=(UNKNOWN,),
        ),
        *act_routes(acts.FORGET, handlers.forget, handlers.affected),
        *act_routes(acts.REPEAT, handlers.repeat, handlers.affected),
        *act_routes(acts.REWIND, handlers.rewind),
    ]
