"""One SQL text for both dialects: values are named `:like_this`, as in SQLite, and rewritten for psycopg."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

TEXTS = 1_000  # cached statements: an application has dozens

# What must not be rewritten comes first: quoted strings and names, dollar-quoted strings, comments, casts.
_TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|--[^\n]*|/\*.*?\*/|::|:(?P<name>[A-Za-z_]\w*)""",
    re.DOTALL,
)


class Statement(NamedTuple):
    """A statement for psycopg, and the names of its values."""

    text: bytes
    names: frozenset[str]


@lru_cache(TEXTS)
def for_psycopg(sql: str) -> Statement:
    """The statement with `%(name)s` for `:name`; unchanged if it has no values, since psycopg then ignores `%`."""
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


def without_nul(text: str) -> str:
    """The text with NUL replaced, which PostgreSQL cannot store."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text
