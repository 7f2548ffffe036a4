"""Comments that say that a job failed for good, each posted once: they wait in a queue of their own, so that an outage
of the forge, which may be why the job failed, does not lose them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import structlog

from .... import AsyncClient, AsyncItem, PermanentFailure, Postpone
from ....kit import CallFailed
from ..forges.client import ForgeAccess
from ..model import FAILURES, JOBS, RepoJob, claim_key, own
from ..polling import pause_after
from .commands import CommandFailed
from .git import GitFailed, PushRejected
from .jira_comments import JiraComments
from .markers import failure_marker
from .postings import posting_of
from .results import JobResults
from .settings import JobSettings

log = structlog.get_logger("solely.repos")

_PARKING = 1.0  # seconds until a job that has just failed has left its queue
_TTL = 30.0  # seconds of the lease of a notice: the item's worker renews it


class FailureNotice(msgspec.Struct, frozen=True):
    """A run that failed for good. `item` is its item in the queue of jobs; `reason` has nothing that is secret."""

    job: RepoJob
    run: str
    item: str
    attempts: int
    reason: str


class FailureNotices:
    """Accepts and posts notices."""

    def __init__(
        self,
        once: AsyncClient,
        settings: JobSettings,
        forges: Mapping[str, ForgeAccess],
        jira: JiraComments | None,
        results: JobResults,
    ) -> None:
        self._once, self._settings, self._forges, self._jira, self._results = once, settings, forges, jira, results
        self._jobs, self._queue = once.queue(own(JOBS)), once.queue(own(FAILURES))

    async def accept(self, notice: FailureNotice) -> None:
        """Puts the notice into the queue, unless the settings say that nothing is posted."""
        if self._settings.comment_failures and notice.job.forge in self._forges:
            await self._queue.push(notice.run, msgspec.to_builtins(notice))

    async def post(self, item: AsyncItem) -> None:
        """Posts the notice of this item, as QueueWorker asks for, unless the job was repeated or succeeded since."""
        notice = msgspec.convert(item.payload, FailureNotice)
        if await self._jobs.read(notice.item) is not None:
            raise Postpone(f"{notice.item} is still in the queue", after=_PARKING)
        if await self._is_obsolete(notice):
            return
        try:
            await self._post(notice, item)
        except CallFailed as failure:
            if not failure.permanent:
                pause = pause_after(failure) or self._settings.outage_pause
                raise Postpone(str(failure), after=pause) from failure
            log.warning("failure_comment_refused", job=notice.run, error=str(failure))

    async def _post(self, notice: FailureNotice, item: AsyncItem) -> None:
        access = self._forges.get(notice.job.forge)
        if access is None:
            return
        marker = failure_marker(notice.run, access.client.login.password)
        posting = posting_of(notice.job, marker, access.client, self._jira)
        if posting is not None and not await posting.is_posted():
            await item.renew(_TTL)  # raises LeaseLost if another process has the item by now
            await posting.post(_text(notice))

    async def _is_obsolete(self, notice: FailureNotice) -> bool:
        if await self._results.run(notice.job.key) != notice.run:
            return True
        key = claim_key(notice.job.key)
        return any(each.key == key and each.outcome for each in await self._once.claims(key, limit=1))


def _text(notice: FailureNotice) -> str:
    tries = "1 attempt" if notice.attempts == 1 else f"{notice.attempts} attempts"
    key, run, group = notice.job.key, notice.run, own(JOBS)
    return (
        f"The job `{run}` failed after {tries}, and is not tried again: {notice.reason}.\n\n"
        f"Whoever operates the service reads what happened with `solely repos log '{run}'`, and has the job performed "
        f"again with `solely repos repeat '{key}' --reason '…'`, or replays its dead letter of the group `{group}`."
    )


def public_reason(error: BaseException) -> str:
    """Why the job failed, for everybody who can read the comment: without output, addresses or paths, which the page of
    the job shows to those who may see it."""
    if isinstance(error, CommandFailed):
        return "its command failed"
    if isinstance(error, PushRejected):
        return "its push was rejected"
    if isinstance(error, GitFailed):
        return "git failed"
    if isinstance(error, CallFailed):
        status = error.response.status if error.response is not None else 0
        return f"a call was answered with status {status}" if status else "a call failed"
    return str(error) if isinstance(error, PermanentFailure) else "an internal error"
