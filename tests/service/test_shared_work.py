"""What many readers ask for at once is made once, and off the event loop: nobody's lease is lost over it."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from prometheus_client import generate_latest

from solely.service import endpoints, figures, openapi
from solely.service.routes import WRITE, Answer, Body, Call, Route
from tests.service.serving import LINES, TOKENS, Running, bearer, running

LONG = 60.0  # seconds: nothing here waits so long unless it fails
READER, WRITER = bearer(TOKENS["read"]), bearer(TOKENS["write"])


class Gate:
    """A function that counts its calls, and waits until it is open."""

    def __init__(self, through: Any, *, shut: bool) -> None:
        self.reached, self.open, self.calls = threading.Event(), threading.Event(), 0
        self._through = through
        if not shut:
            self.open.set()

    def __call__(self, *given: Any) -> Any:
        self.calls += 1
        self.reached.set()
        assert self.open.wait(LONG)
        return self._through(*given)


def test_the_document_of_the_api_is_encoded_once_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tokens=LINES) as it:
        encode = Gate(getattr(openapi, "to_json", None) or (lambda value: value), shut=False)
        monkeypatch.setattr(openapi, "to_json", encode, raising=False)
        answers = [it.get("/openapi.json", headers={"accept-encoding": "identity"}) for _ in range(20)]
        assert encode.calls == 1
        assert len({each.content for each in answers}) == 1
        assert answers[0].json()["openapi"] == "3.1.0"


def test_the_document_of_the_api_is_compressed_and_need_not_be_sent_again() -> None:
    with running(tokens=LINES) as it:
        plain = it.get("/openapi.json", headers={"accept-encoding": "gzip;q=0"})
        with it.http.stream("GET", "/openapi.json", headers={"accept-encoding": "br, gzip"}) as answer:
            raw = b"".join(answer.iter_raw())
        assert answer.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert gzip.decompress(raw) == plain.content
        assert len(raw) < len(plain.content) / 5
        again = it.get("/openapi.json", headers={"if-none-match": plain.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert it.get("/openapi.json", headers={"if-none-match": '"another"'}).status_code == 200


def test_many_readers_of_the_metrics_share_one_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tokens=LINES) as it:
        render = Gate(generate_latest, shut=False)
        monkeypatch.setattr(figures, "generate_latest", render)

        async def read() -> list[bytes]:
            return await asyncio.gather(*(it.service.metrics.shared_text() for _ in range(150)))

        assert len(set(it.run(read()))) == 1
        assert render.calls == 1


def test_a_lock_is_granted_while_metrics_are_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tokens=LINES) as it, ThreadPoolExecutor(8) as readers:
        render = Gate(generate_latest, shut=True)
        monkeypatch.setattr(figures, "generate_latest", render)
        try:
            asked = [
                readers.submit(httpx2.get, f"{it.address}/metrics", headers=READER, timeout=LONG) for _ in range(8)
            ]
            assert render.reached.wait(LONG)
            _acquire(it)
        finally:
            render.open.set()
        assert [each.result(LONG).status_code for each in asked] == [200] * 8


class Anything(Body):
    """Any value."""

    value: Any


class Taken(Answer):
    """It was read."""

    ok: bool


async def take(call: Call[Anything, None]) -> Taken:
    """Reads the value."""
    return Taken(ok=True)


def test_a_lock_is_granted_while_a_large_body_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    from solely.service.api import locks

    routes = [*locks.ROUTES, Route("POST", "/large", WRITE, take, cap=1 << 20)]
    with running(routes, tokens=LINES) as it, ThreadPoolExecutor(1) as sender:
        check = Gate(endpoints._too_deep, shut=True)
        monkeypatch.setattr(endpoints, "_too_deep", check)
        headers = {**WRITER, "content-type": "application/json"}
        body = b'{"value": ' + b"[" * (300 << 10)
        try:
            sent = sender.submit(httpx2.post, f"{it.address}/large", content=body, headers=headers, timeout=LONG)
            assert check.reached.wait(LONG)
            _acquire(it)
        finally:
            check.open.set()
        assert sent.result(LONG).status_code == 400


def test_brackets_that_do_not_match_or_are_too_deep_are_refused() -> None:
    assert endpoints._too_deep(b"[" * 1000)
    assert not endpoints._too_deep(b"[" * 32 + b"]" * 32)
    assert endpoints._too_deep(b"[" * 33 + b"]" * 33)


def test_a_text_that_does_not_end_is_read_once() -> None:
    """Of CPU time: it takes a millisecond, and took half a minute when each quote in it was tried as a beginning."""
    began = time.process_time()
    assert endpoints._too_deep(b"[" * 40 + b'"' + b'\\"' * 150_000)
    assert time.process_time() - began < 5.0


def _acquire(it: Running) -> None:
    answer = it.post("/v1/locks/acquire", {"key": "held", "ttl": 30}, headers=WRITER)
    assert answer.status_code == 200
