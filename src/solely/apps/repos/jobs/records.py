"""Records of jobs: what became of each run, for people. Most are written behind, so that no job waits for them."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import Any

import msgspec

from .... import DataError
from ....kit import Answer, Journal, Position, Queries, from_row, position_after, without_nul
from ..model import RepoJob

# The states of a run. Those that have ended: done, nothing, superseded, ignored, failed.
RUNNING = "running"
WAITING = "waiting"  # for the lock of its repository
DONE = "done"
NOTHING = "nothing"  # the command changed nothing and said nothing
SUPERSEDED = "superseded"  # the commit is no longer in the repository
IGNORED = "ignored"  # there is no command for this kind
RETRIED = "retried"  # it failed, and will be tried again
POSTPONED = "postponed"  # something else is unavailable: it will be tried again, and this was no attempt
FAILED = "failed"  # for good: it is a dead letter
STATES = (WAITING, RUNNING, DONE, NOTHING, SUPERSEDED, IGNORED, RETRIED, POSTPONED, FAILED)
_MAX_ERROR = 1_000  # characters


class JobRecord(Answer):
    """A run of a job: `since` is when its state began, `received` when its job happened (seconds of UTC)."""

    id: str
    key: str
    kind: str
    forge: str
    repository: str
    project: str
    subject: str
    title: str
    author: str
    received_by: str
    received: float
    state: str
    attempts: int
    worker: str
    since: float
    started: float
    commit_id: str
    url: str
    error: str


class JobDetails(JobRecord):
    """A run with the output of its command, and its job."""

    log: str
    job: RepoJob


class JobProgress:
    """Records one attempt at a job, step by step."""

    def __init__(self, journal: Journal, job: RepoJob, run: str, attempts: int) -> None:
        self._journal, self._started = journal, time.time()
        self._row: dict[str, Any] = {
            "id": run, "key": job.key, "kind": job.kind, "forge": job.forge,
            "repository": job.git_http_url or job.target_url,
            "project": job.project_path, "subject": job.issue_key or f"!{job.mr_iid}", "title": job.title[:200],
            "author": job.author[:100], "received_by": job.received_by, "received": job.at, "attempts": attempts,
            "worker": f"{socket.gethostname()}/{os.getpid()}", "started": self._started, "commit_id": "", "url": "",
            "error": "", "log": "", "job": msgspec.json.encode(job).decode(),
        }  # fmt: skip

    @property
    def seconds(self) -> float:
        """Since the attempt began."""
        return max(0.0, time.time() - self._started)

    def note(self, **facts: str) -> None:
        """Adds facts, which the next state records."""
        self._row |= facts

    def enter(self, state: str, error: str = "") -> None:
        """Records that this state begins."""
        self._row |= {"state": state, "since": time.time(), "error": error[:_MAX_ERROR]}
        self._journal.add({name: _stored(value) for name, value in self._row.items()})


class JobRecords:
    """The records of all runs."""

    def __init__(self, journal: Journal, queries: Queries) -> None:
        self._journal, self._queries = journal, queries

    def begin(self, job: RepoJob, run: str, attempts: int) -> JobProgress:
        """The record of a new attempt."""
        return JobProgress(self._journal, job, run, attempts)

    async def flush(self) -> None:
        """Writes what is recorded so far, which otherwise takes a moment; later, if the database is unreachable."""
        with suppress(DataError):
            await self._journal.flush()

    async def recent(self, state: str, kind: str, project: str, before: Position, limit: int) -> list[JobRecord]:
        """Runs of this state, kind and project (empty: of all), newest first, from before a position on."""
        rows = await self._queries.rows(
            "recent_jobs", state=state, kind=kind, project=project, since=before.at, id=before.id, limit=limit
        )
        return [from_row(JobRecord, row) for row in rows]

    async def newest(self, limit: int) -> list[JobRecord]:
        """The newest runs of all."""
        return await self.recent("", "", "", position_after(""), limit)

    async def find(self, id: str) -> JobDetails | None:
        """This run; None if there is none."""
        row = await self._queries.row("find_job", id=id)
        return None if row is None else from_row(JobDetails, row)

    async def unfinished(self, limit: int) -> list[JobDetails]:
        """Runs that have not ended, the oldest first."""
        return [from_row(JobDetails, row) for row in await self._queries.rows("unfinished_jobs", limit=limit)]

    async def fail(self, run: JobDetails, error: str) -> bool:
        """Records that this run has failed; False if it went on since it was read. A later record replaces it."""
        return bool(await self._queries.run("fail_job", id=run.id, since=run.since, error=error))

    async def latest(self, key: str) -> JobDetails | None:
        """The last run of the job with this key; None if there is none."""
        row = await self._queries.row("latest_job", key=key)
        return None if row is None else from_row(JobDetails, row)


def _stored(value: object) -> object:
    return without_nul(value) if isinstance(value, str) else value
