"""The API's way of working: locks and marks over HTTP, what is refused and how, caps, repeats, and stopping."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx2
import pytest

from solely.service.mount import mount
from solely.service.openapi import openapi
from solely.service.problems import KINDS
from solely.service.routes import PUBLIC, READ, WRITE, Answer, Body, Call, JsonResponse, PageSize, Prefix, Route
from solely.service.service import Service
from solely.testing.harness import fresh
from tests.servers import free_port
from tests.service.serving import LINES, TOKENS, Running, bearer, running, settings, until

# -- locks and marks


def test_a_lock_from_taking_to_letting_go(open_service: Running) -> None:
    taken = open_service.post("/v1/locks/acquire", {"key": "repo/42", "ttl": 30, "purpose": "deploy"})
    assert taken.status_code == 200
    lease = taken.json()
    assert lease["key"] == "repo/42"
    assert lease["fence"] > 0
    assert 29 < lease["left"] <= 30
    busy = open_service.post("/v1/locks/acquire", {"key": "repo/42"})
    assert busy.status_code == 409
    assert busy.headers["content-type"] == "application/problem+json"
    assert busy.headers["retry-after"] == "30"
    assert busy.json()["type"] == "/policy#busy"
    assert "deploy" in busy.json()["holder"]
    assert lease["token"] not in busy.text
    assert open_service.post("/v1/locks/renew", {"token": lease["token"], "ttl": 60}).json()["left"] > 59
    assert open_service.post("/v1/locks/release", {"token": lease["token"]}).json() == {"outcome": "released"}
    assert open_service.post("/v1/locks/release", {"token": lease["token"]}).json() == {"outcome": "released"}
    lost = open_service.post("/v1/locks/renew", {"token": lease["token"]})
    assert (lost.status_code, lost.json()["type"]) == (410, "/policy#lost")


def test_many_locks_at_once_are_all_or_none(open_service: Running) -> None:
    keys = ["m1", "m2", "m3"]
    leases = open_service.post("/v1/locks/acquire", {"keys": keys}).json()["leases"]
    assert [lease["key"] for lease in leases] == keys
    refused = open_service.post("/v1/locks/acquire", {"keys": ["m0", "m1"]})
    assert refused.status_code == 409
    one = open_service.post("/v1/locks/acquire", {"key": "m0"}).json()
    tokens = [lease["token"] for lease in leases]
    open_service.post("/v1/locks/release", {"token": tokens[0]})
    renewed = open_service.post("/v1/locks/renew", {"tokens": tokens}).json()["leases"]
    assert [each["left"] > 0 for each in renewed] == [False, True, True]
    released = open_service.post("/v1/locks/release", {"tokens": [*tokens, one["token"]]}).json()["leases"]
    assert [each["outcome"] for each in released] == ["released"] * 4


def test_a_waiter_is_served_when_the_key_is_free(open_service: Running) -> None:
    token = open_service.post("/v1/locks/acquire", {"key": "w"}).json()["token"]
    answers: list[httpx2.Response] = []
    waiter = threading.Thread(
        target=lambda: answers.append(open_service.post("/v1/locks/acquire", {"key": "w", "wait": 10}))
    )
    waiter.start()
    until(lambda: open_service.service.waiters.now["local"])
    open_service.post("/v1/locks/release", {"token": token})
    waiter.join(10)
    assert answers[0].status_code == 200
    open_service.post("/v1/locks/release", {"token": answers[0].json()["token"]})
    assert not open_service.service.waiters.now


def test_a_caller_that_hangs_up_while_it_waits_holds_nothing(open_service: Running) -> None:
    token = open_service.post("/v1/locks/acquire", {"key": "gone"}).json()["token"]
    body = json.dumps({"key": "gone", "wait": 30}).encode()
    with open_service.connect() as caller:
        head = "POST /v1/locks/acquire HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        caller.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        until(lambda: open_service.service.waiters.now["local"])
    until(lambda: not open_service.service.waiters.now)
    open_service.post("/v1/locks/release", {"token": token})
    again = open_service.post("/v1/locks/acquire", {"key": "gone"})
    assert again.status_code == 200, "nobody has it"
    open_service.post("/v1/locks/release", {"token": again.json()["token"]})


def test_marks(open_service: Running) -> None:
    assert open_service.post("/v1/marks", {"keys": ["a", "b"], "ttl": 60}).json() == {"first": [True, True]}
    assert open_service.post("/v1/marks", {"keys": ["b", "c"]}).json() == {"first": [False, True]}
    assert open_service.post("/v1/marks/seen", {"keys": ["a", "z"]}).json() == {"seen": [True, False]}
    assert open_service.post("/v1/marks/forget", {"keys": ["a", "z"]}).json() == {"forgotten": [True, False]}
    assert open_service.post("/v1/marks", {"keys": ["a"]}).json() == {"first": [True]}


def test_a_repeat_with_an_idempotency_key_gets_the_same_answer(guarded: Running) -> None:
    def mark(key: str, who: str = "write", body: Any = None) -> httpx2.Response:
        headers = {"idempotency-key": f'"{key}"', **bearer(TOKENS[who])}
        return guarded.post("/v1/marks", body or {"keys": ["idem"]}, headers=headers)

    assert mark("1").json() == {"first": [True]}
    again = mark("1")
    assert again.json() == {"first": [True]}
    assert again.headers["idempotent-replayed"] == "true"
    assert mark("2").json() == {"first": [False]}
    assert mark("1", body={"keys": ["other"]}).status_code == 422
    assert mark("1", who="admin").json() == {"first": [False]}, "keys of two tokens never meet"
    assert mark("3", who="read").status_code == 403
    assert mark("4", body={"keys": [""]}).status_code == 400
    assert mark("4").status_code == 200, "a refusal leaves the key free"


# -- what cannot be

DEEP = "[" * 100 + "]" * 100
MALFORMED: list[tuple[str, bytes]] = [
    ("nothing", b""),
    ("no JSON", b"{"),
    ("another encoding", b'{"key": "\xff"}'),
    ("a list", b"[]"),
    ("null", b"null"),
    ("NaN", b'{"key": "a", "ttl": NaN}'),
    ("infinity", b'{"key": "a", "ttl": 1e999}'),
    ("minus infinity", b'{"key": "a", "ttl": -Infinity}'),
    ("a text for a number", b'{"key": "a", "ttl": "30"}'),
    ("a number for a text", b'{"key": 1}'),
    ("true for a number", b'{"key": "a", "ttl": true}'),
    ("a field that is not known", b'{"key": "a", "owner": "me"}'),
    ("neither key nor keys", b"{}"),
    ("both", b'{"key": "a", "keys": ["b"]}'),
    ("an empty key", b'{"key": ""}'),
    ("a key that is too long", json.dumps({"key": "a" * 513}).encode()),
    ("a key that is too long in bytes", json.dumps({"key": "ä" * 300}).encode()),
    ("a key with NUL", b'{"key": "a\\u0000b"}'),
    ("half a surrogate", b'{"key": "\\ud800"}'),
    ("no keys", b'{"keys": []}'),
    ("too many keys", json.dumps({"keys": [f"k{n}" for n in range(129)]}).encode()),
    ("a ttl of nothing", b'{"key": "a", "ttl": 0}'),
    ("a ttl over the cap", b'{"key": "a", "ttl": 86401}'),
    ("a wait over the cap", b'{"key": "a", "wait": 61}'),
    ("a huge number", b'{"key": "a", "ttl": 1' + b"0" * 5000 + b"}"),
    ("deep JSON", f'{{"key": {DEEP}}}'.encode()),
    ("deep JSON in a field that is not known", f'{{"x": {DEEP}}}'.encode()),
    ("very deep JSON", b"[" * 60_000),
    ("an unclosed text", b'{"key": "' + b"\\" * 60_000),
]


@pytest.mark.parametrize(("what", "body"), MALFORMED, ids=[what for what, _ in MALFORMED])
def test_what_is_malformed_is_refused_with_a_reason(what: str, body: bytes, open_service: Running) -> None:
    answer = open_service.http.post("/v1/locks/acquire", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]


def test_deep_brackets_inside_texts_are_only_text(open_service: Running) -> None:
    assert open_service.post("/v1/marks/seen", {"keys": [DEEP, '\\"' + DEEP]}).status_code == 200


def test_bodies_of_another_kind_are_refused(open_service: Running) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        answer = open_service.http.post("/v1/marks", content=b'{"keys":["a"]}', headers={"content-type": kind})
        assert answer.status_code == 415
    charset = {"content-type": "application/json; charset=utf-8"}
    assert open_service.http.post("/v1/marks/seen", content=b'{"keys":["a"]}', headers=charset).status_code == 200


def test_paths_and_methods(open_service: Running) -> None:
    assert open_service.get("/nothing").status_code == 404
    assert open_service.get("/v1/locks/acquire/").status_code == 404
    wrong = open_service.get("/v1/locks/acquire")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert open_service.http.request("BREW", "/v1/locks/acquire").status_code in (400, 405)
    head = open_service.http.head("/healthz")
    assert (head.status_code, head.content) == (200, b"")


def test_headers_that_come_twice_are_refused(open_service: Running) -> None:
    twice = [("content-type", "application/json"), ("authorization", "Bearer a"), ("authorization", "Bearer b")]
    assert open_service.http.post("/v1/marks", content=b"{}", headers=twice).status_code == 400


class Listed(Answer):
    prefix: str
    limit: int


class Query(Answer, forbid_unknown_fields=True):
    prefix: Prefix = ""
    limit: PageSize = 100


async def lists(call: Call[None, Query]) -> Listed:
    return Listed(prefix=call.query.prefix, limit=call.query.limit)


async def nothing(call: Call[None, None]) -> None:
    return None


async def teapot(call: Call[None, None]) -> JsonResponse:
    return JsonResponse(418, {"short": True}, ((b"x-tea", b"yes"),))


@pytest.fixture(scope="module")
def small() -> Any:
    routes = [
        Route("GET", "/list", READ, lists, "List"),
        Route("GET", "/nothing/{here}", READ, nothing, "Nothing"),
        Route("GET", "/tea", READ, teapot, "Tea"),
    ]
    with running(routes) as it:
        yield it


def test_queries_are_checked(small: Running) -> None:
    assert small.get("/list?prefix=a%2Fb%20c&limit=7").json() == {"prefix": "a/b c", "limit": 7}
    for wrong in (
        "limit=0",
        "limit=1001",
        "limit=nan",
        "limit=1.5",
        "limit=x",
        "limit=1&limit=2",
        "what=1",
        "prefix=%ff",
    ):
        assert small.get(f"/list?{wrong}").status_code == 400
    assert small.get("/list?" + "&".join(f"a{n}=1" for n in range(101))).status_code == 400


def test_answers_of_other_kinds(small: Running) -> None:
    assert small.get("/nothing/a%2Fb").status_code == 404, "a slash is a slash, however it is written"
    empty = small.get("/nothing/x")
    assert (empty.status_code, empty.content) == (204, b"")
    tea = small.get("/tea")
    assert (tea.status_code, tea.json(), tea.headers["x-tea"]) == (418, {"short": True}, "yes")


def test_the_policy_page_states_what_a_repeat_does_and_every_problem(open_service: Running) -> None:
    page = open_service.get("/policy").text
    for route in open_service.app.routes:
        if route.again:
            assert f"{route.method} {route.path}" in page
    for kind in KINDS:
        assert f'id="{kind.name}"' in page


def test_every_write_says_what_a_repeat_does() -> None:
    routes = mount(Service(settings()))
    silent = [route.path for route in routes if route.method == "POST" and not route.hidden and not route.again]
    assert silent == []


def test_routes_are_listed_by_what_they_are_about(open_service: Running) -> None:
    paths = open_service.get("/openapi.json").json()["paths"]
    tags = {path: {tag for operation in each.values() for tag in operation["tags"]} for path, each in paths.items()}
    assert tags["/v1/locks/acquire"] == {"locks"}
    for path in ("/-/healthy", "/metrics", "/openapi.json", "/policy"):
        assert tags[path] == {"service"}
    for path in ("/api/alerts", "/api/v2/alerts", "/v2/enqueue"):
        assert tags[path] == {"alerts"}


@pytest.mark.parametrize(
    ("path", "tag", "noun"),
    [
        ("/api/orders/{id}", "", "orders"),
        ("/api/v2/orders", "", "orders"),
        ("/v2/orders", "", "orders"),
        ("/orders", "shop", "shop"),
        ("/", "", "dashboard"),
    ],
)
def test_the_noun_of_a_path(path: str, tag: str, noun: str) -> None:
    assert Route("GET", path, READ, openapi, "", tag=tag).noun == noun


# -- caps


def test_waiters_and_holds_of_a_client_are_capped() -> None:
    with running(max_waiters=2, max_holds=3, tokens=LINES) as it:
        writer, admin = bearer(TOKENS["write"]), bearer(TOKENS["admin"])
        held = [it.post("/v1/locks/acquire", {"key": f"k{n}"}, headers=writer).json()["token"] for n in range(3)]
        full = it.post("/v1/locks/acquire", {"key": "k3"}, headers=writer)
        assert (full.status_code, full.json()["type"]) == (429, "/policy#too-many")
        assert it.post("/v1/locks/acquire", {"keys": ["x", "y"]}, headers=admin).status_code == 200, "another client"
        it.post("/v1/locks/release", {"token": held[0]}, headers=writer)
        again = it.post("/v1/locks/acquire", {"key": "k3", "ttl": 0.2}, headers=writer)
        assert again.status_code == 200
        until(lambda: it.post("/v1/locks/acquire", {"key": "k4"}, headers=writer).status_code == 200)

        def wait() -> None:
            answers.append(it.post("/v1/locks/acquire", {"key": "k1", "wait": 1.5}, headers=admin).status_code)

        answers: list[int] = []
        waiting = [threading.Thread(target=wait) for _ in range(2)]
        for thread in waiting:
            thread.start()
        until(lambda: it.service.waiters.now["adminer"] == 2)
        assert it.post("/v1/locks/acquire", {"key": "k1", "wait": 1}, headers=admin).status_code == 429
        for thread in waiting:
            thread.join(10)
        assert answers == [409, 409]


class Upload(Body):
    """Some text."""

    text: str


class Size(Answer):
    """Its length."""

    size: int


async def upload(call: Call[Upload, None]) -> Size:
    """Counts the text."""
    return Size(size=len(call.body.text))


@pytest.mark.parametrize(
    ("route", "most"),
    [
        (Route("POST", "/v1/upload", PUBLIC, upload, cap=8192), 4096),
        (Route("POST", "/v1/upload", PUBLIC, upload, cap=8192, over_max_body=True), 8192),
        (Route("POST", "/v1/upload", WRITE, upload, cap=8192, over_max_body=True, keyed=True), 8192),
        (Route("POST", "/v1/upload", PUBLIC, upload, cap=2048, over_max_body=True), 2048),
    ],
    ids=["general", "larger", "larger, with a key", "smaller"],
)
def test_a_route_may_allow_a_larger_body_than_the_service_does_in_general(route: Route, most: int) -> None:
    headers = {"idempotency-key": f'"{fresh("upload")}"'} if route.keyed else {}
    room = most - len('{"text":""}')
    with running([route], max_body=4096) as it:
        fits = it.post("/v1/upload", {"text": "x" * room}, headers=headers)
        assert (fits.status_code, fits.json()) == (200, {"size": room})
        refused = it.post("/v1/upload", {"text": "x" * (room + 1)}, headers={})
        assert (refused.status_code, refused.json()["type"]) == (413, "/policy#too-large")
        streamed = it.http.post("/v1/upload", content=iter([b"x" * most, b"x"]))
        assert streamed.status_code == 413


def test_a_key_without_quotes_is_accepted_where_the_settings_allow_it() -> None:
    for allowed in (False, True):
        with running(bare_keys=allowed) as it:
            key, body = fresh("bare"), {"keys": [fresh("m")]}
            first = it.post("/v1/marks", body, headers={"idempotency-key": key})
            again = it.post("/v1/marks", body, headers={"idempotency-key": f'"{key}"'})
        assert first.status_code == (200 if allowed else 400)
        assert again.json() == {"first": [True]}


def test_a_store_that_is_away_is_told_as_503_without_its_address() -> None:
    port = free_port()
    with running(url=f"redis://:swordfish@127.0.0.1:{port}", store_timeout="200ms") as it:
        answer = it.post("/v1/locks/acquire", {"key": "a"})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["type"] == "/policy#store-away"
        assert str(port) not in answer.text


def test_a_service_that_stops_grants_nothing_more_and_tells_those_who_wait() -> None:
    with running() as it:
        token = it.post("/v1/locks/acquire", {"key": "a"}).json()["token"]
        answers: list[httpx2.Response] = []
        waiter = threading.Thread(target=lambda: answers.append(it.post("/v1/locks/acquire", {"key": "a", "wait": 30})))
        waiter.start()
        until(lambda: it.service.waiters.now["local"])
        began = time.monotonic()
        it.on_loop(it.service.stop)
        waiter.join(10)
        assert time.monotonic() - began < 5
        for refused in (answers[0], it.post("/v1/locks/acquire", {"key": "b"}), it.post("/v1/marks", {"keys": ["b"]})):
            assert (refused.status_code, refused.json()["type"]) == (503, "/policy#stopping")
            assert refused.headers["retry-after"] == "1"
        assert it.post("/v1/locks/release", {"token": token}).json() == {"outcome": "released"}, "what ends may end"
