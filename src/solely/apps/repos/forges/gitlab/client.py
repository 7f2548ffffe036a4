"""GitLab's API, as jobs write to it."""

from __future__ import annotations

import re
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from .....kit import Caller, Request, by_link
from ...model import RepoJob
from ..client import GitLogin

T = TypeVar("T")
_USER = "oauth2"  # GitLab accepts any name with a token
_QUICK_ACTION = re.compile(r"^([ \t>]*)/(?=\w)", re.MULTILINE)


class NoteRow(msgspec.Struct):
    """A comment, as the API lists it."""

    body: str = ""


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

    async def completed(self, job: RepoJob) -> RepoJob:
        """As ForgeClient."""
        if job.source_branch and job.git_http_url:
            return job
        row = await self._get(f"{_project(job)}/merge_requests/{job.mr_iid}", MergeRequestRow)
        project = await self._get(f"/projects/{row.source_project_id or job.project_id}", ProjectRow)
        return msgspec.structs.replace(
            job,
            source_branch=row.source_branch,
            target_branch=row.target_branch,
            head_sha=job.head_sha or row.sha or "",
            title=job.title or row.title,
            git_http_url=project.http_url_to_repo,
        )

    async def has_comment(self, job: RepoJob, marker: str) -> bool:
        """As ForgeClient; newest first, since the comment is usually one of the last."""
        query = urlencode({"sort": "desc", "order_by": "created_at", "per_page": 100})
        async for page in self._caller.pages(self._request("GET", f"{_notes(job)}?{query}"), by_link):
            if any(marker in note.body for note in page.json(list[NoteRow])):
                return True
        return False

    async def comment(self, job: RepoJob, text: str) -> None:
        """As ForgeClient."""
        await self._caller.call_ok(self._request("POST", _notes(job), {"body": _inert(text)}))

    async def find_merge_request(self, job: RepoJob, branch: str, marker: str) -> str:
        """As ForgeClient."""
        query = urlencode({"scope": "all", "state": "all", "source_branch": branch, "per_page": 100})
        rows = await self._get(f"{_project(job)}/merge_requests?{query}", list[MergeRequestRow])
        ours = [row for row in rows if marker in (row.description or "")]
        opened = [row for row in rows if row.state == "opened" and row.target_branch == job.target_branch]
        return next((row.web_url for row in (*ours, *opened)), "")

    async def create_merge_request(self, job: RepoJob, branch: str, title: str, text: str) -> str:
        """As ForgeClient."""
        given = {"source_branch": branch, "target_branch": job.target_branch, "title": title}
        given["description"] = _inert(text)
        response = await self._caller.call_ok(self._request("POST", f"{_project(job)}/merge_requests", given))
        return response.json(MergeRequestRow).web_url

    async def _get(self, path: str, kind: type[T]) -> T:
        return (await self._caller.call_ok(self._request("GET", path))).json(kind)

    def _request(self, method: str, path: str, body: object = None) -> Request:
        headers = {"private-token": self._token} if self._token else {}
        url = self._api + path
        return Request(method, url, headers) if body is None else Request.json(method, url, body, headers)


def _inert(text: str) -> str:
    """The text, in which no line is a quick action such as /merge: it would be performed with our rights."""
    return _QUICK_ACTION.sub(r"\1\\/", text)


def _project(job: RepoJob) -> str:
    return f"/projects/{job.project_id or quote(job.project_path, safe='')}"


def _notes(job: RepoJob) -> str:
    return f"{_project(job)}/merge_requests/{job.mr_iid}/notes"
