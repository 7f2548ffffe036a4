"""When the database is away: told so in time, and back without a restart."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from solely.data import Database, open_database
from solely.errors import DataUnavailable
from tests.postgres_server import Postgres
from tests.servers import free_port


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """One that these tests may kill and pause."""
    with Postgres(fsync="off") as it:
        yield it


async def use_several(database: Database) -> None:
    """So that several connections are idle."""
    await asyncio.gather(*(database.rows("SELECT pg_sleep(0.05)") for _ in range(4)))


async def test_after_a_restart_nobody_meets_a_dead_connection(server: Postgres) -> None:
    database = open_database(server.url, timeout=5.0)
    await use_several(database)
    server.restart()
    await use_several(database)
    await database.close()


async def test_while_the_server_is_away_it_is_unavailable(server: Postgres) -> None:
    database = open_database(server.url, timeout=1.0)
    await database.check()
    server.kill()
    try:
        for _ in range(2):  # on the connection that it had, and on a new one
            with pytest.raises(DataUnavailable, match="cannot be reached"):
                await database.check()
    finally:
        server.start()
    await database.check()
    await database.close()


async def test_a_server_that_hangs_is_given_up_in_time(server: Postgres) -> None:
    database = open_database(server.url, timeout=0.5)
    await database.check()
    server.pause()
    try:
        started = time.monotonic()
        with pytest.raises(DataUnavailable, match=r"no answer within 0\.5 s"):
            await database.check()
        with pytest.raises(DataUnavailable, match=r"no answer within 0\.5 s"):  # a new connection
            await database.check()
        assert time.monotonic() - started < 20.0  # else it would never end
    finally:
        server.resume()
    await database.check()
    await database.close()


async def test_a_transaction_whose_server_dies_is_nothing(server: Postgres) -> None:
    database = open_database(server.url, timeout=2.0)
    async with database.migrating() as inside:
        await inside.run("CREATE TABLE IF NOT EXISTS torn (id TEXT)")
    with pytest.raises(DataUnavailable):
        async with database.transaction() as inside:
            await inside.run("INSERT INTO torn (id) VALUES ('a')")
            server.kill()
            try:
                await inside.run("INSERT INTO torn (id) VALUES ('b')")
            finally:
                server.start()
    assert await database.rows("SELECT * FROM torn") == []
    await database.close()


async def test_more_than_all_connections_take_turns(server: Postgres) -> None:
    database = open_database(server.url, timeout=5.0)
    found = await asyncio.gather(*(database.row("SELECT pg_backend_pid() AS pid, pg_sleep(0.01)") for _ in range(60)))
    assert len({row["pid"] for row in found if row}) <= 8
    await database.close()


@pytest.mark.parametrize("wrong", ["password", "database", "port"])
async def test_why_there_is_no_connection(server: Postgres, wrong: str) -> None:
    url = {
        "password": server.url.replace("a%20secret", "swordfish"),
        "database": server.url.replace("/postgres?", "/nowhere?") if "?" in server.url else server.url + "-nowhere",
        "port": server.url.replace(f":{server.port}", f":{free_port()}"),
    }[wrong]
    assert url != server.url
    said = {"password": "password is wrong", "database": "no such database", "port": "cannot be reached"}[wrong]
    database = open_database(url, timeout=2.0)
    with pytest.raises(DataUnavailable, match=said) as refused:
        await database.check()
    assert "swordfish" not in str(refused.value)
    await database.close()


async def test_a_file_that_another_process_keeps_locked(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path}/data.db", timeout=0.3)
    await database.run("CREATE TABLE notes (id TEXT)")
    other = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    with pytest.raises(DataUnavailable, match="locked"):
        await database.run("INSERT INTO notes (id) VALUES ('a')")
    with pytest.raises(DataUnavailable, match="locked"):
        async with database.transaction():
            pass
    assert time.monotonic() - started < 20.0  # else it would never end
    assert await database.rows("SELECT * FROM notes") == [], "readers are not held up"
    waiting = asyncio.create_task(database.run("INSERT INTO notes (id) VALUES ('b')"))
    await asyncio.sleep(0.05)
    other.execute("COMMIT")
    assert await waiting == 1
    other.close()
    await database.close()


async def test_whoever_stands_behind_slow_ones_is_told_in_time(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path}/data.db", timeout=0.4)
    await database.run("CREATE TABLE notes (id TEXT)")
    other = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    many = [database.run("INSERT INTO notes (id) VALUES ('a')") for _ in range(20)]
    answers = await asyncio.gather(*many, return_exceptions=True)
    assert time.monotonic() - started < 20.0  # else it would never end
    assert all(isinstance(each, DataUnavailable) for each in answers)
    other.close()
    await database.close()


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "data.db").write_text("certainly no database\n" * 100)
    database = open_database(f"sqlite:///{tmp_path}/data.db")
    with pytest.raises(DataUnavailable, match="not a database"):
        await database.check()
    (tmp_path / "data.db").unlink()
    await database.check()
    await database.close()
