"""The SQL of this store, read from its files: `SQL["name"]` is one statement of queries.sql."""

from __future__ import annotations

from ...statements import read_statements, read_text

SCHEMA = read_text(__package__, "schema.sql")
SQL = read_statements(__package__, "queries.sql")
