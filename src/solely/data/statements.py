"""The SQL of an application, in a file of its package.

`-- name: recent` begins a statement, and `-- name: recent (postgresql)` its variant for that dialect. `{name}` in a
statement stands for the text of that name: what differs between dialects is written apart from what does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import InvalidInput
from ..statements import read_statements
from .database import Database, Row

_INSERTED = re.compile(r"\{(\w+)\}")


class SqlStatement(NamedTuple):
    """A named statement of a file."""

    name: str
    file: Statements

    def text(self, dialect: str) -> str:
        """The text for this dialect; InvalidInput if there is none."""
        return self.file.text(self.name, dialect)


class Statements:
    """The statements of one file, by name."""

    def __init__(self, file: str, texts: Mapping[str, str]) -> None:
        self._file, self._texts = file, texts
        self._complete: dict[tuple[str, str], str] = {}

    @classmethod
    def of(cls, package: str, file: str) -> Statements:
        """Reads the file of this package, e.g. `Statements.of(__package__, "queries.sql")`."""
        return cls(f"{package}/{file}", read_statements(package, file))

    def __getitem__(self, name: str) -> SqlStatement:
        """The statement of this name; InvalidInput, which lists the known ones, if there is none."""
        names = sorted({title.partition(" ")[0] for title in self._texts})
        if name not in names:
            raise InvalidInput(f"{self._file} has no statement {name!r:.60}; it has {', '.join(names)}")
        return SqlStatement(name, self)

    def text(self, name: str, dialect: str) -> str:
        """The text of this name for this dialect; InvalidInput if there is none."""
        if (name, dialect) not in self._complete:
            written = self._texts.get(f"{name} ({dialect})") or self._texts.get(name)
            if written is None:
                raise InvalidInput(f"{self._file} has no statement {name!r:.60} for {dialect}")
            self._complete[name, dialect] = _INSERTED.sub(lambda each: self.text(each[1], dialect), written)
        return self._complete[name, dialect]

    def on(self, data: Database) -> Queries:
        """The statements, to be run on this database."""
        return Queries(data, self)


class Queries:
    """Runs statements by name. Failures raise DataError, as those of the database do."""

    def __init__(self, data: Database, statements: Statements) -> None:
        self._data, self._statements = data, statements

    async def rows(self, statement: str, /, **values: Any) -> list[Row]:
        """All rows that the statement returns."""
        return await self._data.rows(self._text(statement), **values)

    async def row(self, statement: str, /, **values: Any) -> Row | None:
        """The first row, or None."""
        return await self._data.row(self._text(statement), **values)

    async def run(self, statement: str, /, **values: Any) -> int:
        """The number of rows that the statement changed."""
        return await self._data.run(self._text(statement), **values)

    def _text(self, statement: str) -> str:
        return self._statements.text(statement, self._data.dialect)
