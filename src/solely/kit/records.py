"""The names of the kit that need msgspec and nothing else: a client of an application imports these."""

from __future__ import annotations

from ..data import (
    DAY,
    HOUR,
    Database,
    Journal,
    Position,
    Queries,
    Row,
    SqlStatement,
    Statements,
    begin_of,
    position_after,
    without_nul,
)
from ..service.bodies import Answer, Body, Key, PageSize, Prefix, Reason, Ttl, Wait
from ..service.records import from_row, json_texts

__all__ = [
    "DAY",
    "HOUR",
    "Answer",
    "Body",
    "Database",
    "Journal",
    "Key",
    "PageSize",
    "Position",
    "Prefix",
    "Queries",
    "Reason",
    "Row",
    "SqlStatement",
    "Statements",
    "Ttl",
    "Wait",
    "begin_of",
    "from_row",
    "json_texts",
    "position_after",
    "without_nul",
]
