"""One text for both dialects: `:like_this` names a value, as in SQLite; psycopg is given its own way to say that."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

TEXTS = 1_000  # statements that are remembered: an application has dozens

# What is left alone comes first: quoted text and names, text between dollars, comments, casts.
_TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|--[^\n]*|/\*.*?\*/|::|:(?P<name>[A-Za-z_]\w*)""",
    re.DOTALL,
)


class Statement(NamedTuple):
    """A statement as psycopg takes it, and the names of its values."""

    text: bytes
    names: frozenset[str]


@lru_cache(TEXTS)
def for_psycopg(sql: str) -> Statement:
    """The statement with `%(name)s` for `:name`; one without values as it is, since psycopg then reads no percents."""
    names = frozenset(match["name"] for match in _TOKEN.finditer(sql) if match["name"])
    if not names:
        return Statement(sql.encode(), names)
    parts, end = [], 0
    for match in _TOKEN.finditer(sql):
        if match["name"]:
            parts += [sql[end : match.start()].replace("%", "%%"), f"%({match['name']})s"]
            end = match.end()
    parts.append(sql[end:].replace("%", "%%"))
    return Statement("".join(parts).encode(), names)
