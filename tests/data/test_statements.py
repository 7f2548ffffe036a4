"""Statements: SQL in files of a package, by name and dialect; and the positions of pages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import solely
from solely.apps import APPS, module_of
from solely.data import Database, Position, Statements, position_after
from solely.data.dialect import for_psycopg
from solely.data.migrations import migrate
from solely.errors import InvalidInput
from solely.service.migrated import MIGRATED
from solely.statements import read_statements

FILE = """-- Every statement, by name.

-- name: plain
-- A remark that the database need not read.
SELECT :text AS text

-- name: greeting
SELECT {word} AS word

-- name: word (sqlite)
'lite'

-- name: word (postgresql)
'post'

-- name: only (sqlite)
SELECT 1 AS one
"""


@pytest.fixture
def statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Statements:
    (tmp_path / "statements_of_a_test").mkdir()
    (tmp_path / "statements_of_a_test" / "__init__.py").touch()
    (tmp_path / "statements_of_a_test" / "queries.sql").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("statements_of_a_test", None)
    return Statements.of("statements_of_a_test", "queries.sql")


async def test_a_statement_runs_by_its_name_on_either_database(statements: Statements, database: Database) -> None:
    queries = statements.on(database)
    assert await queries.rows("plain", text="a:b") == [{"text": "a:b"}]
    assert await queries.row("greeting") == {"word": {"sqlite": "lite", "postgresql": "post"}[database.dialect]}
    assert statements["plain"].text(database.dialect) == "SELECT :text AS text"


def test_an_unknown_name_or_dialect_is_an_error_that_says_what_there_is(statements: Statements) -> None:
    with pytest.raises(InvalidInput, match=r"queries.sql has no statement 'plane'; it has greeting, only, plain, word"):
        statements["plane"]
    with pytest.raises(InvalidInput, match="no statement 'only' for postgresql"):
        statements["only"].text("postgresql")


def test_a_page_continues_after_the_place_of_its_last_row() -> None:
    assert position_after(str(Position(1_700_000_000.123456, "a/b"))) == (1_700_000_000.123456, "a/b")
    assert position_after("") > (9e17, "z")
    assert position_after("1.0/\0").id == "\N{REPLACEMENT CHARACTER}"
    for nowhere in ("yesterday", "nan/n-01", "inf/n-01"):
        with pytest.raises(InvalidInput, match="not a position"):
            position_after(nowhere)


# -- those of the service and of all applications

SOURCE = Path(solely.__file__).parent
FILES = sorted(
    file for part in ("service", "apps") for file in (SOURCE / part).rglob("*.sql") if file.parent.name != "migrations"
)
WORDS = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")  # that begin a statement, unless another one inserts it


async def test_either_database_understands_every_statement_of_the_service_and_its_applications(
    database: Database,
) -> None:
    for name, package in (MIGRATED, *((app, module_of(app)) for app in APPS)):
        await migrate(database, name, package)
    planned = 0
    for file in FILES:
        package = ".".join(("solely", *file.parent.relative_to(SOURCE).parts))
        texts = Statements.of(package, file.name)
        for title in read_statements(package, file.name):
            name, _, dialect = title.partition(" ")
            text = texts[name].text(database.dialect) if dialect in ("", f"({database.dialect})") else ""
            if text.startswith(WORDS) and f"{{{name}}}" not in file.read_text():
                await database.rows(f"EXPLAIN {text}", **dict.fromkeys(for_psycopg(text).names))
                planned += 1
    assert planned > 50
