"""Processes that die or fork with an item in hand."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from solely import Client, State
from tests.client.test_fork import in_child
from tests.client.worker import Worker, WorkerError

TTL = 0.5  # seconds: long enough for the killed one to have it still when another looks
Start = Callable[..., Worker]


def test_what_a_killed_process_had_is_taken_over_after_its_ttl(shared_url: str, start_worker: Start) -> None:
    killed = start_worker(shared_url)
    with Client(shared_url) as once:
        queue = once.queue("jobs")
        before = time.monotonic()
        killed.run(f"item = once.queue('jobs').push_held('a', 'work', ttl={TTL})")
        killed.run(f"while item is None: item = once.queue('jobs').take(ttl={TTL})")  # it was answered too late
        attempts = killed.run("item.attempts")
        killed.kill()
        ends = time.monotonic() + 100
        while (item := queue.take(ttl=30)) is None and time.monotonic() < ends:
            time.sleep(0.02)
        assert item is not None
        assert time.monotonic() - before >= TTL
        assert (item.id, item.payload, item.attempts) == ("a", "work", attempts + 1)
        assert item.ack() is True


def test_of_two_processes_that_resume_one_item_at_once_one_acks_it(shared_url: str, start_worker: Start) -> None:
    workers = [start_worker(shared_url), start_worker(shared_url)]
    with Client(shared_url) as once:
        queue = once.queue("jobs")
        for turn in range(5):
            item = queue.push_held(f"a{turn}", "work", ttl=300)
            assert item is not None
            token = item.hand_over()
            for worker in workers:
                worker.tell(f"item = once.queue('jobs').resume({token!r}); [item.payload, item.ack()]")
            answers = []
            for worker in workers:
                try:
                    answers.append(worker.answer())
                except WorkerError as error:
                    answers.append(error.kind)
            assert sorted(answers, key=str) == sorted(["Busy", ["work", True]], key=str)
            assert queue.item_of(token).ack() is False


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_end_of_the_block_in_a_forked_child_is_not_the_parents(tmp_path: Path) -> None:
    with Client(f"sqlite:///{tmp_path / 'solely.sqlite3'}") as once:
        queue = once.queue("jobs")
        queue.push("a", 1)
        item = queue.take(ttl=30)
        assert item is not None

        def child() -> None:
            assert item.remaining() == 0.0
            item.__exit__(None, None, None)
            item.__exit__(OSError, OSError(), None)

        with item:
            in_child(child)
            known = queue.read("a")
            assert known is not None
            assert known.state is State.HELD
            assert item.remaining() > 0
        assert queue.read("a") is None
