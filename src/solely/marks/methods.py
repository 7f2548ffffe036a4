"""Client methods of marks (deduplication): the first caller wins, every other one sees the mark."""

from __future__ import annotations

from collections.abc import Iterable

from ..leases.context import AsyncMethods, Methods, keys_of
from ..rules import DAY, Seconds, stored_key, ttl_seconds
from . import calls as marking
from .calls import MarkInfo


class Marks(Methods):
    """Marks, for threads."""

    def first(self, key: str, *, ttl: Seconds = DAY) -> bool:
        """True for exactly one caller per `ttl`, across all processes: the one that should do the work."""
        stored = stored_key("mark", key)
        if marking.known(self._context, stored):
            return False
        return self._run(marking.first(self._context, stored, ttl_seconds(ttl)))

    def first_many(self, keys: Iterable[str], *, ttl: Seconds = DAY) -> list[bool]:
        """`first` for many keys in few round trips; one result per key, in order."""
        stored, kept = keys_of("mark", keys), ttl_seconds(ttl)
        return self._run(marking.first_many(self._context, stored, kept)) if stored else []

    def seen(self, key: str) -> bool:
        """True if the key is marked; marks nothing."""
        stored = stored_key("mark", key)
        return marking.known(self._context, stored) or self._run(marking.seen(self._context, stored))

    def ensure_marks(self, keys: Iterable[str], *, ttl: Seconds = DAY) -> list[MarkInfo]:
        """The mark of each key, made where there was none, in few round trips; it lasts at least `ttl` from now. Until
        it expires, its `fence` is the same for every caller: it identifies work that several callers may try."""
        stored, kept = keys_of("mark", keys), ttl_seconds(ttl)
        return self._run(marking.ensure_many(self._context, stored, kept)) if stored else []

    def read_marks(self, keys: Iterable[str]) -> list[MarkInfo | None]:
        """The mark of each key, None where there is none, in few round trips; asks the store, not the cache."""
        stored = keys_of("mark", keys)
        return self._run(marking.read_many(self._context, stored)) if stored else []

    def mark(self, key: str, *, ttl: Seconds = DAY) -> bool:
        """Marks the key as seen for at least `ttl`, for work that is recorded after it was done.

        Extends an existing mark, never shortens it; True if there was none.
        """
        return self._run(marking.mark(self._context, stored_key("mark", key), ttl_seconds(ttl)))

    def marks(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[MarkInfo]:
        """The marks whose key starts with `prefix` and follows `after`, in key order."""
        return self._run(marking.marks(prefix, after, limit))

    def forget(self, key: str) -> bool:
        """Removes the mark, so that the next caller is first again; False if there was none."""
        return self._run(marking.forget(self._context, stored_key("mark", key)))


class AsyncMarks(AsyncMethods):
    """Marks, for asyncio."""

    async def first(self, key: str, *, ttl: Seconds = DAY) -> bool:
        """True for exactly one caller per `ttl`, across all processes: the one that should do the work."""
        stored = stored_key("mark", key)
        if marking.known(self._context, stored):
            return False
        return await self._run(marking.first(self._context, stored, ttl_seconds(ttl)))

    async def first_many(self, keys: Iterable[str], *, ttl: Seconds = DAY) -> list[bool]:
        """`first` for many keys in few round trips; one result per key, in order."""
        stored, kept = keys_of("mark", keys), ttl_seconds(ttl)
        return await self._run(marking.first_many(self._context, stored, kept)) if stored else []

    async def seen(self, key: str) -> bool:
        """True if the key is marked; marks nothing."""
        stored = stored_key("mark", key)
        return marking.known(self._context, stored) or await self._run(marking.seen(self._context, stored))

    async def ensure_marks(self, keys: Iterable[str], *, ttl: Seconds = DAY) -> list[MarkInfo]:
        """The mark of each key, made where there was none, in few round trips; it lasts at least `ttl` from now. Until
        it expires, its `fence` is the same for every caller: it identifies work that several callers may try."""
        stored, kept = keys_of("mark", keys), ttl_seconds(ttl)
        return await self._run(marking.ensure_many(self._context, stored, kept)) if stored else []

    async def read_marks(self, keys: Iterable[str]) -> list[MarkInfo | None]:
        """The mark of each key, None where there is none, in few round trips; asks the store, not the cache."""
        stored = keys_of("mark", keys)
        return await self._run(marking.read_many(self._context, stored)) if stored else []

    async def mark(self, key: str, *, ttl: Seconds = DAY) -> bool:
        """Marks the key as seen for at least `ttl`, for work that is recorded after it was done.

        Extends an existing mark, never shortens it; True if there was none.
        """
        return await self._run(marking.mark(self._context, stored_key("mark", key), ttl_seconds(ttl)))

    async def marks(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[MarkInfo]:
        """The marks whose key starts with `prefix` and follows `after`, in key order."""
        return await self._run(marking.marks(prefix, after, limit))

    async def forget(self, key: str) -> bool:
        """Removes the mark, so that the next caller is first again; False if there was none."""
        return await self._run(marking.forget(self._context, stored_key("mark", key)))
