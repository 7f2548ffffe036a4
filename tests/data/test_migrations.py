"""Migrations: each is applied once and for good, whoever starts at the same time."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from solely.data import Database, migrate, open_database, pending
from solely.errors import DataError, InvalidInput
from tests.data.conftest import Package

FIRST = """
-- Notes; with a semicolon; and it's fine.
CREATE TABLE app_notes (id TEXT PRIMARY KEY, text TEXT NOT NULL DEFAULT 'a;b');
/* so is this; */
CREATE INDEX app_notes_text ON app_notes (text);
"""
SECOND = "ALTER TABLE app_notes ADD COLUMN at DOUBLE PRECISION;\nINSERT INTO app_notes (id) VALUES ('one');\n"
SHAPE = {
    "sqlite": "SELECT type, name, tbl_name FROM sqlite_master ORDER BY name",
    "postgresql": "SELECT table_name, column_name, data_type, is_nullable, column_default"
    " FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY table_name, column_name",
}


@pytest.fixture
async def fresh(database_url: str) -> Any:
    it = open_database(database_url)
    yield it
    await it.close()


async def shape(database: Database) -> list[dict[str, Any]]:
    return await database.rows(SHAPE[database.dialect])


async def test_what_is_missing_is_applied_in_order_and_once(fresh: Database, package: Package) -> None:
    name = package(m001_notes=FIRST, m002_at=SECOND)
    assert await pending(fresh, "notes", name) == ["001_notes", "002_at"]
    assert await migrate(fresh, "notes", name) == ["001_notes", "002_at"]
    assert await migrate(fresh, "notes", name) == []
    assert await pending(fresh, "notes", name) == []
    assert await fresh.rows("SELECT id, text, at FROM app_notes") == [{"id": "one", "text": "a;b", "at": None}]
    known = await fresh.rows("SELECT app, number, name FROM solely_migrations ORDER BY number")
    assert known == [
        {"app": "notes", "number": 1, "name": "001_notes"},
        {"app": "notes", "number": 2, "name": "002_at"},
    ]


async def test_a_statement_of_one_dialect_is_left_out_in_the_other(fresh: Database, package: Package) -> None:
    insert = "INSERT INTO app_notes (id, text) VALUES"
    only = (f"-- only: {dialect}\n{insert} ('{dialect}', '');\n" for dialect in ("sqlite", "postgresql"))
    await migrate(fresh, "notes", package(m001_notes=FIRST, m002_only="".join(only)))
    assert {row["id"] for row in await fresh.rows("SELECT id FROM app_notes")} == {fresh.dialect}


async def test_to_look_changes_nothing(fresh: Database, package: Package) -> None:
    before = await shape(fresh)
    await pending(fresh, "notes", package(m001_notes=FIRST))
    assert await shape(fresh) == before
    assert await migrate(fresh, "other", package()) == []
    assert await shape(fresh) == before


async def test_a_migrated_database_is_as_a_fresh_one(
    fresh: Database, package: Package, tmp_path: Path, database_url: str
) -> None:
    await migrate(fresh, "notes", package(m001_notes=FIRST))
    assert await migrate(fresh, "notes", package(m001_notes=FIRST, m002_at=SECOND)) == ["002_at"]
    other_url = f"sqlite:///{tmp_path}/other.db" if fresh.dialect == "sqlite" else database_url + "_other"
    other = open_database(other_url)
    await migrate(other, "notes", package(m001_notes=FIRST, m002_at=SECOND))
    assert await shape(fresh) == await shape(other)
    assert await fresh.rows("SELECT * FROM app_notes") == await other.rows("SELECT * FROM app_notes")
    await other.close()


async def test_one_that_was_changed_later_is_refused(fresh: Database, package: Package) -> None:
    await migrate(fresh, "notes", package(m001_notes=FIRST))
    changed = package(m001_notes=FIRST + "-- one word more\n", m002_at=SECOND)
    for work in (migrate, pending):
        with pytest.raises(DataError, match=r"001_notes of notes was changed after.*write a new migration"):
            await work(fresh, "notes", changed)
    with pytest.raises(DataError):
        await fresh.rows("SELECT at FROM app_notes")


async def test_one_that_fails_leaves_nothing_of_itself(fresh: Database, package: Package) -> None:
    name = package(m001_notes=FIRST, m002_bad="CREATE TABLE half (id TEXT); CREATE TABEL oops (id TEXT);")
    with pytest.raises(DataError, match="TABEL"):
        await migrate(fresh, "notes", name)
    with pytest.raises(DataError, match="half"):
        await fresh.rows("SELECT * FROM half")
    assert await pending(fresh, "notes", name) == ["002_bad"]
    assert await migrate(fresh, "notes", package(m001_notes=FIRST, m002_bad=SECOND)) == ["002_bad"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"m001_a": FIRST, "m003_b": SECOND}, "003 follows on 001"),
        ({"m002_a": FIRST}, "002 follows on 000"),
        ({"m001_a": FIRST, "m001_b": SECOND}, "001 is there twice"),
        ({"m1_a": FIRST}, "001_what_it_does.sql"),
        ({"m001_a": "CREATE TABLE a (id TEXT DEFAULT 'a);"}, "does not end"),
    ],
)
async def test_numbers_and_texts_that_cannot_be(files: dict[str, str], said: str, package: Package) -> None:
    database = open_database("sqlite:///:memory:")
    with pytest.raises(InvalidInput, match=said):
        await migrate(database, "notes", package(**files))
    assert "app_notes" not in str(await shape(database))
    await database.close()


async def test_tables_of_a_later_version_are_told_and_used(
    fresh: Database, package: Package, caplog: pytest.LogCaptureFixture
) -> None:
    await migrate(fresh, "notes", package(m001_notes=FIRST, m002_at=SECOND))
    with caplog.at_level(logging.WARNING, "solely"):
        assert await migrate(fresh, "notes", package(m001_notes=FIRST)) == []
    assert "newer_tables" in caplog.text


async def test_two_applications_number_by_themselves(fresh: Database, package: Package) -> None:
    await migrate(fresh, "notes", package(m001_notes=FIRST))
    assert await migrate(fresh, "other", package(m001_other="CREATE TABLE other (id TEXT);")) == ["001_other"]


async def test_processes_that_start_at_once_apply_each_once(
    fresh: Database, package: Package, database_url: str, tmp_path: Path
) -> None:
    name = package(m001_notes=FIRST, m002_at=SECOND, m003_more="INSERT INTO app_notes (id) VALUES ('two');")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(tmp_path / "packages")])}
    started = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "migrating.py"), database_url, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )
        for _ in range(4)
    ]  # fmt: skip
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        applied = [each for process in started for each in json.loads(process.communicate(timeout=20)[0])]
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert sorted(applied) == ["001_notes", "002_at", "003_more"]
    assert await fresh.rows("SELECT id FROM app_notes ORDER BY id") == [{"id": "one"}, {"id": "two"}]


async def test_a_url_may_forbid_to_migrate(package: Package, postgres: Any) -> None:
    from tests.conftest import in_schema

    url, name = in_schema(postgres.url), package(m001_notes=FIRST)
    refusing = open_database(f"{url}&migrate=never")
    with pytest.raises(DataError, match="migrate=never"):
        await migrate(refusing, "notes", name)
    database = open_database(url)
    await migrate(database, "notes", name)
    assert await migrate(refusing, "notes", name) == []
    await refusing.close()
    await database.close()
