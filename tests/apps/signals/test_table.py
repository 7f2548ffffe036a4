"""The tables of signals in a database of each kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from solely.apps.signals.model import SignalGroup, fresh_id
from solely.apps.signals.table import SignalTable
from solely.data import Queries, Statements, migrate, open_database
from tests.conftest import in_schema
from tests.postgres_server import PYPI_POSTGRES

GROUP = SignalGroup("north", "slots")


@pytest.fixture(params=["sqlite", *(["postgres"] if PYPI_POSTGRES is not None else [])])
async def queries(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Queries]:
    url = f"sqlite:///{tmp_path / 'data.db'}"
    if request.param == "postgres":
        url = in_schema(request.getfixturevalue("postgres").url)
    data = open_database(url)
    await migrate(data, "signals", "solely.apps.signals")
    yield Statements.of("solely.apps.signals", "queries.sql").on(data)
    await data.close()


async def test_an_id_is_written_once_and_a_lease_ends(queries: Queries) -> None:
    table, id = SignalTable(queries), fresh_id()
    assert await table.write(GROUP, "ann", {"username": "ann", "text": "a\0b"}, 0, id)
    assert not await table.write(GROUP, "ann", {"username": "other"}, 0, id)
    taken = await table.take("north", "slots", 3600.0)
    assert taken is not None
    assert taken.signal == {"username": "ann", "text": "ab"}  # PostgreSQL stores no NUL
    assert await table.take("", "", 1.0) is None
    assert [each.id for each in await table.waiting("north", "")] == [id]
    assert await table.counts() == {("north", "slots"): 1}
    assert await table.acknowledge(id)
    assert not await table.acknowledge(id)
    await table.sweep(older_than=-10.0)
    assert await table.counts() == {}


async def test_consumers_at_once_lease_different_signals(queries: Queries) -> None:
    table = SignalTable(queries)
    for number in range(8):
        await table.write(GROUP, f"user-{number}", {"Priority": number}, 0, fresh_id())
    taken = await asyncio.gather(*(table.take("", "", 60.0) for _ in range(8)))
    assert sorted(each.priority for each in taken if each) == list(range(8))


async def test_signals_of_a_batch_are_read_in_its_order(queries: Queries) -> None:
    table = SignalTable(queries)
    for place in (2, 0, 1):
        await table.write(GROUP, f"user-{place}", {}, place * 900_000_000, fresh_id())
    assert [each.username for each in await table.waiting(limit=3)] == ["user-0", "user-1", "user-2"]


async def test_sums_of_a_minute_are_added(queries: Queries) -> None:
    sums = {"generated": 2, "deduplicated": 1, "acquired": 1, "contended": 3, "dead_lettered": 0, "seconds": 0.5}
    for last in (90.0, 95.0):
        await queries.run("count", minute=60, house="north", game="slots", last=last, **sums)
    (row,) = await queries.rows("groups", since=0, limit=10)
    assert (row["generated"], row["contended"], row["seconds"], row["last"]) == (4, 6, 1.0, 95.0)
    assert await queries.row("contention", since=61) == {"acquired": 0, "contended": 0}
    assert await queries.run("forget_minutes", before=100.0, page=10) == 1
