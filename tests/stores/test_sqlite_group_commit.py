"""Threads that wait to write to one SQLite file share one transaction and one wait for the disk."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from solely.errors import StoreFailed, Unanswered
from solely.ops import MAX_BATCH, Acquire, Hit, Mark, Op
from solely.stores.sqlite import SqliteStore, clock
from solely.stores.sqlite.session import Session
from tests.servers import until
from tests.stores.test_sqlite_interrupted import Soft, is_whole

MANY = 40


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(str(tmp_path / "solely.sqlite3"), clock.readings(), 30.0)
    opened.perform([Acquire("lock/first", "me", 60.0)])
    yield opened
    opened.close()


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry per commit: whether it waited for the disk."""
    counted: list[bool] = []
    real = Session._commit

    def commit(session: Session) -> None:
        counted.append(session.durable)
        real(session)

    monkeypatch.setattr(Session, "_commit", commit)
    return counted


def piled_up(store: SqliteStore, threads: ThreadPoolExecutor, batches: list[list[Op]]) -> list[Future[Any]]:
    """The answers to the batches, each of a thread of its own, which all wait to write at one time."""
    with store._shared_file.writing:
        answers = [threads.submit(store.perform, batch) for batch in batches]
        until(lambda: len(store._waiting) == len(batches), "all of them wait")
    return answers


def test_threads_that_wait_to_write_share_one_commit(store: SqliteStore, commits: list[bool]) -> None:
    """A thousand waits for a slow disk, one after the other, took longer than the timeout."""
    with ThreadPoolExecutor(MANY) as threads:
        answers = piled_up(store, threads, [[Hit("limit/a", f"o{n}", 30, 60.0)] for n in range(MANY)])
        allowed = [answer.result(60)[0].allowed for answer in answers]
    assert sorted(allowed) == [False] * 10 + [True] * 30
    assert commits == [True]
    assert not store._waiting


def test_no_transaction_of_many_threads_has_more_ops_than_a_batch(store: SqliteStore, commits: list[bool]) -> None:
    size = MAX_BATCH // 4
    with ThreadPoolExecutor(9) as threads:
        batches: list[list[Op]] = [[Mark(f"mark/{n}-{m}", "o", 60.0) for m in range(size)] for n in range(9)]
        answers = piled_up(store, threads, batches)
        assert [answer.result(60) for answer in answers] == [[True] * size] * 9
    assert len(commits) == 3


def test_an_op_that_fails_fails_alone(store: SqliteStore) -> None:
    """A string that is no Unicode cannot be stored."""
    owners = ["o\ud800" if number % 10 == 3 else f"o{number}" for number in range(MANY)]
    with ThreadPoolExecutor(MANY) as threads:
        answers = piled_up(store, threads, [[Mark(f"mark/{n}", owner, 60.0)] for n, owner in enumerate(owners)])
        replies = [answer.result(60)[0] for answer in answers]
    assert [isinstance(reply, StoreFailed) for reply in replies] == [number % 10 == 3 for number in range(MANY)]
    assert [reply is True for reply in replies] == [number % 10 != 3 for number in range(MANY)]


@pytest.mark.parametrize("step", ["_steps_of_others", "_commit"])
def test_an_interrupted_writer_leaves_the_others_performed_or_in_doubt(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A signal handler raises in the thread that writes for the others: none of them waits for ever."""
    interrupted: list[Session] = []
    real = getattr(Session, step)

    def interrupting(session: Session, *given: Any) -> Any:
        answer = real(session, *given)
        if not interrupted:
            interrupted.append(session)
            raise Soft
        return answer

    monkeypatch.setattr(Session, step, interrupting)
    with ThreadPoolExecutor(MANY) as threads:
        answers = piled_up(store, threads, [[Mark(f"mark/{n}", f"o{n}", 60.0)] for n in range(MANY)])
        outcomes = [answer.exception(60) or answer.result()[0] for answer in answers]
    assert sum(isinstance(outcome, Soft) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, Unanswered) for outcome in outcomes) == MANY - 1
    monkeypatch.undo()
    again = [store.perform([Mark(f"mark/{n}", f"o{n}", 60.0)])[0] for n in range(MANY)]
    assert all(again)  # each is marked by its own owner, then or now
    assert is_whole(store)


def test_who_gives_up_waiting_is_not_performed_later(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "solely.sqlite3"), clock.readings(), 0.2)
    store.perform([Acquire("lock/first", "me", 60.0)])
    with ThreadPoolExecutor(1) as threads:
        with store._shared_file.writing:
            error = threads.submit(store.perform, [Mark("mark/a", "you", 60.0)]).exception(60)
        assert "for longer than the timeout" in str(error)
    assert not isinstance(error, Unanswered)
    assert store.perform([Mark("mark/b", "me", 60.0), Mark("mark/a", "me", 60.0)]) == [True, True]
    store.close()
