"""Marks (dedup): the first one wins, everyone else has seen it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import keys_of
from ..rules import Seconds, stored_key, ttl_seconds
from ..within import DAY, AsyncWithin, Within
from . import AsyncFace, Face, marking


class Marks(Face):
    """Marks, for threads."""

    def first(self, key: str, *, ttl: Seconds = DAY) -> bool:
        """True for exactly one caller per `ttl`, across all processes: the one that should do the work."""
        stored = stored_key("mark", key)
        if marking.known(self._core, stored):
            return False
        return self._run(marking.first(self._core, stored, ttl_seconds(ttl)))

    def first_many(self, keys: Iterable[str], *, ttl: Seconds = DAY) -> list[bool]:
        """`first` for many keys in few round trips; one answer per key, in order."""
        stored, kept = keys_of("mark", keys), ttl_seconds(ttl)
        return self._run(marking.first_many(self._core, stored, kept)) if stored else []

    def seen(self, key: str) -> bool:
        """True if the key is marked; marks nothing."""
        stored = stored_key("mark", key)
        return marking.known(self._core, stored) or self._run(marking.seen(self._core, stored))

    def mark(self, key: str, *, ttl: Seconds = DAY) -> bool:
        """Marks the key as seen for at least `ttl`, whoever was first: for work that is recorded after it was done.

        A mark that is there is extended, never shortened; True if there was none.
        """
        return self._run(marking.mark(self._core, stored_key("mark", key), ttl_seconds(ttl)))

    def forget(self, key: str) -> bool:
        """Removes the mark, so that the next caller is first again; False if there was none."""
        return self._run(marking.forget(self._core, stored_key("mark", key)))

    def within(self, connection: Any) -> Within:
        """`first`, `first_many`, `seen`, `mark` and `forget` inside the transaction of your own connection.

        What they mark commits or rolls back with your rows. `connection`: psycopg's Connection, sqlite3's Connection or
        pymongo's ClientSession, to the database of this client's store; InvalidInput if the store has no transactions.
        """
        return Within(self._store, connection)


class AsyncMarks(AsyncFace):
    """Marks, awaited."""

    async def first(self, key: str, *, ttl: Seconds = DAY) -> bool:
        """True for exactly one caller per `ttl`, across all processes: the one that should do the work."""
        stored = stored_key("mark", key)
        if marking.known(self._core, stored):
            return False
        return await self._run(marking.first(self._core, stored, ttl_seconds(ttl)))

    async def first_many(self, keys: Iterable[str], *, ttl: Seconds = DAY) -> list[bool]:
        """`first` for many keys in few round trips; one answer per key, in order."""
        stored, kept = keys_of("mark", keys), ttl_seconds(ttl)
        return await self._run(marking.first_many(self._core, stored, kept)) if stored else []

    async def seen(self, key: str) -> bool:
        """True if the key is marked; marks nothing."""
        stored = stored_key("mark", key)
        return marking.known(self._core, stored) or await self._run(marking.seen(self._core, stored))

    async def mark(self, key: str, *, ttl: Seconds = DAY) -> bool:
        """Marks the key as seen for at least `ttl`, whoever was first: for work that is recorded after it was done.

        A mark that is there is extended, never shortened; True if there was none.
        """
        return await self._run(marking.mark(self._core, stored_key("mark", key), ttl_seconds(ttl)))

    async def forget(self, key: str) -> bool:
        """Removes the mark, so that the next caller is first again; False if there was none."""
        return await self._run(marking.forget(self._core, stored_key("mark", key)))

    def within(self, connection: Any) -> AsyncWithin:
        """`first`, `first_many`, `seen`, `mark` and `forget`, awaited, inside the transaction of your own connection.

        What they mark commits or rolls back with your rows. `connection`: psycopg's AsyncConnection, pymongo's
        AsyncClientSession or sqlite3's Connection, to the database of this client's store; InvalidInput if the store
        has no transactions.
        """
        return AsyncWithin(self._store, connection)
