"""Security: who may do what, from where; that nothing is open by mistake, and that secrets stay secret."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog

from solely import InvalidInput
from solely.cli.program import perform
from solely.outgoing import Caller, Request
from solely.service import audit, logs
from solely.service.mount import all_routes, mount
from solely.service.routes import (
    ADMIN,
    PUBLIC,
    READ,
    WRITE,
    Answer,
    Bearer,
    Body,
    Call,
    JsonResponse,
    Key,
    Reason,
    Route,
    Webhook,
)
from solely.service.security import Hosts, Scope, Tokens, is_loopback, mint, same
from solely.service.service import Service
from solely.service.sessions import Sessions
from solely.stores import open_async_store
from tests.apps import hooks as receivers
from tests.service.serving import LINES, TOKENS, Running, bearer, running, settings

# -- tokens


def test_a_minted_token_is_known_by_its_digest() -> None:
    token, line = mint("ci", Scope.WRITE)
    assert token not in line
    tokens = Tokens([line])
    known = tokens.bearer(f"Bearer {token}".encode())
    assert known is not None
    assert (known.name, known.scope) == ("ci", Scope.WRITE)
    assert known.digest == hashlib.sha256(token.encode()).digest()


def test_the_command_that_makes_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tokens"
    assert perform(["token", "ci", "--scope", "write", "--file", str(file)]) == 0
    token = capsys.readouterr().out.strip()
    assert token not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    known = Tokens(file.read_text().splitlines()).whose(token.encode())
    assert known is not None
    assert (known.name, known.scope) == ("ci", Scope.WRITE)
    assert perform(["token", "a:b"]) == 2


def test_two_tokens_of_a_name_are_valid_at_once_and_a_third_is_not() -> None:
    (old, old_line), (new, new_line), (_, third) = (mint("ci", Scope.READ) for _ in range(3))
    tokens = Tokens([old_line, new_line])
    assert tokens.whose(old.encode()) is not None
    assert tokens.whose(new.encode()) is not None
    with pytest.raises(InvalidInput, match="2 may be valid at once"):
        Tokens([old_line, new_line, third])


@pytest.mark.parametrize("given", [b"", b"Bearer", b"Bearer ", b"Basic x", b"Bearer wrong", b"bearer\xff\xfe", b"\0"])
def test_what_is_no_token(given: bytes) -> None:
    assert Tokens(LINES).bearer(given) is None


def test_compares_take_text_and_bytes_of_any_kind() -> None:
    assert same("ä", "ä".encode())
    assert not same("\udcff", "x")
    assert not same(b"", "x")


# -- sessions


def test_a_session_ends_with_its_time_or_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(LINES)
    sessions = Sessions(b"k" * 32, tokens)
    admin = tokens.whose(TOKENS["admin"].encode())
    assert admin is not None
    cookie = sessions.open(admin)
    assert sessions.whose(cookie) == admin
    assert Sessions(b"k" * 32, Tokens(LINES[:1])).whose(cookie) is None, "its token is gone"
    assert Sessions(b"x" * 32, tokens).whose(cookie) is None, "signed by another"
    text, _, signature = cookie.partition(".")
    for forged in ("", ".", text, f"{text}.", f"{text}.{signature[:-1]}", f"{text[:-1]}.{signature}", "\udcff.x"):
        assert sessions.whose(forged) is None
    monkeypatch.setattr("solely.service.sessions.SESSION", -1.0)
    assert sessions.whose(sessions.open(admin)) is None


# -- hosts


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        (b"localhost", True),
        (b"localhost:8765", True),
        (b"LOCALHOST:1", True),
        (b"127.0.0.1:8765", True),
        (b"[::1]:8765", True),
        (b"10.1.2.3", True),
        (b"solely.example", True),
        (b"evil.example", False),
        (b"localhost.evil.example", False),
        (b"127.0.0.1.evil.example", False),
        (b"", False),
        (b"[::1", False),
        (b"\xff", False),
        (b"a b", False),
    ],
)
def test_hosts(host: bytes, ours: bool) -> None:
    assert Hosts(["solely.example"]).knows(host) is ours


NO_HOSTS = [
    b"evil@localhost",
    b"evil:pw@localhost:1",
    b"@localhost",
    b"localhost@",
    b"localhost/",
    b"localhost/evil.example",
    b"localhost?x",
    b"localhost:1?x",
    b"localhost#x",
    b"localhost:1#x",
    b"localhost\\x",
    b"localhost:x",
    b"localhost:-1",
    b"localhost:65536",
    b"localhost:1:2",
    b"localhost:+1",
    "localhost:\u0661".encode(),
    b"[::1",
    b"::1",
    b"[::1]x",
    b"[::1]@localhost",
    b"[localhost]",
    b"[127.0.0.1]",
    b"[::1%25lo]",
    b"a b",
    b"a,b",
    b"localhost,localhost",
    b"http://localhost",
    b"//localhost",
    b"%6cocalhost",
    b"local\thost",
    b"\xff",
    b".",
    b":80",
]


@pytest.mark.parametrize("host", NO_HOSTS)
def test_what_is_no_host_is_refused_as_such(host: bytes, open_service: Running) -> None:
    assert not Hosts(["solely.example"]).knows(host)
    with open_service.connect() as connection:
        connection.sendall(b"GET /version HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % host)
        with connection.makefile("rb") as answer:
            assert answer.readline().split()[1] == b"400"


def test_a_host_that_is_not_ours_is_another_matter(open_service: Running) -> None:
    for host in ("evil.example", "evil.example:80", "localhost.", "localhost_", "127.0.0.1.evil.example"):
        assert open_service.get("/version", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    ("origin", "same_site"),
    [(b"http://h:1", True), (b"https://H:1", True), (b"http://h", False), (b"http://evil", False), (b"null", False)],
)
def test_origins(origin: bytes, same_site: bool) -> None:
    assert Hosts([]).same_site(origin, b"h:1") is same_site


def test_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.com", "")))


# -- the matrix

SCOPES = {"none": 0, "garbage": 0, "read": 1, "write": 2, "admin": 3}


@pytest.mark.parametrize("who", SCOPES)
@pytest.mark.parametrize("route", mount(Service(settings())), ids=lambda route: f"{route.method} {route.path}")
def test_no_route_answers_whom_it_should_not(route: Route, who: str, guarded: Running) -> None:
    """Everybody asks for everything. The body is empty, so that nothing is done by who may."""
    headers = {} if who == "none" else bearer(TOKENS.get(who, who))
    path = route.path.replace("{", "").replace("}", "")
    with guarded.http.stream(route.method, path, headers=headers) as answer:
        status = answer.status_code
    if route.auth == PUBLIC:
        assert status not in (401, 403)
    elif isinstance(route.auth, Webhook):
        assert status == 401
    else:
        assert isinstance(route.auth, Bearer)
        needed = int(route.auth.scope)
        if SCOPES[who] == 0:
            assert status == (303 if route.auth.page and route.method == "GET" else 401)
        elif SCOPES[who] < needed:
            assert status == 403
        else:
            assert status not in (401, 403)


def test_every_route_declares_its_scheme() -> None:
    assert all(isinstance(route.auth, Bearer | Webhook) or route.auth == PUBLIC for route in mount(Service(settings())))
    public = {route.path for route in all_routes() if route.auth == PUBLIC and not route.hidden}
    assert public == {"/healthz", "/readyz", "/-/healthy", "/-/ready", "/openapi.json", "/policy"}


# -- declarations


class Said(Body):
    key: Key = "k"


class Reasoned(Body):
    key: Key
    reason: Reason


class Done(Answer):
    by: str


async def done(call: Call[None, None]) -> Done:
    return Done(by=call.principal.name)


async def said(call: Call[Said, None]) -> Done:
    return Done(by=call.principal.name)


async def reasoned(call: Call[Reasoned, None]) -> Done:
    return Done(by=call.principal.name)


async def takes_anything(call: Call[Any, None]) -> Done:
    return Done(by=call.principal.name)


async def unannotated(call):  # type: ignore[no-untyped-def]
    return Done(by=call.principal.name)


async def answers_nothing_known(call: Call[None, None]):  # type: ignore[no-untyped-def]
    return Done(by=call.principal.name)


async def unresolved(call: Call[None, None]) -> Missing:  # type: ignore[name-defined] # noqa: F821
    return Done(by=call.principal.name)


@pytest.mark.parametrize(
    ("method", "auth", "handler", "why"),
    [
        ("GET", None, done, "declares no scheme"),
        ("POST", ADMIN, said, "needs a `reason`"),
        ("POST", ADMIN, done, "needs a `reason`"),
        ("GET", READ, lambda call: None, "coroutine"),
        ("POST", WRITE, takes_anything, "annotate its handler"),
        ("GET", READ, unannotated, "annotate its handler"),
        ("GET", READ, answers_nothing_known, "annotate its handler"),
        ("GET", READ, unresolved, "'Missing' is not defined"),
    ],
)
def test_a_route_that_says_too_little_cannot_be_declared(method: str, auth: Any, handler: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=f"route {method} /x: .*{why}"):
        Route(method, "/x", auth, handler, "x")


def test_an_admin_action_without_a_reason_must_write_its_audit_record_itself() -> None:
    assert Route("DELETE", "/x", ADMIN, done, "x", audits=True).is_admin_action


def test_a_route_of_the_api_needs_a_summary() -> None:
    with pytest.raises(InvalidInput, match="it has no summary"):
        Route("GET", "/x", READ, done)
    assert Route("GET", "/x", READ, done, hidden=True).summary == ""


def test_the_annotations_of_a_handler_declare_what_its_route_takes_and_gives() -> None:
    async def both(call: Call[Said, Reasoned]) -> Done | JsonResponse:
        return JsonResponse(418)

    async def page(call: Call[None, Said]) -> object:
        """Shows
        all.

        And more."""
        return Done(by="")

    route = Route("POST", "/x", WRITE, both, "x")
    assert (route.body, route.query, route.answer, route.summary) == (Said, Reasoned, Done, "x")
    route = Route("GET", "/x", READ, page)
    assert (route.body, route.query, route.answer, route.summary) == (None, Said, None, "Shows all")


def test_a_route_cannot_be_declared_twice() -> None:
    twice = [Route("GET", "/x", READ, done, "x"), Route("GET", "/x", PUBLIC, done, "x")]
    with pytest.raises(InvalidInput, match="twice"), running(twice):
        raise AssertionError("it started")


# -- admin actions, webhooks, sessions

ROUTES = [
    Route("POST", "/act", ADMIN, reasoned, "Act"),
    Route("POST", "/write", WRITE, said, "Write"),
    Route("POST", "/form", WRITE, said, "A form", form=True),
    Route("GET", "/page", Bearer(Scope.READ, page=True), done, "A page"),
    Route(
        "POST",
        "/hook/{source}",
        Webhook(lambda call: same(call.header("x-token"), f"secret-{call.params['source']}"), "X-Token"),
        said,
        "A webhook",
    ),
]


@pytest.fixture(scope="module")
def acting() -> Any:
    with running(ROUTES, tokens=LINES) as it:
        yield it


def test_an_admin_action_needs_a_reason_which_is_kept(acting: Running) -> None:
    admin = bearer(TOKENS["admin"])
    for body in ({"key": "a"}, {"key": "a", "reason": ""}, {"key": "a", "reason": "x"}, {"reason": "long enough"}):
        assert acting.post("/act", body, headers=admin).status_code == 400
    assert acting.post("/act", {"key": "a", "reason": "it hangs"}, headers=admin).json() == {"by": "adminer"}
    assert acting.post("/act", {"key": "b", "reason": "it too"}, headers=admin).status_code == 200
    records = acting.run(acting.service.audit.records())
    assert [(each.who, each.action, each.key, each.reason, each.outcome) for each in records] == [
        ("adminer", "act", "b", "it too", "done"),
        ("adminer", "act", "a", "it hangs", "done"),
    ]


async def test_the_audit_log_keeps_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "KEPT", 10)
    monkeypatch.setattr(audit, "_TRIM_EVERY", 5)
    log = audit.AuditLog(open_async_store("memory://"))
    for number in range(31):
        await log.record("me", "act", f"k{number}", "because")
    kept = await log.records(limit=100)
    assert [each.key for each in kept] == [f"k{number}" for number in range(30, 20, -1)]
    page = await log.records(after=kept[3].id, limit=2)
    assert [each.key for each in page] == ["k26", "k25"]


def test_a_webhook_has_a_check_of_its_own(acting: Running) -> None:
    body = {"key": "a"}
    assert acting.post("/hook/one", body, headers={"x-token": "secret-one"}).json() == {"by": "webhook"}
    assert acting.post("/hook/one", body, headers={"x-token": "secret-two"}).status_code == 401
    assert acting.post("/hook/one", body, headers=bearer(TOKENS["admin"])).status_code == 401


def test_a_session_can_read_and_writes_only_with_the_token_against_forgery(acting: Running) -> None:
    sessions, tokens = acting.service.sessions, acting.service.tokens
    writer = tokens.whose(TOKENS["write"].encode())
    assert writer is not None
    cookie = sessions.open(writer)
    mine = {"cookie": f"other=1; {sessions.COOKIE}={cookie}"}
    assert acting.get("/page", headers=mine).json() == {"by": "writeer"}
    assert acting.post("/write", {}, headers=mine).json()["type"] == "/policy#csrf"
    assert acting.post("/write", {}, headers={**mine, "x-csrf-token": "x"}).status_code == 403
    other = sessions.open(writer)
    assert acting.post("/write", {}, headers={**mine, "x-csrf-token": sessions.csrf(other)}).status_code == 403
    assert acting.post("/write", {}, headers={**mine, "x-csrf-token": sessions.csrf(cookie)}).status_code == 200
    assert acting.http.post("/form", data={"key": "a"}, headers=mine).status_code == 403
    form = {"key": "a", "csrf": sessions.csrf(cookie)}
    assert acting.http.post("/form", data=form, headers=mine).status_code == 200
    assert acting.http.post("/form", data={**form, "csrf": "x"}, headers=mine).status_code == 403
    assert acting.http.post("/form", json=form, headers=mine).status_code == 415


def test_a_browser_without_a_session_is_led_to_the_login(acting: Running) -> None:
    answer = acting.get("/page?a=b")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fpage%3Fa%3Db"


def test_a_form_needs_its_token_without_tokens_too() -> None:
    with running(ROUTES) as it:
        assert it.http.post("/form", data={"key": "a"}).status_code == 403
        form = {"key": "a", "csrf": it.service.sessions.csrf("")}
        assert it.http.post("/form", data=form).json() == {"by": "local"}


# -- from where


def test_hosts_and_origins_are_checked_on_loopback_too(open_service: Running) -> None:
    body = {"keys": ["a"]}
    assert open_service.post("/v1/marks/seen", body, headers={"host": "evil.example"}).status_code == 421
    assert open_service.post("/v1/marks/seen", body, headers={"origin": "http://evil.example"}).status_code == 403
    assert open_service.post("/v1/marks/seen", body, headers={"origin": "null"}).status_code == 403
    assert open_service.post("/v1/marks/seen", body, headers={"origin": open_service.address}).status_code == 200
    plain = open_service.http.post("/v1/marks/seen", content=json.dumps(body), headers={"content-type": "text/plain"})
    assert plain.status_code == 415, "what a page may send without asking first is not taken for JSON"


def test_every_answer_carries_the_security_headers(guarded: Running) -> None:
    for answer in (
        guarded.get("/healthz"),
        guarded.get("/policy"),
        guarded.get("/nothing"),
        guarded.get("/metrics", headers=bearer(TOKENS["read"])),
        guarded.post("/v1/marks", {}),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "server" not in answer.headers


# -- secrets


def test_secrets_are_kept_out_of_logs() -> None:
    event = {
        "event": "cannot reach redis://user:swordfish@host:1/0 with Authorization: Bearer swordfish",
        "lease_token": "swordfish",
        "Cookie": "swordfish",
        "owner": "swordfish",
        "url": "https://x:swordfish@host/path",
        "count": 3,
        "key": "deploy",
    }
    told = logs.without_secrets(None, "info", event)
    assert "swordfish" not in str(told)
    assert "redis://user:…@host:1/0" in told["event"]
    assert (told["count"], told["key"]) == (3, "deploy")


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """What a test configures is undone: loggers are the process's own."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    loggers = [getattr(module, "log", None) for name, module in list(sys.modules.items()) if name.startswith("solely.")]
    for logger in loggers:
        if hasattr(logger, "_cache_logger_on_first_use"):  # of structlog: it keeps the configuration of its first use
            vars(logger).pop("bind", None)


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("form", ["json", "console"])
def test_lines_of_libraries_are_told_with_their_facts(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(settings(log_format=form))
    facts = {"key": "lock/a", "fence": 7}
    logging.getLogger("solely").warning("lease_lost: lease of %(key)r was lost", facts, extra=facts)
    line = capfd.readouterr().err
    assert "lease_lost" in line
    assert "lock/a" in line
    if form == "json":
        told = json.loads(line)
        assert (told["fence"], told["level"], told["logger"]) == (7, "warning", "solely")
        assert (told["event"], told["message"]) == ("lease_lost", "lease of 'lock/a' was lost")


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("form", ["json", "console"])
def test_no_text_of_a_caller_forges_a_line_of_the_log(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(settings(log_format=form))
    forged = "x\n2026-01-01 [info] all is well\r\u2028\u2029\x85\x0b\x1b[2J\x9b2J\u202e"
    structlog.get_logger("solely.alerts").warning("alert_firing", name=forged, labels={forged: forged})
    logging.getLogger("solely").warning("lease of %s was lost", forged, extra={"key": forged})
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("name", ["solely", "solely.alerts", "uvicorn.error"])
def test_no_error_of_a_caller_forges_a_line_of_the_log(form: str, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """In a console its traceback follows: each line is indented, and none reaches a terminal as a command."""
    logs.configure(settings(log_format=form))
    error = ValueError("x\n2026-01-01 [info] all is well\x1b[2J")
    error.__cause__ = KeyError("y\r2026-01-01 [info] all is well\x9b2J")
    logger = structlog.get_logger(name) if name == "solely.alerts" else logging.getLogger(name)
    logger.error("it_failed", exc_info=error)
    first, *others = capfd.readouterr().err.splitlines()
    assert "it_failed" in first
    assert first.isprintable()
    assert all(line.isprintable() and line.startswith("    ") for line in others)
    assert bool(others) == (form == "console")


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("form", ["json", "console"])
async def test_calls_to_others_show_no_secrets_at_debug_level(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The libraries below log the headers of receivers and whole URLs, whoever uses them."""
    async with receivers.hooks() as receiver, Caller("test") as caller:
        for library in ("httpcore2", "httpx2"):
            logging.getLogger(library).setLevel(logging.NOTSET)
        logs.configure(settings(log_format=form, log_level="debug"))
        logging.getLogger("test").debug("lines at debug level are written")
        receiver.answers.append(receivers.Answer(headers=(("Set-Cookie", "sid=swordfish"), ("X-Token", "swordfish"))))
        url = f"{receiver.url}?key=swordfish"
        assert (await caller.call(Request("POST", url, {"Authorization": "Bearer swordfish"}))).ok
        async with httpx2.AsyncClient() as client:
            assert (await client.get(url, headers={"X-Key": "swordfish"})).is_success
    written = capfd.readouterr().err
    assert "lines at debug level are written" in written
    assert "swordfish" not in written
    assert "httpcore2" not in written
    assert "httpx2" not in written


async def breaks(call: Call[None, None]) -> Done:
    secret = call.headers
    raise RuntimeError("it broke") from ValueError(len(secret))


@pytest.mark.usefixtures("logging_as_before")
def test_a_failure_tells_neither_the_caller_nor_the_log_a_secret(capfd: pytest.CaptureFixture[str]) -> None:
    with running([Route("GET", "/break", READ, breaks, "Break")], tokens=LINES, log_format="json") as it:
        it.on_loop(lambda: logs.configure(it.service.settings))
        answer = it.get("/break", headers=bearer(TOKENS["admin"]))
    assert answer.status_code == 500
    assert "it broke" not in answer.text
    assert "Traceback" not in answer.text
    logged = capfd.readouterr().err
    assert "it broke" in logged
    assert TOKENS["admin"] not in logged
