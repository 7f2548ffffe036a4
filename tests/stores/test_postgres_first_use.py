"""First use of an empty PostgreSQL by several workers at once: none of them fails, whoever makes the schema."""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from solely import AsyncClient, Client
from solely.data import migrate as migrate_data
from solely.data import open_database
from solely.data.postgres import LOCK
from solely.errors import StoreDenied
from solely.stores.postgres import migrate
from solely.stores.postgres.settings import parse
from solely.stores.postgres.statements import NEWEST
from tests.conftest import in_schema
from tests.data.conftest import Package, package
from tests.postgres_server import PGBOUNCER, Postgres, pooler_of
from tests.servers import until

__all__ = ["package"]

WORKERS = 4
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture(params=["postgres", "debian_postgres"])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(request.param)
    return found


@contextmanager
def being_made(server: Postgres, url: str, *locks: int) -> Iterator[psycopg.Connection[Any]]:
    """Another worker has made the schema, holds these locks, and has not committed yet."""
    with psycopg.connect(server.conninfo()) as other:
        for lock in locks:
            other.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
        other.execute(f"CREATE SCHEMA {parse(url).names['schema']}")
        yield other


def until_blocked(server: Postgres, count: int) -> None:
    until(lambda: server.ask(BLOCKED) == [(count,)], f"{count} workers that wait for the first")


def first_of(url: str) -> bool:
    with Client(url, timeout=30.0) as once:
        return once.first("a")


async def first_async(url: str) -> bool:
    async with AsyncClient(url, timeout=30.0) as once:
        return await once.first("a")


def first_in_loop(url: str) -> bool:
    return asyncio.run(first_async(url))


@pytest.mark.parametrize("first", [first_of, first_in_loop], ids=["blocking", "asyncio"])
def test_workers_that_waited_for_the_migration_find_the_schema(server: Postgres, first: Callable[[str], bool]) -> None:
    url = in_schema(server.url)
    with ThreadPoolExecutor(WORKERS) as workers:
        with being_made(server, url, int(parse(url).names["migration_lock"])):
            firsts = [workers.submit(first, url) for _ in range(WORKERS)]
            until_blocked(server, WORKERS)
        assert sorted(each.result() for each in firsts) == [False] * (WORKERS - 1) + [True]
    assert migrate(url) == NEWEST


if PGBOUNCER is not None:

    def test_a_pooled_connection_that_knew_of_no_schema_finds_it(server: Postgres) -> None:
        """A connection of the server that was asked for the schema before remembers that there was none."""
        with pooler_of(server, places=WORKERS) as address:
            url = in_schema(f"{address}?pgbouncer=true")
            with ThreadPoolExecutor(WORKERS) as workers:
                with being_made(server, url, int(parse(url).names["migration_lock"])):
                    firsts = [workers.submit(first_of, url) for _ in range(WORKERS)]
                    until_blocked(server, WORKERS)
                assert sorted(each.result() for each in firsts) == [False] * (WORKERS - 1) + [True]


def test_a_store_finds_the_schema_that_somebody_else_is_making(server: Postgres) -> None:
    """A store of another table, or the data of the applications: they share the schema, not the migrations' lock."""
    url = in_schema(server.url)
    with ThreadPoolExecutor(WORKERS) as workers:
        with being_made(server, url):
            firsts = [workers.submit(first_of, f"{url}&solely_table=t{n}") for n in range(WORKERS)]
            until_blocked(server, WORKERS)
        assert [each.result() for each in firsts] == [True] * WORKERS


@pytest.mark.parametrize("locks", [[LOCK], []], ids=["by the applications", "by a store"])
async def test_applications_find_the_schema_that_somebody_else_is_making(
    server: Postgres, package: Package, locks: list[int]
) -> None:
    url, name = in_schema(server.url), package(m001_a="CREATE TABLE a (id TEXT);")
    databases = [open_database(url) for _ in range(WORKERS)]
    with being_made(server, url, *locks):
        migrating = [asyncio.create_task(migrate_data(each, "notes", name)) for each in databases]
        await asyncio.to_thread(until_blocked, server, WORKERS)
    assert sorted(await asyncio.gather(*migrating)) == [[]] * (WORKERS - 1) + [["001_a"]]
    for each in databases:
        await each.close()


def test_many_clients_and_applications_begin_on_empty_databases(server: Postgres, package: Package) -> None:
    name = package(m001_a="CREATE TABLE a (id TEXT);")

    async def applies(url: str) -> bool:
        database = open_database(url)
        try:
            return bool(await migrate_data(database, "notes", name))
        finally:
            await database.close()

    kinds = [first_of, first_in_loop, lambda url: asyncio.run(applies(url))]
    for _ in range(3):
        empty = f"d{secrets.token_hex(6)}"
        server.ask(f"CREATE DATABASE {empty}")
        url = server.url.removesuffix("postgres") + empty
        with ThreadPoolExecutor(9) as workers:
            done = [workers.submit(kinds[n % 3], url) for n in range(9)]
            marks = [done[n].result() for n in range(9) if n % 3 < 2]
            applied = [done[n].result() for n in range(2, 9, 3)]
        server.ask(f"DROP DATABASE {empty} WITH (FORCE)")
        assert (marks.count(True), applied.count(True)) == (1, 1)


def test_a_user_who_may_make_no_schema_uses_the_one_that_is_there(server: Postgres) -> None:
    url, user = in_schema(server.url), f"u{secrets.token_hex(6)}"
    schema = parse(url).names["schema"]
    server.ask(f"CREATE ROLE {user} LOGIN PASSWORD 'x'")
    own = f"postgresql://{user}:x@{server.host}:{server.port}/postgres?namespace={parse(url).schema}"
    with pytest.raises(StoreDenied, match="privilege"):
        migrate(own)
    server.ask(f"CREATE SCHEMA {schema} AUTHORIZATION {user}")
    with ThreadPoolExecutor(WORKERS) as workers:
        firsts = list(workers.map(first_of, [own] * WORKERS))
    assert sorted(firsts) == [False] * (WORKERS - 1) + [True]
