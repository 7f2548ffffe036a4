"""The poller's view of Jira, Cloud and Data Center: issues that the JQL of the settings selects.

JQL compares times by the minute and in the time zone of the user, so that the poll asks for one that may begin up to a
minute earlier.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import msgspec
import structlog

from ...kit import Caller, CallFailed, Request, Response, by_token
from .forges.forge import Found, UnreadItem
from .forges.moments import seconds_of, their_now
from .model import ISSUE, RepoJob, issue_key
from .settings import JiraSettings

log = structlog.get_logger("solely.repos")

SOURCE = "jira"
PER_PAGE = 100  # the most that Jira returns with fields
MAX_PAGES = 200  # of one listing: 20,000 issues; more of them at once is an import, not work
# The zone that is assumed if that of the user is unknown: its clocks show the earliest time of all, so that the query
# begins too early, by 26 hours at most, and misses nothing.
EARLIEST = timezone(timedelta(hours=-12))
MAX_DEPTH = 50  # levels of a description: nested lists and tables have a handful; deeper texts are left out
RESTARTS = 3  # of a listing of Data Center whose issues moved while it was read
_FIELDS = "summary,description,updated,reporter"


class JiraUser(msgspec.Struct):
    """A person. Cloud has no `name`."""

    name: str = ""
    display_name: str = msgspec.field(default="", name="displayName")
    time_zone: str = msgspec.field(default="", name="timeZone")


class JiraFields(msgspec.Struct):
    """The fields of an issue. Data Center writes the description as text, Cloud as a document."""

    summary: str = ""
    description: str | dict[str, Any] | None = None
    updated: str = ""
    reporter: JiraUser | None = None


class JiraIssue(msgspec.Struct):
    """An issue."""

    key: str
    fields: JiraFields


class JiraTotal(msgspec.Struct):
    """How many issues a query of Data Center has; a page may have fewer than were asked for."""

    total: int = 0


class JiraListing:
    """The issues, see `forge.PolledSource`."""

    name = SOURCE

    def __init__(self, caller: Caller, settings: JiraSettings) -> None:
        self.every, self.lookback = settings.poll_every, settings.lookback
        self._caller, self._settings = caller, settings
        self._cloud = settings.kind == "cloud"
        self._api = f"{settings.url.rstrip('/')}/rest/api/{3 if self._cloud else 2}"
        self._headers = {"accept": "application/json", **_login(settings)}
        self._zone: tzinfo = EARLIEST

    async def now(self) -> datetime:
        """Jira's time when it was asked; also reads the time zone of the user."""
        sent = datetime.now(UTC)
        response = await self._caller.call_ok(Request("GET", f"{self._api}/myself", self._headers))
        self._zone = _zone(response.json(JiraUser).time_zone)
        return their_now(sent, datetime.now(UTC), response.date)

    async def found(self, since: datetime) -> AsyncIterator[Found]:
        """The issues that were updated since then, or up to a minute before."""
        jql = self._jql(since)
        async for item in self._on_cloud(jql) if self._cloud else self._on_data_center(jql):
            try:
                issue = msgspec.convert(item, JiraIssue)
            except msgspec.ValidationError as error:
                yield UnreadItem(f"{SOURCE}:{item.get('key')}", item, str(error))
                continue
            if (job := self._job(issue)) is not None:
                yield job

    def _jql(self, since: datetime) -> str:
        """The query from the minute of `since` on, in the user's time zone. In the hour that the clocks repeat, Jira
        takes the first one: it returns more, and misses nothing. Ordered by what does not change."""
        minute = since.astimezone(self._zone).strftime("%Y-%m-%d %H:%M")
        return f'({self._settings.jql}) AND updated >= "{minute}" ORDER BY created ASC, key ASC'

    async def _on_cloud(self, jql: str) -> AsyncIterator[dict[str, Any]]:
        query = urlencode({"jql": jql, "maxResults": PER_PAGE, "fields": _FIELDS})
        request = Request("GET", f"{self._api}/search/jql?{query}", self._headers)
        async for response in self._caller.pages(request, by_token(), most=MAX_PAGES):
            for item in _issues(response):
                yield item

    async def _on_data_center(self, jql: str) -> AsyncIterator[dict[str, Any]]:
        """Pages by offset, each of which begins with the last issue of the page before. If it begins with another one,
        an issue has left the query meanwhile and all others moved: the listing starts again."""
        start, last, restarts = 0, "", 0
        for _ in range(MAX_PAGES):
            query = urlencode({"jql": jql, "startAt": start, "maxResults": PER_PAGE, "fields": _FIELDS})
            response = await self._caller.call_ok(Request("GET", f"{self._api}/search?{query}", self._headers))
            items, total = _issues(response), response.json(JiraTotal).total
            if last and (not items or items[0].get("key") != last):
                start, last, restarts = 0, "", restarts + 1
                if restarts > RESTARTS:
                    raise CallFailed("jira: issues keep moving while they are listed")
                continue
            for item in items[1:] if last else items:
                yield item
            if not items or start + len(items) >= total:
                return
            start, last = start + len(items) - 1, str(items[-1].get("key"))
        raise CallFailed(f"jira: more than {MAX_PAGES} pages of issues were updated", permanent=True)

    def _job(self, issue: JiraIssue) -> RepoJob | None:
        """The job of this issue; None if its project has no repository in the settings."""
        fields, project = issue.fields, issue.key.rpartition("-")[0]
        target = self._settings.projects.get(project)
        if target is None:
            log.info("issue_without_repository", issue=issue.key, project=project)
            return None
        reporter = fields.reporter or JiraUser()
        return RepoJob(
            kind=ISSUE,
            forge=target.forge,
            key=issue_key(issue.key),
            project_id=target.project_id,
            project_path=target.project_path,
            git_http_url=target.git_http_url,
            source_branch=f"agent/{issue.key.lower()}",
            target_branch=target.target_branch,
            text=text_of(fields.description),
            issue_key=issue.key,
            title=fields.summary,
            author=reporter.name or reporter.display_name,
            received_by="poller",
            at=seconds_of(fields.updated),
        )


def _login(settings: JiraSettings) -> dict[str, str]:
    """Cloud takes the mail address and an API token, Data Center a personal access token."""
    if not settings.token:
        return {}
    if settings.kind == "data_center" and not settings.user:
        return {"authorization": f"Bearer {settings.token}"}
    pair = base64.b64encode(f"{settings.user}:{settings.token}".encode()).decode()
    return {"authorization": f"Basic {pair}"}


def _zone(name: str) -> tzinfo:
    """The time zone of the user; the earliest one, which is logged, if this machine does not know it."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError, RecursionError):  # whatever the name leads to among the files of time zones
        log.warning("jira_time_zone_unknown", zone=name)
        return EARLIEST


def _issues(response: Response) -> list[dict[str, Any]]:
    return response.json(dict[str, list[dict[str, Any]] | Any]).get("issues") or []


def text_of(document: str | dict[str, Any] | None) -> str:
    """The text of a description; of Cloud's document, the texts of its paragraphs, a line each."""
    if not isinstance(document, dict):
        return document or ""
    lines = [_inline(block, MAX_DEPTH) for block in _content(document)]
    return "\n".join(line for line in lines if line)


def _content(node: dict[str, Any]) -> list[dict[str, Any]]:
    content = node.get("content")
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []


def _inline(node: dict[str, Any], levels: int) -> str:
    parts = [_inline(each, levels - 1) for each in _content(node)] if levels else []
    apart = "\n" if node.get("type") in ("bulletList", "orderedList", "blockquote", "table") else ""
    return str(node.get("text") or "") + apart.join(parts)
