"""Client methods of transactions: marks and results that commit or roll back with the caller's own rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..leases.context import AsyncMethods, Methods

# Handles are imported by the methods that make them, so that a program pays only for the nouns that it uses.
if TYPE_CHECKING:
    from .handle import AsyncWithin, Within


class Transactions(Methods):
    """Transactions, for threads."""

    def within(self, connection: Any) -> Within:
        """`first`, `first_many`, `seen`, `mark`, `forget` and `publish` inside the transaction of your own connection.

        They commit or roll back with your rows. `connection`: psycopg's Connection, sqlite3's Connection or pymongo's
        ClientSession, to the database of this client's store. Raises InvalidInput if the store has no transactions.
        """
        from .handle import Within

        return Within(self._store, connection)


class AsyncTransactions(AsyncMethods):
    """Transactions, for asyncio."""

    def within(self, connection: Any) -> AsyncWithin:
        """`first`, `first_many`, `seen`, `mark`, `forget` and `publish` inside the transaction of your own connection.

        They commit or roll back with your rows. `connection`: psycopg's AsyncConnection, pymongo's AsyncClientSession
        or sqlite3's Connection, to the database of this client's store. Raises InvalidInput if the store has no
        transactions.
        """
        from .handle import AsyncWithin

        return AsyncWithin(self._store, connection)
