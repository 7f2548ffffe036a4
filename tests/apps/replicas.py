"""Replicas of the service in the test's own event loop, on one store whose clock the test moves: each is called over
HTTP, and can be frozen before any of its requests to the store, go on later, or die there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx2

from solely.errors import StoreError
from solely.model import Entry
from solely.ops import Op, Reply
from solely.service.app import AsgiApp
from solely.service.mount import mount
from solely.service.service import Service
from solely.stores.memory import AsyncMemoryStore, Memory
from tests.service.serving import settings

PORT = 8765
END = 60.0  # seconds for what is started to end: it takes some milliseconds, but a test machine can be very busy
TURNS = 300  # of the event loop, within which all that is not held up has come to its end: it takes some dozens


class Started:
    """What was started in one replica, which may be held up at its store."""

    def __init__(self, store: ReplicaStore) -> None:
        self._store = store
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts the work; returns as soon as it has ended, or is held up."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        await self.settle()
        return task

    async def settle(self) -> None:
        """Returns as soon as all that was started has ended, or is held up."""
        ends, turns = time.monotonic() + END, 0
        while self._tasks and turns < TURNS:
            assert time.monotonic() < ends, f"it neither ends nor is held up: {self._tasks}"
            turns += self._store.holds_up
            await asyncio.sleep(0)
            self._tasks = {each for each in self._tasks if not each.done()}

    async def all_ended(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Replica:
    """A replica with these applications. Nothing runs in it by itself: no job, no worker."""

    def __init__(self, memory: Memory, **given: Any) -> None:
        self.store = ReplicaStore(memory)
        self.service = _Service(self.store, given)
        self._asgi = AsgiApp(self.service, mount(self.service))
        self._started = Started(self.store)
        self.start, self.settle = self._started.start, self._started.settle

    async def open(self) -> None:
        await self._asgi.open()
        host = f"http://127.0.0.1:{PORT}"
        self.http = httpx2.AsyncClient(transport=httpx2.ASGITransport(self._asgi), base_url=host, timeout=None)

    async def kill(self) -> None:
        """It reaches nobody any more, whatever it was at; the store never hears of it again."""
        self.store.die()
        await self.close()

    async def close(self) -> None:
        await self._started.all_ended()
        await self.http.aclose()
        await self.service.close()


class _Service(Service):
    """A service on this store, whose background is empty."""

    def __init__(self, store: ReplicaStore, given: dict[str, Any]) -> None:
        super().__init__(settings(port=PORT, history=0, store_timeout=60, stop_timeout=60, **given))
        self._only = store
        self.background = []
        self.workers.start = lambda app, workers: None  # type: ignore[method-assign]  # the test drains queues itself

    def another_store(self) -> Any:
        return self._only

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        work.close()


class ReplicaStore(AsyncMemoryStore):
    """What a replica sees of the store."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self._moving = asyncio.Event()
        self._moving.set()
        self._left: int | None = None  # requests until the replica freezes
        self._fails: int | None = None  # requests until one fails
        self._performed = False  # that one
        self._dead = False
        self.elsewhere = 0  # what it waits for beside the store

    @property
    def holds_up(self) -> bool:
        return bool(self.elsewhere) or not self._moving.is_set()

    @property
    def disturbed(self) -> bool:
        """True if it freezes or fails soon."""
        return self._left is not None or self._fails is not None

    def freeze_after(self, requests: int) -> None:
        """Holds the replica up before its next request to the store but so many."""
        self._left = requests

    def fail_after(self, requests: int, *, performed: bool) -> None:
        """Fails the next request but so many, before or after it is performed."""
        self._fails, self._performed = requests, performed

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """It neither freezes nor fails meanwhile; requests that are made here are not counted."""
        before, self._left, self._fails = (self._left, self._fails), None, None
        try:
            yield
        finally:
            self._left, self._fails = before

    def go_on(self) -> None:
        self._left = self._fails = None
        self._moving.set()

    def die(self) -> None:
        self._dead = True
        self.go_on()

    async def alive(self) -> None:
        """Returns when the replica is not frozen; raises if it is dead."""
        if self._left is not None and not self._dead:
            self._left -= 1
            if self._left < 0:
                self._moving.clear()
        await self._moving.wait()
        if self._dead:
            raise StoreError("this replica is dead")

    async def elsewhere_until(self, done: Awaitable[Any]) -> None:
        """Waits for something that is not the store."""
        self.elsewhere += 1
        try:
            await done
        finally:
            self.elsewhere -= 1

    async def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:  # type: ignore[override]  # awaitable, too
        await self.alive()
        if self._fails is not None:
            self._fails -= 1
            if self._fails < 0:
                self._fails = None
                if self._performed:
                    self.memory.perform(ops)
                raise StoreError("the store fails")
        return self.memory.perform(ops)

    async def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        await self.alive()
        return await super().scan(prefix, after, limit)
