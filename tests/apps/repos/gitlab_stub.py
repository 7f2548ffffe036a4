"""The part of GitLab's API that the application calls."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.apps.repos.forge_server import TOKEN, Asked, Handler, Reply, paged, token_of
from tests.apps.repos.git_server import GitRepository

if TYPE_CHECKING:
    from tests.apps.repos.forge_server import Forges

_PROJECT = r"/api/v4/projects/(.+?)"
_MR = rf"{_PROJECT}/merge_requests/(\d+)"
THROTTLED = timedelta(minutes=1)  # a note touches its merge request only if nothing has for so long (ThrottledTouch)


def stamp(moment: datetime) -> str:
    """As GitLab's API writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


class GitLabStub:
    """Projects with their repositories, merge requests and notes, as rows that tests may read and change."""

    def __init__(self, forges: Forges) -> None:
        self._forges = forges
        self.projects: dict[int, dict[str, Any]] = {}
        self.repositories: dict[int, GitRepository] = {}
        self.merge_requests: dict[int, list[dict[str, Any]]] = {}
        self.notes: dict[tuple[int, int], list[dict[str, Any]]] = {}
        self._ids = 1000
        routes: list[tuple[str, str, Handler]] = [
            ("GET", r"/api/v4/user", self._user),
            ("GET", rf"{_MR}/notes", self._list_notes),
            ("POST", rf"{_MR}/notes", self._create_note),
            ("DELETE", rf"{_MR}/notes/(\d+)", self._delete_note),
            ("GET", _MR, self._read_merge_request),
            ("GET", rf"{_PROJECT}/merge_requests", self._list_merge_requests),
            ("POST", rf"{_PROJECT}/merge_requests", self._create_merge_request),
            ("GET", _PROJECT, self._read_project),
        ]
        self.routes = [(method, pattern, self._known(handler)) for method, pattern, handler in routes]

    # -- what is there

    def project(self, path: str = "group/project") -> int:
        """A new project with a repository; returns its id."""
        id = self._next_id()
        self.repositories[id] = self._forges.repository(path)
        url = f"{self._forges.url}/{path}.git"
        self.projects[id] = {
            "id": id, "path_with_namespace": path, "name": path.rpartition("/")[2], "default_branch": "main",
            "http_url_to_repo": url, "git_http_url": url, "web_url": url.removesuffix(".git"),
        }  # fmt: skip
        self.merge_requests[id] = []
        return id

    def merge_request(
        self, project: int, source_branch: str = "feature", title: str = "A feature", fork: int = 0
    ) -> dict[str, Any]:
        """A new merge request, from the branch of a fork if there is one; the branch gets a commit if it is new."""
        repository = self.repositories[fork or project]
        if not repository.tip(source_branch):
            repository.commit(source_branch, {"feature.txt": "a feature\n"}, "A feature", base="main")
        row = self._opened(project, source_branch, "main", title, "", fork)
        head = f"refs/heads/{source_branch}:refs/merge-requests/{row['iid']}/head"  # in the project, as GitLab has it
        self.repositories[project].git("fetch", "--quiet", str(repository.folder), head)
        return row

    def fork(self, project: int, path: str = "ann/project") -> int:
        """A fork of the project, with its commits; returns its id."""
        id, original = self.project(path), self.repositories[project].folder
        self.repositories[id].git("fetch", "--quiet", str(original), "+refs/heads/main:refs/heads/main")
        return id

    def note(self, project: int, iid: int, text: str, author: str = "ann") -> dict[str, Any]:
        """A new comment of a person."""
        request = self.of(project, iid)
        now = self._forges.now()
        row = {
            "id": self._next_id(), "body": text, "author": {"id": 7, "username": author}, "system": False,
            "noteable_type": "MergeRequest", "noteable_iid": iid, "project_id": project,
            "created_at": stamp(now), "updated_at": stamp(now),
        }  # fmt: skip
        self.notes[project, iid].append(row)
        if now - datetime.fromisoformat(request["updated_at"]) >= THROTTLED:
            request["updated_at"] = stamp(now)
        return row

    def of(self, project: int, iid: int) -> dict[str, Any]:
        """This merge request, with its current commit."""
        row = next(each for each in self.merge_requests[project] if each["iid"] == iid)
        source = self.repositories.get(row["source_project_id"])
        row["sha"] = source.tip(row["source_branch"]) if source else row["sha"]  # a fork that is gone has no branch
        return row

    def comments(self, project: int, iid: int) -> list[str]:
        """The texts of all notes, oldest first."""
        return [each["body"] for each in self.notes[project, iid]]

    # -- events, as GitLab posts them

    def merge_request_event(self, project: int, iid: int, action: str = "open") -> dict[str, Any]:
        """The body of a merge request event."""
        request = self.of(project, iid)
        return {
            "object_kind": "merge_request", "event_type": "merge_request",
            "user": {"id": 7, "name": "Ann", "username": "ann"},
            "project": self._project_of_event(project),
            "object_attributes": {
                "id": request["id"], "iid": iid, "title": request["title"], "state": "opened", "action": action,
                "source_branch": request["source_branch"], "target_branch": request["target_branch"],
                **self._projects_of(request),
                "last_commit": {"id": request["sha"], "message": "A feature"},
                "created_at": request["created_at"], "updated_at": request["updated_at"],
            },
        }  # fmt: skip

    def note_event(self, project: int, iid: int, note: dict[str, Any]) -> dict[str, Any]:
        """The body of a note event."""
        request = self.of(project, iid)
        return {
            "object_kind": "note", "event_type": "note", "user": {"id": 7, "name": "Ann", "username": "ann"},
            "project_id": project, "project": self._project_of_event(project),
            "object_attributes": {
                "id": note["id"], "note": note["body"], "noteable_type": "MergeRequest", "author_id": 7,
                "created_at": note["created_at"], "updated_at": note["updated_at"], "project_id": project,
                "system": False, "action": "create",
            },
            "merge_request": {
                "id": request["id"], "iid": iid, "title": request["title"], "state": "opened",
                "source_branch": request["source_branch"], "target_branch": request["target_branch"],
                **self._projects_of(request), "last_commit": {"id": request["sha"]},
            },
        }  # fmt: skip

    def _projects_of(self, request: dict[str, Any]) -> dict[str, Any]:
        """The two ends of a merge request; a fork that is gone has neither an id nor a URL."""
        source, target = request["source_project_id"], request["target_project_id"]
        ids = {"source_project_id": source, "target_project_id": target, "target": self._project_of_event(target)}
        return {**ids, "source": self._project_of_event(source) if source else None}

    def _project_of_event(self, project: int) -> dict[str, Any]:
        row = self.projects[project]
        names = ("id", "name", "path_with_namespace", "default_branch", "git_http_url", "web_url")
        return {name: row[name] for name in names}

    # -- requests

    def _known(self, handler: Handler) -> Callable[..., Reply]:
        """The handler, for callers that present the token, and with the project's row."""

        def checked(asked: Asked, *given: str) -> Reply:
            if token_of(asked) != TOKEN:
                return Reply(401, {"message": "401 Unauthorized"})
            if not given:
                return handler(asked)
            row = next(
                (row for row in self.projects.values() if given[0] in (str(row["id"]), row["path_with_namespace"])),
                None,
            )
            return handler(asked, row, *given[1:]) if row else Reply(404, {"message": "404 Project Not Found"})

        return checked

    def _user(self, asked: Asked) -> Reply:
        return Reply(200, {"id": 1, "username": "solely"})

    def _read_project(self, asked: Asked, project: dict[str, Any]) -> Reply:
        return Reply(200, project)

    def _read_merge_request(self, asked: Asked, project: dict[str, Any], iid: str) -> Reply:
        found = [each for each in self.merge_requests[project["id"]] if each["iid"] == int(iid)]
        return Reply(200, self.of(project["id"], int(iid))) if found else Reply(404, {"message": "404 Not found"})

    def _list_merge_requests(self, asked: Asked, project: dict[str, Any]) -> Reply:
        rows = [self.of(project["id"], each["iid"]) for each in self.merge_requests[project["id"]]]
        for name in ("state", "source_branch", "target_branch"):
            if asked.query.get(name, "all") != "all":
                rows = [row for row in rows if row[name] == asked.query[name]]
        if after := asked.query.get("updated_after"):
            since = datetime.fromisoformat(after.replace(" ", "+"))
            rows = [row for row in rows if datetime.fromisoformat(row["updated_at"]) >= since]
        order = asked.query.get("order_by", "created_at")
        rows.sort(key=lambda row: (row[order], row["id"]), reverse=asked.query.get("sort", "desc") == "desc")
        return paged(asked, rows, self._forges.url)

    def _create_merge_request(self, asked: Asked, project: dict[str, Any]) -> Reply:
        given, id = asked.json, project["id"]
        source, target = given["source_branch"], given["target_branch"]
        if not self.repositories[id].tip(source):
            return Reply(400, {"message": {"source_branch": ["does not exist"]}})
        pairs = [(row["source_branch"], row["target_branch"]) for row in self.merge_requests[id]]
        if (source, target) in pairs:
            text = f"Another open merge request already exists for this source branch: !{pairs.index((source, target))}"
            return Reply(409, {"message": [text]})
        return Reply(201, self._opened(id, source, target, given["title"], given.get("description", "")))

    def _list_notes(self, asked: Asked, project: dict[str, Any], iid: str) -> Reply:
        rows = sorted(self.notes[project["id"], int(iid)], key=lambda row: (row["created_at"], row["id"]))
        if asked.query.get("sort", "desc") == "desc":
            rows.reverse()
        return paged(asked, rows, self._forges.url)

    def _create_note(self, asked: Asked, project: dict[str, Any], iid: str) -> Reply:
        return Reply(201, self.note(project["id"], int(iid), asked.json["body"], author="solely"))

    def _delete_note(self, asked: Asked, project: dict[str, Any], iid: str, note: str) -> Reply:
        rows = self.notes[project["id"], int(iid)]
        found = [row for row in rows if row["id"] == int(note)]
        for row in found:
            rows.remove(row)
        return Reply(204) if found else Reply(404, {"message": "404 Not found"})

    def _opened(
        self, project: int, source: str, target: str, title: str, description: str, fork: int = 0
    ) -> dict[str, Any]:
        iid, now = len(self.merge_requests[project]) + 1, stamp(self._forges.now())
        row = {
            "id": self._next_id(), "iid": iid, "project_id": project, "title": title, "description": description,
            "state": "opened", "source_branch": source, "target_branch": target,
            "source_project_id": fork or project, "target_project_id": project,
            "author": {"id": 7, "username": "ann"}, "draft": False,
            "sha": self.repositories[fork or project].tip(source), "created_at": now, "updated_at": now,
            "web_url": f"{self.projects[project]['web_url']}/-/merge_requests/{iid}",
        }  # fmt: skip
        self.merge_requests[project].append(row)
        self.notes[project, iid] = []
        return row

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids
