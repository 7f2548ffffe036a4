"""Performs the jobs of the queue: each under the claim of its key, which is finished for a day on success and released
on failure."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from .... import (
    AsyncClaim,
    AsyncClient,
    AsyncItem,
    Busy,
    LeaseLost,
    PermanentFailure,
    Postpone,
    Retry,
    StaleFence,
    StoreUnavailable,
)
from ....kit import DAY, MAX_TTL, CallFailed, Metrics, NotStarted
from ..figures import CODING_SECONDS, REPEATED, REVIEW_SECONDS, REVIEWS
from ..forges.client import ForgeAccess, OtherProject
from ..model import JOBS, REVIEW, RepoJob, claim_key, own, received_key
from ..polling import pause_after
from .commands import CommandFailed
from .failures import FailureNotice, FailureNotices, public_reason
from .git import GitFailed, GitRefused, GitUnreachable, PushDeclined, PushRejected
from .handlers import Attempt, JobHandlers
from .markers import marker_of
from .records import FAILED, IGNORED, POSTPONED, RETRIED, RUNNING, JobProgress, JobRecords
from .results import JobResults
from .settings import JobCommand, JobSettings
from .working_copy import remove_folder

_TURN = 2.0  # seconds until a job that did not get the lock, or lost it, is tried again: others get a slot meanwhile
_LONGEST_HOLD = 60.0  # seconds to wait at most for the claim of a process that may have died
_LOOK = 1_000  # runs that have not ended: the bound of a list
_DIED = "it is no longer in the queue: the processes that performed it died; see the dead letters"
_DIED_PUBLIC = "the processes that performed it died"
PREFIX = "solely-repos-"  # of the folder of a job

# Called with the error of a job that failed for good; and without one if such a job has succeeded since.
Report = Callable[[RepoJob, str], Awaitable[object]]


class JobPerformer:
    """Performs items of the queue of jobs."""

    def __init__(
        self,
        once: AsyncClient,
        settings: JobSettings,
        forges: Mapping[str, ForgeAccess],
        handlers: JobHandlers,
        records: JobRecords,
        results: JobResults,
        metrics: Metrics,
        notices: FailureNotices,
        report: Report,
    ) -> None:
        self._once, self._settings, self._forges, self._handlers = once, settings, forges, handlers
        self._queue, self._lost = once.queue(own(JOBS)), set[str]()
        self._records, self._results, self._metrics = records, results, metrics
        self._notices, self._report = notices, report

    async def perform(self, item: AsyncItem) -> None:
        """Performs the job of the item once, as QueueWorker asks for."""
        job = msgspec.convert(item.payload, RepoJob)
        ttl = self._settings.ttl
        claim = await self._once.claim(claim_key(job.key), ttl=ttl, wait=0.0, keep=job.keep, purpose=job.kind)
        if claim.cached:
            self._metrics.count(REPEATED, job.kind)
            return
        if claim.timed_out:
            text = f"another process performs {job.key}: {claim.holder}"
            raise Postpone(text, after=min(max(_TURN, claim.retry_after), _LONGEST_HOLD))
        async with claim:
            run = await self._results.run(job.key)
            await self._perform(job, run, item, claim)
            if run != job.key or _is_replayed(item, job):
                await self._report(job, "")

    async def _perform(self, job: RepoJob, run: str, item: AsyncItem, claim: AsyncClaim) -> None:
        progress = self._records.begin(job, run, item.attempts)
        command: JobCommand | None = getattr(self._settings, job.kind)
        if command is None:
            progress.enter(IGNORED, f"no command is set for jobs of the kind {job.kind}: [repos.jobs.{job.kind}]")
            return
        progress.enter(RUNNING)
        await self._records.flush()  # what follows may end this process: `fail_lost` finds what is recorded
        try:
            async with self._folder() as folder:
                state = await self._handled(job, run, command, folder, claim, progress)
            await claim.publish(state)
        except BaseException as error:
            await self._failed(job, run, item, error, progress)
            settled = self._settled(error)
            if settled is error:
                raise
            raise settled from error
        progress.enter(state)
        self._count(job, state, progress.seconds)
        await self._results.remove(run)

    async def _handled(
        self, job: RepoJob, run: str, command: JobCommand, folder: Path, claim: AsyncClaim, progress: JobProgress
    ) -> str:
        access = self._forges.get(job.forge)
        if access is None:
            raise PermanentFailure(f"the forge {job.forge} is not set: [repos.{job.forge}]")
        marker = marker_of(run, access.client.login.password)
        attempt = Attempt(job, run, marker, access.client, command, access.tls, folder, claim, progress)
        return await (self._handlers.review(attempt) if job.kind == REVIEW else self._handlers.write(attempt))

    def _count(self, job: RepoJob, state: str, seconds: float) -> None:
        if job.kind == REVIEW:
            self._metrics.count(REVIEWS, state)
            self._metrics.observe(REVIEW_SECONDS, seconds)
        else:
            self._metrics.observe(CODING_SECONDS, seconds, job.kind)

    # -- failures

    async def fail_lost(self) -> None:
        """Records runs as failed that the queue has parked since their processes died: nothing else would. It takes two
        looks, because what has just ended is written a little later. A dead letter that is replayed is in no queue."""
        runs = await self._records.unfinished(_LOOK)
        lost = {run.id for run in runs if await self._queue.read(run.job.key) is None and not await self._runs(run.job)}
        for run in runs:
            if run.id in lost & self._lost and await self._records.fail(run, _DIED):
                await self._stays_failed(run.job, run.id)
                await self._notices.accept(FailureNotice(run.job, run.id, run.job.key, run.attempts, _DIED_PUBLIC))
                await self._report(run.job, _DIED)
        self._lost = lost

    async def _runs(self, job: RepoJob) -> bool:
        """True while a process holds the claim of the job."""
        key = claim_key(job.key)
        return any(each.key == key and not each.outcome for each in await self._once.claims(key, limit=1))

    async def _failed(
        self, job: RepoJob, run: str, item: AsyncItem, error: BaseException, progress: JobProgress
    ) -> None:
        """Records the failure; a job that failed for good is reported."""
        if isinstance(error, CommandFailed):
            progress.note(log=error.log)
        state, text = self._state(error, item, job), str(error) or type(error).__name__
        if isinstance(error, OtherProject):  # nothing is posted there, and whoever may report the job still can
            await self._once.forget(received_key(job.key))
        elif state == FAILED:  # first of all: the job is tried again if the store does not answer
            await self._stays_failed(job, run)
            await self._notices.accept(FailureNotice(job, run, item.id, item.attempts, public_reason(error)))
        progress.enter(state, "the worker stopped" if isinstance(error, asyncio.CancelledError) else text)
        if state == FAILED:
            if job.kind == REVIEW:
                self._metrics.count(REVIEWS, FAILED)
            await self._report(job, text)

    async def _stays_failed(self, job: RepoJob, run: str) -> None:
        """Reports of this job are known from now on, and not only for as long as if it were done: it is performed again
        when somebody replays it or forgets its key, which may have happened since this run began."""
        if await self._results.run(job.key) == run:
            await self._once.mark(received_key(job.key), ttl=MAX_TTL)

    def _state(self, error: BaseException, item: AsyncItem, job: RepoJob) -> str:
        settled = self._settled(error)
        if isinstance(settled, StoreUnavailable) or not isinstance(settled, Exception):
            return POSTPONED
        if _is_replayed(item, job):  # its dead letter stays, and nothing tries it again but people
            return FAILED
        if isinstance(settled, Postpone):
            return POSTPONED
        permanent = isinstance(settled, PermanentFailure) or item.attempts >= self._settings.max_attempts
        return FAILED if permanent else RETRIED

    def _settled(self, error: BaseException) -> BaseException:
        """The error that QueueWorker gets: an outage of something else is no attempt."""
        text, pause = str(error), self._settings.outage_pause
        if isinstance(error, CallFailed):
            return PermanentFailure(text) if error.permanent else Postpone(text, after=pause_after(error) or pause)
        if isinstance(error, GitUnreachable):
            return Postpone(text, after=pause)
        if isinstance(error, GitRefused | PushDeclined):
            return PermanentFailure(text)
        if isinstance(error, Busy | LeaseLost | StaleFence):
            return Postpone(text, after=_TURN)
        if isinstance(error, PushRejected):
            return Retry(text, after=_TURN)
        if isinstance(error, NotStarted) and error.permanent:
            return PermanentFailure(text)
        return Retry(text) if isinstance(error, CommandFailed | NotStarted | GitFailed) else error

    # -- folders

    @asynccontextmanager
    async def _folder(self) -> AsyncIterator[Path]:
        """A private folder, which is removed at the end."""
        folder = await asyncio.to_thread(tempfile.mkdtemp, prefix=PREFIX, dir=self._settings.folder or None)
        try:
            yield Path(folder)
        finally:
            await asyncio.shield(asyncio.to_thread(remove_folder, folder))


def _is_replayed(item: AsyncItem, job: RepoJob) -> bool:
    """True if the item comes from a dead letter: in the queue, it has the key of its job."""
    return item.id != job.key


def sweep_folders(folder: str) -> None:
    """Removes what processes that were killed left behind: no job takes a day."""
    for each in Path(folder or tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # it was removed just now
            if each.lstat().st_mtime < time.time() - DAY:
                remove_folder(str(each))
