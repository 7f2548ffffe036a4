"""A Memory for threads and for asyncio: a client's name in its queues, and its methods."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InvalidInput, StoreError
from ...model import Entry, Finding
from ...ops import MAX_BATCH, MAX_LIMIT, Op, Reply
from ...owner import fresh_owner
from .. import OnHint
from .data import Memory

if TYPE_CHECKING:
    import asyncio


class _Handle:
    """One client's view of a Memory: its name in the queues, and its listener."""

    polls = False
    max_limit = MAX_LIMIT
    perform_within = None

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.client = fresh_owner()

    def listen(self, on_hint: OnHint) -> None:
        self.memory.listeners[self.client] = on_hint

    def forked(self) -> None:
        """The child has a copy of the data under a mutex of its own."""
        self.memory._mutex = threading.Lock()
        self.client = fresh_owner()


class MemoryStore(_Handle):
    """A Memory, for threads."""

    def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        return self.memory.perform(ops)

    def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        return self.memory.scan(prefix, after, limit)

    def check(self) -> list[Finding]:
        return [Finding("ok", "memory", f"{self.memory.size()} of at most {self.memory.max_size} entries")]

    def close(self) -> None:
        self.memory.listeners.pop(self.client, None)


class AsyncMemoryStore(_Handle):
    """A Memory, for asyncio."""

    portion = MAX_BATCH

    def perform(self, ops: Sequence[Op]) -> asyncio.Future[list[Reply | StoreError]]:
        from asyncio import get_running_loop  # here, as threads do not need asyncio, which takes long to import

        answer: asyncio.Future[list[Reply | StoreError]] = get_running_loop().create_future()
        try:
            answer.set_result(self.memory.perform(ops))
        except InvalidInput as error:
            answer.set_exception(error)
        return answer

    async def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        return self.memory.scan(prefix, after, limit)

    async def check(self) -> list[Finding]:
        return MemoryStore(self.memory).check()

    async def close(self) -> None:
        self.memory.listeners.pop(self.client, None)
