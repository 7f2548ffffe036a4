"""Transactions: marks and results that commit or roll back with the caller's own rows."""

from __future__ import annotations

from typing import Any

from ..leases.context import AsyncMethods, Methods
from .handle import AsyncWithin, Within


class Transactions(Methods):
    """Transactions, for threads."""

    def within(self, connection: Any) -> Within:
        """`first`, `first_many`, `seen`, `mark` and `forget` inside the transaction of your own connection.

        What they mark commits or rolls back with your rows. `connection`: psycopg's Connection, sqlite3's Connection or
        pymongo's ClientSession, to the database of this client's store; InvalidInput if the store has no transactions.
        """
        return Within(self._store, connection)


class AsyncTransactions(AsyncMethods):
    """Transactions, awaited."""

    def within(self, connection: Any) -> AsyncWithin:
        """`first`, `first_many`, `seen`, `mark` and `forget`, awaited, inside the transaction of your own connection.

        What they mark commits or rolls back with your rows. `connection`: psycopg's AsyncConnection, pymongo's
        AsyncClientSession or sqlite3's Connection, to the database of this client's store; InvalidInput if the store
        has no transactions.
        """
        return AsyncWithin(self._store, connection)
