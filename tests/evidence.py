"""Tables of the docs that name what shows each of their lines: the tests in their last column must exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "tests", ROOT / "src" / "solely" / "testing")  # the contract of stores ships with the library
SHOWN_BY = "shown by"  # the heading of the column


class Row(NamedTuple):
    """A line of a table: its first cell, and the names in its column `shown by`."""

    title: str
    names: list[str]


def rows(text: str) -> list[Row]:
    """The lines of all tables in the text that have a column `shown by`."""
    found, column = list[Row](), None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")] if line.startswith("|") else []
        if not cells:
            column = None
        elif SHOWN_BY in cells:
            column = cells.index(SHOWN_BY)
        elif column is not None and set(line) - set("|- :"):
            found.append(Row(cells[0], re.findall(r"`(.+?)`", cells[column])))
    return found


def has_test(name: str) -> bool:
    """True if the file, a path below tests/ or src/solely/testing/, has a test of this name."""
    file, _, test = name.partition("::")
    pattern = re.compile(rf"^ *(?:async )?def {re.escape(test)}\(", re.MULTILINE)
    return any(path.is_file() and pattern.search(path.read_text()) for path in (folder / file for folder in FOLDERS))
