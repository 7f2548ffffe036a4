"""The database of applications: the same on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import time

import pytest

from solely.data import Database, open_database
from solely.errors import DataError, DataUnavailable, InvalidInput, StoreUnavailable

INSERT = "INSERT INTO notes (id, size) VALUES (:id, :size)"
ENDLESS = {  # statements that do not end by themselves within the test
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS i FROM n",
    "postgresql": "SELECT pg_sleep(60)",
}


async def count(database: Database) -> int:
    found = await database.row("SELECT count(*) AS n FROM notes")
    assert found is not None
    return int(found["n"])


async def test_what_is_kept_comes_back(database: Database) -> None:
    assert await database.run(
        "INSERT INTO notes (id, size, at, done) VALUES (:id, :size, :at, :done)",
        id="ü'\"%:x", size=2**53, at=1.5, done=True,
    ) == 1  # fmt: skip
    assert await database.rows("SELECT * FROM notes") == [{"id": "ü'\"%:x", "size": 2**53, "at": 1.5, "done": 1}]
    assert await database.row("SELECT id FROM notes WHERE size = :size", size=1) is None
    assert await database.run("UPDATE notes SET size = :none", none=None) == 1
    assert await database.row("SELECT size FROM notes") == {"size": None}
    assert await database.run("DELETE FROM notes WHERE id = :id", id="nobody") == 0


async def test_a_text_with_nul_is_stored_and_found_again(database: Database) -> None:
    assert await database.run(INSERT, id="a\0b", size=1) == 1
    await database.run_many(INSERT, [{"id": "\0", "size": 2}])
    assert await database.rows("SELECT size FROM notes WHERE id = :id", id="a\0b") == [{"size": 1}]
    async with database.transaction() as inside:
        await inside.run_many(INSERT, [{"id": "c\0", "size": 3}])
        assert await inside.run("UPDATE notes SET size = 4 WHERE id = :id", id="c\0") == 1


async def test_half_of_a_surrogate_pair_is_a_clear_error(database: Database) -> None:
    with pytest.raises(DataError, match="surrogate"):
        await database.run(INSERT, id="a\ud800", size=1)
    assert await count(database) == 0


async def test_quoted_text_percents_and_comments_are_no_values(database: Database) -> None:
    told = await database.row("SELECT ':a' AS a, '100%' AS b, CAST(:c AS TEXT) AS c -- :d it's", c="7 % 2")
    assert told == {"a": ":a", "b": "100%", "c": "7 % 2"}
    assert await database.row("SELECT '100%' AS b") == {"b": "100%"}


async def test_an_upsert_answers_what_it_wrote(database: Database) -> None:
    upsert = INSERT + " ON CONFLICT (id) DO UPDATE SET size = notes.size + 1 RETURNING size"
    assert [await database.row(upsert, id="a", size=1) for _ in range(3)] == [{"size": 1}, {"size": 2}, {"size": 3}]
    assert await database.run(INSERT + " ON CONFLICT DO NOTHING", id="a", size=1) == 0


async def test_many_at_once_are_all_or_none(database: Database) -> None:
    await database.run_many(INSERT, [])
    await database.run_many(INSERT, [{"id": str(n), "size": n} for n in range(500)])
    total = await database.row("SELECT sum(size) AS total FROM notes")
    assert total == {"total": 124_750}
    assert isinstance(total["total"], int)
    with pytest.raises(DataError):
        await database.run_many(INSERT, [{"id": "new", "size": 1}, {"id": "7", "size": 1}])
    assert await count(database) == 500
    async with database.transaction() as inside:
        await inside.run_many(INSERT, [{"id": f"more-{n}", "size": n} for n in range(3)])
        await inside.run_many(INSERT, [])
    assert await count(database) == 503


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELEC 1", "SELEC"),
        ("SELECT * FROM nowhere", "nowhere"),
        ("SELECT CAST(:missing AS TEXT) AS a", "missing"),
        (INSERT.replace(":size", "1"), "(?i)unique"),
        ("INSERT INTO notes (id, size) VALUES ('b', :big)", "int|range"),
    ],
)
async def test_a_statement_that_cannot_be_is_a_clear_error(database: Database, sql: str, said: str) -> None:
    await database.run(INSERT, id="a secret", size=1)
    with pytest.raises(DataError, match=said) as refused:
        await database.run(sql, id="a secret", big=2**80)
    assert not isinstance(refused.value, DataUnavailable)
    assert "a secret" not in str(refused.value)
    assert await count(database) == 1


async def test_a_transaction_is_all_or_nothing(database: Database) -> None:
    async with database.transaction() as inside:
        await inside.run(INSERT, id="a", size=1)
        assert await count(inside) == 1
    with pytest.raises(RuntimeError, match="changed my mind"):
        async with database.transaction() as inside:
            await inside.run(INSERT, id="b", size=1)
            raise RuntimeError("changed my mind")
    with pytest.raises(DataError):
        async with database.transaction() as inside:
            await inside.run(INSERT, id="c", size=1)
            await inside.run(INSERT, id="a", size=1)
    assert await count(database) == 1


async def test_a_cancelled_transaction_leaves_nothing(database: Database) -> None:
    reached = asyncio.Event()

    async def work() -> None:
        async with database.transaction() as inside:
            await inside.run(INSERT, id="a", size=1)
            reached.set()
            await asyncio.sleep(30)

    task = asyncio.create_task(work())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await count(database) == 0
    await database.run(INSERT, id="a", size=1)


async def test_a_transaction_cancelled_at_any_moment_leaves_the_database_usable(database: Database) -> None:
    async def work(n: int) -> None:
        async with database.transaction() as inside:
            await inside.run(INSERT, id=f"{n}a", size=1)
            await inside.run(INSERT, id=f"{n}b", size=1)

    for n in range(40):
        task = asyncio.create_task(work(n))
        for _ in range(n % 10):
            await asyncio.sleep(0)
        await asyncio.sleep(n * 0.00005)
        task.cancel()
        await asyncio.wait([task])
    assert await count(database) % 2 == 0
    await work(99)


async def test_in_a_transaction_only_that_is_used(database: Database) -> None:
    async with database.transaction() as inside:
        for wrong in (database.transaction, inside.transaction, database.migrating):
            with pytest.raises(InvalidInput, match="in a transaction"):
                async with wrong():
                    pass
        with pytest.raises(InvalidInput, match="in a transaction"):
            await database.rows("SELECT 1 AS a")
        await inside.run(INSERT, id="a", size=1)
    with pytest.raises(InvalidInput, match="has ended"):
        await inside.rows("SELECT 1 AS a")
    assert await count(database) == 1


async def test_others_go_on_beside_a_transaction_and_nothing_gets_lost(database: Database) -> None:
    await database.run(INSERT, id="sum", size=0)

    async def add() -> None:
        async with database.transaction() as inside:
            await inside.run("UPDATE notes SET size = size + 1 WHERE id = 'sum'")
            await inside.run(INSERT, id=str(time.perf_counter_ns()), size=1)

    async def look() -> None:
        both = await database.row("SELECT max(size) AS size, count(*) AS n FROM notes")
        assert both is not None
        assert both["size"] == both["n"] - 1, "half of a transaction was seen"

    await asyncio.gather(*(work() for _ in range(25) for work in (add, look)))
    assert await count(database) == 26


async def test_a_statement_that_takes_too_long_is_broken_off(database_url: str) -> None:
    database = open_database(database_url, timeout=0.3)
    started = time.monotonic()
    with pytest.raises(DataUnavailable) as refused:
        await database.rows(ENDLESS[database.dialect])
    assert time.monotonic() - started < 20.0  # else it would never end
    assert isinstance(refused.value, StoreUnavailable)
    with pytest.raises(DataUnavailable):
        async with database.transaction() as inside:
            await inside.rows(ENDLESS[database.dialect])
    await database.check()
    await database.close()


async def test_a_cancelled_statement_leaves_no_answer_behind(database: Database) -> None:
    for n in range(20):
        task = asyncio.create_task(database.rows("SELECT count(*) AS wrong FROM notes"))
        await asyncio.sleep(n * 0.0001)
        task.cancel()
        await asyncio.wait([task])
        assert await database.row("SELECT 'right' AS answer") == {"answer": "right"}


async def test_a_closed_database_says_so(database: Database) -> None:
    await database.close()
    await database.close()
    with pytest.raises(DataUnavailable, match="closed"):
        await database.check()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://user:swordfish@host/db", "mysql://…"),
        ("data.db", "without a scheme"),
        ("sqlite://", "names no file"),
        ("sqlite:///data.db?x=1", "names no file"),
        ("sqlite:////nowhere/at/all/data.db", "folder must exist"),
        ("postgresql://user:swordfish@host/db?sslmode=nonsense&namespace=1", "namespace"),
        ("postgresql://user:swordfish@host/db?pgbouncer=true", "pooler"),
    ],
)
def test_an_url_that_cannot_be(url: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        open_database(url)
    assert "swordfish" not in str(refused.value)


async def test_memory_is_each_ones_own() -> None:
    one, other = open_database("sqlite:///:memory:"), open_database("sqlite:///:memory:")
    await one.run("CREATE TABLE notes (id TEXT)")
    with pytest.raises(DataError):
        await other.rows("SELECT * FROM notes")
    with pytest.raises(DataError):
        await one.run("SELEC")
    assert await one.rows("SELECT * FROM notes") == [], "an error does not lose what is in memory"
    await one.close()
    await other.close()


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_no_plan_of_an_empty_table_is_kept_while_it_grows(database: Database) -> None:
    async with database.transaction() as inside:  # on one connection
        for _ in range(20):  # many more than psycopg and the server need to keep a plan
            await inside.rows("SELECT id FROM notes WHERE id = :id", id="a")
        found = await inside.row(
            "SELECT sum(generic_plans) AS kept, sum(custom_plans) AS made FROM pg_prepared_statements "
            "WHERE statement LIKE 'SELECT id FROM notes%'"
        )
    assert found is not None
    assert found["made"] >= 10
    assert found["kept"] == 0
