"""The buffer: runs of a burst wait in a leased queue per environment, on the store or in SQL, until the drainer moves
them. The id and the key of a run both name its place there, so that either finds it with one read.

An item is open, and takes changes, until it is sealed. Only a sealed item is inserted into SQL, so that no worker sees
a run without a change that was accepted before; later changes are made of the row."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import structlog

from ... import AsyncClient, AsyncItem, AsyncQueue, InvalidInput, ItemInfo
from .model import BufferedRun, RunChange, TaskRun, own, slot_of

log = structlog.get_logger("solely.triggers")

_PAUSE = 0.005  # seconds between tries to change an item that others change too: some round trips, at random
_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(BufferedRun)


class Pushed(NamedTuple):
    """Whether the run is in the buffer now; else the run that has its place, or None if that has just left."""

    new: bool
    there: BufferedRun | None = None


class Buffer:
    """The queues of all environments. StoreError if the store does not answer."""

    def __init__(self, client: AsyncClient, environments: Iterable[str], *, on_store: bool = True) -> None:
        self.on_store = on_store  # and not in SQL
        self.queues: dict[str, AsyncQueue] = {each: client.queue(queue_name(each)) for each in environments}
        self.letters = client.dead_letters(own("buffer"))

    async def push(self, run: TaskRun) -> Pushed:
        """Adds the run, unless its place is taken: the duplicate check of the buffer itself. Raises InvalidInput if the
        run is too large for an item."""
        queue, slot = self.queues[run.environment], slot_of(run.id)
        if await queue.push(slot, _encode(BufferedRun(run=run, open=True))):
            return Pushed(True)
        return Pushed(False, await self.at(run.environment, slot))

    async def at(self, environment: str, slot: str) -> BufferedRun | None:
        """The run at this place; None if there is none. SQL may have it too once it is sealed. One read."""
        found = await self.queues[environment].read(slot)
        return None if found is None else read_item(found.payload)

    async def find(self, environment: str, id: str) -> TaskRun | None:
        """The buffered run of this id, with its changes; None if there is none. One read."""
        found = await self.at(environment, slot_of(id))
        return None if found is None or found.run.id != id else found.current

    async def change(self, environment: str, id: str, change: RunChange) -> TaskRun | None:
        """The buffered run after the change, which is one atomic change of its item; None if it is not buffered, or
        sealed. InvalidInput if it would be too large, or the change is refused."""
        queue, slot = self.queues[environment], slot_of(id)
        while True:
            seen: ItemInfo | None = await queue.read(slot)
            there = None if seen is None else read_item(seen.payload)
            if seen is None or there is None or not there.open or there.run.id != id:
                return None
            wanted = msgspec.structs.replace(there, changes=[*there.changes, change])
            after = wanted.current  # raises before anything is written
            if await queue.amend(slot, _encode(wanted), expected=seen):
                return after
            await asyncio.sleep(_PAUSE * random.random())

    async def seal(self, environment: str, id: str, seen: AsyncItem | ItemInfo | None = None) -> BufferedRun | None:
        """The buffered run as SQL must get it: its item takes no change any more. None if it is not buffered. With
        `seen`, an item that is still as the caller saw it is not read again."""
        queue, slot = self.queues[environment], slot_of(id)
        seen = seen or await queue.read(slot)
        while seen is not None:
            there = read_item(seen.payload)
            if there.run.id != id:
                return None
            sealed = msgspec.structs.replace(there, open=False)
            if not there.open or await queue.amend(slot, _encode(sealed), expected=seen):
                return sealed
            seen = await queue.read(slot)
        return None

    async def count(self) -> int:
        """The runs in all queues."""
        return sum(await asyncio.gather(*(queue.count() for queue in self.queues.values())))


def queue_name(environment: str) -> str:
    """The queue of this environment."""
    return own(f"buffer/{environment}")


def read_item(payload: object) -> BufferedRun:
    """The run of an item; InvalidInput if another program or version wrote it."""
    try:
        return _decoder.decode(payload if isinstance(payload, bytes) else b"")
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the item in the buffer is no run: {error}") from None
