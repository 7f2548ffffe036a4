"""A worker of the task-trigger API without its HTTP: real stores and databases, and steps that fail on demand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from solely import AsyncClient, StoreUnavailable
from solely.apps.triggers.api.options import trigger_of
from solely.apps.triggers.buffer import queue_name
from solely.apps.triggers.figures import FIGURES
from solely.apps.triggers.model import BufferedRun, TaskRun
from solely.apps.triggers.pipeline import Triggered
from solely.apps.triggers.runtime import TriggersRuntime
from solely.apps.triggers.settings import TriggersSettings
from solely.data import Database, migrate, open_database
from solely.ops import Op
from solely.service.metrics import Metrics
from solely.stores.memory.handles import AsyncMemoryStore
from solely.testing.clock import ManualClock

SOON = 20.0  # seconds within which what is waited for has to happen
HERE = "default"  # the environment of all triggers
BURST: dict[str, Any] = {
    "trip_threshold": 1,
    "trip_window": 3_600.0,
    "trip_hold": 3_600.0,
}  # the gate lets one pass, and diverts all


class Worker:
    """One worker, on the store and the database of these URLs."""

    once: AsyncClient
    data: Database
    app: TriggersRuntime

    def __init__(
        self,
        url: str = "memory://",
        data_url: str = "sqlite:///:memory:",
        *,
        timeout: float = 5.0,
        clock: ManualClock | None = None,
        **settings: Any,
    ) -> None:
        self._url, self._data_url, self._timeout, self._clock = url, data_url, timeout, clock
        self.settings = msgspec.convert(settings, TriggersSettings)
        self.metrics = Metrics()
        self.metrics.add(FIGURES)

    async def open(self) -> None:
        self.once = AsyncClient(self._url, timeout=self._timeout, hooks=[self.metrics], clock=self._clock)
        self.data = open_database(self._data_url)
        await migrate(self.data, "triggers", "solely.apps.triggers")
        known = SimpleNamespace(database_url=self._data_url, store_timeout=self._timeout)
        signing = SimpleNamespace(sign=lambda use, text: text)
        service: Any = SimpleNamespace(data=self.data, metrics=self.metrics, telemetry=None, settings=known)
        service.sessions = signing
        self.app = TriggersRuntime(service, self.settings)
        self.app.once = self.once
        await self.app.start()
        self.app.drainer._until_calm = _at_once  # type: ignore[method-assign]  # most tests keep the gate tripped
        self.drainer = self.app.drainer.worker()

    async def close(self) -> None:
        await self.app.stop()
        await self.data.close()
        await self.once.close()

    async def __aenter__(self) -> Worker:
        await self.open()
        return self

    async def __aexit__(self, *how: object) -> None:
        await self.close()

    async def trigger(self, key: str = "", payload: Any = None, task: str = "task", **options: Any) -> Triggered:
        """Triggers a task, as the API does."""
        given = {"idempotencyKey": key, **options} if key else options
        wanted = trigger_of(self.settings, HERE, task, msgspec.Raw(msgspec.json.encode(payload)), given)
        return await self.app.pipeline.trigger(wanted.run, waits=wanted.waits)

    async def buffer_one(self, key: str = "", **given: Any) -> Triggered:
        """Triggers a task whose run is diverted to the buffer: the gate has let one pass before."""
        if not self.app.gate.tripped(HERE):
            await self.trigger(task="first")
        if not self.app.gate.tripped(HERE):
            await self.trigger(task="second")
        accepted = await self.trigger(key, **given)
        assert accepted.buffered
        return accepted

    async def find(self, id: str) -> TaskRun:
        found = await self.app.runs.find(HERE, id)
        assert found is not None, f"{id} is unknown"
        return found

    async def stored(self, id: str) -> TaskRun | None:
        """The run in SQL alone."""
        return await self.app.table.find(HERE, id)

    async def rows(self, **wanted: str) -> list[dict[str, Any]]:
        """The rows with these values."""
        where = "".join(f" AND {name} = :{name}" for name in wanted)
        return await self.data.rows(f"SELECT * FROM triggers_runs WHERE true{where} ORDER BY created_at", **wanted)

    async def buffered(self) -> int:
        return await self.app.buffer.queues[HERE].count()

    async def drain(self) -> None:
        """Moves all that is due in the buffer to SQL, as the running drainer would."""
        await self.drainer.drain()

    def counted(self, name: str, *labels: str) -> float:
        return self.metrics.counts().counters[f"solely_{name}"].get(labels, 0.0)


async def _at_once(buffered: BufferedRun) -> None:
    """Drains in the middle of a burst."""


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    """Returns when the condition holds."""
    ends = time.monotonic() + SOON
    while not await condition():
        assert time.monotonic() < ends, "it took too long"
        await asyncio.sleep(0.01)


# -- a store that fails


class Faults:
    """Ops that every store in memory refuses, while the test says so; and the batches that it was sent."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.batches: list[Sequence[Op]] = []
        self._refused: Callable[[Op], bool] = lambda op: False
        perform = AsyncMemoryStore.perform

        async def performed(store: AsyncMemoryStore, ops: Sequence[Op]) -> list[Any]:
            self.batches.append(ops)
            refused = self._refused
            allowed = [op for op in ops if not refused(op)]
            replies = iter(await perform(store, allowed) if allowed else ())
            return [StoreUnavailable("the test refuses it") if refused(op) else next(replies) for op in ops]

        patch.setattr(AsyncMemoryStore, "perform", performed)

    @contextmanager
    def refusing(self, *kinds: type[Op], of: str = "") -> Iterator[None]:
        """Ops of these kinds fail, if their key or queue begins with this."""

        def refused(op: Any) -> bool:
            return isinstance(op, kinds) and str(getattr(op, "key", getattr(op, "queue", ""))).startswith(of)

        before, self._refused = self._refused, refused
        try:
            yield
        finally:
            self._refused = before

    @property
    def trips(self) -> list[list[str]]:
        """The names of the ops of each batch."""
        return [[type(op).__name__ for op in ops] for ops in self.batches]


QUEUE = f"queue:{queue_name(HERE)}"
