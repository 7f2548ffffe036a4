"""The handlers of the three kinds of jobs. Each leaves a marker with what it posts, and looks for it first: a comment,
a push or a merge request whose answer was lost is found again, and not repeated."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from .... import AsyncClaim, AsyncClient, AsyncLease, PermanentFailure, StaleFence
from ....kit import CallFailed
from ..forges.client import ForgeClient
from ..model import ISSUE, RepoJob, lock_key
from .commands import run_command
from .git import GitClone
from .jira_comments import JiraComments
from .markers import FENCE_TRAILER, JOB_TRAILER, hidden
from .postings import Posting, posting_of
from .records import DONE, IGNORED, NOTHING, RUNNING, SUPERSEDED, WAITING, JobProgress
from .results import JobResult, JobResults
from .settings import JobCommand, JobSettings

_TRAILERS = (JOB_TRAILER, FENCE_TRAILER)
_SUBJECT = 72  # characters of the first line of a commit, as git's own tools show it
_FORK = "This merge request comes from a fork, to which commands do not push unless `jobs.push_to_forks` is set."
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


class JobHandlers:
    """Performs attempts. Each method returns the state in which the job ended."""

    def __init__(
        self, once: AsyncClient, settings: JobSettings, results: JobResults, jira: JiraComments | None
    ) -> None:
        self._once, self._settings, self._results, self._jira = once, settings, results, jira

    async def review(self, attempt: Attempt) -> str:
        """Runs the command on the head of the merge request, and posts what it says. It writes to no repository, so it
        needs no lock."""
        posting = self._posting(attempt)
        if await _is_posted(posting):
            return DONE
        result = await self._results.read(attempt.run) or await self._reviewed(attempt)
        return SUPERSEDED if result is None else await self._post(attempt, posting, result.text)

    async def _reviewed(self, attempt: Attempt) -> JobResult | None:
        """What the command says; None if the commit is no longer in the repository."""
        job = await attempt.forge.completed(attempt.job)
        clone = await self._cloned(attempt, job.review_url)
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
        posting = self._posting(attempt)
        if await _is_posted(posting):
            return DONE
        job = attempt.job if attempt.job.kind == ISSUE else await attempt.forge.completed(attempt.job)
        if job.from_fork and not self._settings.push_to_forks:
            await self._post(attempt, posting, _FORK)
            return IGNORED
        if not job.git_http_url:
            raise PermanentFailure("the fork with the branch is gone, or hidden from this service")
        key, ttl, wait = lock_key(job.git_http_url), self._settings.ttl, self._settings.lock_wait
        attempt.progress.enter(WAITING)
        async with self._once.lock(key, ttl=ttl, wait=wait, purpose=f"{job.kind} {job.key}") as lease:
            attempt.progress.enter(RUNNING)
            result = await self._pushed(attempt, job, lease)
        pushed = f"Pushed as {result.commit}." if result.commit else ""
        text = "\n\n".join(each for each in (result.url, result.text, pushed) if each)
        return await self._post(attempt, posting, text)

    async def _pushed(self, attempt: Attempt, job: RepoJob, lease: AsyncLease) -> JobResult:
        """What was pushed, now or by an earlier attempt; for an issue, with its merge request."""
        branch = job.source_branch or f"agent/{job.issue_key.lower()}"
        clone = await self._cloned(attempt, job.git_http_url)
        result = await self._earlier(attempt, job, clone, branch)
        if result is None:
            result = await self._worked(attempt, job, clone, branch, lease)
        attempt.progress.note(commit_id=result.commit)
        if result.commit and job.kind == ISSUE:
            url = await self._merge_request(attempt, job, branch, result, lease)
            result = msgspec.structs.replace(result, url=url)
            attempt.progress.note(url=url)
        return result

    async def _earlier(self, attempt: Attempt, job: RepoJob, clone: GitClone, branch: str) -> JobResult | None:
        """What an earlier attempt has pushed, or that it had nothing to push; None if the command is to be run."""
        kept = await self._results.read(attempt.run)
        if kept is not None and not kept.commit:
            return kept
        commit = await clone.commit_of(attempt.run, branch, job.target_branch) if await clone.tip(branch) else ""
        return msgspec.structs.replace(kept or JobResult(), commit=commit) if commit else None

    async def _worked(
        self, attempt: Attempt, job: RepoJob, clone: GitClone, branch: str, lease: AsyncLease
    ) -> JobResult:
        """Runs the command and pushes what it changed. The result is kept before that, so that a process that takes
        over after the push knows what to post."""
        start = await clone.tip(branch) or (await clone.tip(job.target_branch) if job.kind == ISSUE else "")
        if not start:
            raise PermanentFailure(f"the repository has no branch {job.target_branch if job.kind == ISSUE else branch}")
        await self._check_fence(clone, branch, job.target_branch, lease)
        await clone.check_out(start)
        text = await self._command(attempt, job, clone)
        trailers = (f"{JOB_TRAILER}: {attempt.run}", f"{FENCE_TRAILER}: {lease.fence}")
        author = (self._settings.author_name, self._settings.author_email)
        result = JobResult(text, await clone.commit(start, _message(job, text), trailers, author))
        await self._results.keep(attempt.run, result)
        if result.commit:
            await self._still_ours(attempt, lease)
            await clone.push(result.commit, branch, start)
        return result

    async def _check_fence(self, clone: GitClone, branch: str, target: str, lease: AsyncLease) -> None:
        """Raises StaleFence if a later holder has pushed before this one cloned. Fences are times in microseconds: one
        of the future is none of ours, and whoever wrote it into a commit does not stop jobs by that."""
        last = await clone.last_fence(branch, target) if await clone.tip(branch) else 0
        if lease.fence < last <= time.time() * 1_000_000:
            text = f"{branch} has a commit of a later holder: its fence is {last}, and not below {lease.fence}"
            raise StaleFence(text, key=lease.key, offered=lease.fence, stored=last)

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

    async def _cloned(self, attempt: Attempt, url: str) -> GitClone:
        clone = GitClone(attempt.folder, url, attempt.forge.login, attempt.tls, self._settings)
        await clone.clone()
        return clone

    async def _command(self, attempt: Attempt, job: RepoJob, clone: GitClone) -> str:
        output = await run_command(attempt.command, job, clone.work, (attempt.forge.login.password,))
        attempt.progress.note(log=output.log)
        return output.text

    async def _post(self, attempt: Attempt, posting: Posting | None, text: str) -> str:
        if not text:
            return NOTHING
        if posting is not None:
            await self._still_ours(attempt)
            await posting.post(text)
        return DONE

    async def _still_ours(self, attempt: Attempt, lease: AsyncLease | None = None) -> None:
        """Raises LeaseLost unless both leases last for a while: what is posted next is then posted by their holder."""
        for each in (attempt.claim, lease):
            if each is not None:
                await each.ensure(self._settings.ttl * _MARGIN)

    def _posting(self, attempt: Attempt) -> Posting | None:
        return posting_of(attempt.job, attempt.marker, attempt.forge, self._jira)


async def _is_posted(posting: Posting | None) -> bool:
    return posting is not None and await posting.is_posted()


def _message(job: RepoJob, text: str) -> str:
    """The message of the commit: what was asked for, and what the command says about it."""
    asked = f"{job.issue_key}: {job.title}" if job.kind == ISSUE else job.text
    body = "\n".join(line for line in text.splitlines() if not line.startswith(_TRAILERS))  # nobody else's are ours
    return f"{_line(asked)[:_SUBJECT] or job.key}\n\n{body}".strip() + "\n"


def _line(text: str) -> str:
    """The first line, without what cannot be printed."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return "".join(letter for letter in first if letter.isprintable()).strip()
