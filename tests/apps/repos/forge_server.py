"""A GitLab, a GitHub and a Jira on one port of loopback, with real git repositories: as much of them as this
application calls, and faults on demand.

`forges(folder)` serves them until the test is over. `forges.gitlab.project(…)` and `.merge_request(…)`,
`forges.github.repository(…)` and `.pull_request(…)`, `forges.jira.issue(…)` create what is there. `meet` has a test act
in the middle of a request: it answers something else (`refusal`), or drops the connection before or after the request
was performed (`lost_answer`).
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.apps.repos.git_server import GitRepository, answer_git

TOKEN = "forge-token-of-these-tests"  # what every call and every git client must present
GIT_USER = "oauth2"  # GitLab's; any name will do with a token


class Asked(NamedTuple):
    """A request as it came; `port` is the caller's."""

    method: str
    path: str  # decoded, without the query
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    port: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Reply(NamedTuple):
    """What is answered."""

    status: int
    value: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""  # instead of the value


class Gone(Exception):
    """The connection is dropped without an answer."""


# Gets the request, and a function that performs it; returns what is answered.
Meeting = Callable[[Asked, Callable[[], Reply]], Reply]
Handler = Callable[..., Reply]


def refusal(status: int, retry_after: int | None = None) -> Meeting:
    """Answers this status without performing the request."""
    headers = () if retry_after is None else (("Retry-After", str(retry_after)),)
    return lambda asked, perform: Reply(status, {"message": f"{status} by the test"}, headers)


def lost_answer(asked: Asked, perform: Callable[[], Reply]) -> Reply:
    """Performs the request, and drops the connection instead of the answer."""
    perform()
    raise Gone


def dropped(asked: Asked, perform: Callable[[], Reply]) -> Reply:
    """Drops the connection without performing the request."""
    raise Gone


class _Met(NamedTuple):
    method: str
    path: re.Pattern[str]
    meeting: Meeting


class Forges:
    """The server, what was asked of it, and the clock that all of them share."""

    def __init__(self, folder: Path) -> None:
        from tests.apps.repos.github_stub import GitHubStub
        from tests.apps.repos.gitlab_stub import GitLabStub
        from tests.apps.repos.jira_stub import JiraStub

        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.asked: list[Asked] = []
        self.answered: list[tuple[Asked, int]] = []  # with the status, or 0 if the connection was dropped
        self.ahead = timedelta()  # of this clock before ours
        self.lock = threading.RLock()
        self._met: list[_Met] = []
        self._always: list[_Met] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.forges = self
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.gitlab, self.github, self.jira = GitLabStub(self), GitHubStub(self), JiraStub(self)
        self._routes = [*self.gitlab.routes, *self.github.routes, *self.jira.routes]

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def repository(self, path: str) -> GitRepository:
        """A new repository with one commit on `main`, at `{url}/{path}.git`."""
        repository = GitRepository.create(self.folder / f"{path}.git")
        repository.commit("main", {"README.md": "A project\n"}, "The first commit")
        return repository

    def meet(self, method: str, path: str, meeting: Meeting, times: int = 1) -> None:
        """The next requests of this method whose path contains the pattern meet this function, on their own thread."""
        self._met += [_Met(method, re.compile(path), meeting)] * times

    @contextmanager
    def meeting_all(self, method: str, path: str, meeting: Meeting) -> Iterator[None]:
        """All such requests do, within the block."""
        met = _Met(method, re.compile(path), meeting)
        self._always.append(met)
        try:
            yield
        finally:
            self._always.remove(met)

    def count(self, method: str, path: str) -> int:
        """How many requests of this method had the pattern in their path."""
        return sum(each.method == method and bool(re.search(path, each.path)) for each in list(self.asked))

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        meeting = self._meeting(asked)
        return meeting(asked, lambda: self._performed(asked)) if meeting else self._performed(asked)

    def _meeting(self, asked: Asked) -> Meeting | None:
        with self.lock:
            for each in (*self._met, *self._always):
                if each.method == asked.method and each.path.search(asked.path):
                    if each in self._met:
                        self._met.remove(each)
                    return each.meeting
        return None

    def _performed(self, asked: Asked) -> Reply:
        if ".git/" in asked.path:
            return self._git(asked)
        for method, pattern, handler in self._routes:
            found = re.fullmatch(pattern, asked.path)
            if method == asked.method and found:
                with self.lock:
                    return handler(asked, *found.groups())
        return Reply(404, {"message": f"404 {asked.path} Not Found"})

    def _git(self, asked: Asked) -> Reply:
        if not asked.headers.get("authorization", "").startswith("Basic ") or token_of(asked) != TOKEN:
            return Reply(401, None, (("WWW-Authenticate", 'Basic realm="git"'),))
        query = "&".join(f"{name}={value}" for name, value in asked.query.items())
        answer = answer_git(self.folder, asked.method, asked.path, query, asked.headers, asked.body)
        return Reply(answer.status, None, tuple(answer.headers), answer.body)

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    forges: Forges

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed is what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _serve(self) -> None:
        forges = self.server.forges
        asked = self._asked()
        try:
            reply = forges.answer(asked)
        except Gone:
            forges.answered.append((asked, 0))
            self.close_connection = True
            return
        body = reply.body or (b"" if reply.value is None else json.dumps(reply.value).encode())
        self.send_response_only(reply.status)
        self.send_header("Date", format_datetime(forges.now(), usegmt=True))
        if not any(name.lower() == "content-type" for name, _ in reply.headers):
            self.send_header("Content-Type", "application/json")
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        forges.answered.append((asked, reply.status))

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def _asked(self) -> Asked:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Asked(self.command, unquote(parts.path), query, headers, self._body(), self.client_address[1])

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):  # git sends large pushes in chunks
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what matters is kept."""


@contextmanager
def forges(folder: Path) -> Iterator[Forges]:
    """The server on loopback, until the test is over. Its repositories are in the folder."""
    it = Forges(folder)
    thread = threading.Thread(target=it.serve)
    thread.start()
    try:
        yield it
    finally:
        it.close()
        thread.join(10)


# -- what the stubs share


def token_of(asked: Asked) -> str:
    """What the caller presents, in any of the ways that these products accept."""
    scheme, _, value = asked.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        return base64.b64decode(value).decode().partition(":")[2]
    return value or asked.headers.get("private-token", "")


def paged(asked: Asked, rows: list[Any], url: str, default: int = 20) -> Reply:
    """A page of the rows by number, with the headers of GitLab and GitHub."""
    size = min(100, int(asked.query.get("per_page", default)))
    page = int(asked.query.get("page", 1))
    shown = rows[(page - 1) * size : page * size]
    more = len(rows) > page * size
    following = {**asked.query, "page": str(page + 1), "per_page": str(size)}
    query = "&".join(f"{name}={value.replace('+', '%2B')}" for name, value in following.items())
    link = (("Link", f'<{url}{asked.path}?{query}>; rel="next"'),) if more else ()
    pages = (("X-Page", str(page)), ("X-Per-Page", str(size)), ("X-Next-Page", str(page + 1) if more else ""))
    return Reply(200, shown, (*link, *pages))
