"""A worker of the alert receiver without its HTTP: real stores, real history, and a publisher that the test holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec

from solely import AsyncClient
from solely.apps.alerts.figures import FIGURES
from solely.apps.alerts.history import AlertHistory
from solely.apps.alerts.model import Alert, Notification
from solely.apps.alerts.notifications.publishing import QUEUE
from solely.apps.alerts.publishers import Publisher, PublishFailed
from solely.apps.alerts.runtime import AlertsRuntime
from solely.apps.alerts.settings import AlertsSettings
from solely.apps.alerts.suppression.silences import Silences
from solely.data import Database, migrate, open_database
from solely.service.application import JOURNAL_DROPPED
from solely.service.metrics import Metrics
from solely.service.tracing import Tracing

SOON = 10.0  # seconds within which what is waited for has to happen


class FakePublisher(Publisher):
    """A publisher that keeps what it gets, fails as the test says, and waits while `open` is not set."""

    def __init__(self, name: str = "fake", severities: tuple[str, ...] = ()) -> None:
        self.name = name
        self.failure: PublishFailed | Exception | None = None
        self.notifications: list[Notification] = []
        self.open = asyncio.Event()
        self.open.set()
        self._severities = severities

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.notifications]

    def wants(self, alert: Alert) -> bool:
        return not self._severities or alert.severity in self._severities

    async def publish(self, notification: Notification) -> None:
        if self.failure is not None:
            raise self.failure
        self.notifications.append(notification)
        await self.open.wait()

    async def close(self) -> None:
        self.open.set()


class Worker:
    """One worker, on the store of this URL."""

    once: AsyncClient
    history: AlertHistory
    silences: Silences
    parts: AlertsRuntime
    _data: Database

    def __init__(
        self,
        url: str,
        *publishers: FakePublisher,
        tracing: Tracing | None = None,
        timeout: float = 5.0,
        **settings: Any,
    ) -> None:
        self.publishers = publishers or (FakePublisher(),)
        self.settings = msgspec.convert({"backoff": (0.05,), **settings}, AlertsSettings)
        self.metrics = Metrics()
        self.metrics.add(FIGURES)
        self._url = url
        self._timeout = timeout
        self._tracing = tracing or Tracing()

    @property
    def publisher(self) -> FakePublisher:
        return self.publishers[0]

    async def open(self) -> None:
        self.once = AsyncClient(self._url, timeout=self._timeout, hooks=[self.metrics])
        self._data = open_database("sqlite:///:memory:")
        await migrate(self._data, "alerts", "solely.apps.alerts")
        self.parts = _parts(self._data, self.metrics, self.settings)
        self.parts.once, self.parts.tracing = self.once, self._tracing
        self.parts.assemble(self.publishers)
        self.history, self.silences = self.parts.history, self.parts.silences
        self.receive = self.parts.receiver.receive

    async def close(self) -> None:
        for publisher in self.publishers:
            await publisher.close()
        await self.parts.receiver.finish(SOON)
        await self.history.flush()
        await self._data.close()
        await self.once.close()

    async def sweep(self) -> None:
        """Performs all that is due now, as the running sweeper would."""
        for worker in self.parts.workers():
            await worker.drain()

    async def sweep_until(self, condition: Callable[[], Any]) -> None:
        """Sweeps again and again, as the service does."""
        ends = time.monotonic() + SOON
        while not condition():
            assert time.monotonic() < ends, "it took too long"
            await self.sweep()
            await asyncio.sleep(0.02)

    async def sweep_until_empty(self) -> None:
        """Sweeps until nothing is in the outbox."""
        ends = time.monotonic() + SOON
        while await self.waiting():
            assert time.monotonic() < ends, "it took too long"
            await self.sweep()
            await asyncio.sleep(0.02)

    async def waiting(self, queue: str = QUEUE) -> int:
        """How many items are in this queue."""
        return len(await self.once.queue(queue).list())

    def counted(self, name: str, *labels: str) -> float:
        return self.metrics.counts().counters[f"solely_alerts_{name}"].get(labels, 0.0)


def _parts(data: Database, metrics: Metrics, settings: AlertsSettings) -> AlertsRuntime:
    service: Any = SimpleNamespace(data=data, metrics=metrics, telemetry=None)
    return AlertsRuntime(service, settings)


def parts_on(data: Database) -> AlertsRuntime:
    """The parts of a worker of which only those that use this database are used."""
    parts = _parts(data, Metrics(), AlertsSettings())
    parts.service.metrics.add((JOURNAL_DROPPED,))
    parts.once = AsyncClient("memory://of-parts")
    parts.assemble(())
    return parts


Open = Callable[..., Awaitable[Worker]]


@asynccontextmanager
async def working(url: str) -> AsyncIterator[Open]:
    """Opens workers on the store of this URL, and closes them in the end."""
    workers: list[Worker] = []

    async def open_one(*publishers: FakePublisher, **settings: Any) -> Worker:
        workers.append(Worker(url, *publishers, **settings))
        await workers[-1].open()
        return workers[-1]

    try:
        yield open_one
    finally:
        for worker in workers:
            await worker.close()


def alert(fingerprint: str = "cpu", severity: str = "critical", **given: Any) -> Alert:
    return Alert(**{"name": "CPU high", "source": "test", "fingerprint": fingerprint, "severity": severity, **given})


async def until(condition: Callable[[], Any]) -> None:
    """Returns as soon as the condition holds."""
    ends = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < ends, "it took too long"
        await asyncio.sleep(0.01)
