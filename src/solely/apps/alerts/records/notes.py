"""Notes: small values in the store that all workers share, each under a name, until it is removed or expires. A note
is an item of a queue that nobody consumes: it can be read in one step, replaced and listed."""

from __future__ import annotations

import asyncio
import time
from typing import Generic, TypeVar

import msgspec

from .... import AsyncClient, AsyncItem, StoreUnavailable
from ....queues.flow import ItemInfo
from ..model import own

T = TypeVar("T")

MOST = 1_000  # notes in one listing: the bound of a queue's listing
_LEASE = 2.0  # seconds until a note can be changed again after a worker died while it removed the note
_ATTEMPTS = 60  # at a note that another worker is removing: together longer than its lease
_PAUSE = 0.05  # seconds between attempts


class Note(msgspec.Struct, Generic[T]):
    """A value, and when it expires (seconds of UTC)."""

    ends: float
    fact: T


class Notes(Generic[T]):
    """All notes of one kind, with values of one type. A name consists of key parts, separated by slashes.

    An item that is not a valid note counts as missing, so that it suppresses no notification.
    """

    def __init__(self, once: AsyncClient, kind: str, form: type[T]) -> None:
        self._queue = once.queue(own(kind))
        self._form: type[Note[T]] = Note[form]  # type: ignore[valid-type]

    async def read(self, name: str) -> T | None:
        """The value under this name; None if it is missing or expired."""
        found = await self._queue.read(name)
        return None if found is None else self._current(found)

    async def add(self, name: str, fact: T, ends: float) -> bool:
        """Adds a note that expires at `ends` (seconds of UTC); False if the name is taken, and nothing changes."""
        return await self._queue.push(name, msgspec.to_builtins(Note(ends, fact)))

    async def replace(self, name: str, fact: T, ends: float) -> None:
        """Adds or replaces a note; StoreUnavailable if other workers keep changing it."""
        for _ in range(_ATTEMPTS):
            if await self.add(name, fact, ends):
                return
            await self.remove(name)
        raise StoreUnavailable(f"other workers keep changing the note {name!r}; try again", key=name)

    async def remove(self, name: str) -> bool:
        """Removes a note; False if there was none. StoreUnavailable if another worker does so and does not finish."""
        for _ in range(_ATTEMPTS):
            if await self._queue.read(name) is None:
                return False
            item: AsyncItem | None = await self._queue.take(ttl=_LEASE, id=name)
            if item is not None:
                return await item.ack()
            await asyncio.sleep(_PAUSE)
        raise StoreUnavailable(f"another worker is changing the note {name!r}; try again", key=name)

    async def under(self, prefix: str, limit: int = MOST) -> dict[str, T]:
        """Notes whose names have this prefix, in order of names, at most `limit`."""
        found = await self._queue.list(after=prefix, limit=limit)
        current = {each.id: self._current(each) for each in found if each.id.startswith(prefix)}
        return {name: fact for name, fact in current.items() if fact is not None}

    async def remove_all(self, prefix: str) -> None:
        """Removes all notes whose names have this prefix."""
        for name in await self.under(prefix):
            await self.remove(name)

    async def sweep(self) -> None:
        """Removes expired notes."""
        page = await self._queue.list(limit=MOST)
        while page:
            for each in page:
                if self._current(each) is None:
                    await self.remove(each.id)
            page = await self._queue.list(after=page[-1].id, limit=MOST) if len(page) == MOST else []

    def _current(self, item: ItemInfo) -> T | None:
        """The value; None if it is expired or invalid."""
        try:
            note = msgspec.convert(item.payload, self._form)
        except msgspec.ValidationError:
            return None
        return note.fact if note.ends > time.time() else None
