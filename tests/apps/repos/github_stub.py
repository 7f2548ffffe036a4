"""The part of GitHub's API (as GitHub Enterprise Server has it, below /api/v3) that the application calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.apps.repos.forge_server import TOKEN, Asked, Handler, Reply, paged, token_of
from tests.apps.repos.git_server import GitRepository

if TYPE_CHECKING:
    from tests.apps.repos.forge_server import Forges

_REPO = r"/api/v3/repos/([^/]+/[^/]+)"


class GitHubStub:
    """Repositories with their pull requests and comments, as rows that tests may read and change."""

    def __init__(self, forges: Forges) -> None:
        self._forges = forges
        self.rows: dict[str, dict[str, Any]] = {}
        self.repositories: dict[str, GitRepository] = {}
        self.pulls: dict[str, list[dict[str, Any]]] = {}
        self.comment_rows: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self._ids = 5000
        routes: list[tuple[str, str, Handler]] = [
            ("GET", rf"{_REPO}/issues/(\d+)/comments", self._list_comments),
            ("POST", rf"{_REPO}/issues/(\d+)/comments", self._create_comment),
            ("DELETE", rf"{_REPO}/issues/comments/(\d+)", self._delete_comment),
            ("GET", rf"{_REPO}/pulls/(\d+)", self._read_pull),
            ("GET", rf"{_REPO}/pulls", self._list_pulls),
            ("POST", rf"{_REPO}/pulls", self._create_pull),
            ("GET", _REPO, self._read_repository),
        ]
        self.routes = [(method, pattern, self._known(handler)) for method, pattern, handler in routes]
        self.routes.append(("GET", "/api/v3/user", lambda asked: Reply(200, {"login": "solely"})))

    # -- what is there

    def repository(self, name: str = "octo/repo") -> dict[str, Any]:
        """A new repository; its row."""
        self.repositories[name] = self._forges.repository(name)
        owner, _, short = name.partition("/")
        self.rows[name] = {
            "id": self._next_id(), "name": short, "full_name": name, "owner": {"login": owner},
            "default_branch": "main", "clone_url": f"{self._forges.url}/{name}.git",
        }  # fmt: skip
        self.pulls[name] = []
        return self.rows[name]

    def pull_request(
        self, name: str, branch: str = "feature", title: str = "A feature", fork: str = ""
    ) -> dict[str, Any]:
        """A new pull request, from the branch of a fork if there is one; the branch gets a commit if it is new."""
        repository = self.repositories[fork or name]
        if not repository.tip(branch):
            repository.commit(branch, {"feature.txt": "a feature\n"}, "A feature", base="main")
        row = self._opened(name, branch, "main", title, "", fork)
        head = f"refs/heads/{branch}:refs/pull/{row['number']}/head"
        self.repositories[name].git("fetch", "--quiet", str(repository.folder), head)
        return row

    def comment(self, name: str, number: int, text: str, author: str = "ann") -> dict[str, Any]:
        """A new comment of a person."""
        row = {
            "id": self._next_id(), "body": text, "user": {"login": author}, "created_at": self._now(),
            "author_association": "MEMBER",
            "updated_at": self._now(),
        }  # fmt: skip
        self.comment_rows[name, number].append(row)
        return row

    def comments(self, name: str, number: int) -> list[str]:
        """The texts of all comments, oldest first."""
        return [each["body"] for each in self.comment_rows[name, number]]

    # -- events, as GitHub posts them

    def pull_request_event(self, name: str, number: int, action: str = "opened") -> dict[str, Any]:
        """The body of a `pull_request` event."""
        return {
            "action": action, "number": number, "pull_request": self.of(name, number), "repository": self.rows[name],
            "sender": {"login": "ann"},
        }  # fmt: skip

    def comment_event(self, name: str, number: int, comment: dict[str, Any]) -> dict[str, Any]:
        """The body of an `issue_comment` event."""
        pull = self.of(name, number)
        issue = {"number": number, "title": pull["title"], "pull_request": {"url": pull["url"]}, "state": "open"}
        return {
            "action": "created", "issue": issue, "comment": comment, "repository": self.rows[name],
            "sender": {"login": "ann"},
        }  # fmt: skip

    def of(self, name: str, number: int) -> dict[str, Any]:
        """This pull request, with its current commit."""
        row = next(each for each in self.pulls[name] if each["number"] == number)
        row["head"]["sha"] = self.repositories[row["head"]["repo"]["full_name"]].tip(row["head"]["ref"])
        return row

    # -- requests

    def _known(self, handler: Handler) -> Callable[..., Reply]:
        def checked(asked: Asked, name: str, *given: str) -> Reply:
            if token_of(asked) != TOKEN:
                return Reply(401, {"message": "Bad credentials"})
            return handler(asked, name, *given) if name in self.rows else Reply(404, {"message": "Not Found"})

        return checked

    def _read_repository(self, asked: Asked, name: str) -> Reply:
        return Reply(200, self.rows[name])

    def _read_pull(self, asked: Asked, name: str, number: str) -> Reply:
        found = [each for each in self.pulls[name] if each["number"] == int(number)]
        return Reply(200, self.of(name, int(number))) if found else Reply(404, {"message": "Not Found"})

    def _list_pulls(self, asked: Asked, name: str) -> Reply:
        rows = [self.of(name, each["number"]) for each in self.pulls[name]]
        if state := {"all": ""}.get(given := asked.query.get("state", "open"), given):
            rows = [row for row in rows if row["state"] == state]
        if head := asked.query.get("head"):
            rows = [row for row in rows if row["head"]["label"] == head]
        if base := asked.query.get("base"):
            rows = [row for row in rows if row["base"]["ref"] == base]
        return paged(asked, rows[::-1], self._forges.url, default=30)

    def _create_pull(self, asked: Asked, name: str) -> Reply:
        given = asked.json
        if not self.repositories[name].tip(given["head"]):
            return Reply(422, {"message": "Validation Failed", "errors": [{"field": "head", "code": "invalid"}]})
        if any(row["head"]["ref"] == given["head"] for row in self.pulls[name]):
            return Reply(422, {"message": "Validation Failed", "errors": [{"message": "A pull request exists"}]})
        return Reply(201, self._opened(name, given["head"], given["base"], given["title"], given.get("body", "")))

    def _list_comments(self, asked: Asked, name: str, number: str) -> Reply:
        return paged(asked, self.comment_rows[name, int(number)], self._forges.url, default=30)

    def _create_comment(self, asked: Asked, name: str, number: str) -> Reply:
        return Reply(201, self.comment(name, int(number), asked.json["body"], author="solely"))

    def _delete_comment(self, asked: Asked, name: str, id: str) -> Reply:
        for (of, _), rows in self.comment_rows.items():
            for row in [row for row in rows if of == name and row["id"] == int(id)]:
                rows.remove(row)
                return Reply(204)
        return Reply(404, {"message": "Not Found"})

    def _opened(self, name: str, branch: str, base: str, title: str, body: str, fork: str = "") -> dict[str, Any]:
        source = fork or name
        number, owner, repo = len(self.pulls[name]) + 1, source.partition("/")[0], self.rows[source]
        row = {
            "id": self._next_id(), "number": number, "state": "open", "title": title, "body": body,
            "url": f"{self._forges.url}/api/v3/repos/{name}/pulls/{number}",
            "html_url": f"{self._forges.url}/{name}/pull/{number}", "user": {"login": "ann"},
            "head": {"ref": branch, "sha": "", "label": f"{owner}:{branch}", "repo": repo},
            "base": {"ref": base, "repo": self.rows[name]}, "draft": False,
            "created_at": self._now(), "updated_at": self._now(),
        }  # fmt: skip
        self.pulls[name].append(row)
        self.comment_rows[name, number] = []
        return self.of(name, number)

    def _now(self) -> str:
        return self._forges.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids
