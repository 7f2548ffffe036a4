"""Notes: small values in the store that all workers share, each under a name, until it is removed or expires. A note
is an item of a queue that nobody consumes: it can be read in one step, and is changed by compare-and-set.

    paused = Notes(once, reserved("probes", "paused"), Pause)
    await paused.add(part_of(target), Pause(by="ann"), ends=time.time() + 3600)
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Generic, NamedTuple, TypeVar

import msgspec

from .. import AsyncClient, ItemInfo, StoreUnavailable

T = TypeVar("T")

NOTES_PAGE = 1_000  # notes in one listing: the bound of a queue's listing
_ATTEMPTS = 50  # at a note that others keep changing: more workers than a service has


class Note(msgspec.Struct, Generic[T]):
    """A value, and when it expires (seconds of UTC)."""

    ends: float
    fact: T


class Found(NamedTuple, Generic[T]):
    """A current note, and its item as it was read."""

    fact: T
    item: ItemInfo


class Notes(Generic[T]):
    """The notes in the queue of this name, with values of one type. The name of a note consists of key parts, separated
    by slashes.

    An item that is not a valid note counts as missing, so that it suppresses no notification.
    """

    def __init__(self, once: AsyncClient, queue: str, form: type[T]) -> None:
        self._queue = once.queue(queue)
        self._form: type[Note[T]] = Note[form]  # type: ignore[valid-type]

    async def read(self, name: str) -> T | None:
        """The value under this name; None if it is missing or expired."""
        found = await self.find(name)
        return None if found is None else found.fact

    async def find(self, name: str) -> Found[T] | None:
        """The note of this name, to be removed as it is; None if it is missing or expired."""
        item = await self._queue.read(name)
        fact = None if item is None else self._current(item)
        return None if item is None or fact is None else Found(fact, item)

    async def add(self, name: str, fact: T, ends: float) -> bool:
        """Adds a note that expires at `ends` (seconds of UTC); False if the name is taken, and nothing changes."""
        return await self._queue.push(name, msgspec.to_builtins(Note(ends, fact)))

    async def change(self, name: str, change: Callable[[T | None], T | None], ends: float = 0.0) -> T | None:
        """Replaces the value (None: there is none) with what `change` returns (None: removes it), in one atomic step.
        Returns the value before. Raises StoreUnavailable if others keep changing it."""
        for _ in range(_ATTEMPTS):
            found = await self._queue.read(name)
            before = None if found is None else self._current(found)
            after = change(before)
            if after is before and (before is not None or found is None):
                return before
            if await self._write(name, found, after, ends):
                return before
        raise StoreUnavailable(f"other workers keep changing the note {name!r}; try again", key=name)

    async def _write(self, name: str, found: ItemInfo | None, after: T | None, ends: float) -> bool:
        if after is None:
            return found is None or await self._queue.remove(name, expected=found)
        if found is None:
            return await self.add(name, after, ends)
        return await self._queue.amend(name, msgspec.to_builtins(Note(ends, after)), expected=found)

    async def remove(self, name: str) -> bool:
        """Removes a note; False if there was none."""
        return await self.change(name, lambda _: None) is not None

    async def remove_found(self, found: Found[T]) -> bool:
        """Removes this note; False, and it stays, if it has changed since it was read."""
        return await self._queue.remove(found.item.id, expected=found.item)

    async def under(self, prefix: str = "", limit: int = NOTES_PAGE) -> dict[str, T]:
        """Notes whose names have this prefix, in order of names, at most `limit`."""
        page = await self._queue.list(after=prefix, limit=limit)
        current = {each.id: self._current(each) for each in page if each.id.startswith(prefix)}
        return {name: fact for name, fact in current.items() if fact is not None}

    async def all(self) -> dict[str, T]:
        """All notes, in order of names."""
        return {each.id: fact async for each in self._items() if (fact := self._current(each)) is not None}

    async def sweep(self) -> None:
        """Removes expired and invalid notes."""
        for each in [each async for each in self._items() if self._current(each) is None]:
            await self._queue.remove(each.id, expected=each)

    async def _items(self) -> AsyncIterator[ItemInfo]:
        after, page = "", await self._queue.list(limit=NOTES_PAGE)
        while page:
            for each in page:
                yield each
            after = page[-1].id
            page = await self._queue.list(after=after, limit=NOTES_PAGE) if len(page) == NOTES_PAGE else []

    def _current(self, item: ItemInfo) -> T | None:
        """The value; None if it is expired or invalid."""
        try:
            note = msgspec.convert(item.payload, self._form)
        except msgspec.ValidationError:
            return None
        return note.fact if note.ends > time.time() else None
