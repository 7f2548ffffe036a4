"""Ears: hear through a change stream which keys may be free now. Hints may be lost, never invented.

No hint is written for its own sake: a Release that offers the key, or a Finish, says in the document's `told` who is to
be told, and each client watches for its own name there. A server that stands alone has no change streams; then the
store polls.

A change stream shows what a majority has in its journal, and that is also when the Release is answered: the hint comes
some 0.1 ms after the answer (measured on one machine: both 3 ms after the Release was sent). So no setting of the
stream makes it sooner. A wake-up takes two durable writes, the Release and the Acquire of who was woken.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from pymongo.errors import OperationFailure, PyMongoError

from ...rules import backoff
from .. import Tell
from .faults import NO_CHANGE_STREAMS

# Milliseconds that the server keeps a question open when it has no news: bounds how long a closed ear lingers.
PATIENCE = 500
# Seconds between tries to hear again, at first and at most: an election takes longer than the first few, and nobody
# hangs meanwhile, because a waiter also looks again by itself.
FIRST_RETRY, LONGEST_RETRY = 0.05, 2.0


def hints_to(client: str) -> list[dict[str, Any]]:
    """The pipeline of a change stream that shows only what tells this client, and not what it told itself.

    A change is logged as a replacement of the whole document where that is shorter.
    """
    told = {"$regex": f"^(?!{client}/).* {client}( |$)"}
    updated = {"operationType": "update", "updateDescription.updatedFields.told": told}
    replaced = {"operationType": "replace", "fullDocument.told": told}
    return [{"$match": {"$or": [updated, replaced]}}, {"$project": {"documentKey": 1}}]


def no_streams(error: Exception) -> bool:
    return isinstance(error, OperationFailure) and error.code == NO_CHANGE_STREAMS


def _rest(failed: int) -> float:
    return backoff(failed, first=FIRST_RETRY, longest=LONGEST_RETRY, spread=0.0, chance=0.5)


class Ear:
    """Of a blocking store: a thread that listens from `prepare` until `close`, and tries again as needed."""

    def __init__(self, collection: Callable[[], Any], client: str, patience: float) -> None:
        self.tell: Tell | None = None
        self.ready = False  # it listens: no hint is missed from now on
        self.deaf = False  # it never will
        self._collection = collection
        self._client = client
        self._patience = patience
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._settled = threading.Event()
        self._closed = threading.Event()

    def prepare(self) -> None:
        """Returns when it listens, or when trying that failed: then a waiter must look by itself."""
        with self._starting:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="solely-mongo-ear", daemon=True)
                self._thread.start()
        self._settled.wait(self._patience)

    def close(self) -> None:
        """Ends the thread, which may take until the server answers its last question."""
        self._closed.set()

    def _run(self) -> None:
        failed = 0
        while not self._closed.is_set() and not self.deaf:
            try:
                with self._collection().watch(hints_to(self._client), max_await_time_ms=PATIENCE) as stream:
                    failed, self.ready = 0, True
                    self._settled.set()
                    self._hear(stream)
            except PyMongoError as error:  # those who send ops are told the reason; here only the hints are late
                self.deaf = no_streams(error)
            self.ready = False
            self._settled.set()
            if not self.deaf:
                self._closed.wait(_rest(failed))
            failed += 1

    def _hear(self, stream: Any) -> None:
        while not self._closed.is_set() and stream.alive:
            change = stream.try_next()
            if change is not None and self.tell is not None:
                self.tell(change["documentKey"]["_id"])


class AsyncEar:
    """Of an asyncio store: the same as a task."""

    def __init__(self, collection: Callable[[], Any], client: str, patience: float) -> None:
        self.tell: Tell | None = None
        self.ready = self.deaf = False
        self._collection = collection
        self._client = client
        self._patience = patience
        self._task: asyncio.Task[None] | None = None
        self._settled: asyncio.Event | None = None

    async def prepare(self) -> None:
        """Returns when it listens, or when trying that failed: then a waiter must look by itself."""
        if self._task is None or self._settled is None:
            self._settled = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._run(self._settled))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), self._patience)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, settled: asyncio.Event) -> None:
        failed = 0
        while not self.deaf:
            try:
                opening: Awaitable[Any] = self._collection().watch(hints_to(self._client), max_await_time_ms=PATIENCE)
                async with await opening as stream:
                    failed, self.ready = 0, True
                    settled.set()
                    await self._hear(stream)
            except PyMongoError as error:
                self.deaf = no_streams(error)
            self.ready = False
            settled.set()
            if not self.deaf:
                await asyncio.sleep(_rest(failed))
            failed += 1

    async def _hear(self, stream: Any) -> None:
        while stream.alive:
            change = await stream.try_next()
            if change is not None and self.tell is not None:
                self.tell(change["documentKey"]["_id"])
