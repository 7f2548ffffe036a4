"""The pages: what runs now, what was received, how far was polled; and one job with the output of its command."""

from __future__ import annotations

import asyncio

import msgspec

from ...kit import READ_PAGE, Answer, Call, Figure, Page, Route, View, list_page, part_of, show, total
from . import acts, figures
from .api import (
    DuplicateRow,
    DuplicatesQuery,
    PolledUntil,
    Text,
    WatermarksQuery,
    duplicates_finder,
    job_of,
    jobs_finder,
    watermarks_finder,
)
from .charts import CHARTS
from .jobs.records import JobDetails, JobRecord
from .model import JOBS, RepoJob, own
from .runtime import ReposRuntime

OVERVIEW = Page("Repositories", "repos:overview.html", "/repos", CHARTS)
LIST = Page("Jobs", "repos:jobs.html", "/repos")
JOB = Page("Job", "repos:job.html", "/repos")
FRESH = 1.0  # seconds that the overview's data are shared by all viewers
LATEST = 20  # jobs on the page; the rest is behind "all jobs"
WAITING = 20  # items of the queue on the page
LOCKS = 20  # repositories that are locked
COUNTED = 100  # dead letters: more are shown as "100+"
DUPLICATES = 15  # rows on the page; the command lists more


class JobView(View, kw_only=True):
    """The id of a run."""

    id: Text = ""


class QueuedJob(Answer):
    """A job in the queue; `ends` is when it is tried again or its lease ends (seconds of UTC)."""

    key: str
    kind: str
    project: str
    title: str
    state: str
    left: float
    attempts: int


class LockedRepository(Answer):
    """A repository whose lock is held."""

    repository: str
    holder: str
    purpose: str
    since: float | None
    fence: int
    waiters: int


class ReposCounts(Answer):
    """Counts of the last five minutes of this service; `waiting` and `dead_letters` of the whole store."""

    received: int
    duplicates: int
    waiting: int
    dead_letters: int


class ReposOverview(Answer):
    """The data of the overview. `group` is that of the dead letters."""

    figures: ReposCounts
    queue: list[QueuedJob]
    locked: list[LockedRepository]
    jobs: list[JobRecord]
    watermarks: list[PolledUntil]
    duplicates: list[DuplicateRow]
    configured: bool
    group: str


class ReposPages:
    """The handlers of the pages."""

    def __init__(self, app: ReposRuntime) -> None:
        self._app = app

    async def overview(self, call: Call[None, View]) -> object:
        """The overview."""
        views = call.service.dashboard.views
        return await show(call, OVERVIEW, lambda: views.share("repos", FRESH, self._overview))

    async def job(self, call: Call[None, JobView]) -> object:
        """One run, with the output of its command."""

        async def load() -> JobDetails:
            return await job_of(self._app, call.query.id)

        return await show(call, JOB, load)

    async def _overview(self) -> ReposOverview:
        app = self._app
        queue, group = app.queue(JOBS), app.own(JOBS)
        items, count, letters, locked, watermarks = await asyncio.gather(
            queue.list(limit=WAITING),
            queue.count(),
            app.once.dead_letters(group).list(limit=COUNTED),
            self._locked(),
            watermarks_finder(app)(WatermarksQuery()),
        )
        duplicates = await duplicates_finder(app)(DuplicatesQuery(limit=DUPLICATES))
        return ReposOverview(
            figures=ReposCounts(
                received=self._count(figures.ACCEPTED) + self._count(figures.DUPLICATES),
                duplicates=self._count(figures.DUPLICATES),
                waiting=count,
                dead_letters=len(letters),
            ),
            queue=[_queued(each.payload, each.state.value, each.left, each.attempts) for each in items],
            locked=locked,
            jobs=await app.work.records.newest(LATEST),
            watermarks=watermarks,
            duplicates=duplicates.rows,
            configured=app.settings.jobs.any or app.in_demo,
            group=group,
        )

    async def _locked(self) -> list[LockedRepository]:
        prefix = own("lock:")
        return [
            LockedRepository(
                repository=each.key.removeprefix(prefix),
                holder=each.holder,
                purpose=each.purpose,
                since=each.since.timestamp() if each.since else None,
                fence=each.fence,
                waiters=each.waiters,
            )
            for each in await self._app.once.locks(prefix, limit=LOCKS)
        ]

    def _count(self, figure: Figure) -> int:
        return self._app.service.dashboard.history.count(total(figure))


def _queued(payload: object, state: str, left: float, attempts: int) -> QueuedJob:
    """The item for people; an invalid one is shown as such, since it becomes a dead letter."""
    try:
        job = msgspec.convert(payload, RepoJob)
    except msgspec.ValidationError:
        job = RepoJob(kind="review", forge="", key=part_of(str(payload)), title="invalid")
    given = {"key": job.key, "kind": job.kind, "project": job.project_path, "title": job.title}
    return QueuedJob(**given, state=state, left=left, attempts=attempts)


def routes(app: ReposRuntime) -> list[Route]:
    """The routes of the pages."""
    pages = ReposPages(app)
    return [
        Route("GET", "/repos", READ_PAGE, pages.overview, OVERVIEW.title, hidden=True),
        list_page(acts.JOBS, jobs_finder(app), "/repos/jobs", LIST),
        Route("GET", "/repos/job", READ_PAGE, pages.job, JOB.title, hidden=True),
    ]
