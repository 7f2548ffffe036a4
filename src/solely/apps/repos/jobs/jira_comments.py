"""Comments on Jira issues, in which a job says what became of an issue. Jira shows all of a comment, so its marker is a
line at the end."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Literal
from urllib.parse import quote, urlencode

import msgspec

from ....kit import Caller, Request, Response, by_offset
from ..forges.comments import PostedComment


class JiraAuthor(msgspec.Struct):
    """Who wrote a comment. Cloud has ids, Data Center names."""

    account_id: str = msgspec.field(default="", name="accountId")
    name: str = ""

    def __str__(self) -> str:
        return self.account_id or self.name


class IssueCommentRow(msgspec.Struct):
    """A comment: a text in Data Center, a document in Cloud."""

    id: str
    body: msgspec.Raw
    author: JiraAuthor | None = None  # none if anybody may comment


class IssueCommentPage(msgspec.Struct):
    """A page of comments."""

    comments: list[IssueCommentRow]


class JiraComments:
    """The comments of one Jira."""

    def __init__(self, caller: Caller, url: str, kind: Literal["cloud", "data_center"], user: str, token: str) -> None:
        self._caller, self._cloud, self._token = caller, kind == "cloud", token
        self._api = f"{url.rstrip('/')}/rest/api/{3 if self._cloud else 2}"
        basic = base64.b64encode(f"{user}:{token}".encode()).decode()
        self._authorization = f"Basic {basic}" if user else f"Bearer {token}"

    def of(self, issue: str) -> IssueComments:
        """The comments of this issue."""
        return IssueComments(self, f"/issue/{quote(issue, safe='')}/comment")

    def body(self, text: str) -> object:
        """The text as this Jira wants it."""
        return _document(text) if self._cloud else text

    async def call(self, method: str, path: str, body: object = None) -> Response:
        """Calls the API."""
        return await self._caller.call_ok(self._request(method, path, body))

    def pages(self, path: str) -> AsyncIterator[Response]:
        """All pages of comments at this path."""
        return self._caller.pages(self._request("GET", path), by_offset("comments"))

    def _request(self, method: str, path: str, body: object = None) -> Request:
        headers = {"authorization": self._authorization} if self._token else {}
        url = self._api + path
        return Request(method, url, headers) if body is None else Request.json(method, url, body, headers)


class IssueComments:
    """The comments of one issue, see `comments.CommentSite`."""

    def __init__(self, jira: JiraComments, path: str) -> None:
        self._jira, self._path = jira, path

    async def find(self, marker: str) -> list[PostedComment]:
        """As CommentSite."""
        pages = self._jira.pages(f"{self._path}?{urlencode({'orderBy': 'created', 'maxResults': 100})}")
        rows = [row async for page in pages for row in page.json(IssueCommentPage).comments]
        found = [row for row in rows if marker.encode() in bytes(row.body)]
        return sorted(PostedComment(int(row.id), str(row.author or "")) for row in found)

    async def add(self, text: str) -> None:
        """As CommentSite."""
        await self._jira.call("POST", self._path, {"body": self._jira.body(text)})

    async def remove(self, id: int) -> None:
        """As CommentSite."""
        await self._jira.call("DELETE", f"{self._path}/{id}")

    async def user(self) -> str:
        """As CommentSite."""
        return str((await self._jira.call("GET", "/myself")).json(JiraAuthor))


def _document(text: str) -> dict[str, object]:
    """The text as a document of Atlassian's format, a paragraph per line."""
    lines = [[{"type": "text", "text": line}] if line else [] for line in text.splitlines()]
    return {"type": "doc", "version": 1, "content": [{"type": "paragraph", "content": line} for line in lines]}
