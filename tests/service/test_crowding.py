"""Many who read must not hold up those who hold: leases are renewed, and readiness tells the truth, however many pages
are asked for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from solely.service import readiness
from solely.service.problems import Problem
from solely.service.quotas import AT_ONCE, Slots
from solely.stores.sqlite.session import Session
from tests.service.serving import LINES, TOKENS, Running, bearer, running, until

LONG = 30.0  # seconds: nothing here waits so long unless it fails
READER, WRITER = bearer(TOKENS["read"]), bearer(TOKENS["write"])
PAGES = (
    "/locks",
    "/claims",
    "/reservations",
    "/watermarks",
    "/limits",
    "/queues",
    "/schedules",
    "/v1/entries",
    "/v1/reservations",
    "/v1/watermarks",
    "/v1/queues",
    "/v1/schedules",
)


class Shut:
    """A method of every SQLite session that waits until it is open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()
        through = getattr(Session, name)

        def guarded(session: Session, *given: Any) -> Any:
            self.reached.set()
            assert self.open.wait(LONG)
            return through(session, *given)

        monkeypatch.setattr(Session, name, guarded)


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'crowded.sqlite3'}"


def _acquire(it: Running, ttl: float) -> str:
    answer = it.post("/v1/locks/acquire", {"key": "held", "ttl": ttl}, headers=WRITER)
    assert answer.status_code == 200
    return str(answer.json()["token"])


def _renew(it: Running, token: str) -> int:
    return it.post("/v1/locks/renew", {"token": token}, headers=WRITER).status_code


def test_leases_are_renewed_while_no_list_comes_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(url=_url(tmp_path), tokens=LINES, store_timeout=2) as it, ThreadPoolExecutor(24) as readers:
        token = _acquire(it, ttl=60)
        lists = Shut(monkeypatch, "scan")
        try:
            asked = [
                readers.submit(
                    httpx2.get, f"{it.address}{PAGES[n % len(PAGES)]}?limit={n + 1}", headers=READER, timeout=LONG
                )
                for n in range(24)
            ]
            assert lists.reached.wait(LONG)
            assert [_renew(it, token) for _ in range(5)] == [200] * 5
            assert it.get("/readyz").status_code == 200, "it grants"
            refused = [answer.result() for answer in asked]
        finally:
            lists.open.set()
        assert it.post("/v1/locks/release", {"token": token}, headers=WRITER).json()["outcome"] == "released"
    assert {answer.status_code for answer in refused} == {503}
    assert all(answer.headers["retry-after"] for answer in refused)
    problems = [answer for answer in refused if answer.headers["content-type"] == "application/problem+json"]
    assert "/policy#crowded" in {problem.json()["type"] for problem in problems}


def test_unready_while_ops_wait_longer_than_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "FRESH", 0.0)
    with running(url=_url(tmp_path), store_timeout=1) as it:
        assert it.get("/readyz").status_code == 200
        ops = Shut(monkeypatch, "perform")
        try:
            with ThreadPoolExecutor(1) as other:
                stuck = other.submit(it.post, "/v1/locks/acquire", {"key": "a", "ttl": 60})
                assert ops.reached.wait(LONG)
                assert it.get("/readyz").status_code == 503
                assert stuck.result(LONG).status_code == 503
        finally:
            ops.open.set()
        until(lambda: it.get("/readyz").status_code == 200, LONG)


def test_a_reader_with_many_connections_costs_nobody_a_lease(tmp_path: Path) -> None:
    """A bounded run on real connections: 100 of them ask for pages all the time, and one lease is renewed beside."""
    ttl = 20.0
    with running(url=_url(tmp_path), tokens=LINES) as it:
        for n in range(200):
            it.post("/v1/locks/acquire", {"key": f"many{n}", "ttl": 600}, headers=WRITER)
        token = _acquire(it, ttl)
        over = threading.Event()
        answers: Counter[int] = Counter()
        reading = threading.Thread(target=lambda: asyncio.run(_read_pages(it, over, answers)))
        reading.start()
        try:
            ends = time.monotonic() + 5.0
            while time.monotonic() < ends:
                began = time.monotonic()
                assert _renew(it, token) == 200
                assert time.monotonic() - began < ttl / 2
                time.sleep(0.2)
        finally:
            over.set()
            reading.join(LONG)
        assert it.post("/v1/locks/release", {"token": token}, headers=WRITER).json()["outcome"] == "released"
        assert answers[200], answers
        assert set(answers) <= {200, 503}, answers


async def _read_pages(it: Running, over: threading.Event, answers: Counter[int]) -> None:
    limits = httpx2.Limits(max_connections=100, max_keepalive_connections=100)
    async with httpx2.AsyncClient(base_url=it.address, headers=READER, limits=limits, timeout=LONG) as http:

        async def read(n: int) -> None:
            while not over.is_set():
                page = PAGES[n % len(PAGES)]
                n += 1
                answers[(await http.get(f"{page}?limit={n % 100 + 1}")).status_code] += 1

        await asyncio.gather(*map(read, range(100)))


async def test_only_so_many_pages_at_a_time_and_who_waits_too_long_is_sent_away() -> None:
    slots = Slots(wait=0.2, work=LONG)
    inside: set[int] = set()
    leave = asyncio.Event()
    seen: list[int] = []

    async def page(n: int) -> None:
        async with slots.take():
            inside.add(n)
            seen.append(len(inside))
            await leave.wait()
            inside.discard(n)

    async with asyncio.timeout(LONG):
        pages = [asyncio.ensure_future(page(n)) for n in range(AT_ONCE + 3)]
        for refused in await asyncio.gather(*pages[AT_ONCE:], return_exceptions=True):
            assert isinstance(refused, Problem)
            assert refused.kind.name == "crowded"
            assert dict(refused.headers)[b"retry-after"]
        leave.set()
        await asyncio.gather(*pages[:AT_ONCE])
        await page(99)
    assert max(seen) == AT_ONCE


async def test_a_page_that_takes_too_long_is_broken_off_and_its_place_is_free() -> None:
    slots = Slots(wait=LONG, work=0.05)
    async with asyncio.timeout(LONG):
        for _ in range(2 * AT_ONCE):
            with pytest.raises(Problem) as told:
                async with slots.take():
                    await asyncio.Event().wait()
            assert told.value.kind.status == 503
