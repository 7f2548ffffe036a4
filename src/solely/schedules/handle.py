"""Schedules for threads and for asyncio: run a job at each tick that this replica wins."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

from ..errors import InvalidInput, LeaseLost, StoreError, StoreUnavailable
from ..functions import coroutine_function, finished, plain_function
from ..leases.context import AsyncRunFlow, Context, RunFlow
from ..leases.lease import AsyncLease, Lease
from ..rules import REMEMBER, Seconds, local_clock
from .calls import ScheduleBase, Tick
from .listing import ScheduleInfo, status
from .state import DueTick, SchedulePlan

_LONGEST_NAP = 3_600.0  # seconds: longer waits overflow the timers of some platforms

Job = Callable[[Tick[Lease]], object]
AsyncJob = Callable[[Tick[AsyncLease]], Awaitable[object]]


def _given(job: Any, own: Any, name: str, check: Callable[[str, Any], Any]) -> Any:
    chosen = job if job is not None else own
    if not callable(chosen):
        raise InvalidInput(f"schedule {name!r} has no job: give run() a function, or decorate one with it")
    return check(f"the job of schedule {name!r}", chosen)


class Schedule(ScheduleBase):
    """A schedule, for threads. `run(job)` in as many replicas as you like; or decorate the job with it."""

    def __init__(self, plan: SchedulePlan, max_hold: Seconds | None, context: Context, run: RunFlow) -> None:
        super().__init__(plan, max_hold, context)
        self._run = run
        self._stopped = threading.Event()
        self._job: Job | None = None

    def __call__(self, job: Job) -> Self:
        """Makes this the job of the schedule, which then runs by `run()`: a decorator."""
        self._job = _given(job, None, self.name, plain_function)
        return self

    def status(self) -> ScheduleInfo | None:
        """The last and the next run over all replicas; None if no replica ever ran it."""
        return self._run(status(self.name))

    def stop(self) -> None:
        """Ends `run` after the tick in progress; from any thread, or from a signal handler."""
        self._stopped.set()

    def run(self, job: Job | None = None) -> None:
        """Runs the job at each tick that this replica wins, until `stop`.

        An error of the job is logged, and the tick is over. While the store is unreachable, it waits and asks again.
        """
        work, failures, rest = _given(job, self._job, self.name, plain_function), 0, 0.0
        while not self._stopped.wait(min(rest, _LONGEST_NAP)):
            try:
                rest, failures = self.run_due(work), 0
            except StoreError as error:
                rest, failures = self._away(error, failures), failures + 1

    def run_due(self, job: Job | None = None) -> float:
        """Runs the tick that is due, if this replica wins it; returns the seconds after which to call again."""
        work = _given(job, self._job, self.name, plain_function)
        due = self._run(self._attempting())
        if not isinstance(due, DueTick):
            return due
        error: Exception | None = None
        try:
            finished("the job", work(self._tick(due, lambda hold: Lease(hold, self._context, self._run))))
        except Exception as raised:  # noqa: BLE001 - a failed job ends its tick
            error = raised
            self._failed(due, raised)
        except BaseException:  # the process is ending: another replica takes the tick over
            self._run(self._giving_back(due))
            raise
        return self._finished(due, error)

    def _finished(self, due: DueTick, error: Exception | None) -> float:
        """Ends the tick, and tries again while the store is unreachable: the work must not be repeated."""
        until, tries = local_clock() + REMEMBER + self._plan.ttl, 0
        while True:
            try:
                return self._run(self._finishing(due, error))
            except StoreUnavailable as away:
                if local_clock() > until:
                    raise
                time.sleep(self._away(away, tries))
                tries += 1


class AsyncSchedule(ScheduleBase):
    """A schedule, for asyncio. `await run(job)` in as many replicas as you like; or decorate the job with it.

    If the lease of a tick is lost while its job runs, the job is cancelled.
    """

    def __init__(self, plan: SchedulePlan, max_hold: Seconds | None, context: Context, run: AsyncRunFlow) -> None:
        from asyncio import Event  # here, as threads do not need asyncio, which takes long to import

        super().__init__(plan, max_hold, context)
        self._run = run
        self._stopped = Event()
        self._job: AsyncJob | None = None

    def __call__(self, job: AsyncJob) -> Self:
        """Makes this the job of the schedule, which then runs by `run()`: a decorator."""
        self._job = _given(job, None, self.name, coroutine_function)
        return self

    async def status(self) -> ScheduleInfo | None:
        """The last and the next run over all replicas; None if no replica ever ran it."""
        return await self._run(status(self.name))

    def stop(self) -> None:
        """Ends `run` after the tick in progress. Cancel the task of `run` to end it at once: another replica then takes
        the tick over."""
        self._stopped.set()

    async def run(self, job: AsyncJob | None = None) -> None:
        """Runs the job at each tick that this replica wins, until `stop`.

        An error of the job is logged, and the tick is over. While the store is unreachable, it waits and asks again.
        """
        work, failures, rest = _given(job, self._job, self.name, coroutine_function), 0, 0.0
        while not await self._stops_within(rest):
            try:
                rest, failures = await self.run_due(work), 0
            except StoreError as error:
                rest, failures = self._away(error, failures), failures + 1

    async def _stops_within(self, rest: float) -> bool:
        from asyncio import timeout

        try:
            async with timeout(min(rest, _LONGEST_NAP)):
                await self._stopped.wait()
        except TimeoutError:
            pass
        return self._stopped.is_set()

    async def run_due(self, job: AsyncJob | None = None) -> float:
        """Runs the tick that is due, if this replica wins it; returns the seconds after which to call again."""
        work = _given(job, self._job, self.name, coroutine_function)
        due = await self._run(self._attempting())
        if not isinstance(due, DueTick):
            return due
        lease = AsyncLease(due.hold, self._context, self._run, cancel=True)
        error: Exception | None = None
        lease.guard()
        try:
            await work(self._tick(due, lambda hold: lease))
        except Exception as raised:  # noqa: BLE001 - a failed job ends its tick
            lease.unguard(raised)
            error = raised
            self._failed(due, raised)
        except BaseException as raised:
            if not lease.unguard(raised):  # the process is ending: another replica takes the tick over
                await self._run(self._giving_back(due))
                raise
            error = LeaseLost(f"the job was cancelled: its lease was lost ({lease.lost_how})", key=self.name)
        else:
            lease.unguard(None)
        return await self._finished(due, error)

    async def _finished(self, due: DueTick, error: Exception | None) -> float:
        """Ends the tick, and tries again while the store is unreachable: the work must not be repeated."""
        from asyncio import sleep

        until, tries = local_clock() + REMEMBER + self._plan.ttl, 0
        while True:
            try:
                return await self._run(self._finishing(due, error))
            except StoreUnavailable as away:
                if local_clock() > until:
                    raise
                await sleep(self._away(away, tries))
                tries += 1
