"""Many processes at once: a thousand identical alerts are one notification, and a limit is a limit for all of them."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from solely import Client
from tests.client.test_fork import in_child
from tests.client.worker import Worker
from tests.conftest import STORES
from tests.postgres_server import Postgres

PROCESSES = 4
CALLS = 250
Start = Callable[..., Worker]


@pytest.fixture(params=[name for name in ("sqlite", "valkey", "postgres", "mongo") if name in STORES])
def shared_url(request: pytest.FixtureRequest) -> str:
    """One of each kind of store: four processes each take their time to start."""
    return STORES[request.param](request)


@pytest.fixture
def all_at_once(mode: str, start_worker: Start) -> Callable[..., Counter[str]]:
    """The answers that four processes, with threads or tasks, got together."""

    def run(url: str, key: str = "cpu-high:critical", **terms: Any) -> Counter[str]:
        workers = [start_worker(url) for _ in range(PROCESSES)]
        for worker in workers:
            worker.run("from tests.reservations.burst import burst")
        for number, worker in enumerate(workers):
            keys = [key.format(number * CALLS + call) for call in range(CALLS)]
            worker.tell(f"burst({mode!r}, url, {keys!r}, **{terms!r})")
        return sum((Counter(worker.answer()) for worker in workers), Counter())

    return run


@pytest.fixture
def slow_disk(postgres: Postgres) -> Iterator[str]:
    """A PostgreSQL, where there is one, whose every commit takes 0.1 s: a thousand, one after the other, outlast every
    timeout."""
    del postgres
    with Postgres(commit_delay=100_000, commit_siblings=0) as server:
        yield server.url


def test_a_thousand_identical_reservations_over_four_processes_are_one(
    shared_url: str, all_at_once: Callable[..., Counter[str]]
) -> None:
    answers = all_at_once(shared_url, hold=30, quiet=300, limit=5, per=3_600)
    assert answers["sent"] == 1
    assert answers["reserved"] + answers["quiet"] == 999
    with Client(shared_url) as once:
        (info,) = once.reservations()
    assert (info.reason, info.sent, info.suppressed) == ("quiet", 1, 999)


def test_a_thousand_reservations_of_one_key_are_all_answered_however_slow_a_commit_is(
    slow_disk: str, all_at_once: Callable[..., Counter[str]]
) -> None:
    answers = all_at_once(slow_disk, hold=30, quiet=300)
    assert answers["sent"] == 1
    assert answers["reserved"] + answers["quiet"] == 999


def test_a_thousand_reservations_of_one_group_are_all_answered_however_slow_a_commit_is(
    slow_disk: str, all_at_once: Callable[..., Counter[str]]
) -> None:
    """Each has a key of its own, and all of them hit one limit."""
    answers = all_at_once(slow_disk, "host-{}:critical", hold=30, quiet=300, group=("all", 900, 3_600))
    assert answers == {"sent": 900, "limited": 100}


def test_a_limit_is_exact_over_four_processes(shared_url: str, all_at_once: Callable[..., Counter[str]]) -> None:
    """Without a quiet window only the limit holds them back, and each of them asks only once."""
    answers = all_at_once(shared_url, hold=30, quiet=0, limit=3, per=3_600, group=("all", 2, 3_600))
    assert 1 <= answers["sent"] <= 2
    assert answers.total() == PROCESSES * CALLS
    sent = answers["sent"]
    with Client(shared_url) as once:
        while sent < 10 and (late := once.reserve("late", quiet=0, group=("all", 2, 3_600))):
            late.record()
            sent += 1
    assert sent == 2  # what was refused for a moment was given back, to the last hit


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_end_of_the_block_in_a_forked_child_is_not_the_parents(shared_url: str) -> None:
    with Client(shared_url) as once, Client(shared_url) as other:
        with once.reserve("a") as reservation:

            def child() -> None:
                assert reservation.lost
                reservation.__exit__(None, None, None)
                reservation.__exit__(OSError, OSError(), None)
                assert reservation.release() is False

            in_child(child)
            assert not reservation.lost
            assert other.reserve("a").reason == "reserved"
        assert other.reserve("a").reason == "quiet"


def test_a_process_that_is_killed_while_sending_holds_nobody_up_for_longer_than_its_hold(
    shared_url: str, start_worker: Start
) -> None:
    killed, other = start_worker(shared_url), start_worker(shared_url)
    assert killed.run("bool(r := once.reserve('cpu', hold=1.0))") is True
    left = other.run("once.reserve('cpu').retry_after")
    assert 0 < left <= 1.0
    killed.kill()
    taken_over = """
import time
ends = time.monotonic() + 10
while not (r := once.reserve('cpu')) and time.monotonic() < ends:
    time.sleep(r.retry_after)
"""
    other.run(taken_over)
    assert other.run("bool(r)") is True
