"""The SQL of this store, read from its files: `SQL["name"]` is one statement of queries.sql."""

from __future__ import annotations

from importlib.resources import files

from ...statements import read_statements

SCHEMA = (files(__package__) / "schema.sql").read_text(encoding="utf-8")
SQL = read_statements(__package__, "queries.sql")
