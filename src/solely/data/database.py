"""Database: the interface of applications to their SQL data, in either dialect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from ..errors import DataError, InvalidInput

Row = dict[str, Any]

NESTED = "this task is in a transaction of this database already: use the object that transaction() returned"
OVER = "this transaction has ended: use the object that transaction() returned only inside its block"
SHORT = 200  # characters of a statement that an error repeats: enough to find it


class Database(Protocol):
    """SQL with named values. Failures raise DataError; DataUnavailable if the statement may work later.

    A statement outside of a transaction is a transaction of its own. True and False are stored as 1 and 0. PostgreSQL
    stores NUL in a text as the replacement character, and finds it by either.
    """

    dialect: str  # sqlite or postgresql

    async def rows(self, sql: str, **values: Any) -> list[Row]:
        """All rows that the statement returns."""

    async def row(self, sql: str, **values: Any) -> Row | None:
        """The first row, or None."""

    async def run(self, sql: str, **values: Any) -> int:
        """The number of rows that the statement changed."""

    async def run_many(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Runs the statement once for each row of values: all of them or none."""

    def transaction(self, *, timeout: float | None = None) -> AbstractAsyncContextManager[Database]:
        """Commits at the end of the block, or rolls back if it raises. Keep it short: others may wait for it.

        Inside the block, the task uses only the yielded object; a nested transaction raises InvalidInput. `timeout`
        replaces the usual seconds for each of its statements, including the wait for another's lock.
        """

    def migrating(self) -> AbstractAsyncContextManager[Database]:
        """A transaction for changes to the tables: one at a time, over all processes."""

    async def check(self) -> None:
        """DataUnavailable if the database is unreachable."""

    async def close(self) -> None:
        """Closes it after the statements in flight; safe to call twice."""


class BaseDatabase(ABC):
    """What both dialects share."""

    @abstractmethod
    async def rows(self, sql: str, **values: Any) -> list[Row]: ...

    async def row(self, sql: str, **values: Any) -> Row | None:
        found = await self.rows(sql, **values)
        return found[0] if found else None

    async def check(self) -> None:
        await self.rows("SELECT 1 AS answer")


class Transaction(BaseDatabase):
    """The database inside the block of a transaction; it cannot begin another."""

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
    """The error, with the database, the reason and the statement, without its values."""
    statement = " ".join(sql.split())
    return kind(f"{where}: {why}" + (f" (in: {statement:.{SHORT}})" if statement else ""))
