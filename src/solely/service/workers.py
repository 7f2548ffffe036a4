"""Queue workers of applications: the service runs them, reports what they do, and has them finish when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import structlog

from ..names import reserved
from ..queues.worker import QueueWorker
from .dashboard.state import DashboardState
from .figures import Figure
from .metrics import Metrics
from .readiness import Readiness

log = structlog.get_logger("solely.service")

ITEMS = Figure(
    "solely_worker_items", "Items that applications' queue workers settled, by outcome", ("app", "worker", "outcome")
)
IN_FLIGHT = Figure(
    "solely_worker_in_flight", "Items that applications' queue workers perform now", ("app", "worker"), kind="gauge"
)
FIGURES = (ITEMS, IN_FLIGHT)


class AppWorkers:
    """The queue workers of all applications. Once stopped, items in flight have `grace` seconds to end."""

    def __init__(self, metrics: Metrics, readiness: Readiness, dashboard: DashboardState, grace: float) -> None:
        self._metrics, self._readiness, self._dashboard, self._grace = metrics, readiness, dashboard, grace
        self._workers: dict[str, dict[str, QueueWorker]] = {}  # by application and name
        self._running: set[asyncio.Task[None]] = set()
        self._stopping: list[asyncio.Task[None]] = []

    def start(self, app: str, workers: Sequence[QueueWorker]) -> None:
        """Runs the workers of this application; their dead letters can be replayed here."""
        for worker in workers:
            name = worker.name.removeprefix(reserved(app, ""))
            worker.on_settled(partial(self._metrics.count, ITEMS, app, name))
            self._metrics.gauge(IN_FLIGHT, partial(_in_flight, worker), app, name)
            self._dashboard.replays.setdefault(worker.dead_letters.group, worker.replay)
            self._running.add(asyncio.create_task(_run(app, worker)))
            self._workers.setdefault(app, {})[name] = worker
            self._readiness.checks["workers"] = self._level

    def of(self, app: str) -> dict[str, QueueWorker]:
        """The workers of this application, by name."""
        return self._workers.get(app, {})

    def stop(self) -> None:
        """Has the workers take nothing more; what they perform has `grace` seconds to end."""
        if self._running and not self._stopping:
            ours = [worker for workers in self._workers.values() for worker in workers.values()]
            self._stopping = [asyncio.create_task(worker.stop(self._grace)) for worker in ours]

    async def finish(self) -> None:
        """Stops the workers, and waits until they have given back what did not end in time."""
        self.stop()
        await asyncio.gather(*self._stopping, *self._running)

    async def _level(self) -> str:
        """An error if a worker ended by itself. While the store is unreachable, workers wait: that is its own check."""
        return "error" if not self._stopping and any(task.done() for task in self._running) else "ok"


async def _run(app: str, worker: QueueWorker) -> None:
    """Runs the worker; a failure of its own, which is a defect, is logged."""
    try:
        await worker.run()
    except Exception:
        log.exception("worker_failed", app=app, worker=worker.name)


def _in_flight(worker: QueueWorker) -> float:
    return float(worker.health.in_flight)
