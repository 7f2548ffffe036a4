"""Comments on Jira issues, in which a job says what became of an issue. Jira shows all of a comment, so its marker is a
line at the end."""

from __future__ import annotations

import base64
from typing import Literal
from urllib.parse import quote, urlencode

import msgspec

from ....kit import Caller, Request, by_offset


class IssueCommentRow(msgspec.Struct):
    """A comment: a text in Data Center, a document in Cloud."""

    body: msgspec.Raw


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

    async def has_comment(self, issue: str, marker: str) -> bool:
        """True if a comment on the issue contains the marker."""
        query = urlencode({"orderBy": "-created", "maxResults": 100})
        request = self._request("GET", f"{_comments(issue)}?{query}")
        async for page in self._caller.pages(request, by_offset("comments")):
            if any(marker.encode() in bytes(each.body) for each in page.json(IssueCommentPage).comments):
                return True
        return False

    async def comment(self, issue: str, text: str) -> None:
        """Adds a comment to the issue."""
        body = _document(text) if self._cloud else text
        await self._caller.call_ok(self._request("POST", _comments(issue), {"body": body}))

    def _request(self, method: str, path: str, body: object = None) -> Request:
        headers = {"authorization": self._authorization} if self._token else {}
        url = self._api + path
        return Request(method, url, headers) if body is None else Request.json(method, url, body, headers)


def _comments(issue: str) -> str:
    return f"/issue/{quote(issue, safe='')}/comment"


def _document(text: str) -> dict[str, object]:
    """The text as a document of Atlassian's format, a paragraph per line."""
    lines = [[{"type": "text", "text": line}] if line else [] for line in text.splitlines()]
    return {"type": "doc", "version": 1, "content": [{"type": "paragraph", "content": line} for line in lines]}
