"""Notes: small facts in the store that all workers see at once, each under a name, until it is dropped or its time is
over. An item of a queue from which nobody takes work is one: it can be read in one step, replaced and listed."""

from __future__ import annotations

import asyncio
import time
from typing import Generic, TypeVar

import msgspec

from .... import AsyncClient, AsyncItem, StoreUnavailable
from ....queues.flow import ItemInfo
from ..model import own

T = TypeVar("T")

MOST = 1_000  # notes that are listed at once: as many as a queue lists
_LEASE = 2.0  # seconds that whoever drops a note and dies keeps others from it
_LOOKS = 60  # at a note that somebody else is dropping: until that one's lease is over
_PAUSE = 0.05  # seconds between them


class Note(msgspec.Struct, Generic[T]):
    """A fact as it is kept, until that moment (seconds of UTC)."""

    ends: float
    fact: T


class Notes(Generic[T]):
    """All notes of one kind, whose facts are of one form. Names are parts of keys, with slashes between them.

    What is there and is no such note counts as none: it keeps nobody from being told.
    """

    def __init__(self, once: AsyncClient, kind: str, form: type[T]) -> None:
        self._queue = once.queue(own(kind))
        self._form: type[Note[T]] = Note[form]  # type: ignore[valid-type]

    async def read(self, name: str) -> T | None:
        """What is noted under this name; None if nothing is, or its time is over."""
        found = await self._queue.read(name)
        return None if found is None else self._current(found)

    async def add(self, name: str, fact: T, ends: float) -> bool:
        """Notes it until that moment (seconds of UTC); False if there is something under this name, which stays."""
        return await self._queue.push(name, msgspec.to_builtins(Note(ends, fact)))

    async def replace(self, name: str, fact: T, ends: float) -> None:
        """Notes it instead of what was there; StoreUnavailable if others do the same again and again."""
        for _ in range(_LOOKS):
            if await self.add(name, fact, ends):
                return
            await self.drop(name)
        raise StoreUnavailable(f"the note {name!r} is changed by others all the time; try again", key=name)

    async def drop(self, name: str) -> bool:
        """Forgets it; False if there was none. StoreUnavailable if one who does the same does not come to an end."""
        for _ in range(_LOOKS):
            if await self._queue.read(name) is None:
                return False
            item: AsyncItem | None = await self._queue.take(ttl=_LEASE, id=name)
            if item is not None:
                return await item.ack()
            await asyncio.sleep(_PAUSE)
        raise StoreUnavailable(f"the note {name!r} is being changed by another; try again", key=name)

    async def under(self, prefix: str, limit: int = MOST) -> dict[str, T]:
        """All whose name begins so, in the order of names, at most so many."""
        found = await self._queue.list(after=prefix, limit=limit)
        current = {each.id: self._current(each) for each in found if each.id.startswith(prefix)}
        return {name: fact for name, fact in current.items() if fact is not None}

    async def drop_all(self, prefix: str) -> None:
        """Forgets all whose name begins so."""
        for name in await self.under(prefix):
            await self.drop(name)

    async def sweep(self) -> None:
        """Forgets those whose time is over."""
        page = await self._queue.list(limit=MOST)
        while page:
            for each in page:
                if self._current(each) is None:
                    await self.drop(each.id)
            page = await self._queue.list(after=page[-1].id, limit=MOST) if len(page) == MOST else []

    def _current(self, item: ItemInfo) -> T | None:
        """The fact; None if its time is over, or it cannot be read."""
        try:
            note = msgspec.convert(item.payload, self._form)
        except msgspec.ValidationError:
            return None
        return note.fact if note.ends > time.time() else None
