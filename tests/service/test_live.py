"""Live pages over HTTP: several in one stream, as changes, compressed for whom can read that."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from solely import AsyncClient
from solely.service.dashboard.live import MOST
from tests.service.serving import LINES, TOKENS, Running, bearer, running, until

LIVE_PAGES = ("/", "/health", "/events", "/locks", "/claims", "/alerts", "/probes", "/triggers", "/repos", "/signals")


def live(path: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}format=live"


class Reader:
    """Reads a stream of some pages, and knows their lines."""

    def __init__(self, response: httpx2.Response, count: int) -> None:
        self.response = response
        self._messages = messages(response.iter_lines())
        self.lines: list[list[str]] = [[] for _ in range(count)]
        self.kinds = [""] * count
        self.sent: list[list[list[int] | str]] = []

    def read(self) -> None:
        """Applies the next message."""
        kind, facts = next(self._messages)
        number = facts["page"]
        self.kinds[number] = kind
        if kind == "region":
            before = self.lines[number]
            parts: list[Any] = facts["lines"]
            self.sent.append(parts)
            self.lines[number] = [
                line for part in parts for line in ([part] if isinstance(part, str) else before[part[0] : part[1]])
            ]

    def text(self, number: int) -> str:
        return "\n".join(self.lines[number])

    def until(self, number: int, text: str) -> None:
        """Reads on until this page has the text."""
        while text not in self.text(number):
            self.read()


def messages(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    kind = ""
    for line in lines:
        if line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("data: "):
            yield kind, json.loads(line[6:])


@contextmanager
def followed(it: Running, *pages: str, scope: str = "admin", **headers: str) -> Iterator[Reader]:
    """A stream of these pages."""
    path = f"/live?{urlencode({'page': [live(page) for page in pages]}, doseq=True)}"
    with it.http.stream("GET", path, headers={**bearer(TOKENS[scope]), **headers}) as response:
        assert response.status_code == 200, response.read()
        yield Reader(response, len(pages))


async def hold(once: AsyncClient, key: str) -> None:
    await once.lock(key, ttl=600)


def test_one_stream_has_the_changes_of_all_pages(guarded: Running) -> None:
    once = guarded.service.once
    with followed(guarded, "/locks?prefix=one:", "/locks?prefix=other:") as reader:
        reader.until(0, "No lock")
        reader.until(1, "No lock")
        guarded.run(hold(once, "one:lock"))
        reader.until(0, "one:lock")
        assert "No lock" in reader.text(1)
        guarded.run(hold(once, "other:lock"))
        reader.until(1, "other:lock")
        assert "other:lock" not in reader.text(0)


def test_what_has_not_changed_is_not_sent_again(guarded: Running) -> None:
    async def many(once: AsyncClient) -> None:
        for number in range(20):
            await once.lock(f"many:{number}", ttl=600)

    guarded.run(many(guarded.service.once))
    with followed(guarded, "/locks?prefix=many:") as reader:
        reader.until(0, "many:19")
        whole = len(json.dumps(reader.sent))
        reader.sent.clear()
        guarded.run(hold(guarded.service.once, "many:20"))
        reader.until(0, "many:20")
        assert sum(len(json.dumps(each)) for each in reader.sent) < whole / 5


def test_the_lines_of_a_stream_are_the_region_of_the_page(guarded: Running) -> None:
    headers = bearer(TOKENS["admin"])
    guarded.run(hold(guarded.service.once, "same:lock"))
    with followed(guarded, "/locks?prefix=same:") as reader:
        reader.until(0, "same:lock")
        with guarded.http.stream("GET", live("/locks?prefix=same:"), headers=headers) as alone:
            _, facts = next(messages(alone.iter_lines()))
        assert reader.text(0) == facts["html"]


@pytest.mark.parametrize("path", ["/live?page=/locks%3Fformat%3Dlive", "/locks?format=live"])
def test_a_stream_is_compressed_and_each_message_can_be_read_at_once(guarded: Running, path: str) -> None:
    """The test would wait forever for a message that stays in the compressor."""
    headers = {**bearer(TOKENS["admin"]), "accept-encoding": "gzip"}
    with guarded.http.stream("GET", path, headers=headers) as response:
        assert response.headers["content-encoding"] == "gzip"
        assert "accept-encoding" in response.headers["vary"]
        reader, text = zlib.decompressobj(wbits=31), ""
        raw = response.iter_raw()
        while "\n\n" not in text:
            text += reader.decompress(next(raw)).decode()
        guarded.run(hold(guarded.service.once, f"compressed:{len(path)}"))
        while f"compressed:{len(path)}" not in text:
            text += reader.decompress(next(raw)).decode()


@pytest.mark.parametrize("accepted", ["identity", "br", "gzip;q=0", ""])
def test_a_reader_that_does_not_accept_gzip_gets_none(guarded: Running, accepted: str) -> None:
    with followed(guarded, "/locks?prefix=plain:", **{"accept-encoding": accepted}) as reader:
        assert "content-encoding" not in reader.response.headers
        reader.until(0, "No lock")


def test_a_compressed_stream_ends_well_when_the_service_stops() -> None:
    with running(tokens=LINES) as it, followed(it, "/locks", **{"accept-encoding": "gzip"}) as reader:
        reader.until(0, "No lock")
        it.on_loop(it.service.stop)
        with pytest.raises(StopIteration):
            while True:
                reader.read()


def test_events_for_programs_are_not_compressed(guarded: Running) -> None:
    headers = {**bearer(TOKENS["read"]), "accept-encoding": "gzip"}
    with guarded.http.stream("GET", "/v1/events", headers=headers) as response:
        assert "content-encoding" not in response.headers


@pytest.mark.parametrize("page", ["/no-such-page", "/v1/events", "/openapi.json", "/login", "x", ""])
def test_a_page_that_is_none_is_refused_and_ends_no_other(guarded: Running, page: str) -> None:
    with followed(guarded, page, "/locks?prefix=beside:") as reader:
        reader.until(1, "No lock")
        while not reader.kinds[0]:
            reader.read()
        guarded.run(hold(guarded.service.once, f"beside:{page}"))
        reader.until(1, "beside:")
        assert reader.kinds[0] == "refused"
    until(lambda: not guarded.service.waiters.now)
    guarded.run(guarded.service.clearing.clear_lock(f"beside:{page}", reason="the next test starts anew"))


def test_a_defect_of_one_page_ends_no_other(guarded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("solely.service.dashboard.events._page", broken)
    with followed(guarded, "/events", "/locks?prefix=sound:") as reader:
        while reader.kinds[0] != "refused":
            reader.read()
        guarded.run(hold(guarded.service.once, "sound:lock"))
        reader.until(1, "sound:lock")


@pytest.mark.parametrize("query", ["", "page=", "nothing=1", "page=/locks%3Fkey%3D%C3%A4"])
def test_addresses_that_cannot_be_are_refused(guarded: Running, query: str) -> None:
    headers = bearer(TOKENS["read"])
    with guarded.http.stream("GET", f"/live?{query}", headers=headers) as response:
        if response.status_code == 200:
            assert next(messages(response.iter_lines()))[0] == "refused"
        else:
            assert response.status_code == 400


def test_a_stream_has_a_bounded_number_of_pages(guarded: Running) -> None:
    query = urlencode({"page": ["/locks?format=live"] * (MOST + 1)}, doseq=True)
    assert guarded.get(f"/live?{query}", headers=bearer(TOKENS["read"])).status_code == 400


def test_nobody_follows_without_a_login_and_only_what_they_may_see(guarded: Running) -> None:
    assert guarded.get("/live?page=/locks").status_code == 401
    with followed(guarded, "/locks?prefix=seen:", scope="read") as reader:
        guarded.run(hold(guarded.service.once, "seen:lock"))
        reader.until(0, "seen:lock")
        assert "Release" not in reader.text(0)
    with followed(guarded, "/locks?prefix=seen:", scope="admin") as reader:
        reader.until(0, "seen:lock")
        assert "Release" in reader.text(0)


def test_each_page_of_a_stream_counts_as_a_waiting_request() -> None:
    """Otherwise a client could follow many more pages than its quota."""
    with running(tokens=LINES, max_waiters=3) as it:
        with followed(it, "/locks", "/claims", "/queues") as reader:
            while not all(reader.kinds):
                reader.read()
            assert sorted(reader.kinds) == ["refused", "region", "region"]
            assert it.service.waiters.now["adminer"] == 3
        until(lambda: not it.service.waiters.now)


def test_every_live_page_of_the_service_can_be_followed(guarded: Running) -> None:
    with followed(guarded, *LIVE_PAGES) as reader:
        while not all(reader.kinds):
            reader.read()
        assert set(reader.kinds) == {"region"}
    until(lambda: not guarded.service.waiters.now)


def test_a_stream_ends_with_its_token(guarded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with followed(guarded, "/locks?prefix=ended:", scope="write") as reader:
        reader.until(0, "No lock")
        monkeypatch.setattr(guarded.service.tokens, "knows", lambda reader: False)
        guarded.run(hold(guarded.service.once, "ended:lock"))
        with pytest.raises(StopIteration):
            reader.until(0, "no such text")
    until(lambda: not guarded.service.waiters.now)
