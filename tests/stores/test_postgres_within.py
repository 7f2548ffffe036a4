"""once.within(connection) on PostgreSQL: the first use behind a pooler, and the ends that a transaction may come to."""

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from solely import AsyncClient, Client, InvalidInput, StoreUnavailable
from solely.data import open_database
from solely.errors import DataUnavailable
from solely.stores.postgres import migrate
from solely.stores.postgres.connect import leads_to
from solely.stores.postgres.schema import Connector
from solely.stores.postgres.settings import parse
from tests.conftest import in_schema
from tests.postgres_server import PGBOUNCER, PYPI_POSTGRES, Postgres, pooler_of
from tests.servers import until

PLACES = 4
WORKERS = 6
TRIES = 50  # of one transaction: a few are enough, each of which waits up to 2 s


@pytest.fixture(params=["postgres", "debian_postgres"])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(request.param)
    return found


# -- the first use behind a pooler


class Crowd:
    """Transactions that go on once every place of the pooler is held by one of them."""

    def __init__(self) -> None:
        self._inside = 0
        self._full = threading.Event()
        self._mutex = threading.Lock()

    def enter(self) -> None:
        with self._mutex:
            self._inside += 1
            if self._inside >= PLACES:
                self._full.set()
        assert self._full.wait(60)


def run_blocking(url: str, address: str, crowd: Crowd, key: str, tries: int) -> int:
    """In how many tries a fresh client's first transaction came to its end."""
    with Client(url) as once, psycopg.connect(address, prepare_threshold=None) as connection:
        for count in range(1, tries + 1):
            try:
                with connection.transaction():
                    connection.execute("SELECT 1")
                    crowd.enter()
                    assert once.within(connection).first(key)
                return count
            except StoreUnavailable:
                if count == tries:
                    raise
    raise AssertionError


def run_async(url: str, address: str, crowd: Crowd, key: str, tries: int) -> int:
    async def run() -> int:
        connecting = psycopg.AsyncConnection.connect(address, prepare_threshold=None)
        async with AsyncClient(url) as once, await connecting as connection:
            for count in range(1, tries + 1):
                try:
                    async with connection.transaction():
                        await connection.execute("SELECT 1")
                        await asyncio.to_thread(crowd.enter)
                        assert await once.within(connection).first(key)
                    return count
                except StoreUnavailable:
                    if count == tries:
                        raise
        raise AssertionError

    return asyncio.run(run())


BOTH = pytest.mark.parametrize("run", [run_blocking, run_async], ids=["blocking", "asyncio"])
Run = Callable[[str, str, Crowd, str, int], int]


def run_all(run: Run, url: str, address: str, tries: int) -> list[int]:
    crowd = Crowd()
    with ThreadPoolExecutor(WORKERS) as workers:
        running = [workers.submit(run, url, address, crowd, secrets.token_hex(8), tries) for _ in range(WORKERS)]
        return [each.result() for each in running]


if PGBOUNCER is not None:

    @pytest.fixture
    def address(server: Postgres) -> Iterator[str]:
        with pooler_of(server, places=PLACES) as found:
            yield found

    @BOTH
    def test_a_clients_first_transaction_needs_one_place_of_the_pooler(address: str, run: Run) -> None:
        url = in_schema(f"{address}?pgbouncer=true")
        migrate(url)
        assert run_all(run, url, address, tries=1) == [1] * WORKERS

    @BOTH
    def test_a_schema_that_is_missing_is_made_while_the_transaction_is_run_again(address: str, run: Run) -> None:
        url = in_schema(f"{address}?pgbouncer=true")
        assert len(run_all(run, url, address, tries=TRIES)) == WORKERS

    @BOTH
    def test_another_name_of_the_same_pooler_is_looked_at_while_the_transaction_is_run_again(
        address: str, run: Run
    ) -> None:
        url = in_schema(f"{address}?pgbouncer=true")
        migrate(url)
        other_name = address.replace("127.0.0.1", "localhost")
        assert len(run_all(run, url, other_name, tries=TRIES)) == WORKERS

    def test_after_a_restart_the_transaction_needs_no_second_place_either(mortal: Postgres) -> None:
        with pooler_of(mortal, places=1) as address:
            url = in_schema(f"{address}?pgbouncer=true")
            with Client(url) as once:
                assert once.first("before")
                mortal.restart()
                with psycopg.connect(address, prepare_threshold=None) as connection:
                    until(lambda: answers(connection), "the server behind the pooler")
                    assert once.within(connection).first("after")

    def answers(connection: psycopg.Connection[Any]) -> bool:
        """True once a transaction is open: the pooler's connections from before the restart are no more."""
        try:
            connection.execute("SELECT 1")
        except psycopg.OperationalError:
            connection.rollback()
            return False
        return True


@pytest.fixture
def mortal() -> Iterator[Postgres]:
    with Postgres(folder=PYPI_POSTGRES, fsync="off") as found:
        yield found


@pytest.mark.parametrize("level", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ])
def test_no_connection_beside_the_callers_is_opened(
    server: Postgres, level: IsolationLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = in_schema(server.url)
    migrate(url)
    with Client(url) as once, psycopg.connect(server.conninfo()) as connection:
        connection.isolation_level = level
        with monkeypatch.context() as patched:
            patched.setattr(Connector, "connect", lambda *_: pytest.fail("a second connection"))
            assert once.within(connection).first("a")
        connection.commit()
        assert not once.first("a")


def test_where_a_connection_leads_is_compared(server: Postgres) -> None:
    here = f"{server.host}:{server.port}"
    with psycopg.connect(server.conninfo()) as connection:
        same = [
            f"postgresql://me@{here}/postgres",
            f"postgresql://postgres@{here}",
            f"postgresql://other:1,{here}/postgres",
            f"postgresql://localhost:{server.port}/postgres?host={server.host}",
        ]
        assert all(leads_to(parse(url).conninfo, connection.info) for url in same)
        others = [
            f"postgresql://{server.host}:1/postgres",
            f"postgresql://localhost:{server.port}/postgres",
            f"postgresql://{here}/other",
            f"postgresql://me@{here}",
            f"postgresql://{here}/postgres?hostaddr=127.0.0.2",
            "postgresql://me@/postgres",
        ]
        assert not any(leads_to(parse(url).conninfo, connection.info) for url in others)


def test_another_database_of_the_same_server_is_refused_though_it_has_the_schema(server: Postgres) -> None:
    other = f"d{secrets.token_hex(6)}"
    server.ask(f"CREATE DATABASE {other}")
    url = in_schema(server.url)
    migrate(url)
    migrate(url.replace("/postgres?", f"/{other}?"))
    with (
        Client(url) as once,
        psycopg.connect(server.conninfo(other)) as connection,
        pytest.raises(InvalidInput, match="another database than the store"),
    ):
        once.within(connection).first("a")
    server.ask(f"DROP DATABASE {other} WITH (FORCE)")


# -- how a transaction ends


def pay(once: Client, address: str, table: str, hinder: Callable[[psycopg.Connection[Any], int], None]) -> int:
    """The loop of docs/same-transaction.md: in how many tries the order was paid."""
    for count in range(1, TRIES + 1):
        try:
            with psycopg.connect(address) as connection:
                hinder(connection, count)
                if once.within(connection).first("pay:order-1"):
                    connection.execute(f"INSERT INTO {table} VALUES ('order-1')")
            return count
        except (StoreUnavailable, psycopg.OperationalError):
            continue
    raise AssertionError


def is_gone(server: Postgres, pid: int) -> bool:
    return server.ask("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid) == [(0,)]


def terminated(server: Postgres, connection: psycopg.Connection[Any]) -> None:
    connection.execute("SELECT 1")
    server.ask("SELECT pg_terminate_backend(%s)", connection.info.backend_pid)


def idle_for_too_long(server: Postgres, connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET LOCAL idle_in_transaction_session_timeout = 1")


def longer_than_a_transaction(server: Postgres, connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET LOCAL transaction_timeout = 1")


ENDS = [terminated, idle_for_too_long, longer_than_a_transaction]


@pytest.mark.parametrize("end", ENDS)
def test_a_transaction_that_the_server_ends_is_run_again(postgres: Postgres, end: Callable[..., None]) -> None:
    """57P01, 25P03 and, from PostgreSQL 17 on, 25P04: StoreUnavailable, which the loop of the docs catches."""
    url, table = in_schema(postgres.url), f"paid_{secrets.token_hex(6)}"
    migrate(url)
    postgres.ask(f"CREATE TABLE {table} (id text)")
    seen: list[Exception] = []

    def hinder(connection: psycopg.Connection[Any], count: int) -> None:
        if count > 1:
            return
        end(postgres, connection)
        until(lambda: is_gone(postgres, connection.info.backend_pid), "the end of the connection")
        with pytest.raises(StoreUnavailable, match=r"ended this connection|did not answer") as caught:
            once.within(connection).first("pay:order-1")
        seen.append(caught.value)
        raise caught.value

    with Client(url) as once:
        assert pay(once, postgres.conninfo(), table, hinder) == 2
        assert once.seen("pay:order-1")
    assert postgres.ask(f"SELECT id FROM {table}") == [("order-1",)]
    assert len(seen) == 1


REPEATED = [
    "40001", "40P01", "40003", "55P03", "25P02", "25P03", "25P04", "57014", "57P01", "57P02", "57P03", "57P05",
    "08000", "08003", "08006", "08P01",
]  # fmt: skip


@pytest.mark.parametrize("code", REPEATED)
def test_an_error_that_says_to_repeat_is_caught_by_the_loop(postgres: Postgres, code: str) -> None:
    url = in_schema(postgres.url)
    migrate(url)
    names = parse(url).names
    postgres.ask(
        f"CREATE FUNCTION {names['fails']}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$"
    )
    postgres.ask(f"CREATE TRIGGER fails BEFORE INSERT ON {names['entries']} EXECUTE FUNCTION {names['fails']}()")
    with Client(url) as once, psycopg.connect(postgres.conninfo()) as connection:
        with pytest.raises(StoreUnavailable, match=code):
            once.within(connection).first("a")
        connection.rollback()


@pytest.mark.parametrize("timeout", ["idle_in_transaction_session_timeout", "transaction_timeout"])
async def test_data_whose_transaction_the_server_ended_may_be_written_later(postgres: Postgres, timeout: str) -> None:
    database = open_database(in_schema(postgres.url))
    with pytest.raises(DataUnavailable):
        async with database.transaction() as inside:
            [row] = await inside.rows("SELECT pg_backend_pid() AS pid")
            await inside.run(f"SET LOCAL {timeout} = 1")
            await asyncio.to_thread(until, lambda: is_gone(postgres, row["pid"]), "the end of the connection")
            await inside.run("SELECT 1")
    assert await database.rows("SELECT 1 AS answer") == [{"answer": 1}]
    await database.close()
