"""The buffer: runs of a burst wait in a leased queue per environment, on the store or in SQL, until the drainer moves
them. The id and the key of a run both name its place there, so that either finds it with one read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import structlog

from ... import AsyncClient, AsyncQueue, InvalidInput, ItemInfo
from .model import BufferedRun, RunChange, TaskRun, own, slot_of

log = structlog.get_logger("solely.triggers")

_PAUSE = 0.005  # seconds between tries to change an item that others change too: some round trips, at random
_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(BufferedRun)


class Pushed(NamedTuple):
    """Whether the run is in the buffer now; else the run that has its place, or None if that has just been drained."""

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
        if await queue.push(slot, _encode(BufferedRun(run=run))):
            return Pushed(True)
        return Pushed(False, await self.at(run.environment, slot))

    async def at(self, environment: str, slot: str) -> BufferedRun | None:
        """The run at this place; None if there is none, or SQL has it by now. One read."""
        found = await self.queues[environment].read(slot)
        run = None if found is None else read_item(found.payload)
        return None if run is None or run.drained else run

    async def find(self, environment: str, id: str) -> TaskRun | None:
        """The buffered run of this id, with its changes; None if there is none. One read."""
        found = await self.at(environment, slot_of(id))
        return None if found is None or found.run.id != id else found.current

    async def change(self, environment: str, id: str, change: RunChange) -> TaskRun | None:
        """The buffered run after the change, which is one atomic change of its item; None if it is not buffered, or
        SQL has it by now. InvalidInput if it would be too large."""
        queue, slot = self.queues[environment], slot_of(id)
        while True:
            seen: ItemInfo | None = await queue.read(slot)
            there = None if seen is None else read_item(seen.payload)
            if seen is None or there is None or there.drained or there.run.id != id:
                return None
            wanted = msgspec.structs.replace(there, changes=[*there.changes, change])
            if await queue.amend(slot, _encode(wanted), expected=seen):
                return wanted.current
            await asyncio.sleep(_PAUSE * random.random())

    async def count(self) -> int:
        """The runs in all queues."""
        return sum(await asyncio.gather(*(queue.count() for queue in self.queues.values())))


def queue_name(environment: str) -> str:
    """The queue of this environment."""
    return own(f"buffer/{environment}")


def drained_item(buffered: BufferedRun) -> bytes:
    """The item of a run that SQL has: no change is made of it any more."""
    bare = TaskRun(id=buffered.run.id, environment=buffered.run.environment, task=buffered.run.task)
    return _encode(BufferedRun(run=bare, drained=True))


def read_item(payload: object) -> BufferedRun:
    """The run of an item; InvalidInput if another program or version wrote it."""
    try:
        return _decoder.decode(payload if isinstance(payload, bytes) else b"")
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the item in the buffer is no run: {error}") from None
