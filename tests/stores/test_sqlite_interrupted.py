"""Exceptions of signal handlers (Ctrl-C, a soft time limit) at the worst instant: nothing stays open, locked or unsaid.

CPython raises them right behind the C call during which the signal came, so a test raises behind a call of its choice.
"""

import ctypes
import functools
import signal
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from solely.errors import StoreUnavailable
from solely.model import Released, State
from solely.ops import Acquire, Mark, Op, Read, Release
from solely.stores.sqlite import SqliteStore, clock
from solely.stores.sqlite.connection import connect
from solely.stores.sqlite.session import Session
from solely.stores.sqlite.sweep import EVERY


class Soft(BaseException):
    """What a signal handler raises."""


@pytest.fixture
def store(tmp_path: Any) -> Iterator[SqliteStore]:
    """One that has connected, and has fences in reserve."""
    store = SqliteStore(str(tmp_path / "solely.sqlite3"), clock.readings(), 0.3)
    store.perform([Acquire("lock/first", "me", 60.0)])
    yield store
    store.close()


def session_of(store: SqliteStore) -> Session:
    (session,) = store._sessions
    return session


def raise_behind(session: Session, statement: str) -> list[str]:
    """Lets the session's next such statement raise Soft once it has been performed; tells the statements since."""
    said: list[str] = []
    real = session.execute

    def execute(sql: str, *parameters: Any) -> Any:
        answer = real(sql, *parameters)
        said.append(sql)
        if sql == statement and said.count(statement) == 1:
            raise Soft
        return answer

    session.execute = execute
    return said


def is_whole(store: SqliteStore) -> bool:
    """Nothing is open, another process can write, and what the store answers is there for the other process."""
    assert not any(session._connection.in_transaction for session in store._sessions if session._connection)
    raw = sqlite3.connect(store._path, timeout=0, isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    raw.execute("ROLLBACK")
    store.perform([Mark("mark/after", "me", 60.0)])
    found = raw.execute("SELECT key FROM solely_entries WHERE key = 'mark/after'").fetchone()
    raw.close()
    return found is not None


BATCHES: dict[str, list[Op]] = {
    "BEGIN IMMEDIATE": [Mark("mark/a", "me", 60.0), Mark("mark/b", "me", 60.0)],
    "BEGIN": [Read("lock/a"), Read("lock/b")],
    "COMMIT": [Mark("mark/a", "me", 60.0), Mark("mark/b", "me", 60.0)],
}


@pytest.mark.parametrize("statement", BATCHES)
def test_an_exception_behind_a_statement_leaves_no_transaction_open(store: SqliteStore, statement: str) -> None:
    raise_behind(session_of(store), statement)
    with pytest.raises(Soft):
        store.perform(BATCHES[statement])
    assert is_whole(store)
    performed = statement == "COMMIT"
    (entry,) = store.perform([Read("mark/a")])
    assert entry.state is (State.DONE if performed else State.FREE)  # type: ignore[union-attr]


def test_an_exception_behind_the_begin_of_the_broom_leaves_no_transaction_open(tmp_path: Any) -> None:
    now = [1_000_000_000_000]
    readings = clock.Readings("boot", lambda: now[0], lambda: now[0], None)
    store = SqliteStore(str(tmp_path / "solely.sqlite3"), readings, 0.3)
    store.perform([Mark(f"mark/{n}", "me", 1.0) for n in range(10)])
    now[0] += 3_600_000_000
    raise_behind(session_of(store), "BEGIN IMMEDIATE")
    with pytest.raises(Soft):
        store.perform([Read("lock/none")] * EVERY)
    assert is_whole(store)
    store.close()


def test_a_transaction_that_two_exceptions_left_open_is_not_used(store: SqliteStore) -> None:
    """The second one comes before the ROLLBACK that the first one calls for."""
    session = session_of(store)
    real = session.execute
    raise_behind(session, "BEGIN IMMEDIATE")
    raises = session.execute

    def execute(sql: str, *parameters: Any) -> Any:
        if sql == "ROLLBACK":
            raise Soft
        return raises(sql, *parameters)

    session.execute = execute
    with pytest.raises(Soft):
        store.perform(BATCHES["BEGIN IMMEDIATE"])
    session.execute = real
    (granted,) = store.perform([Acquire("lock/x", "me", 60.0)])
    assert granted.owner == "me"  # type: ignore[union-attr]
    assert is_whole(store)
    (entry,) = store.perform([Read("mark/a")])
    assert entry.state is State.FREE  # type: ignore[union-attr]


def test_an_exception_behind_the_setting_for_the_disk_makes_no_mark_less_safe(store: SqliteStore) -> None:
    store.perform([Mark("mark/a", "me", 60.0)])
    session = session_of(store)
    raise_behind(session, "PRAGMA synchronous = NORMAL")
    with pytest.raises(Soft):
        store.perform([Acquire("lock/a", "me", 60.0)])
    store.perform([Mark("mark/b", "me", 60.0)])
    assert session.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_an_exception_while_a_connection_is_made_leaves_none_half_made(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        def __init__(self, real: Any) -> None:
            self.real = real

        def __getattr__(self, name: str) -> Any:
            if name == "cursor":
                raise Soft
            return getattr(self.real, name)

    def connect_interrupted(*arguments: Any) -> Any:
        connection, base = connect(*arguments)
        return Interrupted(connection), base

    session_of(store).disconnect()
    with monkeypatch.context() as patch:
        patch.setattr("solely.stores.sqlite.transactions.connect", connect_interrupted)
        with pytest.raises(Soft):
            store.perform([Read("lock/a")])
    assert is_whole(store)


def test_an_exception_behind_the_begin_of_a_visit_leaves_the_callers_connection_as_it_was(tmp_path: Any) -> None:
    path = str(tmp_path / "app.sqlite3")
    store = SqliteStore(path, clock.readings(), 0.3, shared=True)
    store.perform([Read("lock/a")])

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, *parameters: Any) -> Any:
            answer = super().execute(sql, *parameters)
            if sql == "BEGIN IMMEDIATE":
                raise Soft
            return answer

    class Connection(sqlite3.Connection):
        def cursor(self, *_: Any) -> Any:
            return super().cursor(Cursor)

    caller = sqlite3.connect(path, factory=Connection)
    with pytest.raises(Soft):
        store.perform_within(caller, [Mark("mark/a", "me", 60.0)])
    assert not caller.in_transaction
    caller.close()
    store.close()


class InterruptedLock:
    """A lock whose next acquire raises Soft as soon as the lock is taken."""

    def __init__(self, real: Any) -> None:
        self.real, self.taken = real, 0

    def acquire(self, *arguments: Any, **named: Any) -> bool:
        taken = bool(self.real.acquire(*arguments, **named))
        self.taken += taken
        if taken and self.taken == 1:
            raise Soft
        return taken

    def release(self) -> None:
        self.real.release()


@pytest.mark.parametrize(
    "ops", [[Acquire("lock/a", "me", 60.0)], [Mark("mark/a", "me", 60.0)], [Read("lock/a")] * EVERY]
)
def test_an_exception_behind_the_lock_of_writers_leaves_it_free_for_other_threads(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, ops: list[Op]
) -> None:
    """On the way of one op alone, of a transaction, and of the broom."""
    monkeypatch.setattr(store._shared_file, "writing", lock := InterruptedLock(store._shared_file.writing))
    with pytest.raises(Soft):
        store.perform(ops)
    assert lock.taken == 1
    in_thread(lambda: store.perform([Mark("mark/b", "other", 60.0)]))
    assert is_whole(store)


def in_thread(work: Callable[[], Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result(10)


def test_a_writer_that_hangs_holds_up_other_threads_no_longer_than_their_timeout(store: SqliteStore) -> None:
    with store._shared_file.writing, pytest.raises(StoreUnavailable, match="other threads write"):
        in_thread(lambda: store.perform([Mark("mark/b", "other", 60.0)]))
    in_thread(lambda: store.perform([Mark("mark/b", "other", 60.0)]))


def test_a_signal_handler_may_itself_use_the_store(store: SqliteStore) -> None:
    """Such as one of SIGTERM that releases; not inside a transaction, but while the thread may merely write."""
    session = session_of(store)
    real, answers = session.change, list[Any]()

    def change(*arguments: Any) -> Any:
        if not answers:
            answers.extend(store.perform([Release("lock/first", "me")]))
        return real(*arguments)

    session.change = change
    (granted,) = store.perform([Acquire("lock/a", "me", 60.0)])
    assert granted.owner == "me"  # type: ignore[union-attr]
    assert answers == [Released.RELEASED]


@pytest.fixture
def armed() -> Iterator[list[Soft]]:
    """What SIGUSR1 raises, each once."""
    armed: list[Soft] = []

    def handle(*_: Any) -> None:
        if armed:
            raise armed.pop()

    before = signal.signal(signal.SIGUSR1, handle)
    yield armed
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("numbering", ["clock", "counted"])
def test_a_signal_during_the_statement_that_asks_for_a_fence_is_not_swallowed(
    tmp_path: Any, numbering: str, armed: list[Soft]
) -> None:
    """No Python runs between the signal and next_fence(), as when the statement waits for another process."""
    readings = clock.readings() if numbering == "clock" else clock.readings()._replace(tick=None)
    store = SqliteStore(str(tmp_path / "solely.sqlite3"), readings, 0.3)
    store.perform([Acquire("lock/first", "me", 60.0)])
    connection = session_of(store)._connection
    assert connection is not None
    send = functools.partial(ctypes.CDLL(None)["raise"], int(signal.SIGUSR1))  # os.kill() would look for signals itself
    for n in range(3):
        session_of(store).change = Signalled(connection, send)
        armed.append(Soft())
        with pytest.raises(Soft):
            store.perform([Acquire(f"lock/{n}", "me", 60.0)])
        (entry,) = store.perform([Read(f"lock/{n}")])
        assert entry.state is State.FREE  # type: ignore[union-attr]
        (granted,) = store.perform([Acquire(f"lock/{n}", "me", 60.0)])
        assert granted.owner == "me"  # type: ignore[union-attr]
    assert is_whole(store)
    store.close()


class Signalled:
    """Performs one statement, during which a signal comes."""

    def __init__(self, connection: sqlite3.Connection, send: Callable[[], Any]) -> None:
        self.connection, self.send = connection, send

    def __call__(self, *arguments: Any) -> Any:
        self.connection.set_progress_handler(self.send, 1)
        try:
            return self.connection.execute(*arguments)
        finally:
            self.connection.set_progress_handler(None, 1)
