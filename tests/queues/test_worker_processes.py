"""Worker processes that are killed, stopped and restarted, and servers that restart under them."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from solely import Client
from tests.conftest import LACKING, STORES
from tests.postgres_server import Postgres
from tests.queues.draining import Drainer, until, written
from tests.servers import Valkey

TTL = 1.0  # seconds: what a dead process had is free after that
LONG = 3_600.0  # seconds: work that does not end by itself
Start = Callable[..., Drainer]


@pytest.fixture(params=[name for name in ("sqlite", "valkey", "postgres") if name in STORES])
def url(request: pytest.FixtureRequest) -> str:
    return STORES[request.param](request)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "written"


@pytest.fixture
def start(file: Path) -> Iterator[Start]:
    started: list[Drainer] = []

    def begin(url: str, **options: Any) -> Drainer:
        started.append(Drainer(url, file, **options))
        return started[-1]

    yield begin
    for each in started:
        each.kill()


def push(url: str, count: int) -> set[str]:
    ids = {f"item {number}" for number in range(count)}
    with Client(url, timeout=30) as once:
        for id in sorted(ids):
            assert once.queue("jobs").push(id, id)
    return ids


def is_empty(url: str) -> bool:
    with Client(url, timeout=30) as once:
        return once.queue("jobs").list(limit=1) == []


def test_a_thousand_items_are_performed_once_each_by_four_processes(url: str, file: Path, start: Start) -> None:
    ids = push(url, 1_000)
    for _ in range(4):
        start(url, ttl=60)
    until(lambda: len(written(file, "done")) == 1_000, "a thousand items")
    until(lambda: is_empty(url), "an empty queue")
    assert written(file, "done") == dict.fromkeys(ids, 1)


def test_what_a_killed_process_was_at_is_performed_by_another(url: str, file: Path, start: Start) -> None:
    ids = push(url, 5)
    killed = start(url, ttl=TTL, pace=LONG, at_once=3)
    until(lambda: len(written(file, "began")) >= 3, "work in progress")
    killed.kill()
    start(url, ttl=60)
    until(lambda: set(written(file, "done")) == ids, "all items")
    until(lambda: is_empty(url), "an empty queue")
    assert written(file, "done") == dict.fromkeys(ids, 1)


def test_a_process_that_slept_beyond_its_lease_ends_the_work_that_another_took_over(
    url: str, file: Path, start: Start
) -> None:
    ids = push(url, 2)
    sleeper = start(url, ttl=TTL, pace=LONG)
    until(lambda: set(written(file, "began")) == ids, "work in progress")
    sleeper.send(signal.SIGSTOP)
    start(url, ttl=60)
    until(lambda: set(written(file, "done")) == ids, "all items")
    sleeper.send(signal.SIGCONT)
    until(lambda: set(written(file, "cancelled")) == ids, "the end of the old work")
    until(lambda: is_empty(url), "an empty queue")
    assert written(file, "done") == dict.fromkeys(ids, 1)


@pytest.fixture(params=["valkey", *([] if LACKING["postgres"] else ["postgres"])])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server of this test alone, which keeps its data through a restart."""
    kept: Any = Valkey(appendonly="yes", appendfsync="always") if request.param == "valkey" else Postgres(fsync="off")
    with kept as it:
        yield it


def test_a_restart_of_the_server_costs_no_item(server: Any, file: Path, start: Start) -> None:
    ids = push(server.url, 200)
    for _ in range(2):
        start(server.url, ttl=10, pace=0.05, at_once=4)
    until(lambda: len(written(file, "done")) >= 20, "some items")
    server.restart()
    until(lambda: set(written(file, "done")) == ids, "all items")
    until(lambda: is_empty(server.url), "an empty queue")


def test_a_process_that_is_told_to_stop_finishes_its_work(url: str, file: Path, start: Start) -> None:
    push(url, 20)
    stopped = start(url, ttl=60, pace=0.2, at_once=2)
    until(lambda: len(written(file, "began")) >= 2, "work in progress")
    stopped.send(signal.SIGTERM)
    assert stopped._process.wait(60) == 0
    assert written(file, "began") == written(file, "done")
    with Client(url) as once:
        left = {each.id: each.attempts for each in once.queue("jobs").list()}
    assert len(left) == 20 - len(written(file, "done"))
    assert set(left.values()) <= {0, 1}  # a take that was in flight may count
