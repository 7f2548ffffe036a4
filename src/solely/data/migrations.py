"""Migrations: the tables of an application, in numbered files that are applied in order, each once."""

from __future__ import annotations

import hashlib
import re
import sqlite3
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ..errors import DataError, InvalidInput
from ..logs import get_logger
from .database import Database

log = get_logger()

_ONLY = re.compile(r"^-- only: (sqlite|postgresql)$", re.MULTILINE)  # before a statement of one dialect
_NAME = re.compile(r"(\d{3})_([a-z0-9_]+)\.sql")
_TABLE = """
CREATE TABLE IF NOT EXISTS solely_migrations (
    app TEXT NOT NULL,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (app, number)
)
"""
_IS_THERE = {
    "sqlite": "SELECT 1 AS answer FROM sqlite_master WHERE type = 'table' AND name = 'solely_migrations'",
    "postgresql": "SELECT 1 AS answer WHERE to_regclass('solely_migrations') IS NOT NULL",
}


class AppMigration(NamedTuple):
    """A numbered file."""

    number: int
    name: str
    text: str

    @property
    def digest(self) -> str:
        """Detects a file that was changed after it was applied."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def statements(self, dialect: str) -> Iterator[str]:
        """The statements of the file for this dialect, since drivers execute one at a time."""
        part = ""
        for piece in self.text.split(";"):
            part += piece + ";"
            if sqlite3.complete_statement(part):  # handles quotes, comments and triggers
                only = _ONLY.search(part)
                if _has_words(part) and (only is None or only[1] == dialect):
                    yield part
                part = ""
        if _has_words(part):
            raise InvalidInput(f"migration {self.name}: its last statement does not end; is a quote or a comment open?")


def _has_words(statement: str) -> bool:
    return bool(re.sub(r"--[^\n]*|/\*.*?\*/|[\s;]", "", statement, flags=re.DOTALL))


def migrations_of(package: str) -> list[AppMigration]:
    """The migrations of the package, in order; none without a folder `migrations`. InvalidInput for a wrong number."""
    spec = find_spec(package)  # which does not import it
    folders = [] if spec is None else spec.submodule_search_locations or []
    found = []
    for file in sorted(file for folder in folders for file in Path(folder, "migrations").glob("*.sql")):
        named = _NAME.fullmatch(file.name)
        if named is None:
            raise InvalidInput(f"{package}: {file.name} is no name of a migration; write 001_what_it_does.sql")
        found.append(AppMigration(int(named[1]), file.stem, file.read_text()))
    numbers = [each.number for each in found]
    for wanted, number in enumerate(numbers, 1):
        if number != wanted:
            wrong = "is there twice" if number < wanted else f"follows on {wanted - 1:03}"
            raise InvalidInput(f"{package}: migration {number:03} {wrong}; number them 001, 002, 003 … without a gap")
    return found


async def pending(database: Database, app: str, package: str) -> list[str]:
    """The names of the pending migrations; changes nothing. DataError if an applied one was changed."""
    return [each.name for each in await _missing(database, app, package)]


async def migrate(database: Database, app: str, package: str) -> list[str]:
    """Updates the tables of the application, and returns the names of the migrations that this call applied.

    Each is applied in a transaction of its own, under a lock that all processes share, so that any number of them may
    do this at once. DataError, and no more is applied, if one fails, or if one that was applied has been changed.
    """
    applied = []
    for each in await _missing(database, app, package):
        async with database.migrating() as inside:
            await inside.run(_TABLE)
            if each in await _missing(inside, app, package):  # nobody else was faster
                await _apply(inside, app, each)
                applied.append(each.name)
    return applied


async def _missing(database: Database, app: str, package: str) -> list[AppMigration]:
    known = migrations_of(package)
    if await database.row(_IS_THERE[database.dialect]) is None:
        return known
    done = await database.rows("SELECT number, name, digest FROM solely_migrations WHERE app = :app", app=app)
    digests = {row["number"]: row["digest"] for row in done}
    for each in known:
        if digests.get(each.number, each.digest) != each.digest:
            raise DataError(
                f"migration {each.name} of {app} was changed after it had been applied to this database: put its text "
                "back as it was, and write a new migration for the change"
            )
    if newer := [row["name"] for row in done if row["number"] > len(known)]:
        facts = {"app": app, "migrations": newer}
        log.warning("newer_tables: a later version of %(app)s ran here: %(migrations)s", facts, extra=facts)
    return [each for each in known if each.number not in digests]


async def _apply(inside: Database, app: str, migration: AppMigration) -> None:
    for statement in migration.statements(inside.dialect):
        await inside.run(statement)
    await inside.run(
        "INSERT INTO solely_migrations (app, number, name, digest, at) VALUES (:app, :number, :name, :digest, :at)",
        app=app, number=migration.number, name=migration.name, digest=migration.digest, at=time.time(),
    )  # fmt: skip
