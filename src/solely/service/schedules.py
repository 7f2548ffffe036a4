"""Schedules of applications: the service runs them in each worker, and has their ticks end when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping

import structlog

from ..schedules.handle import AsyncSchedule
from .attention import IN_THE_LOG

log = structlog.get_logger("solely.service")


class AppSchedules:
    """The schedules that this worker runs. Once stopped, a tick in progress has `grace` seconds to end; then its job is
    cancelled, and another worker or host takes the tick over. A schedule that ends by itself is added to `failing`."""

    def __init__(self, grace: float, failing: MutableMapping[tuple[str, str], str]) -> None:
        self._grace, self._failing = grace, failing
        self._running: dict[asyncio.Task[None], AsyncSchedule] = {}

    def start(self, app: str, schedule: AsyncSchedule) -> None:
        """Runs its job at each tick that this worker wins, until the schedule or the service is stopped."""
        task = asyncio.create_task(self._run(app, schedule))
        self._running[task] = schedule
        task.add_done_callback(self._running.pop)

    def stop(self) -> None:
        """Begins no further tick."""
        for schedule in self._running.values():
            schedule.stop()

    async def finish(self) -> None:
        """Stops all schedules, and waits for the ticks in progress."""
        self.stop()
        if self._running:
            await asyncio.wait(self._running, timeout=self._grace)
        late = list(self._running)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _run(self, app: str, schedule: AsyncSchedule) -> None:
        """Runs the schedule; a failure of its own, which is a defect, is logged and reported."""
        try:
            await schedule.run()
        except Exception:
            log.exception("schedule_failed", app=app, schedule=schedule.name)
            self._failing[app, schedule.name] = IN_THE_LOG
