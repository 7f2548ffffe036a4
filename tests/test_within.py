"""once.within(connection): a mark commits or rolls back with the caller's rows, on every store with transactions."""

import secrets
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.rows import dict_row
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from solely import AsyncClient, Client, InvalidInput, StoreFailed, StoreMisconfigured, StoreUnavailable
from solely.model import Entry
from solely.ops import Read
from solely.stores import open_store
from tests.conftest import in_collection, in_schema
from tests.mongo_server import Mongod, mongod_path
from tests.places import Mongodb, Place, Postgresql, Sqlite, shared
from tests.postgres_server import PYPI_POSTGRES, Postgres

ROOT = Path(__file__).parent.parent
TRIES = 200  # runs of one transaction that meets others: each lets at least one of 8 pass, so 8 would do


def on_sqlite(request: pytest.FixtureRequest) -> Sqlite:
    place = shared(request.getfixturevalue("tmp_path") / "app.db")
    place.create()
    return place


def on_postgres(request: pytest.FixtureRequest) -> Postgresql:
    server: Postgres = request.getfixturevalue("postgres")
    place = Postgresql(in_schema(server.url), server.conninfo(), f"orders_{secrets.token_hex(6)}")
    place.create()
    return place


def on_mongo(request: pytest.FixtureRequest) -> Mongodb:
    server: Mongod = request.getfixturevalue("replica_set")
    url = in_collection(server.url_of("solely"))
    place = Mongodb(url, server.url, f"orders_{secrets.token_hex(6)}")
    place.create()
    return place


PLACES: dict[str, Callable[[pytest.FixtureRequest], Place]] = {"sqlite": on_sqlite}
if PYPI_POSTGRES is not None:
    PLACES["postgres"] = on_postgres
if mongod_path() is not None:
    PLACES["mongo"] = on_mongo


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    found = PLACES[request.param](request)
    yield found
    if isinstance(found, Mongodb):
        found.mongo.close()


@pytest.fixture
def once(place: Place) -> Iterator[Client]:
    with Client(place.url) as client:
        yield client


def fresh(name: str) -> str:
    return f"{name}-{secrets.token_hex(6)}"


# -- on every store that has transactions


def test_a_mark_commits_and_rolls_back_with_the_callers_rows(place: Place, once: Client) -> None:
    key = fresh("order")
    for first, commits in ((True, False), (True, True), (False, True)):
        connection = place.begin()
        within = once.within(connection)
        assert within.seen(key) is not first
        assert within.first(key) is first
        assert within.seen(key)
        if first:
            place.insert(connection, f"commits: {commits}")
        (place.commit if commits else place.rollback)(connection)
        assert once.seen(key) is commits
        place.close(connection)
    assert place.rows() == ["commits: True"]


def test_many_marks_and_forgetting_belong_to_the_transaction(place: Place, once: Client) -> None:
    keys = [fresh("many") for _ in range(20)]
    once.mark(keys[3])
    connection = place.begin()
    within = once.within(connection)
    assert within.first_many([*keys, keys[0]]) == [n != 3 for n in range(20)] + [False]
    assert within.first_many(keys[:2]) == [False, False]
    assert within.forget(keys[3])
    assert not within.seen(keys[3])
    assert not within.forget(fresh("absent"))
    place.rollback(connection)
    place.close(connection)
    assert [once.seen(key) for key in keys] == [n == 3 for n in range(20)]
    connection = place.begin()
    within = once.within(connection)
    within.mark(keys[0])
    assert within.forget(keys[3])
    place.commit(connection)
    place.close(connection)
    assert [once.seen(key) for key in keys[:4]] == [True, False, False, False]


def left(place: Place, key: str) -> float:
    """For how long the mark of this key lasts, as it was committed."""
    with closing(open_store(place.url)) as store:
        (entry,) = store.perform([Read(f"mark/{key}")])
    assert isinstance(entry, Entry)
    return entry.left


def test_a_mark_that_is_extended_in_a_transaction_lasts_longer_once_it_commits(place: Place, once: Client) -> None:
    key = fresh("longer")
    assert once.first(key, ttl=100)
    for commits in (False, True):
        connection = place.begin()
        assert once.within(connection).mark(key, ttl=10_000) is False
        assert once.within(connection).mark(key, ttl=10) is False, "never shortens"
        (place.commit if commits else place.rollback)(connection)
        place.close(connection)
        assert (left(place, key) > 1_000) is commits


def work_once(place: Place, once: Client, key: str, order: str) -> int:
    """Runs the transaction until it commits, as the documentation says; how often it had to."""
    for tries in range(1, TRIES):
        connection = place.begin()
        try:
            if once.within(connection).first(key):
                place.insert(connection, order)
            place.commit(connection)
            return tries
        except (StoreUnavailable, PyMongoError):
            place.rollback(connection)
        finally:
            place.close(connection)
    raise AssertionError("never committed")


def test_of_eight_threads_that_race_exactly_one_leaves_its_row(place: Place, once: Client) -> None:
    once.seen("warm")
    for _ in range(5):
        key, before = fresh("raced"), len(place.rows())
        start = threading.Barrier(8)

        def race(n: int, key: str = key, start: threading.Barrier = start) -> None:
            start.wait(10)
            work_once(place, once, key, f"{key} by {n}")

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(race, range(8)))
        assert len(place.rows()) == before + 1
        assert once.seen(key)


def test_killed_between_the_mark_and_the_commit_it_leaves_neither(place: Place, request: pytest.FixtureRequest) -> None:
    key = fresh("killed")
    command = [sys.executable, "-m", "tests.places", place.name, place.url, place.address, place.orders, key]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"marked\n"
        process.kill()
    with Client(place.url, timeout=20) as once:
        assert not once.seen(key)
        if place.name == "mongo":  # there a transaction outlives its client, until the server's limit of 60 s
            request.getfixturevalue("replica_set").ask({"killAllSessions": []})
        assert once.first(key)
    assert place.rows() == []


def test_a_mark_passes_by_the_cache(place: Place) -> None:
    key = fresh("cached")
    with Client(place.url, cache=True) as once:
        connection = place.begin()
        assert once.within(connection).first(key)
        place.rollback(connection)
        place.close(connection)
        assert once.first(key)


def test_wrong_keys_and_times_are_refused_before_anything_is_sent(once: Client) -> None:
    within = once.within(object())
    for call in (
        lambda: within.first(""),
        lambda: within.first("a", ttl=-1),
        lambda: within.first_many("abc"),
        lambda: within.forget("\0"),
    ):
        with pytest.raises(InvalidInput):
            call()


def test_no_keys_get_no_answers(place: Place) -> None:
    with Client(place.url) as once:
        connection = place.begin()
        assert once.within(connection).first_many([]) == []
        place.rollback(connection)
        place.close(connection)


def test_something_else_than_a_connection_is_named(once: Client) -> None:
    for wrong in (None, object(), "postgresql://"):
        with pytest.raises(InvalidInput, match=rf"within\(\) on .* takes .*not {type(wrong).__name__}"):
            once.within(wrong).first("a")


async def test_something_else_than_an_asyncio_connection_is_named(place: Place) -> None:
    async with AsyncClient(place.url) as once:
        wrong = None if place.name == "sqlite" else place.begin()
        with pytest.raises(InvalidInput, match=r"within\(\) on .* takes "):
            await once.within(wrong).first("a")
        if wrong is not None:
            place.rollback(wrong)
            place.close(wrong)


@pytest.mark.parametrize("url", ["memory://", "redis://127.0.0.1:1"])
async def test_a_store_without_transactions_says_which_have_them(url: str) -> None:
    with Client(url) as once, pytest.raises(InvalidInput, match="postgresql://, sqlite:// or mongodb://"):
        once.within(None)
    async with AsyncClient(url) as aonce:
        with pytest.raises(InvalidInput, match="postgresql://, sqlite:// or mongodb://"):
            aonce.within(None)


# -- asyncio


async def check_async(once: AsyncClient, within: Any, key: str, *, first: bool) -> None:
    assert await within.first(key) is first
    assert await within.seen(key)
    assert await within.mark(f"{key}/marked", ttl=100)
    assert await within.mark(f"{key}/marked", ttl=200) is False
    assert await within.first_many([key, f"{key}/other"]) == [False, True]
    assert await within.forget(f"{key}/other")


@pytest.mark.usefixtures("postgres")
async def test_asyncio_on_postgres(request: pytest.FixtureRequest) -> None:
    place, key = on_postgres(request), fresh("async")
    async with AsyncClient(place.url) as once, await psycopg.AsyncConnection.connect(place.address) as connection:
        for commits in (False, True):
            await check_async(once, once.within(connection), key, first=True)
            await connection.execute(f"INSERT INTO {place.orders} VALUES (%s)", (str(commits),))
            assert not await once.seen(key)
            await (connection.commit() if commits else connection.rollback())
            assert await once.seen(key) is await once.seen(f"{key}/marked") is commits
        async with connection.transaction():
            assert not await once.within(connection).first(key)
        await connection.set_autocommit(True)
        with pytest.raises(InvalidInput, match=r"in no transaction"):
            await once.within(connection).first(key)
    assert place.rows() == ["True"]


@pytest.mark.usefixtures("replica_set")
async def test_asyncio_on_mongo(request: pytest.FixtureRequest) -> None:
    place, key = on_mongo(request), fresh("async")
    async with (
        AsyncClient(place.url) as once,
        AsyncMongoClient[dict[str, Any]](place.address) as mongo,
        mongo.start_session() as session,
    ):
        for commits in (False, True):
            await session.start_transaction()
            await check_async(once, once.within(session), key, first=True)
            await mongo["solely"][place.orders].insert_one({"order": str(commits)}, session=session)
            assert not await once.seen(key)
            await (session.commit_transaction() if commits else session.abort_transaction())
            assert await once.seen(key) is await once.seen(f"{key}/marked") is commits
        with pytest.raises(InvalidInput, match="no transaction"):
            await once.within(session).first(key)
    assert place.rows() == ["True"]
    place.mongo.close()


async def test_asyncio_on_sqlite(request: pytest.FixtureRequest) -> None:
    place, key = on_sqlite(request), fresh("async")
    async with AsyncClient(place.url) as once:
        for commits in (False, True):
            connection = place.begin()
            await check_async(once, once.within(connection), key, first=True)
            place.insert(connection, str(commits))
            (place.commit if commits else place.rollback)(connection)
            assert await once.seen(key) is await once.seen(f"{key}/marked") is commits
            place.close(connection)
    assert place.rows() == ["True"]


# -- PostgreSQL


@pytest.fixture
def postgresql(request: pytest.FixtureRequest, postgres: Postgres) -> Postgresql:
    return on_postgres(request)


def test_meanwhile_others_see_the_old_state_wait_for_the_key_or_give_up(postgresql: Postgresql) -> None:
    key = fresh("meanwhile")
    with (
        Client(postgresql.url, timeout=30) as patient,
        Client(postgresql.url, timeout=3) as hasty,
        postgresql.connect() as connection,
        ThreadPoolExecutor() as threads,
    ):
        assert patient.within(connection).first(key)
        assert not hasty.seen(key)  # looks do not wait
        with pytest.raises(StoreUnavailable, match="has not ended"):
            hasty.first(key)
        assert hasty.first(fresh("stranger"))
        late = threads.submit(patient.first, key)
        inside = threads.submit(_first_and_commit, patient, postgresql, key)
        with pytest.raises(TimeoutError):
            late.result(0.2)
        assert not inside.done()
        connection.commit()
        assert (late.result(20), inside.result(20)) == (False, False)


def _first_and_commit(once: Client, place: Postgresql, key: str) -> bool:
    with place.connect() as connection:
        return once.within(connection).first(key)


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
@pytest.mark.parametrize("many", [1, 20])
def test_a_serialisation_failure_says_to_repeat_all(postgresql: Postgresql, level: IsolationLevel, many: int) -> None:
    keys = [fresh("serial") for _ in range(many)]
    with Client(postgresql.url) as once, postgresql.connect() as connection:
        once.seen(keys[0])
        connection.isolation_level = level
        connection.execute("SELECT count(*) FROM pg_class")  # the snapshot is taken here
        once.first(keys[-1])
        with pytest.raises(StoreUnavailable, match="repeat it as a whole"):
            once.within(connection).first_many(keys)
        with pytest.raises(InvalidInput, match="has failed; roll it back"):
            once.within(connection).first(keys[0])
        connection.rollback()
        assert once.within(connection).first_many(keys) == [True] * (many - 1) + [False]


def test_a_connection_that_commits_by_itself_needs_a_block(postgresql: Postgresql) -> None:
    key = fresh("autocommit")
    with Client(postgresql.url) as once, psycopg.connect(postgresql.address, autocommit=True) as connection:
        with pytest.raises(InvalidInput, match=r"in no transaction.*with connection.transaction"):
            once.within(connection).first(key)
        assert not once.seen(key)
        with connection.transaction():
            assert once.within(connection).first(key)
            with pytest.raises(ZeroDivisionError), connection.transaction():  # a savepoint takes its own marks back
                assert once.within(connection).first(key + "/inner")
                raise ZeroDivisionError
        assert once.seen(key)
        assert not once.seen(key + "/inner")
    with Client(postgresql.url) as once, pytest.raises(InvalidInput, match="is closed"):
        once.within(connection).first(key)


def test_a_connection_to_another_database_is_refused(postgresql: Postgresql, postgres: Postgres) -> None:
    name = f"other_{secrets.token_hex(6)}"
    postgres.ask(f"CREATE DATABASE {name}")
    with (
        Client(postgresql.url) as once,
        psycopg.connect(postgres.conninfo(name)) as connection,
        pytest.raises(InvalidInput, match="another database than the store"),
    ):
        once.within(connection).first("a")
    postgres.ask(f"DROP DATABASE {name}")


def test_the_callers_rows_as_dicts_do_not_matter(postgresql: Postgresql) -> None:
    with Client(postgresql.url) as once, psycopg.connect(postgresql.address, row_factory=dict_row) as connection:
        assert once.within(connection).first_many([fresh("a") for _ in range(9)]) == [True] * 9


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_connection_that_speaks_no_utf8_is_refused_also_once_it_was_met(
    postgresql: Postgresql, encoding: str
) -> None:
    keys = [fresh("€") for _ in range(10)]
    with Client(postgresql.url) as once, postgresql.connect() as connection:
        assert not once.within(connection).seen(keys[0])
        connection.execute(f"SET client_encoding TO {encoding}")
        for call in (once.within(connection).first_many, lambda keys: once.within(connection).first(keys[0])):
            with pytest.raises(InvalidInput, match=r"has not every character of a key.*client_encoding"):
                call(keys)
        connection.execute("SET client_encoding TO utf8")
        assert once.within(connection).first_many(keys) == [True] * 10


# -- MongoDB


@pytest.mark.usefixtures("replica_set")
def test_a_write_conflict_says_to_run_it_again(request: pytest.FixtureRequest) -> None:
    place, key = on_mongo(request), fresh("conflict")
    with Client(place.url) as once:
        first, second = place.begin(), place.begin()
        assert once.within(first).first(key)
        with pytest.raises(StoreUnavailable, match="run it again"):
            once.within(second).first(key)
        place.commit(first)
        place.rollback(second)
        with pytest.raises(InvalidInput, match=r"in no transaction"):
            once.within(second).first(key)
        place.close(first)
        place.close(second)
    place.mongo.close()


@pytest.mark.usefixtures("replica_set")
@pytest.mark.parametrize("many", [1, 20])
def test_a_mark_that_was_forgotten_after_the_snapshot_says_to_run_it_again(
    request: pytest.FixtureRequest, many: int
) -> None:
    place, keys = on_mongo(request), [fresh("forgotten") for _ in range(many)]
    with Client(place.url) as once:
        once.first_many(keys)
        connection = place.begin()
        assert place.mongo["solely"][place.orders].find_one(session=connection) is None  # the snapshot is taken here
        assert once.forget(keys[-1])
        with pytest.raises(StoreUnavailable, match="run it again"):
            once.within(connection).first_many(keys)
        place.rollback(connection)
        connection.start_transaction()
        assert once.within(connection).first_many(keys) == [False] * (many - 1) + [True]
        place.commit(connection)
        place.close(connection)
        assert not once.first(keys[-1])
    place.mongo.close()


@pytest.mark.usefixtures("replica_set")
async def test_asyncio_a_mark_that_was_forgotten_after_the_snapshot(request: pytest.FixtureRequest) -> None:
    place, key = on_mongo(request), fresh("forgotten")
    async with (
        AsyncClient(place.url) as once,
        AsyncMongoClient[dict[str, Any]](place.address) as mongo,
        mongo.start_session() as session,
    ):
        await once.mark(key)
        await session.start_transaction()
        assert await mongo["solely"][place.orders].find_one(session=session) is None  # the snapshot is taken here
        assert await once.forget(key)
        with pytest.raises(StoreUnavailable, match="run it again"):
            await once.within(session).first(key)
        await session.abort_transaction()
        await session.start_transaction()
        assert await once.within(session).first(key)
        await session.commit_transaction()
    place.mongo.close()


@pytest.mark.usefixtures("replica_set")
def test_a_mark_that_a_transaction_saw_stays_as_it_was(request: pytest.FixtureRequest) -> None:
    place, key = on_mongo(request), fresh("seen")
    stored = f"mark/{key}"
    with Client(place.url) as once, closing(open_store(place.url)) as store:
        once.mark(key, ttl=1_000)
        (before,) = store.perform([Read(stored)])
        first, second = place.begin(), place.begin()
        assert not once.within(first).first(key, ttl=2_000)
        assert not once.first(key)  # outside of transactions nobody waits for who only saw it
        assert not once.within(first).first(key)
        with pytest.raises(StoreUnavailable, match="run it again"):  # as after a first that marked
            once.within(second).first(key)
        place.rollback(second)
        place.commit(first)
        second.start_transaction()
        assert not once.within(second).first(key)
        place.commit(second)
        place.close(first)
        place.close(second)
        (after,) = store.perform([Read(stored)])
        assert isinstance(before, Entry)
        assert isinstance(after, Entry)
        assert after == before._replace(left=after.left)
        assert after.left <= before.left
        assert once.forget(key)
        assert once.first(key)
    place.mongo.close()


# -- SQLite


@pytest.fixture
def sqlite(request: pytest.FixtureRequest) -> Sqlite:
    return on_sqlite(request)


def test_sqlite3_that_begins_by_itself_is_begun_for(sqlite: Sqlite) -> None:
    with Client(sqlite.url) as once, closing(sqlite3.connect(sqlite.address)) as connection:
        assert once.within(connection).first("a")
        assert connection.in_transaction
        sqlite.insert(connection, "a")
        connection.rollback()
        assert not once.seen("a")
        with connection:  # which commits at its end, if a transaction was begun
            assert once.within(connection).first("a")
        assert once.seen("a")


def test_sqlite3_that_commits_by_itself_must_be_begun(sqlite: Sqlite) -> None:
    with Client(sqlite.url) as once, closing(sqlite.connect()) as connection:
        with pytest.raises(InvalidInput, match=r"in no transaction.*BEGIN IMMEDIATE"):
            once.within(connection).first("a")
        assert not once.seen("a")
    with Client(sqlite.url) as once, pytest.raises(InvalidInput, match=r"cannot be used: .*closed"):
        once.within(connection).first("a")


def test_another_file_or_none_is_refused(sqlite: Sqlite, tmp_path: Path) -> None:
    with Client(sqlite.url) as once:
        for other in (tmp_path / "other.db", ":memory:"):
            with closing(sqlite3.connect(other)) as connection, pytest.raises(InvalidInput, match="in the same file"):
                once.within(connection).first("a")


def test_sqlite_that_began_to_read_before_others_wrote_must_run_again(sqlite: Sqlite) -> None:
    with Client(sqlite.url) as once, closing(sqlite.connect()) as connection:
        once.mark("before")
        connection.execute("BEGIN DEFERRED")
        sqlite.rows()
        connection.execute(f"SELECT count(*) FROM {sqlite.orders}").fetchone()
        once.mark("others")
        with pytest.raises(StoreUnavailable, match="roll back and run the transaction again"):
            once.within(connection).first("a")
        assert connection.in_transaction
        connection.rollback()
        connection.execute("BEGIN DEFERRED")
        assert once.within(connection).first("a")
        connection.commit()
        assert once.seen("a")


def test_while_sqlite_is_being_written_looks_answer_and_writers_wait(sqlite: Sqlite) -> None:
    with Client(sqlite.url, timeout=0.2) as once:
        once.seen("a")
        connection = sqlite.begin()
        assert once.within(connection).first("a")
        assert not once.seen("a")
        with pytest.raises(StoreUnavailable, match="locked by others"):
            once.first("a")
        connection.commit()
        assert not once.first("a")
        connection.close()


def test_the_callers_connection_is_left_as_it_was(sqlite: Sqlite) -> None:
    settings = ("journal_mode", "synchronous", "busy_timeout", "foreign_keys", "cache_size", "page_size")
    with Client(sqlite.url) as once, closing(sqlite3.connect(sqlite.address)) as connection:
        once.seen("a")
        connection.row_factory, connection.text_factory = sqlite3.Row, bytes
        before = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in settings]
        assert once.within(connection).first("a")
        assert once.within(connection).forget("a")
        assert once.within(connection).first_many(["a", "b"]) == [True, True]
        assert connection.execute("SELECT 'text' AS name").fetchone()["name"] == b"text"
        connection.commit()
        assert [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in settings] == before


def test_an_error_leaves_the_callers_transaction_as_it_was(sqlite: Sqlite) -> None:
    with Client(sqlite.url) as once, closing(sqlite3.connect(sqlite.address)) as connection:
        once.seen("a")
        connection.execute(
            "CREATE TRIGGER bad BEFORE INSERT ON solely_entries WHEN new.key = 'mark/bad' "
            "BEGIN SELECT raise(ABORT, 'no'); END"
        )
        with pytest.raises(StoreFailed, match="no"):
            once.within(connection).first_many(["a", "bad"])
        assert not connection.in_transaction  # there was none
        sqlite.insert(connection, "kept")
        with pytest.raises(StoreFailed, match="no"):
            once.within(connection).first_many(["a", "bad"])
        connection.commit()
        assert not once.seen("a")
    assert sqlite.rows() == ["kept"]


def test_a_statement_that_was_interrupted_says_to_run_it_again(sqlite: Sqlite) -> None:
    """By the caller, in another thread or by a limit of time: as a statement_timeout does on PostgreSQL."""
    with Client(sqlite.url) as once, closing(sqlite.begin()) as connection:
        assert not once.within(connection).seen("a")
        left = [True]
        connection.set_progress_handler(lambda: bool(left and left.pop()), 1)
        with pytest.raises(StoreUnavailable, match="interrupted"):
            once.within(connection).first("a")
        connection.set_progress_handler(None, 1)
        connection.rollback()
        connection.execute("BEGIN IMMEDIATE")
        assert once.within(connection).first("a")
        connection.commit()


# -- a file that is shared with another program


def header(path: str) -> tuple[int, ...]:
    with closing(sqlite3.connect(path)) as raw:
        names = ("application_id", "user_version", "page_size")
        return tuple(raw.execute(f"PRAGMA {name}").fetchone()[0] for name in names)


def test_a_shared_file_keeps_its_header(tmp_path: Path) -> None:
    path = str(tmp_path / "app.db")
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA page_size = 8192")
        raw.execute("PRAGMA application_id = 7")
        raw.execute("PRAGMA user_version = 42")
        raw.execute("CREATE TABLE entries (precious)")
    with Client(f"sqlite:///{path}?shared=true") as once:
        assert once.first("a")
        with once.lock("a"):
            pass
    assert header(path) == (7, 42, 8192)
    with Client(f"sqlite:///{path}") as once, pytest.raises(StoreMisconfigured, match=r"another program.*shared=true"):
        once.first("b")
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE solely_meta SET version = 99")
        raw.commit()
    with Client(f"sqlite:///{path}?shared=true") as once, pytest.raises(StoreMisconfigured, match="upgrade Solely"):
        once.first("b")


def test_the_tables_are_made_in_the_callers_transaction_if_need_be(tmp_path: Path) -> None:
    path = str(tmp_path / "app.db")
    with closing(sqlite3.connect(path)) as connection, Client(f"sqlite:///{path}?shared=true") as once:
        connection.execute("CREATE TABLE orders (id)")
        for commits in (False, True):
            connection.execute("INSERT INTO orders VALUES (1)")
            assert once.within(connection).first("a")
            connection.commit() if commits else connection.rollback()
            assert bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'solely_meta'").fetchone()) is (
                commits
            )
        assert once.seen("a")
        assert once.first("b")
        assert not once.within(connection).first("b")
    assert header(path)[:2] == (0, 0)


def test_a_store_of_its_own_file_takes_the_callers_tables_too(tmp_path: Path) -> None:
    path = str(tmp_path / "solely.db")
    with Client(f"sqlite:///{path}") as once, closing(sqlite3.connect(path)) as connection:
        with pytest.raises(StoreMisconfigured, match=r"no tables of Solely yet.*shared=true"):
            once.within(connection).first("a")
        assert not once.seen("a")
        connection.execute("CREATE TABLE orders (id)")
        assert once.within(connection).first("a")
        connection.commit()
        assert once.seen("a")


def test_other_options_of_the_url_are_refused(tmp_path: Path) -> None:
    for query in ("shared=yes", "shared=true&x=1", "x=1"):
        with pytest.raises(InvalidInput, match=r"no option but \?shared=true"):
            Client(f"sqlite:///{tmp_path}/a.db?{query}")


# -- the page


def test_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.test_docs import blocks

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(blocks("docs/same-transaction.md")[0], names)
    assert names["paid"] == [("order-1",)]
