"""The SQL of this store, read from its files, with the names that the URL configures put in, quoted."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import NamedTuple

from psycopg.sql import Identifier, Literal

from ...statements import read_statements


class SchemaStep(NamedTuple):
    """One forward step of the schema."""

    number: int
    name: str
    text: str


def _migrations() -> tuple[SchemaStep, ...]:
    found = sorted((files(__package__) / "migrations").iterdir(), key=lambda file: file.name)
    return tuple(SchemaStep(int(file.name[:4]), file.name[5:-4], file.read_text(encoding="utf-8")) for file in found)


QUERIES = read_statements(__package__, "queries.sql")
MIGRATIONS = _migrations()
NEWEST = MIGRATIONS[-1].number


class Names(dict[str, str]):
    """Names in braces in a .sql file → what PostgreSQL reads there.

    `entries` is the table; any other name belongs to an object beside it, `<table>_<name>`; `<name>_name` is that
    object's name as a literal.
    """

    def __init__(self, schema: str, table: str) -> None:
        super().__init__(
            entries=Identifier(schema, table).as_string(),
            schema=Identifier(schema).as_string(),
            schema_name=Literal(schema).as_string(),
            migrations_bare=Literal(f"{table}_migrations").as_string(),
            prefix=Literal(f"{schema}.{table}/").as_string(),
            migration_lock=str(lock_id(schema, table, "migrations")),
            items_by_wait=Identifier(f"{table}_items_by_wait").as_string(),
            items_by_taker=Identifier(f"{table}_items_by_taker").as_string(),
            hits_by_end=Identifier(f"{table}_hits_by_end").as_string(),
        )
        self._schema, self._table = schema, table

    def __missing__(self, name: str) -> str:
        bare = name.removesuffix("_name")
        quoted = Identifier(self._schema, f"{self._table}_{bare}").as_string()
        return quoted if bare == name else Literal(quoted).as_string()


def lock_id(schema: str, table: str, key: str) -> int:
    """The advisory lock of a key: the first 64 bits of SHA-256, as the server's own function computes them."""
    return int.from_bytes(hashlib.sha256(f"{schema}.{table}/{key}".encode()).digest()[:8], "big", signed=True)
