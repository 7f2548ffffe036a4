"""The SQL of this store, read from its files: `SQL["name"]` is one statement of queries.sql."""

from __future__ import annotations

import re
from importlib.resources import files

_FOLDER = files(__package__)

SCHEMA = (_FOLDER / "schema.sql").read_text(encoding="utf-8")


def _named(text: str) -> dict[str, str]:
    """Statement by name; comments are left out so that the statement cache has short keys."""
    _, *parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)
    bare = (re.sub(r"^--.*\n", "", body, flags=re.MULTILINE).strip() for body in parts[1::2])
    return dict(zip(parts[::2], bare, strict=True))


SQL = _named((_FOLDER / "queries.sql").read_text(encoding="utf-8"))
