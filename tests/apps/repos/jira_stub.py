"""The part of Jira's API (Cloud below /rest/api/3, Data Center below /rest/api/2) that the application calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from tests.apps.repos.forge_server import TOKEN, Asked, Handler, Reply, token_of

if TYPE_CHECKING:
    from tests.apps.repos.forge_server import Forges

_EITHER = r"/rest/api/(?:2|3)"
_SINCE = re.compile(r'updated\s*>=\s*"(\d{4}-\d\d-\d\d \d\d:\d\d)"')
_IN = re.compile(r'(project|status|labels)\s*(?:=|in)\s*\(?((?:\s*,?\s*"?[\w -]+?"?)+?)\)?(?=\s+(?:AND|ORDER)|$)', re.I)


class JiraStub:
    """Issues and their comments, as rows that tests may read and change. Times in a query have minutes, in the time
    zone of the user who asks."""

    def __init__(self, forges: Forges) -> None:
        self._forges = forges
        self.time_zone = "UTC"  # of the user
        self.page_size = 100  # at most, whatever is asked for
        self.issues: dict[str, dict[str, Any]] = {}
        self.comment_rows: dict[str, list[dict[str, Any]]] = {}
        self._ids = 9000
        routes: list[tuple[str, str, Handler]] = [
            ("GET", rf"{_EITHER}/myself", self._myself),
            ("GET", rf"{_EITHER}/issue/([^/]+)/comment", self._list_comments),
            ("POST", rf"{_EITHER}/issue/([^/]+)/comment", self._create_comment),
            ("DELETE", rf"{_EITHER}/issue/([^/]+)/comment/(\d+)", self._delete_comment),
            ("GET", rf"{_EITHER}/issue/([^/]+)", self._read_issue),
            ("GET", r"/rest/api/3/search/jql", self._search_cloud),
            ("POST", r"/rest/api/3/search/jql", self._search_cloud),
            ("GET", r"/rest/api/2/search", self._search_data_center),
            ("POST", r"/rest/api/2/search", self._search_data_center),
        ]
        self.routes = [(method, pattern, self._known(handler)) for method, pattern, handler in routes]

    # -- what is there

    def issue(self, key: str, summary: str = "An issue", updated: datetime | None = None, **fields: Any) -> None:
        """A new issue, or a change of one."""
        row = self.issues.setdefault(key, {"id": str(self._next_id()), "key": key, "fields": {}})
        project = {"key": key.partition("-")[0]}
        usual: dict[str, Any] = {"project": project, "status": {"name": "To Do"}, "labels": [], "description": None}
        row["fields"] = {**usual, "summary": summary, **row["fields"], **fields, "moment": updated or self._now()}
        self.comment_rows.setdefault(key, [])

    def comments(self, key: str) -> list[str]:
        """The texts of all comments, oldest first."""
        return [text_of(each["body"]) for each in self.comment_rows[key]]

    # -- requests

    def _known(self, handler: Handler) -> Callable[..., Reply]:
        def checked(asked: Asked, *given: str) -> Reply:
            if token_of(asked) != TOKEN:
                return Reply(401, {"errorMessages": ["Client must be authenticated to access this resource."]})
            if given and given[0] not in self.issues:
                return Reply(404, {"errorMessages": ["Issue does not exist or you do not have permission to see it."]})
            return handler(asked, *given)

        return checked

    def _myself(self, asked: Asked) -> Reply:
        return Reply(200, {"accountId": "1", "name": "solely", "timeZone": self.time_zone})

    def _read_issue(self, asked: Asked, key: str) -> Reply:
        return Reply(200, self._shown(self.issues[key]))

    def _search_cloud(self, asked: Asked) -> Reply:
        given = {**asked.query, **(asked.json if asked.body else {})}
        if _SINCE.search(given.get("jql", "")) is None and "project" not in given.get("jql", ""):
            return Reply(400, {"errorMessages": ["Unbounded JQL queries are not allowed here."]})
        start, rows, size = int(given.get("nextPageToken") or 0), self._matching(given["jql"]), self._size(given)
        page: dict[str, Any] = {"issues": [self._shown(each) for each in rows[start : start + size]]}
        last = len(rows) <= start + size
        return Reply(200, {**page, "isLast": last, **({} if last else {"nextPageToken": str(start + size)})})

    def _search_data_center(self, asked: Asked) -> Reply:
        given = {**asked.query, **(asked.json if asked.body else {})}
        start, rows, size = int(given.get("startAt") or 0), self._matching(given["jql"]), self._size(given)
        shown = [self._shown(each) for each in rows[start : start + size]]
        return Reply(200, {"startAt": start, "maxResults": size, "total": len(rows), "issues": shown})

    def _size(self, given: dict[str, Any]) -> int:
        return min(self.page_size, int(given.get("maxResults", 50)))

    def _matching(self, jql: str) -> list[dict[str, Any]]:
        """The issues that this query matches, in its order; it knows `updated >=`, and project, status and labels."""
        rows = list(self.issues.values())
        if since := _SINCE.search(jql):
            start = datetime.strptime(since[1], "%Y-%m-%d %H:%M").replace(tzinfo=ZoneInfo(self.time_zone))
            rows = [row for row in rows if row["fields"]["moment"] >= start]
        for name, values in _IN.findall(jql.partition("ORDER BY")[0]):
            wanted = {each.strip(' "') for each in values.split(",")}
            rows = [row for row in rows if wanted & _values(row["fields"], name.lower())]
        return sorted(rows, key=lambda row: (row["fields"]["moment"], row["key"]), reverse=jql.upper().endswith("DESC"))

    def _shown(self, row: dict[str, Any]) -> dict[str, Any]:
        fields = {name: value for name, value in row["fields"].items() if name != "moment"}
        moment = row["fields"]["moment"].astimezone(ZoneInfo(self.time_zone))
        updated = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}" + moment.strftime("%z")
        return {"id": row["id"], "key": row["key"], "fields": {**fields, "updated": updated}}

    def _list_comments(self, asked: Asked, key: str) -> Reply:
        rows = self.comment_rows[key][:: -1 if asked.query.get("orderBy", "").startswith("-") else 1]
        start, size = int(asked.query.get("startAt", 0)), min(self.page_size, int(asked.query.get("maxResults", 50)))
        shown = {"comments": rows[start : start + size], "startAt": start, "maxResults": size, "total": len(rows)}
        return Reply(200, shown)

    def _create_comment(self, asked: Asked, key: str) -> Reply:
        body = asked.json["body"]
        if ("/api/3/" in asked.path) != isinstance(body, dict):
            return Reply(400, {"errors": {"comment": "Comment body is not valid!"}})
        row = {"id": str(self._next_id()), "body": body, "author": {"accountId": "1"}, "created": str(self._now())}
        self.comment_rows[key].append(row)
        return Reply(201, row)

    def _delete_comment(self, asked: Asked, key: str, id: str) -> Reply:
        found = [row for row in self.comment_rows[key] if row["id"] == id]
        for row in found:
            self.comment_rows[key].remove(row)
        return Reply(204) if found else Reply(404, {"errorMessages": ["Can not find a comment for the id."]})

    def _now(self) -> datetime:
        return self._forges.now()

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids


def text_of(body: Any) -> str:
    """The text of a comment: it is a document of Atlassian's format in Cloud."""
    if isinstance(body, str):
        return body
    own: str = body.get("text", "")
    inside = "".join(text_of(each) for each in body.get("content", []))
    return own + inside + ("\n" if body.get("type") == "paragraph" else "")


def _values(fields: dict[str, Any], name: str) -> set[str]:
    if name == "labels":
        return set(fields["labels"])
    return {fields["project"]["key"] if name == "project" else fields["status"]["name"]}
