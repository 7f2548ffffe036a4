"""GitLab's API, as jobs write to it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from .....kit import Caller, CallFailed, Request, Response, by_link
from ...model import REVIEW, RepoJob
from ..client import GitLogin, check_project
from ..comments import PostedComment
from .payloads import GitLabUser, is_fork

T = TypeVar("T")
_USER = "oauth2"  # GitLab accepts any name with a token
# What GitLab removes or does not see before a quick action: blanks, quotes, and characters that are not shown.
_UNSEEN = r"(?:[^\S\n]|[>\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff])*"
_QUICK_ACTION = re.compile(rf"^({_UNSEEN})/(?=\w)", re.MULTILINE)
_LINE_END = re.compile(r"\r\n?")


class NoteRow(msgspec.Struct):
    """A comment, as the API lists it."""

    id: int
    body: str = ""
    author: GitLabUser | None = None


class MergeRequestRow(msgspec.Struct):
    """A merge request, as the API returns it."""

    web_url: str
    source_branch: str = ""
    target_branch: str = ""
    sha: str | None = None
    title: str = ""
    description: str | None = None
    state: str = ""
    source_project_id: int | None = None


class ProjectRow(msgspec.Struct):
    """A project, as the API returns it."""

    http_url_to_repo: str
    path_with_namespace: str = ""


class GitLabClient:
    """Comments and merge requests of one GitLab."""

    name = "gitlab"

    def __init__(self, caller: Caller, url: str, token: str) -> None:
        self._caller, self._api, self._token = caller, f"{url.rstrip('/')}/api/v4", token
        parts = urlsplit(url)
        self.login = GitLogin(f"{parts.scheme}://{parts.netloc}", _USER, token)

    def head_ref(self, job: RepoJob) -> str:
        """As ForgeClient."""
        return f"refs/merge-requests/{job.mr_iid}/head"

    async def has_project(self, id: int, path: str) -> bool:
        """As ForgeClient."""
        return (await self.get(f"/projects/{id}", ProjectRow)).path_with_namespace in ("", path)

    async def completed(self, job: RepoJob) -> RepoJob:
        """As ForgeClient."""
        if job.received_by == "poller" and job.source_branch and (job.git_http_url or job.kind == REVIEW):
            return job  # GitLab itself has listed it
        target = await self.get(_project(job), ProjectRow)
        check_project(job, target.path_with_namespace, job.project_path)
        row = await self.get(f"{_project(job)}/merge_requests/{job.mr_iid}", MergeRequestRow)
        from_fork = is_fork(job.project_id, row.source_project_id)
        return msgspec.structs.replace(
            job,
            source_branch=row.source_branch,
            target_branch=row.target_branch,
            head_sha=job.head_sha or row.sha or "",
            title=job.title or row.title,
            git_http_url=await self._repository(row.source_project_id) if from_fork else target.http_url_to_repo,
            target_url=target.http_url_to_repo,
            from_fork=from_fork,
        )

    async def _repository(self, project: int | None) -> str:
        """The URL of the project's repository; "" if it is gone, or hidden from us."""
        if project is None:
            return ""
        try:
            return (await self.get(f"/projects/{project}", ProjectRow)).http_url_to_repo
        except CallFailed as failure:
            if failure.response is None or failure.response.status not in (403, 404):
                raise
            return ""

    def comments(self, job: RepoJob) -> GitLabComments:
        """As ForgeClient."""
        return GitLabComments(self, f"{_project(job)}/merge_requests/{job.mr_iid}/notes")

    async def find_merge_request(self, job: RepoJob, branch: str, marker: str) -> str:
        """As ForgeClient."""
        query = urlencode({"scope": "all", "state": "all", "source_branch": branch, "per_page": 100})
        rows = await self.get(f"{_project(job)}/merge_requests?{query}", list[MergeRequestRow])
        ours = [row for row in rows if marker in (row.description or "")]
        opened = [row for row in rows if row.state == "opened" and row.target_branch == job.target_branch]
        return next((row.web_url for row in (*ours, *opened)), "")

    async def create_merge_request(self, job: RepoJob, branch: str, title: str, text: str) -> str:
        """As ForgeClient."""
        given = {"source_branch": branch, "target_branch": job.target_branch, "title": title}
        given["description"] = _inert(text)
        return (await self.call("POST", f"{_project(job)}/merge_requests", given)).json(MergeRequestRow).web_url

    async def get(self, path: str, kind: type[T]) -> T:
        """What the API has at this path."""
        return (await self.call("GET", path)).json(kind)

    async def call(self, method: str, path: str, body: object = None) -> Response:
        """Calls the API."""
        return await self._caller.call_ok(self._request(method, path, body))

    def pages(self, path: str) -> AsyncIterator[Response]:
        """All pages of what the API lists at this path."""
        return self._caller.pages(self._request("GET", path), by_link)

    def _request(self, method: str, path: str, body: object = None) -> Request:
        headers = {"private-token": self._token} if self._token else {}
        url = self._api + path
        return Request(method, url, headers) if body is None else Request.json(method, url, body, headers)


class GitLabComments:
    """The notes of one merge request, see `comments.CommentSite`."""

    def __init__(self, client: GitLabClient, path: str) -> None:
        self._client, self._path = client, path

    async def find(self, marker: str) -> list[PostedComment]:
        """As CommentSite."""
        query = urlencode({"sort": "asc", "order_by": "created_at", "per_page": 100})
        rows = [row async for page in self._client.pages(f"{self._path}?{query}") for row in page.json(list[NoteRow])]
        found = [row for row in rows if marker in row.body]
        return sorted(PostedComment(row.id, row.author.username if row.author else "") for row in found)

    async def add(self, text: str) -> None:
        """As CommentSite."""
        await self._client.call("POST", self._path, {"body": _inert(text)})

    async def remove(self, id: int) -> None:
        """As CommentSite."""
        await self._client.call("DELETE", f"{self._path}/{id}")

    async def user(self) -> str:
        """As CommentSite."""
        return (await self._client.get("/user", GitLabUser)).username


def _inert(text: str) -> str:
    """The text, in which no line is a quick action such as /merge: it would be performed with our rights."""
    return _QUICK_ACTION.sub(r"\1\\/", _LINE_END.sub("\n", text))


def _project(job: RepoJob) -> str:
    return f"/projects/{job.project_id or quote(job.project_path, safe='')}"
