"""Database: what applications can do with their SQL data, in either dialect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from ..errors import DataError, InvalidInput

Row = dict[str, Any]

NESTED = "this task is in a transaction of this database already: use what transaction() gave it, and no other"
OVER = "this transaction is over: use what transaction() gives only inside its block"
SHORT = 200  # characters of a statement that an error repeats: enough to find it


class Database(Protocol):
    """SQL with named values. Whatever fails is a DataError: DataUnavailable if it may work later.

    A statement outside of a transaction is one of its own. True and False are kept as 1 and 0.
    """

    dialect: str  # sqlite or postgresql

    async def rows(self, sql: str, **values: Any) -> list[Row]:
        """All rows that the statement answers."""

    async def row(self, sql: str, **values: Any) -> Row | None:
        """The first row, or None."""

    async def run(self, sql: str, **values: Any) -> int:
        """How many rows the statement changed."""

    async def run_many(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """The statement once for each of the rows of values: all of them or none."""

    def transaction(self, *, timeout: float | None = None) -> AbstractAsyncContextManager[Database]:
        """All that is done with what it gives, or, if the body raises, none of it. Short: others may wait for it.

        Within it, the task uses only what it was given; a transaction in a transaction is InvalidInput. With `timeout`,
        its statements (also one that waits for another's lock) may take so many seconds instead of the usual ones.
        """

    def migrating(self) -> AbstractAsyncContextManager[Database]:
        """A transaction for changes to the tables: one at a time, over all processes."""

    async def check(self) -> None:
        """DataUnavailable if it does not answer."""

    async def close(self) -> None:
        """Lets go of it, once what was asked is done; safe to call twice."""


class Speaker(ABC):
    """What both dialects build on one question and one order."""

    @abstractmethod
    async def rows(self, sql: str, **values: Any) -> list[Row]: ...

    async def row(self, sql: str, **values: Any) -> Row | None:
        found = await self.rows(sql, **values)
        return found[0] if found else None

    async def check(self) -> None:
        await self.rows("SELECT 1 AS answer")


class Transaction(Speaker):
    """What is given inside the block of a transaction; there is none in it."""

    over = False

    def check_open(self) -> None:
        """InvalidInput if its block has ended."""
        if self.over:
            raise InvalidInput(OVER)

    def transaction(self, *, timeout: float | None = None) -> Any:
        raise InvalidInput(NESTED)

    def migrating(self) -> Any:
        raise InvalidInput(NESTED)

    async def close(self) -> None:
        raise InvalidInput("a transaction is closed by the end of its block")


def failed(kind: type[DataError], where: str, why: object, sql: str = "") -> DataError:
    """The error that names the database, the reason and the statement, whose values it does not tell."""
    statement = " ".join(sql.split())
    return kind(f"{where}: {why}" + (f" (in: {statement:.{SHORT}})" if statement else ""))
