"""Retention: old runs are deleted, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apps.operator import operating
from tests.apps.triggers.test_work_http import Desk

MANY = 120_000  # runs: at 116,509, PostgreSQL looked at all of them for each event, and ended the statement

EVENTS = 5_000  # of those runs
PART = 4_000  # that one statement makes: one that takes 5 s is ended


@pytest.fixture(scope="module")
def desk(data_url: str) -> Iterator[Desk]:
    with operating("triggers", {"gate": "off"}, data_url=data_url) as it:
        yield Desk(it.service)


@pytest.mark.timeout(600)
def test_old_runs_are_deleted_with_all_that_belongs_to_them_beside_many_others(desk: Desk) -> None:
    """Those that have ended long ago, and whose key protects them no longer."""
    app: Any = desk.service.service.apps["triggers"]
    old, keyed, young = desk.trigger("old", tags=["a"]), desk.trigger("old", idempotencyKey="k"), desk.trigger("old")
    for id in (old, keyed):
        assert desk.post(f"/api/v2/runs/{id}/cancel", {}).status_code == 200

    async def fill() -> None:
        run = (await app.table.find("default", young)).row()
        run["id"] = f"run_{'a' * 32}"  # as long as an id, with the number
        row = ", ".join("CAST(:id AS TEXT) || (1000000 + number)" if name == "id" else f":{name}" for name in run)
        for first in range(0, MANY, PART):
            numbers = f"SELECT {first} AS number UNION ALL SELECT number + 1 FROM numbers "
            numbers += f"WHERE number < {first + PART - 1}"
            insert = f"INSERT INTO triggers_runs ({', '.join(run)}) SELECT {row} FROM numbers"
            await app.service.data.run(f"WITH RECURSIVE numbers AS ({numbers}) {insert}", **run)
        events = "INSERT INTO triggers_events (run_id, at, kind, detail) SELECT id, created_at, 'tags', 'a'"
        last = f"FROM triggers_runs WHERE id LIKE 'run_aa%' ORDER BY id DESC LIMIT {EVENTS}"
        await app.service.data.run(f"{events} {last}")
        await app.service.data.run("ANALYZE")
        await app.service.data.run("UPDATE triggers_runs SET finished_at = 1 WHERE finished_at IS NOT NULL")

    async def count(table: str, column: str, id: str) -> Any:
        row = await app.service.data.row(f"SELECT COUNT(*) AS rows FROM {table} WHERE {column} = :id", id=id)
        return row["rows"]

    desk.service.run(fill())
    assert desk.service.run(count("triggers_events", "run_id", old)) == 1
    assert desk.service.run(app.table.forget(60.0)) == 1
    for table in ("triggers_events", "triggers_labels"):
        assert desk.service.run(count(table, "run_id", old)) == 0
    assert desk.get(f"/api/v3/runs/{old}").status_code == 404
    for id in (keyed, young):
        assert desk.get(f"/api/v3/runs/{id}").status_code == 200
