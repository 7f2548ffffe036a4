"""Whatever is in a body, a form, a query, a path or a header, on each database: no answer is 5xx, the log has no
traceback, what was accepted is worked off, and all lists and pages answer afterwards."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest

from solely.cli.program import perform
from solely.service.mount import mount
from solely.service.routes import Route
from solely.service.service import Service
from tests.apps.repos.receiving import HOOK_TOKEN, SECRET
from tests.apps.repos.test_webhooks import merge_request, note
from tests.conftest import DATABASES, STORES
from tests.service import nasty
from tests.service.serving import LINES, TOKENS, Process, bearer, settings, until
from tests.service.test_every_route import ENDLESS, READING, WARNING, WITHOUT_JSON, addresses, calls

PAIRS = [
    pytest.param("sqlite", "sqlite", id="sqlite-sqlite"),
    pytest.param("postgres", "postgres", id="postgres-postgres"),
    pytest.param("valkey", "postgres", id="valkey-postgres", marks=pytest.mark.only_with_all),
    pytest.param("mongo", "sqlite", id="mongo-sqlite", marks=pytest.mark.only_with_all),
]  # fmt: skip
MOST_CALLS = 20  # of a command, with other arguments and options
MOST_TASKS = 20  # that are taken at once
LONG = 3000.0  # seconds: more than the test takes
WORKED_OFF = 120.0  # seconds for the background to store or refuse what was accepted, on a busy machine
SHARE = 8  # of the values that are not common, a field gets one in so many
FEWER = 16  # the same for texts
JSON = {**bearer(TOKENS["admin"]), "content-type": "application/json"}
BECAUSE = "a test wants it"
BURSTS = ("trigger", "/batch", "/batches")  # routes that are sent to a service whose gate is open for good, as well
PARTS = {
    "task": "odd",
    "house": "north",
    "game": "slots",
    "id": "none",
    "key": "none",
    "name": "up",
    "key...": "none",
    "kind": "lock",
}

TARGET = {"name": "up", "url": "http://127.0.0.1:1/", "schedule": "0 0 1 1 *"}
GITLAB = {"url": "https://gitlab.example.org", "token": "none", "webhook_tokens": [HOOK_TOKEN], "poll_every": 86_400}
# Each job is recorded, and fails before it calls anybody.
JOBS = {"review": {"argv": ["none"]}, "folder": "/nonexistent", "max_attempts": 1, "comment_failures": False}

Fields = dict[str, Any]  # of a body; and of a path, if the name begins with @


def config(gate: Fields) -> Fields:
    """All applications, none of which calls anybody outside."""
    return {
        "max_wait": 0.2,
        "tokens": list(LINES),
        "probes": {"guard_allow": ["127.0.0.0/8"], "targets": [TARGET]},
        "repos": {"gitlab": GITLAB, "github": {"webhook_secrets": [SECRET]}, "jobs": JOBS},
        "triggers": gate,
    }  # fmt: skip


class Caller:
    """Calls a service as an admin, over one connection."""

    def __init__(self, process: Process) -> None:
        self.log = process.log
        self.address = process.address()
        self.open = http.client.HTTPConnection(self.address.removeprefix("http://"), timeout=60.0)
        self.asked = 0
        self.failed: list[str] = []
        until(lambda: self.ask("GET", "/readyz")[0] == 200)
        self.failed.clear()

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Any = JSON) -> tuple[int, bytes]:
        """The status and the body of the answer; keeps in mind those of 5xx."""
        self.asked += 1
        for last in (False, True):
            try:
                self.open.request(method, path, body=body, headers=headers)
                answer = self.open.getresponse()
                status, content = answer.status, answer.read()
                break
            except (http.client.HTTPException, ConnectionError):  # closed between two requests, as HTTP allows
                self.open.close()
                if last:
                    raise
        if status >= 500:
            self.failed.append(f"{status} {method} {path[:200]} {(body or b'')[:200]!r}")
        return status, content

    def get(self, path: str) -> Any:
        status, content = self.ask("GET", path)
        assert status == 200, (path, status, content[:1000])
        return json.loads(content)

    def post(self, path: str, **body: Any) -> Any:
        status, content = self.ask("POST", path, json.dumps(body).encode())
        assert status < 300, (path, body, content[:1000])
        return json.loads(content)

    def close(self) -> None:
        self.open.close()


# -- what a body refers to, so that it is not refused for something else


class Makes:
    """Makes what the requests of a route refer to: a lease to renew, a run to complete."""

    def __init__(self, caller: Caller) -> None:
        self._caller, self._made = caller, 0
        self.of: dict[str, Callable[[], Fields]] = {
            **dict.fromkeys(("/v1/locks/resume", "/v1/locks/renew", "/v1/locks/release"), self._lock),
            **{f"/v1/claims/{verb}": self._claim for verb in ("publish", "resume", "renew", "release")},
            **{f"/v1/reservations/{verb}": self._reservation for verb in ("renew", "resume", "record", "release")},
            **{f"/v1/queues/{verb}": self._item for verb in ("resume", "renew", "ack", "give-back")},
            **dict.fromkeys(("/v1/dead-letters/ack", "/v1/dead-letters/fail"), self._letter),
            **{f"/api/v1/runs/{{id}}/{verb}": self._taken for verb in ("complete", "fail", "release")},
            "/api/v1/runs/{id}/wait": self._waiting,
            **dict.fromkeys(("/api/v1/runs/{id}/tags", "/api/v1/runs/{id}/metadata"), lambda: {"@id": self._run()}),
            **dict.fromkeys(("/api/triggers/cancel", "/api/triggers/replay"), lambda: {"id": self._run()}),
            "/api/v1/idempotencyKeys/{key}/reset": partial(self._key, "@key", "taskIdentifier"),
            "/api/triggers/reset": partial(self._key, "user_key", "task"),
            "/api/v3/batches/{id}/items": lambda: {"@id": caller.post("/api/v3/batches", runCount=1)["id"], "index": 0},
            **dict.fromkeys(("/api/alerts/silences/edit", "/api/alerts/silences/expire"), self._silence),
            "/api/alerts/acknowledge": self._alert,
            "/api/alerts/unacknowledge": self._acknowledged,
            "/api/v2/silences": lambda: {"startsAt": "2020-01-01T00:00:00Z", "endsAt": _in(3600.0)},
            "/api/probes/targets": lambda: {"schedule": "0 0 1 1 *"},
            "/v2/enqueue": lambda: {"routing_key": TOKENS["write"]},
            **dict.fromkeys((f"/api/probes/{verb}" for verb in ("run", "login-test")), lambda: {"name": "up"}),
        }  # fmt: skip

    def _name(self) -> str:
        self._made += 1
        return f"made-{self._made}"

    def _lock(self) -> Fields:
        return {"token": self._caller.post("/v1/locks/acquire", key=self._name(), ttl=LONG)["token"]}

    def _claim(self) -> Fields:
        return {"token": self._caller.post("/v1/claims/claim", key=self._name(), ttl=LONG)["token"]}

    def _reservation(self) -> Fields:
        return {"id": self._caller.post("/v1/reservations/reserve", key=self._name(), quiet=LONG)["id"]}

    def _item(self) -> Fields:
        name = self._name()
        self._caller.post("/v1/queues/push", queue="made", id=name, payload=1)
        return {"queue": "made", "token": self._caller.post("/v1/queues/take", queue="made", ttl=LONG)["item"]["token"]}

    def _letter(self) -> Fields:
        name = self._name()
        self._caller.post("/v1/dead-letters/push", group="made", id=name, error="x", payload=1)
        return {"group": "made", "token": self._caller.post("/v1/dead-letters/take", group="made", id=name)["token"]}

    def _run(self, **options: Any) -> str:
        made = self._caller.post("/api/v1/tasks/send-mail/trigger", payload=1, options=options)
        return str(made["id"])

    def _taken(self) -> Fields:
        name = self._name()
        self._caller.post(f"/api/v1/tasks/{name}/trigger", payload=1)
        run = self._caller.post("/api/v1/workers/take", tasks=[name], lease=LONG)["run"]
        return {"@id": run["id"], "token": run["token"]}

    def _waiting(self) -> Fields:
        return {**self._taken(), "child": self._run()}

    def _key(self, name: str, task: str) -> Fields:
        key = self._name()
        self._run(idempotencyKey=key)
        return {name: key, task: "send-mail"}

    def _silence(self) -> Fields:
        return {"id": self._caller.post("/api/alerts/silences", matchers=["a=b"], reason=BECAUSE, lasts=LONG)["id"]}

    def _alert(self) -> Fields:
        name = self._name()
        self._caller.post("/api/alerts", name="a", source="b", severity="info", fingerprint=name)
        return {"fingerprint": name}

    def _acknowledged(self) -> Fields:
        alert = self._alert()
        self._caller.post("/api/alerts/acknowledge", **alert)
        return alert


def _in(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


# -- requests


class JsonRoute:
    """A route with a JSON body: its path, the example of the document, and what its requests refer to."""

    def __init__(self, caller: Caller, method: str, path: str, content: Fields, media: str, makes: Makes) -> None:
        lines = media.endswith("ndjson")
        self._caller, self._method, self.path = caller, method.upper(), path
        self._example = content["example"][0] if lines else content["example"]
        self.schema = content["schema"]["items"] if lines else content["schema"]
        self._headers, self._make = {**JSON, "content-type": media}, makes.of.get(path)
        if isinstance(self._example, dict) and "wait" in self._example:
            self._example = {**self._example, "wait": 0}
        self._made: Fields | None = None

    def send(self, field: nasty.Path | None, value: bytes = b"") -> int:
        """The status of the answer to the example, with this value in the field."""
        if self._make is not None and self._made is None:
            self._made = self._make()
        body, parts = self._example, dict(PARTS)
        for name, each in (self._made or {}).items():
            if name[0] == "@":
                parts[name[1:]] = each
            else:
                body = {**body, name: each}
        target = re.sub(r"\{(.+?)\}", lambda found: quote(parts[found[1]], safe=""), self.path)
        content = json.dumps(body).encode() if field is None else nasty.body_with(body, field, value)
        status, _ = self._caller.ask(self._method, target, content, self._headers)
        if status < 300:  # it may have used up what it refers to
            self._made = None
        return status


def json_routes(caller: Caller, makes: Makes) -> Iterator[JsonRoute]:
    for path, methods in caller.get("/openapi.json")["paths"].items():
        for method, operation in methods.items():
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                yield JsonRoute(caller, method, path, content, media, makes)


def send_bodies(caller: Caller, share: int, only: Callable[[str], bool] = lambda path: True) -> int:
    """Sends each nasty value in each field of each route with a JSON body; returns how many routes there are."""
    components = caller.get("/openapi.json")["components"]["schemas"]
    routes = [route for route in json_routes(caller, Makes(caller)) if only(route.path)]
    for route in routes:
        # Otherwise none of the values would come to what the route does with them.
        allowed = (404,) if route.path == "/v1/dead-letters/replay" else ()
        status = route.send(None)
        assert status < 300 or status in allowed, f"the example of {route.path} is answered with {status}: see Makes"
        for number, field in enumerate(dict.fromkeys(((), *nasty.fields(route.schema, components)))):
            for _, value in nasty.values(number, share):
                route.send(field, value)
        route.send((), nasty.DEEPEST.encode())
    return len(routes)


def send_webhooks(caller: Caller, share: int) -> None:
    """Sends nasty values in the events of the forges, which are authentic."""
    gitlab = ((merge_request(), "Merge Request Hook"), (note(), "Note Hook"))
    for event, kind in gitlab:
        headers = {"x-gitlab-token": HOOK_TOKEN, "x-gitlab-event": kind}
        for number, field in enumerate(((), *nasty.leaves(event))):
            for _, value in nasty.values(number, share):
                caller.ask("POST", "/api/repos/gitlab", nasty.body_with(event, field, value), headers)
    repository = {"id": 42, "full_name": "group/project", "clone_url": "https://github.com/group/project.git"}
    end = {"ref": "main", "sha": "a" * 40, "repo": repository}
    request = {"number": 7, "state": "open", "title": "t", "head": end, "base": end, "user": {"login": "ann"}}
    pulled = {"action": "opened", "pull_request": request, "repository": repository, "sender": {"login": "ann"}}
    for number, field in enumerate(((), *nasty.leaves(pulled))):
        for _, value in nasty.values(number, share):
            body = nasty.body_with(pulled, field, value)
            signature = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
            headers = {"x-hub-signature-256": signature, "x-github-event": "pull_request"}
            caller.ask("POST", "/api/repos/github", body, {**headers, "content-type": "application/json"})


def mounted() -> list[Route]:
    """All routes of a service like that under test."""
    return [*mount(Service(settings(**config({}))))]


def ends(route: Route) -> bool:
    return not route.path.startswith(tuple(each.rstrip("?") for each in ENDLESS))


def send_queries(caller: Caller, routes: list[Route], share: int) -> None:
    """Sends nasty texts in each field of each query, and in each part of each path."""
    for number, route in enumerate(filter(ends, routes)):
        names = re.findall(r"\{(.*?)\}", route.path)
        path = re.sub(r"\{(.*?)\}", lambda found: PARTS.get(found[1], "none"), route.path)
        fields = msgspec.structs.fields(route.query) if route.query else ()
        needed = {each.encode_name: "a" for each in fields if each.required}
        body = b"{}" if route.body is not None else None
        for place, name in enumerate(names):
            for text in nasty.texts(number + place, share):
                parts = {**PARTS, name: text or "%20"}
                target = re.sub(r"\{(.*?)\}", lambda found, parts=parts: parts[found[1]], route.path)  # type: ignore[misc]
                caller.ask(route.method, f"{target}?{urlencode(needed)}", body)
        for place, field in enumerate(fields):
            rest = urlencode({name: value for name, value in needed.items() if name != field.encode_name})
            for text in nasty.texts(number + place, share):
                caller.ask(route.method, f"{path}?{rest}&{field.encode_name}={text}", body)


def send_forms(caller: Caller, routes: list[Route], share: int) -> None:
    """Sends nasty texts in each field of each form, as somebody who has logged in."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    csrf = _csrf(caller.ask("GET", "/login", headers={})[1])
    caller.open.request("POST", "/login", f"token={TOKENS['admin']}&csrf={csrf}", form)
    answer = caller.open.getresponse()
    answer.read()
    form["cookie"] = str(answer.headers["set-cookie"]).partition(";")[0]
    csrf = _csrf(caller.ask("GET", "/locks", headers={"cookie": form["cookie"]})[1])
    for number, route in enumerate(each for each in routes if each.form and each.path != "/logout"):
        names = [each.encode_name for each in msgspec.structs.fields(route.body)]
        for place, name in enumerate(names):
            for text in nasty.texts(number + place, share):
                given = {**dict.fromkeys(names, "up"), "reason": BECAUSE, "lasts": "2h", name: text}
                body = "&".join(f"{each}={value}" for each, value in {**given, "csrf": csrf}.items())
                status, _ = caller.ask("POST", route.path, body.encode(), form)
                assert status != 403 or route.path == "/login", route.path


def _csrf(page: bytes) -> str:
    found = re.search(rb'name="csrf" value="([^"]*)"', page)
    return found[1].decode() if found else ""


def send_headers(caller: Caller) -> None:
    """Sends nasty headers to routes that read them, and store some."""
    bodies = {
        "/api/v1/tasks/odd/trigger": b'{"payload": 1}', "/api/v2/tasks/batch": b'{"items": [{"task": "odd"}]}',
        "/api/v3/batches": b'{"runCount": 1}', "/v1/queues/push": b'{"queue": "a", "id": "b", "payload": 1}',
        "/api/alerts": b'{"name": "n", "source": "s", "severity": "info"}', "/api/repos/gitlab": b"{}", "/locks": None,
    }  # fmt: skip
    names = (
        "idempotency-key", "x-trigger-request-idempotency-key", "traceparent", "accept", "accept-encoding", "cookie",
        "x-gitlab-event", "x-gitlab-event-uuid", "user-agent", "authorization", "content-type", "if-none-match",
    )  # fmt: skip
    for path, body in bodies.items():
        for name in names:
            for value in nasty.HEADERS:
                given = {**JSON, "x-gitlab-token": HOOK_TOKEN, name: value}
                caller.ask("GET" if body is None else "POST", path, body, given)


# -- afterwards


def work_off(caller: Caller) -> None:
    """Takes all that was accepted: each run and each signal can be taken."""
    until(lambda: not any(each["buffered"] for each in caller.get("/api/triggers/gate")["gates"]), WORKED_OFF)
    taken = 0
    while queued := {run["task"] for run in caller.get("/api/triggers/runs?state=QUEUED&limit=300")["runs"]}:
        tasks = sorted(queued)[:MOST_TASKS]
        before = taken
        while (run := caller.post("/api/v1/workers/take", worker="w", tasks=tasks)["run"]) is not None:
            caller.post(f"/api/v1/runs/{run['id']}/complete", token=run["token"], output=run["payload"])
            taken += 1
        assert taken > before, f"runs of {tasks} are listed as queued, and none is taken"
    assert taken > 100
    while (found := caller.ask("GET", "/api/signals/next"))[0] == 200:
        caller.post("/api/signals/acknowledge", id=json.loads(found[1])["id"])
    assert found[0] == 404


def check_lists(caller: Caller, routes: list[Route]) -> None:
    """Every list and page answers; and so does each of the last runs, jobs and silences."""
    for route in routes:
        if route.method == "GET" and ends(route):
            for path in list(dict.fromkeys(addresses(route, ("none",))))[:3]:
                if "format=live" not in path:
                    caller.ask("GET", path)
    for run in caller.get("/api/triggers/runs?limit=300")["runs"]:
        caller.get(f"/api/v3/runs/{run['id']}")
        caller.ask("GET", f"/triggers/run?id={run['id']}")
    for job in caller.get("/api/repos/jobs?limit=100")["jobs"]:
        caller.ask("GET", f"/repos/job?id={quote(job['id'])}")


def check_commands(caller: Caller, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Every command that lists something prints what was accepted."""
    monkeypatch.setenv("SOLELY_URL", caller.address)
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["admin"])
    runs = caller.get("/api/triggers/runs?limit=300")["runs"]
    jobs = caller.get("/api/repos/jobs?limit=100")["jobs"]
    ids = {"triggers show id": tuple(run["id"] for run in runs), "repos log id": tuple(job["id"] for job in jobs)}
    failed = {}
    for words in READING:
        first, *others = calls(words, ids)
        for call in (first, *([] if words in WITHOUT_JSON else [(*first, "-o", "json")]), *others[:MOST_CALLS]):
            capfd.readouterr()
            code = perform([*call])
            out, err = capfd.readouterr()
            if code not in (0, 1 if words in WARNING else 3) or "Traceback" in out + err:
                failed[" ".join(call)] = (code, err[-1000:])
    assert failed == {}


def _toml(value: Any) -> str:
    """The value as TOML has it on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + "}"
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else json.dumps(value)


@contextmanager
def started(folder: Path, urls: Fields, **gate: Any) -> Iterator[Caller]:
    """A service with a settings file, in a folder of its own."""
    folder.mkdir()
    file = folder / "solely.toml"
    file.write_text("".join(f"{name} = {_toml(value)}\n" for name, value in {**urls, **config(gate)}.items()))
    with Process(folder, "--config", str(file)) as process:
        caller = Caller(process)
        try:
            yield caller
        finally:
            caller.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("store", "data"), PAIRS)
def test_no_value_is_an_error_of_the_service(
    store: str,
    data: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    thorough: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    urls = {"url": STORES[store](request), "data_url": f"sqlite:///{tmp_path}/data.db"}
    if data != "sqlite":
        urls["data_url"] = DATABASES[data](request)
    share, fewer = (1, 1) if thorough else (SHARE, FEWER)
    routes = mounted()
    with ExitStack() as stack:
        stores = stack.enter_context(started(tmp_path / "stores", urls, gate="off"))
        # Another replica, whose gate diverts all triggers to the buffer.
        buffers = stack.enter_context(
            started(tmp_path / "buffers", urls, trip_threshold=1, trip_window=LONG, trip_hold=0.1)
        )
        count = send_bodies(stores, share)
        assert count > 70
        assert send_bodies(buffers, share, lambda path: path.endswith(BURSTS)) == 4
        send_webhooks(stores, share)
        send_queries(stores, routes, fewer)
        send_forms(stores, routes, fewer)
        send_headers(stores)
        work_off(stores)
        check_lists(stores, routes)
        check_commands(stores, monkeypatch, capfd)
        for caller in (stores, buffers):
            assert caller.failed == []
            assert "Traceback" not in caller.log.read_text()
        print(f"{count} routes with JSON, {stores.asked + buffers.asked} requests")
