"""The journal: rows are written behind, on both databases; adding never waits, never fails, and is bounded."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from solely.data import DAY, HOUR, Database, Journal, Statements, begin_of, journal
from solely.errors import DataError

SQL = Statements(
    "journal.sql",
    {
        "record": "INSERT INTO checks (id, at, text) VALUES (:id, :at, :text) "
        "ON CONFLICT (id) DO UPDATE SET text = excluded.text",
        "sum": "INSERT INTO sums (target, hour, count, seconds, last) VALUES (:target, :hour, :times, :seconds, :last) "
        "ON CONFLICT (target, hour) DO UPDATE SET count = sums.count + excluded.count, "
        "seconds = sums.seconds + excluded.seconds, last = excluded.last",
        "forget": "DELETE FROM checks WHERE id IN (SELECT id FROM checks WHERE at < :before ORDER BY at LIMIT :page)",
    },
)
TABLES = (
    "CREATE TABLE checks (id TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL, text TEXT NOT NULL)",
    """CREATE TABLE sums (target TEXT, hour BIGINT, count BIGINT, seconds DOUBLE PRECISION, last DOUBLE PRECISION,
    PRIMARY KEY (target, hour))""",
)


@pytest.fixture
async def tables(database: Database) -> Database:
    for each in TABLES:
        await database.run(each)
    return database


def checks(data: Database, **given: Any) -> Journal:
    return Journal(data, SQL["record"], order=("id",), **given)


def sums(data: Database, **given: Any) -> Journal:
    return Journal(data, SQL["sum"], order=("target", "hour"), **given)


def row(number: int, text: str = "") -> dict[str, Any]:
    return {"id": f"n-{number}", "at": float(number), "text": text}


async def texts(data: Database) -> list[str]:
    return [each["text"] for each in await data.rows("SELECT text FROM checks ORDER BY id")]


def count(target: Journal, name: str, seconds: float = 1.0) -> None:
    hour = begin_of(time.time(), DAY)  # a day, so that no test runs over the end of an hour
    target.count((name, hour), lambda: {"target": name, "hour": hour}, seconds=seconds)


async def test_what_was_added_is_written_by_the_next_flush(tables: Database) -> None:
    written = checks(tables)
    written.add(row(1, "one"))
    assert await texts(tables) == []
    await written.flush()
    await written.flush()
    assert await texts(tables) == ["one"]


async def test_a_later_row_of_the_same_key_wins(tables: Database) -> None:
    written = checks(tables)
    for number in range(20):
        written.add(row(number % 2, f"{number:02}"))
    await written.flush()
    assert await texts(tables) == ["18", "19"]


async def test_processes_that_write_the_same_rows_never_deadlock(tables: Database) -> None:
    journals = [checks(tables) for _ in range(4)]
    for turn in range(10):
        for each, step in zip(journals, (1, -1, 1, -1), strict=True):
            for number in range(50)[::step]:
                each.add(row(number, f"turn {turn}"))
        await asyncio.gather(*(each.flush() for each in journals))
    assert await texts(tables) == ["turn 9"] * 50


async def test_counts_are_summed_in_memory_and_in_the_table(tables: Database) -> None:
    one, other = sums(tables), sums(tables)
    for each in (one, other):
        for number in range(5):
            count(each, "a", seconds=number)
        count(each, "b")
        await each.flush()
    found = await tables.rows("SELECT target, count, seconds, last FROM sums ORDER BY target")
    assert [(each["target"], each["count"], each["seconds"]) for each in found] == [("a", 10, 20.0), ("b", 2, 2.0)]
    assert all(abs(each["last"] - time.time()) < 60 for each in found)


async def test_the_row_of_a_sum_is_made_once(tables: Database) -> None:
    written, made = sums(tables), list[int]()

    def make() -> dict[str, Any]:
        made.append(1)
        return {"target": "a", "hour": 0}

    for _ in range(3):
        written.count("a", make, seconds=1.0)
    await written.flush()
    assert made == [1]
    assert await tables.row("SELECT count, seconds FROM sums") == {"count": 3, "seconds": 3.0}


async def test_what_the_database_refuses_is_kept_and_added_to(tables: Database) -> None:
    written, summed = checks(tables), sums(tables)
    await tables.run("ALTER TABLE checks RENAME TO away")
    await tables.run("ALTER TABLE sums RENAME TO gone")
    written.add(row(1, "old"))
    count(summed, "a")
    for each in (written, summed):
        flushing = asyncio.create_task(each.flush())
        await asyncio.sleep(0)  # it has begun; what comes now is added to what it could not write
        written.add(row(1, "new"))
        count(summed, "a")
        with pytest.raises(DataError):
            await flushing
    await tables.run("ALTER TABLE away RENAME TO checks")
    await tables.run("ALTER TABLE gone RENAME TO sums")
    await written.flush()
    await summed.flush()
    assert await texts(tables) == ["new"]
    assert await tables.row("SELECT count, seconds FROM sums") == {"count": 3, "seconds": 3.0}
    assert (written.dropped, summed.dropped) == (0, 0)


async def test_a_cancelled_flush_loses_nothing(tables: Database) -> None:
    written = checks(tables)
    written.add(row(1, "one"))
    flushing = asyncio.create_task(written.flush())
    await asyncio.sleep(0)
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    await written.flush()
    assert await texts(tables) == ["one"]


async def test_what_does_not_fit_is_dropped_and_counted(tables: Database) -> None:
    drops = list[int]()
    written = checks(tables, most=3, on_drop=lambda: drops.append(1))
    summed = sums(tables, most=2)
    for number in range(5):
        written.add(row(number))
        count(summed, f"t-{number}")
        count(summed, "t-0")  # fits: its sum is there already
    assert (written.dropped, len(drops), summed.dropped) == (2, 2, 3)
    await written.flush()
    await summed.flush()
    assert len(await texts(tables)) == 3
    assert await tables.rows("SELECT target, count FROM sums ORDER BY target") == [
        {"target": "t-0", "count": 6}, {"target": "t-1", "count": 1},
    ]  # fmt: skip


async def test_sums_that_do_not_fit_after_a_failed_flush_count_as_often_as_they_were_added(tables: Database) -> None:
    summed = sums(tables, most=1)
    await tables.run("ALTER TABLE sums RENAME TO gone")
    count(summed, "a")
    flushing = asyncio.create_task(summed.flush())
    await asyncio.sleep(0)
    for _ in range(7):
        count(summed, "b")
    with pytest.raises(DataError):
        await flushing
    assert summed.dropped == 7


async def test_old_rows_are_deleted_in_pages(tables: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "PAGE", 10)
    written, now = checks(tables), time.time()
    for number in range(35):
        written.add({"id": f"n-{number:02}", "at": now - 1_000 * number - 500, "text": str(number)})
    await written.flush()
    assert await written.sweep(SQL["forget"], 10_000) == 25
    assert await texts(tables) == [str(number) for number in range(10)]
    assert await written.sweep(SQL["forget"], 10_000) == 0


def test_an_hour_and_a_day_begin_in_utc() -> None:
    assert begin_of(1_700_000_123.4, HOUR) == 1_699_999_200
    assert begin_of(1_700_000_123.4, DAY) == 1_699_920_000
