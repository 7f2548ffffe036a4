"""What only WSGI has: iterables that are closed, `write`, `exc_info`, input with and without an end."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import solely
from solely.integrations.idempotency import Rules
from solely.integrations.wsgi import IdempotencyMiddleware
from tests.client.refusing import RefusingStore
from tests.http.calling import KEY, Reply, call_wsgi, environ_of
from tests.http.service import HEADERS, Service, principal

PAIRS = [*HEADERS.items(), ("Idempotency-Key", KEY)]


@pytest.fixture
def once() -> Iterator[solely.Client]:
    with solely.Client("memory://") as client:
        yield client


@pytest.fixture
def ask(once: solely.Client) -> Callable[..., Reply]:
    """Asks an application behind the middleware."""

    def ask(app: Any, body: bytes = b"{}", **more: Any) -> Reply:
        guarded = IdempotencyMiddleware(app, once=once, rules=Rules(scope=principal, max_request=100))
        return call_wsgi(guarded, environ_of("POST", "/orders", PAIRS, body, **more))

    return ask


def test_the_iterable_is_closed(ask: Callable[..., Reply]) -> None:
    closed: list[str] = []

    class Pieces(list[bytes]):
        def close(self) -> None:
            closed.append("closed")

    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return Pieces([b"a", b"b"])

    assert ask(app).body == b"ab"
    assert closed == ["closed"]


def test_a_client_that_leaves_in_the_middle_of_a_stream_leaves_a_tombstone(once: solely.Client) -> None:
    runs: list[int] = []

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        runs.append(1)
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield b"a"
        yield b"b"

    guarded = IdempotencyMiddleware(app, once=once, rules=Rules(scope=principal))
    started: list[str] = []
    stream: Any = guarded(environ_of("POST", "/orders", PAIRS, b"{}"), lambda *given: started.append(given[0]))
    assert next(stream) == b"a"
    stream.close()  # what a server does when the client has gone
    again = call_wsgi(guarded, environ_of("POST", "/orders", PAIRS, b"{}"))
    assert (started, again.status, again.problem) == (["200 OK"], 410, "not-kept")
    assert runs == [1]


def test_an_answer_that_is_dropped_unread_has_claimed_nothing() -> None:
    with solely.Client(store=RefusingStore()) as once:
        guarded = IdempotencyMiddleware(Service().wsgi, once=once, rules=Rules(scope=principal))
        unread: Any = guarded(environ_of("POST", "/orders", PAIRS, b"{}"), None)  # type: ignore[arg-type]
        unread.close()


def test_what_is_written_by_write_is_kept_too(ask: Callable[..., Reply]) -> None:
    def app(environ: Any, start_response: Any) -> Any:
        write = start_response("200 OK", [("Content-Type", "text/plain")])
        write(b"a")
        write(b"b")
        return [b"c", b"d"]

    assert ask(app).body == b"abcd"
    again = ask(app)
    assert (again.body, again.headers["idempotent-replayed"]) == (b"abcd", "true")


def test_a_status_can_be_replaced_until_it_was_sent(ask: Callable[..., Reply]) -> None:
    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("Content-Type", "text/plain")])
        try:
            raise LookupError
        except LookupError:
            start_response("404 Not Found", [("Content-Type", "text/plain")], sys.exc_info())
        return [b"no such thing"]

    assert ask(app).status == ask(app).status == 404


def test_a_status_that_was_sent_cannot_be_replaced(ask: Callable[..., Reply]) -> None:
    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield b"begin"
        try:
            raise LookupError("too late")
        except LookupError:
            start_response("500 Error", [("Content-Type", "text/plain")], sys.exc_info())
        yield b"end"

    with pytest.raises(LookupError, match="too late"):
        ask(app)
    assert ask(app).status == 410


def test_an_application_that_never_starts_is_an_error_and_lets_go(ask: Callable[..., Reply]) -> None:
    with pytest.raises(RuntimeError, match="status"):
        ask(lambda environ, start_response: [])
    assert ask(Service().wsgi).status == 201


def test_input_that_ends_by_itself_is_read_without_a_length(ask: Callable[..., Reply]) -> None:
    service = Service()
    ended = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"}
    assert b"chunks" in ask(service.wsgi, **ended, **{"wsgi.input": io.BytesIO(b"chunks")}).body
    assert ask(service.wsgi, **ended, **{"wsgi.input": io.BytesIO(b"others")}).status == 422
    assert ask(service.wsgi, **ended, **{"wsgi.input": io.BytesIO(b"x" * 101)}).status == 413
    assert service.runs == ["/orders"]


def test_input_without_length_and_end_is_empty(ask: Callable[..., Reply]) -> None:
    assert b'"you_sent": ""' in ask(Service().wsgi, CONTENT_LENGTH="").body


def test_input_that_ends_too_early_is_refused(ask: Callable[..., Reply]) -> None:
    service = Service()
    reply = ask(service.wsgi, b"short", CONTENT_LENGTH="6")
    assert (reply.status, reply.problem) == (400, "body-incomplete")
    assert service.runs == []


def test_input_may_come_in_pieces(ask: Callable[..., Reply]) -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 0, 3))

    assert b'"you_sent": "in pieces"' in ask(Service().wsgi, b"in pieces", **{"wsgi.input": Slow(b"in pieces")}).body


def test_the_mount_point_is_part_of_the_uri_and_of_the_policy(once: solely.Client) -> None:
    guarded = IdempotencyMiddleware(Service().wsgi, once=once, rules=Rules(scope=principal))
    reply = call_wsgi(guarded, environ_of("POST", "/orders", HEADERS.items(), b"", SCRIPT_NAME="/v1"))
    assert b'"type": "/v1/idempotency-policy#key-missing"' in reply.body
    page = call_wsgi(guarded, environ_of("GET", "/idempotency-policy", [], b"", SCRIPT_NAME="/v1"))
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
