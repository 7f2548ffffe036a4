"""GitHub's API, as jobs write to it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from .....kit import Caller, CallFailed, Request, Response, by_link
from ...model import RepoJob
from ..client import GitLogin, check_project
from ..comments import PostedComment

T = TypeVar("T")
_USER = "x-access-token"  # GitHub accepts any name with a token
_PUBLIC_API, _PUBLIC_GIT = "https://api.github.com", "https://github.com"


class UserRow(msgspec.Struct):
    """A person or a program; it has no name if it is gone."""

    login: str = ""


class CommentRow(msgspec.Struct):
    """A comment, as the API lists it."""

    id: int
    body: str | None = None
    user: UserRow | None = None


class RepositoryRow(msgspec.Struct):
    """The repository of a branch."""

    clone_url: str
    id: int = 0
    full_name: str = ""


class BranchRow(msgspec.Struct):
    """One end of a pull request; its repository is gone if a fork was deleted."""

    ref: str
    sha: str = ""
    repo: RepositoryRow | None = None


class PullRow(msgspec.Struct):
    """A pull request, as the API returns it."""

    html_url: str
    head: BranchRow
    base: BranchRow
    state: str = ""
    title: str = ""
    body: str | None = None


class GitHubClient:
    """Comments and pull requests of GitHub, or of a GitHub Enterprise Server whose API is at `url`."""

    name = "github"

    def __init__(self, caller: Caller, url: str, token: str) -> None:
        self._caller, self._api, self._token = caller, url.rstrip("/"), token
        parts = urlsplit(url)
        origin = _PUBLIC_GIT if self._api == _PUBLIC_API else f"{parts.scheme}://{parts.netloc}"
        self.login = GitLogin(origin, _USER, token)

    def head_ref(self, job: RepoJob) -> str:
        """As ForgeClient."""
        return f"refs/pull/{job.mr_iid}/head"

    async def has_project(self, id: int, path: str) -> bool:
        """As ForgeClient."""
        return (await self.call("GET", f"/repos/{path}")).json(RepositoryRow).id in (0, id)

    async def completed(self, job: RepoJob) -> RepoJob:
        """As ForgeClient."""
        row = (await self.call("GET", f"{_repo(job)}/pulls/{job.mr_iid}")).json(PullRow)
        check_project(job, row.base.repo.id if row.base.repo else 0, job.project_id)
        source, target = (each.repo.clone_url if each.repo else "" for each in (row.head, row.base))
        return msgspec.structs.replace(
            job,
            source_branch=row.head.ref,
            target_branch=row.base.ref,
            head_sha=job.head_sha or row.head.sha,
            title=job.title or row.title,
            git_http_url=source,
            target_url=target,
            from_fork=source != target,
        )

    def comments(self, job: RepoJob) -> GitHubComments:
        """As ForgeClient."""
        return GitHubComments(self, f"{_repo(job)}/issues", job.mr_iid)

    async def find_merge_request(self, job: RepoJob, branch: str, marker: str) -> str:
        """As ForgeClient."""
        owner = job.project_path.partition("/")[0]
        query = urlencode({"head": f"{owner}:{branch}", "state": "all", "per_page": 100})
        rows = (await self.call("GET", f"{_repo(job)}/pulls?{query}")).json(list[PullRow])
        ours = [row for row in rows if marker in (row.body or "")]
        opened = [row for row in rows if row.state == "open" and row.base.ref == job.target_branch]
        return next((row.html_url for row in (*ours, *opened)), "")

    async def create_merge_request(self, job: RepoJob, branch: str, title: str, text: str) -> str:
        """As ForgeClient."""
        given = {"head": branch, "base": job.target_branch, "title": title, "body": text}
        return (await self.call("POST", f"{_repo(job)}/pulls", given)).json(PullRow).html_url

    async def call(self, method: str, path: str, body: object = None) -> Response:
        """Calls the API."""
        with _limits_are_temporary():
            return await self._caller.call_ok(self._request(method, path, body))

    async def pages(self, path: str) -> AsyncIterator[Response]:
        """All pages of what the API lists at this path."""
        with _limits_are_temporary():
            async for page in self._caller.pages(self._request("GET", path), by_link):
                yield page

    def _request(self, method: str, path: str, body: object = None) -> Request:
        headers = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
        headers |= {"authorization": f"Bearer {self._token}"} if self._token else {}
        url = self._api + path
        return Request(method, url, headers) if body is None else Request.json(method, url, body, headers)


class GitHubComments:
    """The comments on one pull request, see `comments.CommentSite`."""

    def __init__(self, client: GitHubClient, issues: str, number: int) -> None:
        self._client, self._issues, self._path = client, issues, f"{issues}/{number}/comments"

    async def find(self, marker: str) -> list[PostedComment]:
        """As CommentSite."""
        pages = self._client.pages(f"{self._path}?per_page=100")
        rows = [row async for page in pages for row in page.json(list[CommentRow])]
        found = [row for row in rows if marker in (row.body or "")]
        return sorted(PostedComment(row.id, row.user.login if row.user else "") for row in found)

    async def add(self, text: str) -> None:
        """As CommentSite."""
        await self._client.call("POST", self._path, {"body": text})

    async def remove(self, id: int) -> None:
        """As CommentSite."""
        await self._client.call("DELETE", f"{self._issues}/comments/{id}")

    async def user(self) -> str:
        """As CommentSite; an installation of a GitHub App is refused to ask."""
        return (await self._client.call("GET", "/user")).json(UserRow).login


@contextmanager
def _limits_are_temporary() -> Iterator[None]:
    """A refusal by the rate limit is a temporary CallFailed, though its status is 403."""
    try:
        yield
    except CallFailed as failure:
        wait = _limited(failure.response)
        if wait is None:
            raise
        raise CallFailed(str(failure), retry_after=wait, response=failure.response) from None


def _limited(response: Response | None) -> float | None:
    """Seconds to wait, if this is a refusal by the rate limit; else None."""
    if response is None or response.status != 403:
        return None
    if response.retry_after is not None:
        return response.retry_after
    reset = response.headers.get("x-ratelimit-reset", "")
    if response.headers.get("x-ratelimit-remaining") != "0" or not reset.isdigit():
        return None
    return max(1.0, float(reset) - time.time())


def _repo(job: RepoJob) -> str:
    return f"/repos/{job.project_path}"
