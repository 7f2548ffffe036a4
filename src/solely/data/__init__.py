"""Data: the SQL database for what applications keep beside the entries of the store: history, targets, runs.

`open_database(url)` is the only way to reach one. One text of SQL serves both dialects: values are named `:like_this`,
and tables are written in the subset that both support (TEXT, BIGINT, INTEGER, DOUBLE PRECISION).
"""

from __future__ import annotations

from ..errors import InvalidInput, missing_extra
from ..stores import capabilities
from ..urls import split_url
from .database import Database, Row
from .dialect import without_nul
from .journal import DAY, HOUR, Journal, begin_of
from .migrations import migrate, pending
from .paging import Position, position_after
from .place import beside
from .statements import Queries, SqlStatement, Statements

__all__ = [
    "DAY",
    "HOUR",
    "Database",
    "Journal",
    "Position",
    "Queries",
    "Row",
    "SqlStatement",
    "Statements",
    "begin_of",
    "beside",
    "migrate",
    "open_database",
    "pending",
    "position_after",
    "without_nul",
]

TIMEOUT = 5.0  # seconds for a statement: as long as the service waits for its store


def open_database(url: str, *, timeout: float = TIMEOUT) -> Database:
    """The database of this URL; its first statement opens it.

    sqlite:///relative/path, sqlite:////absolute/path, sqlite:///:memory: or postgresql://…; InvalidInput for any other,
    MissingExtra if its driver is not installed. For one event loop, and not across a fork.
    """
    scheme, dialect = split_url(url).scheme, capabilities(url).sql_dialect
    if dialect == "sqlite":
        from .sqlite import open_sqlite

        return open_sqlite(url, timeout)
    if dialect == "postgres":
        try:
            from .postgres import open_postgres
        except ImportError as error:
            raise missing_extra(f"{scheme}://", error.name, "postgres") from error
        return open_postgres(url, timeout)
    shown = f"{scheme}://…" if scheme else "a URL without a scheme"  # the rest may hold a password
    raise InvalidInput(f"no database of applications serves {shown}; write sqlite:///path or postgresql://…")
