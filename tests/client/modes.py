"""One way to speak to both clients, so that each test of a promise is written once and runs blocking and in asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from solely.client import Client
from solely.leases.lease import Lease
from solely.locks.handle import LeaseSet, Pending
from solely.model import Entry
from solely.ops import Op, Read
from solely.stores import open_store
from tests.conftest import PATIENT

_NOT_AWAITED = frozenset({"remaining", "hand_over"})  # answer at once, in asyncio too
_THREADS = ThreadPoolExecutor(256, thread_name_prefix="blocking")  # asyncio's own pool has fewer than some tests need


async def in_thread(work: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The result of a blocking call, while the loop goes on."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, lambda: work(*args, **options))


class InThread:
    """A blocking client or lease whose methods are awaited, each on a thread."""

    def __init__(self, it: Any) -> None:
        self.it = it

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.it, name)
        if name in _NOT_AWAITED or not callable(value):
            return value
        if name.startswith("lock"):
            return lambda *args, **options: Pending(self._call(value, *args, **options))
        return lambda *args, **options: self._call(value, *args, **options)

    async def _call(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        result = await in_thread(work, *args, **options)
        return InThread(result) if isinstance(result, Lease | LeaseSet) else result

    def __getitem__(self, place: int) -> Any:
        return InThread(self.it[place])

    def guard(self) -> None:
        """A loss cancels no task: a blocking lease knows of none."""

    async def __aenter__(self) -> InThread:
        return self

    async def __aexit__(self, *how: Any) -> None:
        await in_thread(self.it.__exit__, *how)


def blocking(url: str, **options: Any) -> Any:
    """A blocking client, awaited."""
    return InThread(Client(url, **options))


class Observer:
    """Reads a store directly, as nobody's client."""

    def __init__(self, url: str, **options: Any) -> None:
        self._store = open_store(url, **{"timeout": PATIENT, **options})
        self.perform(Read("lock/any"))

    def perform(self, *ops: Op) -> list[Any]:
        """The replies to ops that no client sent."""
        return self._store.perform(ops)

    def lock(self, key: str) -> Entry:
        """The entry of a lock."""
        entry: Entry = self.perform(Read(f"lock/{key}"))[0]
        return entry

    def mark(self, key: str) -> Entry:
        """The entry of a mark."""
        entry: Entry = self.perform(Read(f"mark/{key}"))[0]
        return entry

    def close(self) -> None:
        self._store.close()
