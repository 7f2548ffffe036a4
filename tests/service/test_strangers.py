"""However much strangers ask for, those who have authenticated wait for a few of their requests at most."""

from __future__ import annotations

import http.cookies
import json
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import pytest

from solely.service import authentication, policy, quotas
from solely.service.dashboard import rendering
from solely.service.protocol import BoundedProtocol
from solely.service.sessions import Sessions
from tests.service.serving import LINES, TOKENS, Running, running
from tests.service.test_connections import ask

STRANGERS = 60  # that ask at the same time
FEW = 8  # of them that may be served in one round of the event loop
LONG = 60.0  # seconds: nothing here waits so long unless it fails
HOST = b" HTTP/1.1\r\nhost: localhost\r\n"
BODY = b"token=x&csrf="
FORM = b"content-type: application/x-www-form-urlencoded\r\ncontent-length: %d\r\n\r\n" % len(BODY)
CHUNKED = b"content-type: application/x-www-form-urlencoded\r\ntransfer-encoding: chunked\r\n\r\n"
ASKED = {
    "health": b"GET /healthz" + HOST + b"\r\n",
    "an unknown path": b"GET /none" + HOST + b"\r\n",
    "an unknown token": b"GET /v1/locks" + HOST + b"authorization: Bearer none\r\n\r\n",
    "an unknown host": b"GET / HTTP/1.1\r\nhost: elsewhere.example\r\n\r\n",
    "a forged form": b"POST /login" + HOST + FORM + BODY,
}
TAKEN = json.dumps({"key": "mine", "ttl": 30}).encode()
ACQUIRE = (
    b"POST /v1/locks/acquire" + HOST + b"content-type: application/json\r\nauthorization: Bearer "
    + TOKENS["write"].encode() + b"\r\ncontent-length: %d\r\n\r\n" % len(TAKEN) + TAKEN
)  # fmt: skip


class Answered:
    """In which round of the event loop each response was sent, and to whom."""

    def __init__(self, it: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rounds = 0
        self.sent: list[tuple[int, int, str]] = []  # round, status, address of the reader
        through = BoundedProtocol._respond

        def respond(connection: BoundedProtocol, cycle: Any, status: int, headers: Any, body: bytes) -> bool:
            self.sent.append((self.rounds, status, connection.address))
            return through(connection, cycle, status, headers, body)

        monkeypatch.setattr(BoundedProtocol, "_respond", respond)
        it.on_loop(lambda: it.loop.call_soon(self._count, it.loop))

    def _count(self, loop: Any) -> None:
        self.rounds += 1
        loop.call_soon(self._count, loop)


@contextmanager
def held(it: Running) -> Iterator[None]:
    """The event loop reads nothing meanwhile: all that is sent arrives in the same round."""
    reached, go = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        go.wait(LONG)

    it.loop.call_soon_threadsafe(hold)
    assert reached.wait(LONG)
    try:
        yield
    finally:
        go.set()


def until_answered(connections: list[socket.socket]) -> None:
    """Waits until each of them has got something."""
    for each in connections:
        assert each.recv(65_536)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Running, Answered, list[socket.socket]]]:
    """A service to which strangers are connected, each of whom has asked something before."""
    with running(tokens=LINES) as it, ExitStack() as stack:
        strangers = [stack.enter_context(it.connect()) for _ in range(STRANGERS)]
        for each in strangers:
            assert b" 200 " in ask(each)
        yield it, Answered(it, monkeypatch), strangers


@pytest.mark.parametrize("name", ASKED)
def test_requests_of_strangers_are_served_a_few_in_each_round(
    name: str, asked: tuple[Running, Answered, list[socket.socket]]
) -> None:
    it, answered, strangers = asked
    with held(it):
        for each in strangers:
            each.sendall(ASKED[name])
    until_answered(strangers)
    assert len(answered.sent) == STRANGERS
    assert max(Counter(rounds for rounds, *_ in answered.sent).values()) <= FEW


def test_what_strangers_send_is_parsed_in_turns(
    asked: tuple[Running, Answered, list[socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body in tiny chunks, and requests ahead of their responses, cost milliseconds: as much as a turn may take."""
    it, answered, strangers = asked
    parsed, through = Counter[int](), BoundedProtocol._receive

    def receive(connection: BoundedProtocol, data: bytes) -> None:
        parsed[answered.rounds] += 1
        through(connection, data)

    monkeypatch.setattr(BoundedProtocol, "_receive", receive)
    monkeypatch.setattr(quotas, "PARSING", 1e-9, raising=False)  # seconds: one piece in each round
    ask(strangers[0])
    parsed.clear()
    with held(it):
        for each in strangers:
            each.sendall(b"POST /login" + HOST + CHUNKED + b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n")
    until_answered(strangers)
    assert sum(parsed.values()) >= STRANGERS
    assert max(parsed.values()) == 1


def test_the_cookies_of_strangers_are_not_parsed(asked: tuple[Running, Answered, list[socket.socket]]) -> None:
    """Thousands of them fit into one request: to parse those took 60 ms."""
    it, _, strangers = asked
    parsed = list[str]()

    def note(frame: FrameType, *_: object) -> None:
        if frame.f_code.co_filename == http.cookies.__file__:
            parsed.append(frame.f_code.co_name)

    it.on_loop(lambda: sys.setprofile(note))
    try:
        assert b" 401 " in ask(strangers[0], b"GET /v1/locks" + HOST + b"cookie: " + b"a=b;" * 7_000 + b"\r\n\r\n")[:20]
    finally:
        it.on_loop(lambda: sys.setprofile(None))
    assert parsed == []


def test_our_cookie_is_found_among_others() -> None:
    name = Sessions.COOKIE.encode()
    found = {
        b"%b=a.b" % name: "a.b",
        b'x=1; %b="YQ==.b"; y=2' % name: "YQ==.b",
        b"x=1;%b=a;%b=b" % (name, name): "b",
        b"not_%b=a" % name: "",
        b"x=%b=a" % name: "",
        b"": "",
        b"%b" % name: "",
    }
    assert {cookies: authentication._session(cookies) for cookies in found} == found


def test_a_caller_with_a_token_does_not_wait_for_all_strangers(
    asked: tuple[Running, Answered, list[socket.socket]],
) -> None:
    it, answered, strangers = asked
    with it.connect() as caller:
        ask(caller, b"GET /version" + HOST + b"authorization: Bearer " + TOKENS["read"].encode() + b"\r\n\r\n")
        answered.sent.clear()
        with held(it):
            for each in strangers:
                each.sendall(ASKED["an unknown path"])
            caller.sendall(ACQUIRE)
        until_answered([*strangers, caller])
    statuses = [status for _, status, _ in answered.sent]
    assert statuses.count(404) == STRANGERS
    assert statuses.index(200) < STRANGERS / 2


def test_a_health_probe_from_another_address_does_not_wait_for_all_of_one(
    asked: tuple[Running, Answered, list[socket.socket]],
) -> None:
    it, answered, strangers = asked
    probe = socket.create_connection(("127.0.0.1", it.port), LONG, ("127.0.0.2", 0))
    with probe:
        ask(probe)
        answered.sent.clear()
        with held(it):
            for each in strangers:
                each.sendall(ASKED["an unknown path"])
            probe.sendall(ASKED["health"])
        until_answered([*strangers, probe])
    assert [address for *_, address in answered.sent].index("127.0.0.2") < STRANGERS / 2


def test_strangers_who_have_gone_are_not_served(asked: tuple[Running, Answered, list[socket.socket]]) -> None:
    it, answered, strangers = asked
    with held(it):
        for each in strangers:
            each.sendall(ASKED["an unknown path"])
        for each in strangers[:-1]:
            each.close()
    until_answered(strangers[-1:])
    assert len(answered.sent) < STRANGERS / 2


def test_the_policy_is_rendered_once_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = []
    through = rendering.public_page

    def render(*given: Any) -> Any:
        rendered.append(given)
        return through(*given)

    monkeypatch.setattr(policy, "public_page", render)
    with running(tokens=LINES) as it:
        pages = {it.get("/policy").text for _ in range(5)}
    assert len(pages) == len(rendered) == 1
