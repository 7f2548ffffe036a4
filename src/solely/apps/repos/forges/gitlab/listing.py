"""What the poller reads of one project of GitLab: open merge requests, and the notes that are commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from .....kit import Caller, CallFailed, Request, by_header
from ...settings import GitLabSettings
from ..commands import CommandRule
from ..forge import Found, UnreadItem
from ..moments import moment_of, their_now, written
from .payloads import FORGE, OPENED, GitLabMergeRequest, GitLabNote, GitLabProject, command, review

PER_PAGE = 100  # the most that GitLab allows
MAX_PAGES = 200  # of one listing: 20,000 merge requests or notes; more of them at once is an import, not work


class GitLabListing:
    """One project, see `forge.PolledSource`."""

    def __init__(self, caller: Caller, settings: GitLabSettings, project: int | str, rule: CommandRule) -> None:
        self.name = f"{FORGE}:{project}"
        self.every, self.lookback = settings.poll_every, settings.lookback
        self._caller, self._rule = caller, rule
        self._headers = {"private-token": settings.token}
        self._api = f"{settings.url.rstrip('/')}/api/v4/projects"
        self._url = f"{self._api}/{quote(str(project), safe='')}"
        self._project = GitLabProject()
        self._urls: dict[int, str] = {}  # of repositories by project, for forks

    async def now(self) -> datetime:
        """GitLab's time when it was asked; also reads what jobs need of the project."""
        sent = datetime.now(UTC)
        response = await self._caller.call_ok(Request("GET", self._url, self._headers))
        self._project = response.json(GitLabProject)
        self._urls = {self._project.id: self._project.url}
        return their_now(sent, datetime.now(UTC), response.date)

    async def found(self, since: datetime) -> AsyncIterator[Found]:
        """The reviews and commands since then, each merge request with its notes, the oldest change first. A merge
        request whose notes cannot be listed does not hide the others: its CallFailed is raised at the end."""
        failed: CallFailed | None = None
        async for item in self._merge_requests(since):
            try:
                request = msgspec.convert(item, GitLabMergeRequest)
            except msgspec.ValidationError as error:
                yield UnreadItem(f"{self.name}!{item.get('iid')}", item, str(error))
                continue
            if request.state == OPENED:
                try:
                    async for each in self._jobs(request, since):
                        yield each
                except CallFailed as failure:
                    failed = failed or _of_one(failure)
        if failed is not None:
            raise failed

    async def _jobs(self, request: GitLabMergeRequest, since: datetime) -> AsyncIterator[Found]:
        url = await self._repository(request)
        if request.head:
            author = request.author.username if request.author is not None else ""
            yield review(self._project, request, url, author, "poller")
        async for item in self._notes(request.iid, since):
            try:
                note = msgspec.convert(item, GitLabNote)
            except msgspec.ValidationError as error:
                yield UnreadItem(f"{self.name}!{request.iid}#{item.get('id')}", item, str(error))
                continue
            by = note.author.username if note.author is not None else ""
            if not note.system and not self._rule.refusal(note.text, by):
                yield command(self._project, request, url, note, by, "poller")

    async def _merge_requests(self, since: datetime) -> AsyncIterator[dict[str, Any]]:
        """All that were updated since, each as it was when it was read.

        Each page begins at the time of the last one of the page before, and not at an offset: while pages are read,
        merge requests are updated and move to the end, which would shift all others by one.
        """
        after, page = written(since), 1
        for _ in range(MAX_PAGES):
            items = await self._page("merge_requests", updated_after=after, page=page, **_BY_UPDATE)
            for item in items:
                yield item
            if len(items) < PER_PAGE:
                return
            last = str(items[-1].get("updated_at") or after)
            after, page = (last, 1) if _later(last, after) else (after, page + 1)  # many of the same moment
        raise CallFailed(f"{self.name}: more than {MAX_PAGES} pages of merge requests were updated", permanent=True)

    async def _notes(self, iid: int, since: datetime) -> AsyncIterator[dict[str, Any]]:
        """The notes of this merge request, the newest first, back to `since`: GitLab cannot filter them by time. A note
        that is added meanwhile shifts others to a later page, where they are read twice."""
        query = urlencode({"sort": "desc", "order_by": "created_at", "per_page": PER_PAGE})
        request = Request("GET", f"{self._url}/merge_requests/{iid}/notes?{query}", self._headers)
        async for response in self._caller.pages(request, by_header(), most=MAX_PAGES):
            for item in response.json(list[dict[str, Any]]):
                if _is_before(item.get("created_at"), since):
                    return
                yield item

    async def _page(self, what: str, **query: object) -> list[dict[str, Any]]:
        url = f"{self._url}/{what}?{urlencode({'per_page': PER_PAGE, **query})}"
        return (await self._caller.call_ok(Request("GET", url, self._headers))).json(list[dict[str, Any]])

    async def _repository(self, request: GitLabMergeRequest) -> str:
        """The URL of the repository that has the source branch; "" if that is a fork that is gone or hidden."""
        source = request.source_project_id
        if source is None:
            return ""
        if source not in self._urls:
            response = await self._caller.call(Request("GET", f"{self._api}/{source}", self._headers))
            self._urls[source] = response.json(GitLabProject).url if response.ok else ""
        return self._urls[source]


_OF_ALL = (0, 401, 429, 502, 503, 504)  # statuses that every other request would get, too; 0: no answer
_BY_UPDATE = {"scope": "all", "order_by": "updated_at", "sort": "asc"}


def _of_one(failure: CallFailed) -> CallFailed | None:
    """The failure, if it is about one merge request; None if that is gone. Raises it if GitLab answers nobody now."""
    status = failure.response.status if failure.response is not None else 0
    if status in _OF_ALL:
        raise failure
    return None if status == 404 else failure


def _later(last: str, after: str) -> bool:
    """True if the listing can continue from `last`; not if that is where it began."""
    try:
        return moment_of(last) > moment_of(after)
    except ValueError:
        return False


def _is_before(created: object, since: datetime) -> bool:
    try:
        return moment_of(str(created)) < since
    except ValueError:
        return False  # whoever reads it says what is wrong
