"""The handlers of the three kinds of jobs. Each leaves a marker with what it posts, and looks for it first: a comment,
a push or a merge request whose answer was lost is found again, and not repeated."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from .... import AsyncClaim, AsyncClient, AsyncLease, PermanentFailure
from ....kit import CallFailed
from ..forges.client import ForgeClient
from ..model import ISSUE, RepoJob, lock_key
from .commands import run_command
from .git import GitClone
from .jira_comments import JiraComments
from .markers import FENCE_TRAILER, JOB_TRAILER, hidden
from .records import DONE, NOTHING, RUNNING, SUPERSEDED, WAITING, JobProgress
from .results import JobResult, JobResults
from .settings import JobCommand, JobSettings

MAX_COMMENT = 60_000  # characters: GitHub accepts 65,536, GitLab and Jira at least half of that
_TRAILERS = (JOB_TRAILER, FENCE_TRAILER)
_SUBJECT = 72  # characters of the first line of a commit, as git's own tools show it
_MARGIN = 0.4  # of the ttl that must be left before something is posted: renewals keep it above one half


class Attempt(NamedTuple):
    """One attempt at a job: what the handlers need. `run` and `marker` are the same at each attempt."""

    job: RepoJob
    run: str
    marker: str
    forge: ForgeClient
    command: JobCommand
    tls: dict[str, str]
    folder: Path
    claim: AsyncClaim
    progress: JobProgress


class Poster(Protocol):
    """Where the result of a job is posted."""

    async def has(self) -> bool:
        """True if it was posted before."""

    async def post(self, text: str) -> None:
        """Posts it."""


class JobHandlers:
    """Performs attempts. Each method returns the state in which the job ended."""

    def __init__(
        self, once: AsyncClient, settings: JobSettings, results: JobResults, jira: JiraComments | None
    ) -> None:
        self._once, self._settings, self._results, self._jira = once, settings, results, jira

    async def review(self, attempt: Attempt) -> str:
        """Runs the command on the head of the merge request, and posts what it says. It writes to no repository, so it
        needs no lock."""
        poster = CommentPoster(attempt)
        if await poster.has():
            return DONE
        result = await self._results.read(attempt.run) or await self._reviewed(attempt)
        if result is None:
            return SUPERSEDED
        return await self._post(attempt, poster, result.text)

    async def _reviewed(self, attempt: Attempt) -> JobResult | None:
        """What the command says; None if the commit is no longer in the repository."""
        job = await attempt.forge.completed(attempt.job)
        clone = await self._cloned(attempt, job)
        if not await clone.has(job.head_sha):
            await clone.fetch(attempt.forge.head_ref(job))
        if not await clone.has(job.head_sha):
            return None
        await clone.check_out(job.head_sha)
        result = JobResult(text=await self._command(attempt, job, clone))
        await self._results.keep(attempt.run, result)
        return result

    async def write(self, attempt: Attempt) -> str:
        """Runs the command on the branch, pushes what it changed, creates a merge request for an issue, and posts what
        it says. From clone to push it holds the lock of the repository."""
        poster = self._poster(attempt)
        if poster is not None and await poster.has():
            return DONE
        job = attempt.job if attempt.job.kind == ISSUE else await attempt.forge.completed(attempt.job)
        attempt.progress.enter(WAITING)
        purpose = f"{job.kind} {job.key}"
        settings = self._settings
        async with self._once.lock(
            lock_key(job.git_http_url), ttl=settings.ttl, wait=settings.lock_wait, purpose=purpose
        ) as lease:
            attempt.progress.enter(RUNNING)
            result = await self._pushed(attempt, job, lease)
        url = f"{result.url}\n\n" if result.url else ""
        pushed = f"\n\nPushed as {result.commit}." if result.commit else ""
        if poster is None:
            return DONE if result.commit else NOTHING
        return await self._post(attempt, poster, f"{url}{result.text}{pushed}".strip())

    async def _pushed(self, attempt: Attempt, job: RepoJob, lease: AsyncLease) -> JobResult:
        """What was pushed, now or by an earlier attempt."""
        branch = job.source_branch or f"agent/{job.issue_key.lower()}"
        clone = await self._cloned(attempt, job)
        tip = await clone.tip(branch)
        result = await self._results.read(attempt.run) or JobResult()
        before = await clone.commit_of(attempt.run, branch, job.target_branch) if tip else ""
        if before:
            result = msgspec.structs.replace(result, commit=before)
        elif not result.text or result.commit:
            start = tip or (await clone.tip(job.target_branch) if job.kind == ISSUE else "")
            if not start:
                raise PermanentFailure(f"the repository has no branch {branch if job.mr_iid else job.target_branch!r}")
            result = await self._worked(attempt, job, clone, start, lease)
            if result.commit:
                await self._still_ours(attempt, lease)
                await clone.push(result.commit, branch)
        attempt.progress.note(commit_id=result.commit)
        if result.commit and job.kind == ISSUE:
            result = msgspec.structs.replace(result, url=await self._merge_request(attempt, job, branch, result, lease))
            attempt.progress.note(url=result.url)
        return result

    async def _worked(
        self, attempt: Attempt, job: RepoJob, clone: GitClone, start: str, lease: AsyncLease
    ) -> JobResult:
        """The commit that the command made, not pushed yet. It is kept first, so that a process that takes over after
        the push knows what to post."""
        await clone.check_out(start)
        text = await self._command(attempt, job, clone)
        trailers = (f"{JOB_TRAILER}: {attempt.run}", f"{FENCE_TRAILER}: {lease.fence}")
        author = (self._settings.author_name, self._settings.author_email)
        commit = await clone.commit(start, _message(job, text), trailers, author)
        result = JobResult(text=text, commit=commit)
        await self._results.keep(attempt.run, result)
        return result

    async def _merge_request(
        self, attempt: Attempt, job: RepoJob, branch: str, result: JobResult, lease: AsyncLease
    ) -> str:
        """The URL of the merge request of the branch, which is created unless it is there."""
        forge, marker = attempt.forge, hidden(attempt.marker)
        if found := await forge.find_merge_request(job, branch, marker):
            return found
        text = f"{result.text}\n\n{marker}".strip()
        await self._still_ours(attempt, lease)
        try:
            return await forge.create_merge_request(job, branch, f"{job.issue_key}: {_line(job.title)}", text)
        except CallFailed as failure:
            found = await forge.find_merge_request(job, branch, marker) if failure.permanent else ""
            if not found:
                raise
            return found  # somebody else has created it just now

    # -- steps that all of them have

    async def _cloned(self, attempt: Attempt, job: RepoJob) -> GitClone:
        clone = GitClone(attempt.folder, job.git_http_url, attempt.forge.login, attempt.tls, self._settings.git_timeout)
        await clone.clone()
        return clone

    async def _command(self, attempt: Attempt, job: RepoJob, clone: GitClone) -> str:
        output = await run_command(attempt.command, job, clone.work, (attempt.forge.login.password,))
        attempt.progress.note(log=output.log)
        return output.text

    async def _post(self, attempt: Attempt, poster: Poster, text: str) -> str:
        if not text:
            return NOTHING
        await self._still_ours(attempt)
        await poster.post(text if len(text) <= MAX_COMMENT else f"{text[:MAX_COMMENT]}\n\n(shortened)")
        return DONE

    async def _still_ours(self, attempt: Attempt, lease: AsyncLease | None = None) -> None:
        """Raises LeaseLost unless both leases last for a while: what is posted next is then posted by their holder."""
        for each in (attempt.claim, lease):
            if each is not None:
                await each.ensure(self._settings.ttl * _MARGIN)

    def _poster(self, attempt: Attempt) -> Poster | None:
        if attempt.job.kind != ISSUE:
            return CommentPoster(attempt)
        return None if self._jira is None else IssuePoster(self._jira, attempt)


class CommentPoster:
    """Posts on the merge request, with a hidden marker."""

    def __init__(self, attempt: Attempt) -> None:
        self._forge, self._job, self._marker = attempt.forge, attempt.job, hidden(attempt.marker)

    async def has(self) -> bool:
        """As Poster."""
        return await self._forge.has_comment(self._job, self._marker)

    async def post(self, text: str) -> None:
        """As Poster."""
        await self._forge.comment(self._job, f"{text}\n\n{self._marker}")


class IssuePoster:
    """Posts on the Jira issue, with the marker as its last line."""

    def __init__(self, jira: JiraComments, attempt: Attempt) -> None:
        self._jira, self._issue, self._marker = jira, attempt.job.issue_key, f"(solely {attempt.marker})"

    async def has(self) -> bool:
        """As Poster."""
        return await self._jira.has_comment(self._issue, self._marker)

    async def post(self, text: str) -> None:
        """As Poster."""
        await self._jira.comment(self._issue, f"{text}\n\n{self._marker}")


def _message(job: RepoJob, text: str) -> str:
    """The message of the commit: what was asked for, and what the command says about it."""
    asked = f"{job.issue_key}: {job.title}" if job.kind == ISSUE else job.text
    body = "\n".join(line for line in text.splitlines() if not line.startswith(_TRAILERS))  # nobody else's are ours
    return f"{_line(asked)[:_SUBJECT] or job.key}\n\n{body}".strip() + "\n"


def _line(text: str) -> str:
    """The first line, without what cannot be printed."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return "".join(letter for letter in first if letter.isprintable()).strip()
